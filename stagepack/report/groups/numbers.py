"""The data of the pictures of a plan: groups, rows, memory, tensors.

All pictures share one axis of *columns*: the rows of the first group, those of the second, and so
on.  A group of several rounds has a column for each of its T rows, over which time is circular.  A
group of one round has a column for each position in use, and an operator that runs from global
memory has one column.  A column counts all slices together, so the cycles of all columns are those
of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.lmem import Copy, copies
from stagepack.instances.groups.timesteps import STAGES, Role, Timetable, alone_row
from stagepack.report import format as as_text
from stagepack.report.style import tint

ROLES = {
    str(Role.WEIGHTS): "#99ddff",
    str(Role.LOADED): "#77aadd",
    str(Role.COMPUTED): "#eedd88",
    str(Role.WORKING): "#c9ced6",
    str(Role.SPILLED): "#bbcc33",
}
"""Colours of what lies in local memory, in the order of the legend."""
WORK = {"compute": "#eedd88", "load": "#77aadd", "store": "#ee8866"}
"""Colours of what the engines do."""
BANDS = ("#b7c4d3", "#dbe3eb")
"""Groups take these in turn: colours are for what is done."""
COMPUTE, TRANSFERS, GROUPS, OPERATORS, ARCS = 0.0, 1.0, 2.0, 4.2, 5.15
"""Where the rows of the map begin, from above."""
FOOT = 7.4  # and where it ends
LANE = 0.85  # height of a row
ALONE = "#f3f4f6"
CROSSING = "#aa3377"
"""Of tensors that go through global memory."""
FEW, DWARFING = 25, 3
"""One row in so many may be higher than the axis, where the highest is so many times the rest."""
FAR = 2.2
"""The end of the lane is drawn where it is at most so many times as far as what is used."""
MOST_LINES = 256
"""Banks beyond which no lines are drawn between them."""
CONNECTORS = tuple(tint(colour, 0.45) for colour in BANDS)


class Column(NamedTuple):
    """A row of a group, all slices together."""

    group: int
    operator: int | None  # the one that computes in it
    # Cycles of each.
    compute: int
    load: int
    store: int
    cycles: int  # those that the row takes
    moves: str  # what is loaded and stored


class Box(NamedTuple):
    """Bytes of a lane that are taken for some columns."""

    name: str
    role: str
    group: int
    # Columns.
    left: int
    right: int
    # Addresses.
    low: int
    high: int
    resident: bool  # whether they stay for all slices


class Arc(NamedTuple):
    """A tensor from the column of its writer to that of a reader."""

    left: int
    right: int
    crossing: bool

    def points(
        self, top: float, depth: float, longest: int, steps: int
    ) -> tuple[list[float], list[float]]:
        """Return the arc in so many `steps`, from `top` down, the `longest` of all by `depth`."""
        turn = [step * math.pi / steps for step in range(steps + 1)]
        middle, half = (self.left + self.right + 1) / 2, (self.right - self.left) / 2
        deep = depth * (2 * half / longest) ** 0.5
        return [middle - half * math.cos(a) for a in turn], [top + deep * math.sin(a) for a in turn]


@dataclass(frozen=True)
class Group:
    """A group on the axes."""

    number: int
    cut: str  # how it is cut, as :func:`cut_words`; "" for an operator that runs from global memory
    columns: tuple[Column, ...]
    left: int  # the first of them on the axis
    start: int  # cycles of all groups before it
    boxes: tuple[Box, ...]
    rounds: int  # slices that a core computes

    @property
    def right(self) -> int:
        """The column behind it."""
        return self.left + len(self.columns)

    @property
    def end(self) -> int:
        """Cycles of all groups up to it."""
        return self.start + self.total("cycles")

    @property
    def labels(self) -> tuple[str, ...]:
        """Its number with what there is to say of it, ever shorter."""
        number = str(self.number)
        if self.alone:
            return f"{number}: from global memory", number
        words = number if self.cut == "whole" else f"{number}: {self.cut}"
        return f"{words}, {as_text.plural(self.operators, 'operator')}", words, number

    @property
    def operators(self) -> int:
        """Number of its operators."""
        return sum(column.operator is not None for column in self.columns)

    @property
    def alone(self) -> bool:
        """Whether it is an operator that runs from global memory."""
        return not self.cut

    def total(self, what: str) -> int:
        """Return the sum over the columns of one of their cycles, by the name of the field."""
        return sum(getattr(column, what) for column in self.columns)


@dataclass(frozen=True)
class PlanDrawing:
    """Everything that is drawn of a plan."""

    instance: LayerGrouping
    groups: tuple[Group, ...]
    # Of tensors that are read later than by the next operator, or by another group.
    arcs: tuple[Arc, ...]

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.groups[-1].right

    @property
    def cycles(self) -> int:
        """Cycles of the plan."""
        return self.groups[-1].end

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Those of all groups."""
        return tuple(column for group in self.groups for column in group.columns)

    @property
    def boxes(self) -> Iterator[Box]:
        """Those of all groups."""
        return (box for group in self.groups for box in group.boxes)

    def name(self, column: int) -> str:
        """Return what a column computes; "" where it does not."""
        operator = self.columns[column].operator
        return "" if operator is None else self.instance.operators[operator].name


def plan_drawing(instance: LayerGrouping, solution: GroupingSolution) -> PlanDrawing:
    """Return what to draw of a plan, valid or not."""
    groups: list[Group] = []
    left = start = 0
    for number, table in solution.timetables(instance):
        if table is None:
            columns, rounds, cut = [_alone(instance, solution, number)], 1, ""
            boxes: tuple[Box, ...] = ()
        else:
            first, count = _span(table)
            columns = [_column(table, number, first + at) for at in range(count)]
            offsets = solution.offsets[number] if solution.offsets else ()
            boxes = tuple(_boxes(table, number, offsets, left, first))
            rounds, cut = table.rounds, cut_words(solution.slices[number])
        groups.append(Group(number, cut, tuple(columns), left, start, boxes, rounds))
        left, start = groups[-1].right, groups[-1].end
    return PlanDrawing(instance, tuple(groups), tuple(_arcs(instance, groups)))


def cut_words(counts: Sequence[int]) -> str:
    """Return how a group is cut: ``h 4``, ``n 2 x h 3``, ``whole``, ``global memory``."""
    if not counts:
        return "global memory"
    parts = [f"{axis} {count}" for axis, count in zip("nchw", counts, strict=True) if count > 1]
    return " x ".join(parts) or "whole"


def lane_limit(drawn: PlanDrawing) -> int:
    """Return the end of an axis of addresses: above all that is used, or that of the lane."""
    used = max((box.high for box in drawn.boxes), default=0)
    whole = drawn.instance.chip.memory
    return whole if not used or whole <= FAR * used else used


def bank_lines(drawn: PlanDrawing) -> list[int]:
    """Return the addresses at which banks begin but the first; none where there are too many."""
    chip, top = drawn.instance.chip, lane_limit(drawn)
    found = range(chip.bank_bytes, top, chip.bank_bytes)
    return list(found) if len(found) <= MOST_LINES else []


def row_limit(cycles: Sequence[int]) -> float:
    """Return the end of an axis of rows: above all of them but a few that dwarf the others."""
    longest = sorted(cycles, reverse=True)
    usual = longest[len(cycles) // FEW]
    return 1.06 * max(1, longest[0] if longest[0] <= DWARFING * usual else 1.3 * usual)


def _span(table: Timetable) -> tuple[int, int]:
    """Return the first position that has a column, and how many have one."""
    if table.period:
        return 0, table.rows
    used = [table.rows, 2 * table.rows - 1, *table.positions]
    used += [at for spill in table.spills for at in (spill.store, spill.load)]
    return min(used), max(used) - min(used) + 1


def _alone(instance: LayerGrouping, solution: GroupingSolution, number: int) -> Column:
    operator = solution.operators(number)[0]
    compute, load, store = alone_row(instance, operator)
    cycles = instance.chip.row_cycles(compute, load + store)
    return Column(number, operator, compute, load, store, cycles, "from and to global memory")


def _column(table: Timetable, number: int, position: int) -> Column:
    """Return the column of a row of the circle, or of a position of the line."""
    rows, rounds = table.rows, table.rounds
    row, stage = position % rows, position // rows
    circular = bool(table.period)
    here = {s * rows + row for s in range(STAGES)} if circular else {position}
    cycles = sum(
        times * table.row_cycles(row, run, first)
        for run, first, times in table.iterations
        if circular or stage in run
    )
    load = store = 0
    loads: list[str] = []
    stores: list[str] = []
    for move, at in zip(table.moves, table.positions, strict=True):
        if at in here:
            total = move.cycles * (1 if move.resident else rounds)
            load, store = load + move.load * total, store + (not move.load) * total
            (loads if move.load else stores).append(move.name)
    chip, regions = table.regions.instance.chip, table.regions
    for spill in table.spills:
        tensor = regions.instance.tensors[spill.tensor]
        nbytes = tensor.nbytes(regions.part(spill.tensor))
        if spill.store in here:
            store += rounds * chip.store_cycles(nbytes)
            stores.append(tensor.name)
        if spill.load in here:
            load += rounds * chip.load_cycles(nbytes)
            loads.append(tensor.name)
    words = [f"{what} {', '.join(names)}" for what, names in (("loads", loads), ("stores", stores))]
    computes = circular or stage == 1
    return Column(
        number,
        table.operators[row] if computes else None,
        rounds * table.compute[row] if computes else 0,
        load,
        store,
        cycles,
        "; ".join(text for text, names in zip(words, (loads, stores), strict=True) if names),
    )


def _boxes(
    table: Timetable, number: int, offsets: Sequence[int], left: int, first: int
) -> Iterator[Box]:
    """Yield what takes room; nothing where a plan does not say where all of it is."""
    places = copies(table)
    if len(offsets) != len(places):
        return
    for copy, offset in zip(places, offsets, strict=True):
        for start, end in _pieces(copy, table.period):
            yield Box(
                copy.name,
                str(copy.buffer.role),
                number,
                left + start - first,
                left + end - first,
                offset,
                offset + copy.buffer.lane_bytes,
                copy.buffer.resident,
            )


def _pieces(copy: Copy, period: int) -> list[tuple[int, int]]:
    """Return [start, end) of a copy, cut where the circle begins anew."""
    end = copy.start + copy.rows
    if not period or end <= period:
        return [(copy.start, end)]
    return [(copy.start, period), (0, end - period)]


def _arcs(instance: LayerGrouping, groups: Sequence[Group]) -> Iterator[Arc]:
    """Yield the tensors between operators that are not next to one another in a group."""
    place, group_of = {}, {}
    for group in groups:
        for at, column in enumerate(group.columns):
            if column.operator is not None:
                place[column.operator] = group.left + at
                group_of[column.operator] = group.number
    for reader, tensors in enumerate(instance.reads):
        for tensor in dict.fromkeys(tensors):
            if tensor >= instance.n:
                continue
            crossing = group_of[tensor] != group_of[reader]
            if crossing or place[reader] - place[tensor] > 1:
                yield Arc(place[tensor], place[reader], crossing)
