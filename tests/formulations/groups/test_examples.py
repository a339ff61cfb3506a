"""Groups in which what is decided one after the other is worse, or does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from stagepack.catalog.groups.examples import balanced_rows, schedule_then_place
from stagepack.formulations.groups import CpSat
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import GroupingSolution
from stagepack.instances.groups.timesteps import STAGES, Timetable
from stagepack.result import Status
from tests.formulations.engines import solve


def timetables(base: Timetable) -> Iterator[Timetable]:
    """Yield every timetable without spills."""
    rows = base.rows
    reach = [
        range(rows + move.operator) if move.load else range(rows + move.operator + 1, STAGES * rows)
        for move in base.moves
    ]
    for positions in product(*reach):
        yield Timetable(base.regions, positions)


def imbalance(table: Timetable) -> int:
    """Return the sum of |compute - transfers| over the rows of the kernel (TPU-MLIR, level 3)."""
    moved = [sum(table.transfers[row :: table.rows]) for row in range(table.rows)]
    return sum(abs(one - other) for one, other in zip(table.compute, moved, strict=True))


def fits(table: Timetable) -> bool:
    status, _ = place(table, lambda: True)
    assert status is not Status.UNKNOWN
    return status is Status.FEASIBLE


def test_balanced_rows_are_not_the_quickest() -> None:
    whole = balanced_rows()
    plan = GroupingSolution((0, 2), ((1, 1, 3, 1),))
    base = plan.timetable(whole, 0)
    known = [(imbalance(table), table.cycles) for table in timetables(base)]
    quickest = min(cycles for _, cycles in known)
    assert (base.cycles, min(known)[1], quickest) == (306, 296, 280)
    answer = solve(CpSat(whole, plan, 0))
    assert answer.values is not None
    assert round(answer.objective) == quickest


def test_the_best_timesteps_may_have_no_addresses() -> None:
    whole = schedule_then_place()
    plan = GroupingSolution((0, 3), ((1, 1, 2, 1),))
    base = plan.timetable(whole, 0)
    scheduled: list[Timetable] = []
    alone = CpSat(whole, plan, 0, place=scheduled.append)
    together = CpSat(whole, plan, 0)
    first, answer = solve(alone), solve(together)
    assert first.values is not None
    assert answer.values is not None
    assert alone.decode(first.values) == plan  # it could not be placed
    assert not fits(scheduled[0])
    found = together.decode(answer.values)
    assert whole.check(found) == ()
    cycles = scheduled[0].cycles, whole.evaluate(found), base.cycles
    assert cycles == (545, 552, 582)
    quicker = [table for table in timetables(base) if table.cycles < 552]
    fitting = [table for table in quicker if max(table.load_bytes()) <= whole.chip.memory]
    assert fitting
    assert not any(map(fits, fitting))
