"""Symbolic execution of a program of layer groups, as a test of its correctness.

Local memory is a list of blocks: an address, bytes, and the ranges of the tensor stored there.
Loading or computing overwrites whatever is at the target.  Reading data that is missing or
overwritten is an error, and so are writes to data that is read in the same row.  The ranges that an
operator needs are computed here from its first and last tap.  Nothing depends on the plan from
which the program was written, nor on its slices, timesteps and lifetimes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import index
from typing import NamedTuple

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.groups.data import GroupingData, Tensor
from stagepack.instances.groups.operators import (
    AXES,
    Operator,
    Shape,
    Weight,
    buffer_bytes,
    compute_cycles,
)
from stagepack.instances.groups.taps import Box, needed
from stagepack.instances.violation import Violation

MOST = 20
"""So many violations are told."""


class Block(NamedTuple):
    """What lies in [address, end): a tensor, or what else `name` says.

    The box is ranges of the tensor; of a weight the channels of what its operator writes; () of
    working bytes.
    """

    address: int
    end: int
    name: str
    box: Box

    def meets(self, other: Block) -> bool:
        """Whether they have a byte in common."""
        return max(self.address, other.address) < min(self.end, other.end)


class Written(NamedTuple):
    """A block that an instruction of a row writes, and the address that it may write over."""

    block: Block
    number: int
    over: int = -1


def check_group_program(
    instance: GroupingData, program: JsonObject
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
        The first twenty: ``memory`` (outside of the lane, not aligned, too many cores), ``read``
        (of what is not there, or no longer), ``halo`` (of what is not all there), ``collision``
        (writes onto what is read or written in the same row), ``global`` (loads of what no earlier
        group has stored completely, reloads of what never left), ``output`` (not stored completely,
        or twice), ``range`` (beyond a tensor), ``cycles`` (others than the model's).
    cycles : int

    Raises
    ------
    InputError
        For what is no program, or cannot be run for lack of a part.
    """
    if not isinstance(program, Mapping) or program.get("program") != "groups":
        raise InputError(
            "no program of layer groups",
            field="program",
            remedy="give a file that solve --export wrote",
        )
    if program.get("version") != 1:
        raise InputError(
            f"version {program.get('version')} of programs, of which this release reads version 1",
            field="version",
            remedy="export the plan again",
        )
    try:
        machine = _Machine(instance)
        machine.run(program["instructions"])
    except KeyError as error:
        raise InputError(
            f"{error} is missing, in the program or in {instance.name}",
            field="program",
            remedy="give a program of this instance",
        ) from error
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
        self.spilled: set[tuple[str, Box]] = set()
        self.memory: list[Block] = []
        self.read: list[tuple[Block, int]] = []
        self.written: list[Written] = []
        self.where = ""

    def error(self, rule: str, text: str) -> None:
        """Note what went wrong, and where."""
        if len(self.violations) < MOST:
            self.violations.append(Violation(rule, f"{self.where}: {text}"))

    def run(self, instructions: Iterable[JsonObject]) -> None:
        """Execute a program, group after group, and see that all results are there."""
        ordered = sorted(instructions, key=_group)
        for group, ops in groupby(ordered, _group):
            self._execute(group, list(ops))
        self.where = "at the end"
        for at, tensor in enumerate(self.instance.tensors):
            result = at in self.instance.kept or not tensor.readers
            if tensor.writer is not None and result and tensor.name not in self.complete:
                self.error("output", f"{tensor.name} is not in global memory")

    def _execute(self, group: int, ops: list[JsonObject]) -> None:
        """Execute a group: all of its cores, each by itself."""
        self.stored = defaultdict(list)
        calls = [op for op in ops if op["op"] == "call"]
        inside = sorted((op for op in ops if op["op"] != "call"), key=_when)
        took = self._costs(inside, group)
        spent: dict[int, int] = defaultdict(int)
        last = None
        for (core, iteration, number), row in groupby(inside, _when):
            if core != last:
                last, self.memory, self.spilled = core, [], set()
            self.where = f"group {group}, core {core}, iteration {iteration}, row {number}"
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

    def _row(self, ops: list[JsonObject]) -> None:
        """Execute what runs side by side: first all reads, then all writes."""
        self.read, self.written = [], []
        away = set()
        for number, op in enumerate(ops):
            match op["op"]:
                case "load" | "reload":
                    self.written.append(Written(self._loaded(op), number))
                case "store":
                    if self._sent(op, number):
                        self.stored[op["tensor"]].append(_box(op))
                case "spill":
                    if self._sent(op, number):
                        away.add((op["tensor"], _box(op)))
                case "compute":
                    self._computed(op, number)
                case other:
                    raise ValueError(f"unknown operation {other!r}")
        self._apart()
        self.spilled |= away
        for block, _, _ in self.written:
            self.memory = [known for known in self.memory if not known.meets(block)]
        self.memory += [written.block for written in self.written]

    def _apart(self) -> None:
        """See that nothing is written onto what is read or written in the same row."""
        for at, (block, number, over) in enumerate(self.written):
            for other, by in self.read:
                mine = by == number and other.address == over and block.end <= other.end
                if block.meets(other) and not mine:
                    self.error("collision", f"{block.name} is written onto {other.name}, in use")
            for other, _, _ in self.written[:at]:
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

    def _reads(self, name: str, address: int, number: int, wanted: Box, what: str) -> bool:
        """See that an instruction finds what it wants at an address, and note that it is read."""
        here = {block.name: block for block in self.memory if block.address == address}
        found = here.get(name)
        if found is None:
            lies = f"{next(iter(here))} lies" if here else "nothing is"
            self.error("read", f"{what} reads {name} at {address:,}, where {lies}")
            return False
        self.read.append((found, number))
        letters = AXES.upper() if len(wanted) == len(AXES) else "C"
        for letter, (first, end), (begin, stop) in zip(letters, wanted, found.box, strict=True):
            if first < end and not begin <= first < end <= stop:
                text = f"{what} needs [{first}, {end}) along {letter} of {name}"
                self.error("halo", f"{text}, there are [{begin}, {stop})")
        return True

    def _loaded(self, op: JsonObject) -> Block:
        """Return what a load or a reload writes."""
        if "weight" in op:
            operator, weight, share = self._share(op)
            first, end = op["channels"]
            nbytes = weight.local(self.chip, share)
            return self._place(
                _weight(operator, op["weight"]), op["address"], nbytes, ((first, end),)
            )
        name, box = op["tensor"], _box(op)
        if op["op"] == "load" and name not in self.complete:
            self.error("global", f"{name} is loaded, but not stored completely before")
        if op["op"] == "reload" and (name, box) not in self.spilled:
            self.error("global", f"{name} of slice {op['slice']} comes back, but never left")
        self._inside(name, box)
        nbytes = self.chip.lane_bytes(_lengths(box), self._tensor(op).dtype_bytes)
        return self._place(name, op["address"], nbytes, box)

    def _sent(self, op: JsonObject, number: int) -> bool:
        """Whether what goes to global memory is there, in part at least."""
        name, box = op["tensor"], _box(op)
        self._inside(name, box)
        what = f"{op['op']} of slice {op['slice']}"
        return self._reads(name, op["address"], number, box, what)

    def _computed(self, op: JsonObject, number: int) -> None:
        """Note what an operator reads and writes."""
        operator, box = self.operators[op["operator"]], _box(op)
        self._inside(operator.name, box)
        at, what = self.index[operator.name], f"{operator.name} of slice {op['slice']}"
        sources = self.instance.sources(at)
        for which, name in enumerate(operator.inputs):
            wanted = needed(operator, which, box, sources)
            self._reads(name, op["reads"][name], number, wanted, what)
        for which, address in zip(range(len(operator.weights)), op["weights"], strict=True):
            self._reads(_weight(operator, which), address, number, (box[1],), what)
        part, over = _lengths(box), -1
        if operator.in_place and operator.inputs:
            first = self.instance.tensors[self.index[operator.inputs[0]]]
            if (first.shape, first.dtype_bytes) == (operator.full, operator.dtype_bytes):
                over = op["reads"][first.name]
        nbytes = self.chip.lane_bytes(part, operator.dtype_bytes)
        made = self._place(operator.name, op["address"], nbytes, box)
        self.written.append(Written(made, number, over if over == made.address else -1))
        if operator.buffer:
            nbytes = buffer_bytes(operator, part, self.chip)
            working = self._place(f"working bytes of {operator.name}", op["buffer"], nbytes, ())
            self.written.append(Written(working, number))

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

    def _inside(self, name: str, box: Box) -> None:
        """See that ranges are within a tensor, and not empty."""
        shape = self.instance.tensors[self.index[name]].shape
        for letter, (first, end), size in zip(AXES.upper(), box, shape, strict=True):
            if not 0 <= first < end <= size:
                self.error("range", f"[{first}, {end}) along {letter} of {name}, which has {size}")

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


def _group(op: JsonObject) -> int:
    return index(op["group"])


def _when(op: JsonObject) -> tuple[int, int, int]:
    return index(op["core"]), index(op["iteration"]), index(op["row"])


def _weight(operator: Operator, which: int) -> str:
    return f"weight {which} of {operator.name}"


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
