"""Simulates a plan slice by slice and row by row, on two engines of each core: events for charts.

The i-th slice of a core is in stage s of the table in iteration i + s.  In a row, all computes of
its slices run one after the other, and at the same time all transfers run one after the other; the
next row starts when both are done.  Resident tensors are loaded with the first slice only.  The
closed formula of :mod:`.timesteps` is not used; the simulation must agree with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.operators import compute_cycles
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.timesteps import STAGES, Timetable

COMPUTE, DMA = "compute", "dma"


class Task(NamedTuple):
    """What every slice does at a position of the table, or the first one alone, for all (`once`).

    The `number` is that of the transfer, the operator or the spill, in the table's order.
    """

    what: str
    name: str
    number: int
    cycles: int
    once: bool = False


class Step(NamedTuple):
    """A task of a slice: when, of which slice of the core, of which of the group."""

    iteration: int
    row: int
    turn: int
    slice: int
    task: Task


@dataclass(frozen=True)
class Event:
    """What one engine ("compute" or "dma") of a core does from cycle `start` to `end`.

    The slice is -1 for what runs from global memory.
    """

    group: int
    core: int
    engine: str
    what: str
    name: str
    slice: int
    start: int
    end: int


def tasks(table: Timetable) -> list[list[Task]]:
    """Return what slices do at every position."""
    regions, chip = table.regions, table.regions.instance.chip
    found: list[list[Task]] = [[] for _ in range(STAGES * table.rows)]
    for number, (move, position) in enumerate(zip(table.moves, table.positions, strict=True)):
        what = "load" if move.load else "store"
        found[position].append(Task(what, move.name, number, move.cycles, move.resident))
    for number, spill in enumerate(table.spills):
        tensor = regions.instance.tensors[spill.tensor]
        nbytes = tensor.nbytes(regions.part(spill.tensor))
        away = Task("spill", tensor.name, number, chip.store_cycles(nbytes))
        found[spill.store].append(away)
        found[spill.load].append(Task("reload", tensor.name, number, chip.load_cycles(nbytes)))
    for k, at in enumerate(table.operators):
        name = regions.instance.operators[at].name
        found[table.rows + k].append(Task(COMPUTE, name, k, table.compute[k]))
    return found


def steps(table: Timetable, core: int = 0) -> Iterator[Step]:
    """Yield what a core does, iteration by iteration, row by row."""
    own = range(core, table.regions.cut.slices, table.regions.instance.chip.cores)
    plan = tasks(table)
    for iteration in range(len(own) + STAGES - 1):
        for row in range(table.rows):
            for stage in range(STAGES):
                turn = iteration - stage
                if not 0 <= turn < len(own):
                    continue
                for task in plan[stage * table.rows + row]:
                    if turn == 0 or not task.once:
                        yield Step(iteration, row, turn, own[turn], task)


def play(table: Timetable, group: int = 0, at: int = 0) -> tuple[list[Event], int]:
    """Play a group, called `group`, from cycle `at` on, on every core that has a slice.

    Returns the events, and when all are done.
    """
    chip = table.regions.instance.chip
    found, end = [], at
    for core in range(min(chip.cores, table.regions.cut.slices)):
        now = at
        for _, row in groupby(steps(table, core), key=lambda step: (step.iteration, step.row)):
            clock = {COMPUTE: now, DMA: now}
            for step in row:
                what, name, _, cycles, _ = step.task
                engine = COMPUTE if what == COMPUTE else DMA
                start, clock[engine] = clock[engine], clock[engine] + cycles
                found.append(
                    Event(group, core, engine, what, name, step.slice, start, start + cycles)
                )
            now += chip.row_cycles(clock[COMPUTE] - now, clock[DMA] - now)
        end = max(end, now)
    return found, end


def play_alone(
    instance: GroupingData, operator: int, group: int = 0, at: int = 0
) -> tuple[list[Event], int]:
    """Play an operator that runs from and to global memory, all its transfers beside it.

    `operator` is its position; `group` and `at` are as for :func:`play`.
    """
    known, chip = instance.operators[operator], instance.chip
    own, *read = (instance.tensors[t] for t in (operator, *dict.fromkeys(instance.reads[operator])))
    moved = [("load", t.name, chip.load_cycles(t.nbytes(t.shape))) for t in read]
    moved += [
        ("load", f"{known.name}.w{number}", chip.load_cycles(weight.nbytes(weight.channels)))
        for number, weight in enumerate(known.weights)
    ]
    moved.append(("store", own.name, chip.store_cycles(own.nbytes(own.shape))))
    compute = compute_cycles(known, instance.sources(operator), known.full, chip)
    found = [Event(group, 0, COMPUTE, COMPUTE, known.name, -1, at, at + compute)]
    now = at
    for what, name, cycles in moved:
        found.append(Event(group, 0, DMA, what, name, -1, now, now + cycles))
        now += cycles
    return found, at + chip.row_cycles(compute, now - at)


def simulate(instance: GroupingData, solution: GroupingSolution) -> tuple[list[Event], int]:
    """Play a plan, group after group, each when all cores have done the one before.

    Returns the events, and the cycle in which the last group is done.
    """
    found: list[Event] = []
    now = 0
    for group, table in solution.timetables(instance):
        if table is None:
            events, now = play_alone(instance, solution.operators(group)[0], group, now)
        else:
            events, now = play(table, group, now)
        found += events
    return found, now
