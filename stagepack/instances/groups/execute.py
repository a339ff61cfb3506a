"""A program of layer groups executed symbolically, to see that it does what it should.

Local memory is a list of blocks: an address, bytes, and which ranges of which tensor are there.
What is loaded or computed takes the place of whatever it lies on, and what is not there, or no
longer, when it is read, is an error; so are writes onto what is read in the same row.  Which
ranges an operator needs is asked tap by tap here; nothing looks at the plan from which the program
was written, nor at its slices, timesteps and lifetimes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.groups.data import GroupingData, Tensor
from stagepack.instances.groups.operators import (
    AXES,
    Operator,
    OperatorKind,
    Shape,
    Weight,
    buffer_bytes,
    compute_cycles,
)
from stagepack.instances.violation import Violation

Box = tuple[tuple[int, int], ...]
"""Ranges [from, to) on n, c, d, h, w."""

MOST = 20
"""So many violations are told."""


class Block(NamedTuple):
    """What lies from an address on.

    Attributes
    ----------
    address, end : int
    name : str
        Tensor, or ``a.w0`` for a weight of operator a.
    box : Box
        Ranges of the tensor; of a weight the channels of what its operator writes; () of working
        bytes.
    """

    address: int
    end: int
    name: str
    box: Box

    def meets(self, other: Block) -> bool:
        """Whether they have a byte in common."""
        return self.address < other.end and other.address < self.end


def check_group_program(
    instance: GroupingData, program: Mapping[str, Any]
) -> tuple[tuple[Violation, ...], int]:
    """Run a program symbolically; return what goes wrong, and its cycles.

    Parameters
    ----------
    instance : LayerGrouping
        Says what the operators read and cost, and what the chip has.
    program : mapping
        What :func:`.program.group_program` returns, or the document of its file.

    Returns
    -------
    violations : tuple of Violation
        The first twenty: ``memory`` (outside of the lane, not aligned), ``read`` (of what is not
        there, or no longer), ``halo`` (of what is not all there), ``collision`` (writes onto what
        is read or written in the same row), ``global`` (loads of what no earlier group has stored
        completely, stores of what is not there), ``output`` (not stored completely, or twice),
        ``cycles`` (others than the model's).
    cycles : int

    Raises
    ------
    InputError
        For what is no program, or cannot be run for lack of a part.
    """
    if program.get("program") != "groups" or program.get("version") != 1:
        raise InputError(
            "no program of layer groups", field="program", remedy="give what solve --export wrote"
        )
    try:
        machine = _Machine(instance)
        machine.run(program["instructions"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"the program cannot be run: {type(error).__name__}: {error}", field="program"
        ) from error
    return tuple(machine.violations), machine.cycles


class _Machine:
    """Global memory, and the local memory of one core after the other."""

    def __init__(self, instance: GroupingData) -> None:
        self.instance, self.chip = instance, instance.chip
        self.operators = {operator.name: operator for operator in instance.operators}
        self.index = {tensor.name: at for at, tensor in enumerate(instance.tensors)}
        self.violations: list[Violation] = []
        self.cycles = 0
        self.complete = {source.name for source in instance.inputs}
        self.stored: dict[str, list[Box]] = defaultdict(list)
        self.spilled: dict[tuple[str, Box], Block] = {}
        self.memory: list[Block] = []
        self.where = ""

    def error(self, rule: str, text: str) -> None:
        """Note what went wrong, and where."""
        if len(self.violations) < MOST:
            self.violations.append(Violation(rule, f"{self.where}: {text}"))

    def run(self, instructions: Iterable[JsonObject]) -> None:
        """Execute a program, group after group, and see that all results are there."""
        ordered = sorted(instructions, key=lambda op: op["group"])
        for group, ops in groupby(ordered, key=lambda op: op["group"]):
            self._group(group, list(ops))
        self.where = "at the end"
        for at, tensor in enumerate(self.instance.tensors):
            result = at in self.instance.kept or not tensor.readers
            if tensor.writer is not None and result and tensor.name not in self.complete:
                self.error("output", f"{tensor.name} is not in global memory")

    def _group(self, group: int, ops: list[JsonObject]) -> None:
        """Execute a group: all of its cores, each by itself."""
        self.stored = defaultdict(list)
        calls = [op for op in ops if op["op"] == "call"]
        took = self._costs([op for op in ops if op["op"] != "call"], group)
        spent: dict[int, int] = defaultdict(int)

        def when(op: JsonObject) -> tuple[int, int, int]:
            return op["core"], op["iteration"], op["row"]

        core = -1
        for moment, row in groupby(
            sorted((op for op in ops if op["op"] != "call"), key=when), when
        ):
            if moment[0] != core:
                core, self.memory, self.spilled = moment[0], [], {}
            self.where = "group {}, core {}, iteration {}, row {}".format(group, *moment)
            together = list(row)
            self._row(together)
            compute = sum(took[_key(op)] for op in together if op["op"] == "compute")
            moved = sum(took[_key(op)] for op in together if op["op"] != "compute")
            spent[core] += self.chip.row_cycles(compute, moved)
        self.where = f"group {group}"
        if len(spent) > self.chip.cores:
            self.error("memory", f"{len(spent)} cores, of {self.chip.cores}")
        self.cycles += max(spent.values(), default=0)
        for op in calls:
            self._call(op)
        for name, boxes in self.stored.items():
            self._covered(name, boxes)

    # ------------------------------------------------------------------ time

    def _costs(self, ops: list[JsonObject], group: int) -> dict[tuple[str, ...], int]:
        """Return the cycles of every kind of instruction: of the largest of them."""
        self.where = f"group {group}"
        found: dict[tuple[str, ...], int] = {}
        for op in ops:
            found[_key(op)] = max(found.get(_key(op), 0), self._cost(op))
        for op in ops:
            if op["cycles"] != found[_key(op)]:
                name = " ".join(_key(op))
                self.error("cycles", f"{name} takes {found[_key(op)]:,}, not {op['cycles']:,}")
        return found

    def _cost(self, op: JsonObject) -> int:
        if op["op"] == "compute":
            operator = self.operators[op["operator"]]
            sources = self.instance.sources(self.index[operator.name])
            return compute_cycles(operator, sources, _lengths(_box(op)), self.chip)
        if "weight" in op:
            operator, weight, share = self._share(op)
            return self.chip.load_cycles(weight.nbytes(share))
        nbytes = self._tensor(op).nbytes(_lengths(_box(op)))
        if op["op"] in ("store", "spill"):
            return self.chip.store_cycles(nbytes)
        return self.chip.load_cycles(nbytes)

    def _share(self, op: JsonObject) -> tuple[Operator, Weight, int]:
        """Return the operator and weight that a load means, and how many of its channels."""
        operator = self.operators[op["operator"]]
        weight = operator.weights[op["weight"]]
        first, end = op["channels"]
        return operator, weight, -(-weight.channels * (end - first) // operator.full[1])

    def _tensor(self, op: JsonObject) -> Tensor:
        return self.instance.tensors[self.index[op["tensor"]]]

    # ------------------------------------------------------------------ a row

    def _row(self, ops: list[JsonObject]) -> None:
        """Execute what runs side by side: first all reads, then all writes."""
        read: list[tuple[Block, int]] = []
        written: list[tuple[Block, int, int]] = []
        for number, op in enumerate(ops):
            match op["op"]:
                case "load":
                    written.append((self._loaded(op), number, -1))
                case "reload":
                    written.append((self._reloaded(op), number, -1))
                case "store" | "spill":
                    block = self._there(op["tensor"], op["address"], op["op"])
                    if block is not None:
                        read.append((block, number))
                        self._sent(op, block)
                case "compute":
                    self._computed(op, number, read, written)
                case other:
                    raise ValueError(f"unknown operation {other!r}")
        self._apart(ops, read, written)
        for block, _, _ in written:
            self.memory = [known for known in self.memory if not known.meets(block)]
        self.memory += [block for block, _, _ in written]

    def _apart(
        self,
        ops: list[JsonObject],
        read: list[tuple[Block, int]],
        written: list[tuple[Block, int, int]],
    ) -> None:
        """See that nothing is written onto what is read or written in the same row."""
        for at, (block, number, over) in enumerate(written):
            for other, by in read:
                mine = by == number and other.address == over and block.end <= other.end
                if block.meets(other) and not mine:
                    self.error("collision", f"{block.name} is written onto {other.name}, in use")
            for other, _, _ in written[:at]:
                if block.meets(other):
                    self.error("collision", f"{block.name} and {other.name} are written at once")

    def _place(self, name: str, address: int, nbytes: int, box: Box) -> Block:
        """Return a block, after seeing that it lies within the lane."""
        if not 0 <= address <= address + nbytes <= self.chip.memory:
            end = f"{address + nbytes:,} of {self.chip.memory:,}"
            self.error("memory", f"{name} at {address:,} ends at {end} bytes in a lane")
        if address % self.chip.eu_bytes:
            self.error("memory", f"{name} is at {address:,}, not aligned")
        return Block(address, address + nbytes, name, box)

    def _there(self, name: str, address: int, what: str) -> Block | None:
        """Return what lies at an address, None after noting that it is not what is wanted."""
        found = next((block for block in self.memory if block.address == address), None)
        if found is not None and found.name == name:
            return found
        lies = "nothing is" if found is None else f"{found.name or 'working bytes'} lies"
        self.error("read", f"{what} reads {name} at {address:,}, where {lies}")
        return None

    # ------------------------------------------------------------------ instructions

    def _loaded(self, op: JsonObject) -> Block:
        if "weight" in op:
            operator, weight, share = self._share(op)
            name = f"{operator.name}.w{op['weight']}"
            first, end = op["channels"]
            return self._place(name, op["address"], weight.local(self.chip, share), ((first, end),))
        if op["tensor"] not in self.complete:
            self.error("global", f"{op['tensor']} is loaded, but not stored completely before")
        return self._whole(op)

    def _reloaded(self, op: JsonObject) -> Block:
        name, box = op["tensor"], _box(op)
        if (name, box) not in self.spilled:
            self.error("global", f"{name} of slice {op['slice']} comes back, but never left")
        return self._whole(op)

    def _whole(self, op: JsonObject) -> Block:
        """Return the block of the ranges of a tensor."""
        tensor, box = self._tensor(op), _box(op)
        self._inside(op["tensor"], box)
        nbytes = self.chip.lane_bytes(_lengths(box), tensor.dtype_bytes)
        return self._place(op["tensor"], op["address"], nbytes, box)

    def _sent(self, op: JsonObject, block: Block) -> None:
        """Note what goes to global memory."""
        name, box = op["tensor"], _box(op)
        self._inside(name, box)
        self._holds(block, box, f"{op['op']} of slice {op['slice']}")
        if op["op"] == "spill":
            self.spilled[name, box] = block
        else:
            self.stored[name].append(box)

    def _computed(
        self,
        op: JsonObject,
        number: int,
        read: list[tuple[Block, int]],
        written: list[tuple[Block, int, int]],
    ) -> None:
        """Note what an operator reads and writes, after seeing that it finds all that it needs."""
        operator, box = self.operators[op["operator"]], _box(op)
        self._inside(operator.name, box)
        at, what = self.index[operator.name], f"{operator.name} of slice {op['slice']}"
        for which, tensor in enumerate(self.instance.reads[at]):
            known = self.instance.tensors[tensor]
            block = self._there(known.name, op["reads"][known.name], what)
            if block is not None:
                read.append((block, number))
                self._holds(block, needed(operator, which, box, self.instance.sources(at)), what)
        for which, address in zip(range(len(operator.weights)), op["weights"], strict=True):
            block = self._there(f"{operator.name}.w{which}", address, what)
            if block is not None:
                read.append((block, number))
                self._holds(block, (box[1],), what)
        part = _lengths(box)
        nbytes = self.chip.lane_bytes(part, operator.dtype_bytes)
        over = -1
        if operator.in_place and operator.inputs:
            first = self.instance.tensors[self.instance.reads[at][0]]
            if (first.shape, first.dtype_bytes) == (operator.full, operator.dtype_bytes):
                over = op["reads"][first.name]
        made = self._place(operator.name, op["address"], nbytes, box)
        written.append((made, number, over if over == op["address"] else -1))
        if operator.buffer:
            nbytes = buffer_bytes(operator, part, self.chip)
            written.append((self._place("", op["buffer"], nbytes, ()), number, -1))

    def _call(self, op: JsonObject) -> None:
        """Run an operator from and to global memory."""
        operator = self.operators[op["operator"]]
        at, chip = self.index[operator.name], self.chip
        for name in operator.inputs:
            if name not in self.complete:
                self.error("global", f"{operator.name} reads {name}, which is not stored yet")
        tensors = [self.instance.tensors[t] for t in sorted(set(self.instance.reads[at]))]
        moved = sum(chip.load_cycles(tensor.nbytes(tensor.shape)) for tensor in tensors)
        moved += sum(chip.load_cycles(w.nbytes(w.channels)) for w in operator.weights)
        moved += chip.store_cycles(self.instance.tensors[at].nbytes(operator.full))
        compute = compute_cycles(operator, self.instance.sources(at), operator.full, chip)
        took = chip.row_cycles(compute, moved)
        if op["cycles"] != took:
            self.error("cycles", f"{operator.name} takes {took:,}, not {op['cycles']:,}")
        self.cycles += took
        self.stored[operator.name].append(tuple((0, size) for size in operator.full))

    # ------------------------------------------------------------------ ranges

    def _inside(self, name: str, box: Box) -> None:
        """See that ranges are within a tensor, and not empty."""
        shape = self.instance.tensors[self.index[name]].shape
        for letter, (first, end), size in zip(AXES.upper(), box, shape, strict=True):
            if not 0 <= first < end <= size:
                raise ValueError(f"[{first}, {end}) along {letter} of {name}, which has {size}")

    def _holds(self, block: Block, wanted: Box, what: str) -> None:
        """See that a block has all ranges that are wanted of it."""
        letters = AXES.upper() if len(wanted) == len(AXES) else "C"
        for letter, (first, end), (begin, stop) in zip(letters, wanted, block.box, strict=True):
            if first < end and not begin <= first < end <= stop:
                text = f"{what} needs [{first}, {end}) along {letter} of {block.name}"
                self.error("halo", f"{text}, there are [{begin}, {stop})")

    def _covered(self, name: str, boxes: list[Box]) -> None:
        """See that what was stored is all of a tensor, and nothing twice."""
        shape = self.instance.tensors[self.index[name]].shape
        if name in self.complete:
            self.error("output", f"{name} is stored by two groups")
        complete, twice = tiled(boxes, shape)
        if twice:
            self.error("output", f"{name} is stored twice in parts")
        if complete:
            self.complete.add(name)
        else:
            self.error("output", f"{name} is not stored completely")


def _box(op: JsonObject) -> Box:
    return tuple((first, end) for first, end in op["ranges"])


def _lengths(box: Box) -> Shape:
    n, c, d, h, w = (end - first for first, end in box)
    return n, c, d, h, w


def _key(op: JsonObject) -> tuple[str, ...]:
    """Return what an instruction does, whichever slice does it."""
    if op["op"] == "compute":
        return "compute", op["operator"]
    if "weight" in op:
        return "load", f"{op['operator']}.w{op['weight']}"
    return op["op"], op["tensor"]


def tiled(boxes: Sequence[Box], shape: Sequence[int]) -> tuple[bool, bool]:
    """Return whether boxes cover all of a shape, and whether two have anything in common.

    >>> tiled([((0, 2), (0, 3)), ((2, 4), (0, 3))], (4, 3))
    (True, False)
    """
    if not shape:
        return bool(boxes), len(boxes) > 1
    cuts = sorted({0, shape[0], *(end for box in boxes for end in box[0])})
    place = {cut: at for at, cut in enumerate(cuts)}
    inner: list[list[Box]] = [[] for _ in cuts[1:]]
    for (first, end), *rest in boxes:
        for at in range(place[first], place[end]):
            inner[at].append(tuple(rest))
    known = [tiled(part, shape[1:]) for part in inner]
    return all(complete for complete, _ in known), any(twice for _, twice in known)


def needed(operator: Operator, which: int, box: Box, sources: Sequence[Shape]) -> Box:
    """Return the ranges of an input that ranges of the output are computed from; some are empty.

    Parameters
    ----------
    operator : Operator
    which : int
        Which of its inputs.
    box : Box
        Of what it writes.
    sources : sequence of Shape
        Shapes of its inputs.
    """
    found = []
    for axis, (first, end) in enumerate(box):
        size = sources[which][axis]
        low, high = _taps(operator, which, axis, first, end, sources)
        found.append((max(low, 0), min(high, size)))
    return tuple(found)


def _taps(
    operator: Operator, which: int, axis: int, first: int, end: int, sources: Sequence[Shape]
) -> tuple[int, int]:
    """Return where the first tap of the first value lies, and the last of the last, on an axis."""
    kind, letter, size = operator.kind, AXES[axis], sources[which][axis]
    if letter == "d" or letter in operator.whole:
        return 0, size
    if letter in "hw":
        at = "hw".index(letter)
        stride, before = operator.stride[at], operator.padding[2 * at]
        reach = (operator.kernel[at] - 1) * operator.dilation[at]
        match kind:
            case OperatorKind.GLOBAL_POOL:
                return 0, size
            case OperatorKind.CONV | OperatorKind.POOL:
                return first * stride - before, (end - 1) * stride - before + reach + 1
            case OperatorKind.DECONV:  # row r of the input adds to r * stride - before + tap
                return -((reach - before - first) // stride), (end - 1 + before) // stride + 1
            case OperatorKind.UPSAMPLE:
                return first // operator.scale[at], (end - 1) // operator.scale[at] + 1
            case OperatorKind.MATMUL if letter == "wh"[which]:
                return 0, size
    if letter == "c" and kind in (OperatorKind.CONV, OperatorKind.DECONV):
        made, read = operator.full[1] // operator.groups, size // operator.groups
        return first // made * read, ((end - 1) // made + 1) * read
    if letter == "c" and kind == OperatorKind.CONCAT:
        before = sum(source[1] for source in sources[:which])
        return first - before, end - before
    return (0, 1) if size == 1 else (first, end)
