"""What groups with free timesteps cost, by trying every position, every spill and every cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

from hypothesis import assume

from stagepack.formulations.groups import CpSat
from stagepack.heuristics.groups.network import cuts
from stagepack.heuristics.groups.oracle import NONE
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import GroupingSolution, LayerGrouping, Source
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.problem import Order
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import STAGES, Spill, Timetable, alone_cycles
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.result import Status
from tests.formulations.engines import solve

MOST = 1_000
"""Timetables that a test tries."""

Inner = Callable[[LayerGrouping, GroupingSolution], int | None]
"""The least cycles of the only group of a plan; None where it does not fit."""


def yes() -> bool:
    return True


def spills(table: Timetable) -> list[Spill]:
    """Return all that may come to mind."""
    rows = range(STAGES * table.rows)
    tensors = (*table.operators, *table.regions.loaded)
    return [Spill(t, s, b) for t in tensors for s, b in combinations(rows, 2)]


def timetables(base: Timetable) -> Iterator[Timetable]:
    """Yield every timetable with at most one spill."""
    rows = base.rows
    reach = [
        range(rows + move.operator) if move.load else range(rows + move.operator + 1, STAGES * rows)
        for move in base.moves
    ]
    away = [(), *((spill,) for spill in spills(base))]
    assume(math.prod(map(len, [*reach, away])) <= MOST)
    for positions, spilled in product(product(*reach), away):
        yield Timetable(base.regions, positions, spilled)


def tried(whole: LayerGrouping, plan: GroupingSolution) -> int | None:
    """Return the least cycles of the one group of a plan, over all timetables and addresses."""
    base = plan.timetable(whole, 0)
    for table in sorted(timetables(base), key=lambda table: table.cycles):
        away = tuple((spill.tensor, spill.store, spill.load) for spill in table.spills)
        unplaced = plan.with_group(0, table.positions, away, ())
        if {violation.rule for violation in whole.check(unplaced)} != {"memory"}:
            continue
        if Blocks.of(packing(table)).load.max() > whole.chip.memory:
            continue
        status, offsets = place(table, yes)
        assert status is not Status.UNKNOWN
        found = plan.with_group(0, table.positions, away, offsets)
        if status is Status.FEASIBLE and not whole.check(found):
            return table.cycles
    return None


def modelled(whole: LayerGrouping, plan: GroupingSolution) -> int | None:
    """Return the same by the model of a group."""
    model = CpSat(whole, plan, 0)
    answer = None if model.infeasible else solve(model)
    if answer is None or answer.values is None:
        return None
    return whole.evaluate(model.decode(answer.values))


def part(whole: LayerGrouping, members: Sequence[int]) -> LayerGrouping:
    """Return the network of some operators alone."""
    regions = Regions(whole, members, Cut())
    read = [whole.tensors[at] for at in regions.loaded]
    return whole.replace(
        operators=[whole.operators[at] for at in members],
        inputs=[Source(name=t.name, shape=t.shape, dtype_bytes=t.dtype_bytes) for t in read],
        outputs=[whole.operators[at].name for at in regions.stored],
    )


def cheapest(whole: LayerGrouping, members: Sequence[int], inner: Inner) -> int:
    """Return the least cycles of operators as one group over all cuts; `NONE`."""
    lone = len(members) == 1 and whole.stands(members[0])
    best, small = alone_cycles(whole, members[0]) if lone else NONE, part(whole, members)
    for cut in cuts(whole):
        plan = GroupingSolution((0, small.n), (tuple(cut),))
        if {violation.rule for violation in small.check(plan)} == {"memory"}:
            found = inner(small, plan)
            best = best if found is None else min(best, found)
    return best


def least(whole: LayerGrouping, inner: Inner) -> int:
    """Return the least cycles of a network over all groups in all cuts; `NONE`."""
    n, best = whole.n, {0: 0}
    ideals = [(1 << size) - 1 for size in range(n + 1)]
    if whole.order == Order.FREE:
        ideals = [mask for mask in range(1 << n) if _closed(whole, mask)]
    for end in ideals[1:]:
        found = [NONE]
        for start in best:
            if start & end == start and best[start] < NONE:
                members = [at for at in range(n) if (end ^ start) >> at & 1]
                cycles = cheapest(whole, members, inner)
                found += [best[start] + cycles] if cycles < NONE else []
        best[end] = min(found)
    return best[(1 << n) - 1]


def _closed(whole: LayerGrouping, mask: int) -> bool:
    """Whether a set of operators holds whatever they read."""
    held = [at for at in range(whole.n) if mask >> at & 1]
    return all(t >= whole.n or mask >> t & 1 for at in held for t in whole.reads[at])
