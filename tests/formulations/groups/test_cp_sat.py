"""The model of a group against trying every position and every spill."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagepack.formulations.groups import CpSat
from stagepack.heuristics.groups.placement import place
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.timesteps import STAGES, Spill, Timetable
from stagepack.instances.packing.blocks import Blocks
from stagepack.result import Status
from tests.formulations.engines import solve
from tests.instances.groups.networks import networks

MOST = 1_000
"""Timetables that a test tries."""


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


def least(whole: LayerGrouping, plan: GroupingSolution) -> int | None:
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


@given(networks(most=2), st.integers(1, 4), st.integers(10, 120), st.sampled_from([1.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_agrees_with_trying_everything(
    network: LayerGrouping, parts: int, units: int, overlap: float
) -> None:
    whole = network.replace(
        chip=replace(network.chip, memory=16 * units, overlap=overlap), max_slices=4
    )
    plan = GroupingSolution((0, whole.n), ((1, 1, parts, 1),))
    assume({violation.rule for violation in whole.check(plan)} == {"memory"})
    best = least(whole, plan)
    model = CpSat(whole, plan, 0)
    answer = None if model.infeasible else solve(model)
    if best is None or answer is None:
        assert best is None
        assert answer is None or answer.values is None
        return
    assert answer.values is not None
    found = model.decode(answer.values)
    assert whole.check(found) == ()
    assert whole.evaluate(found) == best == model.lower_bound(answer.bound)


@given(networks(most=3), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_a_plan_is_a_point_of_the_model(network: LayerGrouping, parts: int) -> None:
    plan = GroupingSolution((0, network.n), ((1, 1, parts, 1),))
    assume({violation.rule for violation in network.check(plan)} == {"memory"})
    status, offsets = place(plan.timetable(network, 0), yes)
    assume(status is Status.FEASIBLE)
    by_rule = plan.with_group(0, (), (), offsets)
    model = CpSat(network, by_rule, 0)
    fixed = solve(model, fixed=model.hint(by_rule))
    assert fixed.values is not None
    assert network.evaluate(model.decode(fixed.values)) == network.evaluate(by_rule)
    answer = solve(model)
    assert answer.values is not None
    best = model.decode(answer.values)
    again = solve(model, fixed=model.hint(best))
    assert again.values is not None
    assert network.evaluate(model.decode(again.values)) == network.evaluate(best)
