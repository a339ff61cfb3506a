"""Lifetimes of the tensors of a model when TensorFlow Lite Micro runs it.

Source: ``tensorflow/lite/micro/micro_allocation_info.cc`` and the schema of TensorFlow Lite,
version 3.  Inputs live from time 0.  The tensors that an operator reads and writes live at its
number + 1, outputs until the end of their subgraph; all ends are inclusive.  Numbering continues
through the subgraphs that operators run.  Constants and variables (VAR_HANDLE) have separate
memory.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from stagepack.errors import InputError
from stagepack.formats.known import TFLITE
from stagepack.formats.tflite.flatbuffer import Bytes, Table, broken

ALIGNMENT = 16
METADATA = "OfflineMemoryAllocation"
BYTES = {
    0: 4, 1: 2, 2: 4, 3: 1, 4: 8, 6: 1, 7: 2, 8: 8, 9: 1, 10: 8, 11: 16, 12: 8, 13: 4, 15: 4,
    16: 2, 17: 1, 18: 2,
}  # fmt: skip
"""Bytes of a value by the number of its type; strings and variants have no size."""
CALLS = {118: (0, 1), 119: (0, 1), 129: (0,)}
"""Operators that run subgraphs (IF, WHILE, CALL_ONCE), and the fields that say which."""
VAR_HANDLE = 142
"""Operator whose output, the number of a variable, is kept by the operator itself."""
MOST_OPEN = 100  # subgraphs that run one another


@dataclass
class Tensor:
    """A tensor and its lifetime, -1 where it has none; both ends inclusive."""

    name: str
    nbytes: int
    constant: bool
    first: int = -1
    last: int = -1

    @property
    def planned(self) -> bool:
        """Whether it takes memory of the arena."""
        return not self.constant and self.nbytes > 0 and self.first >= 0


@dataclass(frozen=True)
class Operator:
    """What an operator reads and writes, tensors of its subgraph, and the subgraphs it runs."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    runs: tuple[int, ...]


@dataclass(frozen=True)
class Subgraph:
    """Tensors, and operators in the order in which they run."""

    tensors: list[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: list[Operator]


@dataclass
class Model:
    """A model, its tensors with their lifetimes."""

    subgraphs: list[Subgraph]
    _time: int = 0
    _steps: int = 0
    _open: list[int] = field(default_factory=list)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of all subgraphs."""
        return [tensor for graph in self.subgraphs for tensor in graph.tensors]

    def run(self, number: int) -> None:
        """Mark what lives while a subgraph runs."""
        if len(self._open) == MOST_OPEN:
            raise broken(f"has more than {MOST_OPEN} subgraphs that run one another")
        if number in self._open or not 0 <= number < len(self.subgraphs):
            told = "runs itself" if number in self._open else "is not there"
            raise broken(f"subgraph {number} {told}")
        self._open.append(number)
        graph = self.subgraphs[number]
        self._born(graph, graph.inputs)
        for operator in graph.operators:
            self._time += 1
            self._steps += 1 + len(operator.inputs) + len(operator.outputs)
            if self._steps > 1_000_000:
                raise broken("runs more operators than can be looked at")
            self._born(graph, operator.outputs)
            for called in operator.runs:
                self.run(called)
            self._used(graph, operator.inputs)
            self._used(graph, operator.outputs)
        self._used(graph, graph.outputs)
        self._open.pop()

    def _born(self, graph: Subgraph, tensors: tuple[int, ...]) -> None:
        for number in tensors:
            tensor = graph.tensors[number]
            if tensor.first < 0:
                tensor.first = tensor.last = self._time

    def _used(self, graph: Subgraph, tensors: tuple[int, ...]) -> None:
        for number in tensors:
            tensor = graph.tensors[number]
            if tensor.first < 0 and not tensor.constant:
                raise broken(f"tensor {tensor.name!r} is read, and nothing has written it")
            tensor.last = self._time


def read(data: bytes) -> Model:
    """Return a model with the lifetimes of its tensors."""
    root = _root(data)
    codes = [max(code.number(0, "b"), code.number(3)) for code in root.tables(1)]
    filled = [_filled(buffer) for buffer in root.tables(4)]
    model = Model([_subgraph(graph, codes, filled) for graph in root.tables(2)])
    if not model.subgraphs:
        raise broken("has no subgraph")
    model.run(0)
    return model


def plan_of(data: bytes) -> tuple[int, ...] | None:
    """Return the offsets that a model holds for its tensors, -1 for none; None without a plan."""
    root = _root(data)
    for entry in root.tables(6):
        if entry.text(0) != METADATA:
            continue
        buffers, at = root.tables(4), entry.number(1, "I")
        if at >= len(buffers):
            raise broken(f"the plan is in buffer {at}, and there are {len(buffers)}")
        content = buffers[at].data(0)
        count = struct.unpack_from("<3i", content)[2] if len(content) >= 12 else -1
        if count < 0 or len(content) < 12 + 4 * count:
            raise broken(f"the plan has {len(content)} bytes, too few for what it says")
        return struct.unpack_from(f"<{count}i", content, 12)
    return None


def _root(data: bytes) -> Table:
    if data[4:8] != TFLITE:
        raise broken("is no TensorFlow Lite model of version 3")
    return Bytes(data).root()


def _filled(buffer: Table) -> bool:
    """Whether a buffer holds a constant: here, or behind the flatbuffer."""
    return bool(buffer.vector(0, 1)[1]) or buffer.number(1, "Q") > 1


def _subgraph(table: Table, codes: list[int], filled: list[bool]) -> Subgraph:
    tensors = [_tensor(tensor, at, filled) for at, tensor in enumerate(table.tables(0))]

    def numbers(values: tuple[int, ...]) -> tuple[int, ...]:
        if any(value >= len(tensors) for value in values):
            raise broken(f"names tensor {max(values)} of {len(tensors)}")
        return tuple(value for value in values if value >= 0)  # -1: an input that is left out

    operators = []
    for operator in table.tables(3):
        code = operator.number(0, "I")
        if code >= len(codes):
            raise broken(f"names operator code {code} of {len(codes)}")
        if codes[code] == VAR_HANDLE:
            for number in numbers(operator.integers(2)):
                tensors[number].constant = True
        options = operator.table(4)
        called = CALLS.get(codes[code], ()) if options is not None else ()
        operators.append(
            Operator(
                numbers(operator.integers(1)),
                numbers(operator.integers(2)),
                tuple(options.number(each) for each in called) if options is not None else (),
            )
        )
    return Subgraph(tensors, numbers(table.integers(1)), numbers(table.integers(2)), operators)


def _tensor(table: Table, at: int, filled: list[bool]) -> Tensor:
    name, kind, shape = table.text(3) or f"tensor {at}", table.number(1, "b"), table.integers(0)
    buffer = table.number(2, "I")
    if buffer >= len(filled):
        raise broken(f"tensor {name!r} is in buffer {buffer}, and there are {len(filled)}")
    constant = filled[buffer] or bool(table.number(5, "B"))
    sized = kind in BYTES and min(shape, default=1) >= 0 and len(shape) <= 64
    if not (constant or sized):
        raise InputError(
            f"tensor {name!r} of type {kind} and shape {list(shape)[:8]} has no fixed size",
            field="tensors",
            remedy="convert the model with fixed shapes and types of fixed size",
        )
    return Tensor(name, 0 if constant else BYTES[kind] * math.prod(shape), constant)
