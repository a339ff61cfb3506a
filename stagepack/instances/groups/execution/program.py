"""A plan as a neutral program, JSON data from which code for a chip could be generated.

::

    {"program": "groups", "version": 1, "name": "...",
     "groups": [{"operators": ["a", "b"], "slices": [1, 1, 4, 1]}, ...],
     "instructions": [{"group": 0, "core": 0, "iteration": 0, "row": 2, "op": "load", ...}, ...]}

Groups run one after the other, every core by itself within them.  What a core has in one row of an
iteration runs side by side; when all of it is done, the next row begins.  Operations:

- ``{"op": "load", "tensor": t, "ranges": r, "slice": s, "address": a, "cycles": c}``: from global
  memory; ``"weight": k`` with ``"operator"`` in place of ``"tensor"`` for the k-th weight of an
  operator, for the channels ``"channels": [from, to]`` of what it writes;
- ``{"op": "compute", "operator": o, "ranges": r, "reads": {t: a, ...}, "weights": [a, ...],
  "address": a, ...}``: the ranges of what it writes; ``"buffer": a`` where it needs working bytes;
- ``{"op": "store", ...}`` to global memory, ranges of the slice alone, from the block at the
  address; ``"spill"`` and ``"reload"``: a whole block to a place of its own there, and back;
- ``{"op": "call", "operator": o, "cycles": c}``: all of it, from and to global memory.

Ranges are [from, to] on n, c, d, h and w, half open.  Addresses are bytes within every lane; a
block there takes what :meth:`.chip.LaneChip.lane_bytes` says of its ranges, a weight what
:meth:`.operators.Weight.local` says of its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from stagepack.contracts import JsonObject
from stagepack.errors import InputError
from stagepack.instances.base import require_instance
from stagepack.instances.groups.execution.simulate import Step, steps
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.operators import C
from stagepack.instances.groups.problem import KIND
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.timesteps import Timetable, alone_cycles
from stagepack.result import Result

VERSION = 1
Key = tuple[str, int]
"""What a buffer is for, and the number of the transfer, operator or tensor."""


def group_program(
    instance: LayerGrouping, solution: GroupingSolution | Result[GroupingSolution]
) -> JsonObject:
    """Return the program of a valid plan.  O(slices * operators).

    Raises
    ------
    InputError
        For a plan that breaks a rule, or says no addresses.
    """
    require_instance(instance, KIND)
    plan = instance.solution_in(solution)
    broken = instance.check(plan)
    if broken:
        raise InputError(str(broken[0]), field="solution", remedy="give a valid plan")
    found: list[JsonObject] = []
    for group, table in plan.timetables(instance):
        if table is None:
            (at,) = plan.operators(group)
            call = {"op": "call", "operator": instance.operators[at].name}
            found.append({"group": group, **call, "cycles": alone_cycles(instance, at)})
            continue
        writer = _Writer(table, plan.offsets[group])
        for core in range(min(instance.chip.cores, table.regions.cut.slices)):
            found += (
                {
                    "group": group,
                    "core": core,
                    "iteration": step.iteration,
                    "row": step.row,
                    "slice": step.slice,
                    **writer.written(step),
                    "cycles": step.task.cycles,
                }
                for step in steps(table, core)
            )
    named = [[instance.operators[at].name for at in plan.operators(g)] for g in range(plan.groups)]
    groups = [
        {"operators": names, "slices": list(cut)}
        for names, cut in zip(named, plan.slices, strict=True)
    ]
    return {
        "program": "groups",
        "version": VERSION,
        "name": instance.name,
        "groups": groups,
        "instructions": found,
    }


class _Writer:
    """Writes the instructions of a group; `offsets` are those of :func:`.lmem.copies`."""

    def __init__(self, table: Timetable, offsets: Sequence[int]) -> None:
        self.table, self.regions = table, table.regions
        self.instance = table.regions.instance
        self._spill = {spill.tensor: spill for spill in table.spills}
        self._loaded: dict[int, Key] = {}
        self._weights: dict[int, list[int]] = {}
        for number, move in enumerate(table.moves):
            if move.load and move.tensor >= 0:
                self._loaded[move.tensor] = ("load", number)
            elif move.load:
                self._weights.setdefault(move.operator, []).append(number)
        left = iter(offsets)
        self._at: dict[Key, list[int]] = {}
        for key, buffer in zip(self._keys(), table.buffers, strict=True):
            turns, rest = table.turns(buffer)
            self._at[key] = list(islice(left, turns + bool(rest)))

    def _keys(self) -> Iterator[Key]:
        """Yield what the buffers of the table are for, in their order."""
        table = self.table
        yield from (("load", number) for number, move in enumerate(table.moves) if move.load)
        yield from (("made", k) for k in range(table.rows))
        for k, at in enumerate(table.operators):
            if self.instance.operators[at].buffer:
                yield "working", k
        back = (t for t in (*self._loaded, *table.operators) if t in self._spill)
        yield from (("back", tensor) for tensor in back)

    def written(self, step: Step) -> JsonObject:
        """Return what an instruction says besides its time."""
        table, task, turn = self.table, step.task, step.turn
        if task.what == "compute":
            return self._compute(task.number, step)
        if task.what in ("spill", "reload"):
            tensor, away, _ = table.spills[task.number]
            key = ("back", tensor) if task.what == "reload" else self._held(tensor, away)
            return self._moved(task.what, tensor, step, key)
        move = table.moves[task.number]
        if move.tensor >= 0:
            position = table.positions[task.number]
            key = ("load", task.number) if move.load else self._held(move.tensor, position)
            return self._moved(task.what, move.tensor, step, key)
        at = table.operators[move.operator]
        start, length = self.regions.box(at, step.slice)[C]
        return {
            "op": "load",
            "operator": self.instance.operators[at].name,
            "weight": self._weights[move.operator].index(task.number),
            "channels": [start, start + length],
            "address": self._address(("load", task.number), turn),
        }

    def _moved(self, what: str, tensor: int, step: Step, key: Key) -> JsonObject:
        return {
            "op": what,
            "tensor": self.instance.tensors[tensor].name,
            "ranges": self._ranges(tensor, step.slice, own=what == "store"),
            "address": self._address(key, step.turn),
        }

    def _compute(self, k: int, step: Step) -> JsonObject:
        at, turn = self.table.operators[k], step.turn
        operator, position = self.instance.operators[at], self.table.rows + k
        reads = {
            self.instance.tensors[tensor].name: self._address(self._held(tensor, position), turn)
            for tensor in self.instance.reads[at]
        }
        weights = [self._address(("load", n), turn) for n in self._weights.get(k, ())]
        found: JsonObject = {
            "op": "compute",
            "operator": operator.name,
            "ranges": self._ranges(at, step.slice),
            "reads": reads,
            "weights": weights,
            "address": self._address(("made", k), turn),
        }
        if operator.buffer:
            found["buffer"] = self._address(("working", k), turn)
        return found

    def _held(self, tensor: int, position: int) -> Key:
        """Return the buffer that holds a tensor at a position: another after it came back."""
        spill = self._spill.get(tensor)
        if spill is not None and position > spill.load:
            return "back", tensor
        return self._loaded.get(tensor) or ("made", self.table.operators.index(tensor))

    def _address(self, key: Key, turn: int) -> int:
        known = self._at[key]
        return known[turn % len(known)]

    def _ranges(self, tensor: int, which: int, *, own: bool = False) -> list[list[int]]:
        """Return the ranges of a tensor that a slice needs, or gives out."""
        box = self.regions.box(tensor, which, own=own)
        return [[start, start + length] for start, length in box]
