"""Exact search over boundaries, microbatches and I/O tiles: optimal, and its bounds are safe."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from stagepack.heuristics.phases import baselines, dp
from stagepack.heuristics.phases.bounds import work_bound
from stagepack.heuristics.phases.feasibility import explain, feasible
from stagepack.heuristics.phases.options import assemble, group_options
from stagepack.heuristics.phases.policies import chosen
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.sweep import Sweep
from stagepack.instances.phases import PhaseSchedule, PhaseSolution, Policy
from stagepack.result import Progress, Stopped
from tests.random_phases import brute_force, random_phases

SIX = PhaseSchedule.from_arrays(
    [4] * 6, [6] * 6, [8, 8, 2, 8, 2, 8, 2], steps=8, memory=30, modes=["compute"],
    remote_bandwidth=2, host_bandwidth=2,
)  # fmt: skip


def swept(instance: PhaseSchedule) -> tuple[Sweep, Progress[PhaseSolution]]:
    progress: Progress[PhaseSolution] = Progress(instance.evaluate, instance.check)
    sweep = Sweep(instance, progress)
    with contextlib.suppress(Stopped):
        sweep.run("sweep")
    return sweep, progress


def test_six_layers() -> None:
    table = group_options(SIX, 1, 0)
    least = dp.rest(table)
    best = dp.search(table, least)
    assert best is not None
    assert least[0] == 356
    assert assemble(table, best).boundaries == (0, 2, 6)
    assert SIX.evaluate(assemble(table, best)) == 356
    greedy = baselines.from_head(table)
    assert greedy is not None
    assert SIX.evaluate(assemble(table, greedy)) == 404
    assert dp.search(table, least, upper=356) is None


@pytest.mark.parametrize("skips", [False, True])
def test_against_brute_force(skips: bool) -> None:
    looked = proved = 0
    for seed in range(45):
        instance = random_phases(seed, layers=(1, 3), skips=skips)
        try:
            value, _ = brute_force(instance, 4000)
        except OverflowError:
            continue
        looked += 1
        sweep, progress = swept(instance)
        assert progress.bound is None or value is None or progress.bound <= value
        if value is None:
            assert progress.solution is None
            assert sweep.none_fits or sweep.inexact
        elif not sweep.inexact:
            assert progress.objective == value
            assert progress.proved
            proved += 1
    assert looked > 30
    assert proved > 15


def test_search_takes_the_cheapest_way_past_what_earlier_groups_keep() -> None:
    """Keeping in the first group leaves no room for the second: it must stash something."""
    seen = 0
    for seed in range(40):
        instance = random_phases(seed, layers=(3, 3), training=True, skips=False,
                                 prefetch=False, budgets=False, recomputations=(1,))  # fmt: skip
        instance = instance.replace(policies=["stash", "keep"])
        table = group_options(instance, instance.microbatches[0], instance.io_tile_choices[0])
        least, best = dp.rest(table), dp.search(table, dp.rest(table))
        if best is None:
            continue
        total = sum(int(table.time[number]) for number in best)
        assert total >= least[0]
        assert not instance.check(assemble(table, best))
        seen += total > least[0]
    assert seen > 0  # otherwise the burden of kept bytes is not tested


def test_work_bound_is_safe() -> None:
    for seed in range(60):
        instance = random_phases(seed, layers=(1, 4))
        for microbatch in instance.microbatches:
            for io_tiles in instance.io_tile_choices:
                table = group_options(instance, microbatch, io_tiles)
                least = dp.rest(table)[0]
                assert work_bound(instance, microbatch, io_tiles) <= least or table.inexact


def test_many_pairs_are_one_problem_each() -> None:
    instance = PhaseSchedule.from_arrays(
        [400] * 6, [60] * 6, [80, 80, 20, 80, 20, 80, 20], global_batch=8, forward_fixed=[30] * 6,
        memory=3000, remote_bandwidth=2, tiles=8, io_tiles=(0, 3), tile_bandwidth=1,
    )  # fmt: skip
    sweep, progress = swept(instance)
    assert len(sweep.bounds) == 4 * 4
    best = min(
        dp.rest(group_options(instance, b, t))[0]
        for b in instance.microbatches
        for t in instance.io_tile_choices
    )
    assert progress.objective == best == progress.bound


def test_reason_names_the_layer_and_enough_memory() -> None:
    for instance in (
        SIX.replace(memory=11),
        SIX.replace(memory=25, fixed_boundaries=(0, 2, 6)),
        PhaseSchedule.from_arrays(
            [5, 9], [1, 1], [2, 2, 2], backward=[1, 1], training=True, memory=20, microbatch=1
        ),
    ):
        sweep, _ = swept(instance)
        assert sweep.none_fits
        fresh: Progress[PhaseSolution] = Progress(instance.evaluate, instance.check)
        reason = explain(instance, fresh)
        assert "too many" in reason
        enough = int(reason.split("feasible with ")[1].split(" bytes")[0].replace(",", ""))
        assert feasible(instance.replace(memory=enough), fresh)
        assert not feasible(instance.replace(memory=enough - 1), fresh)
    assert "layer 1 needs at least 22 bytes in its forward and backward phase" in reason


def test_checkpoints_every_square_root() -> None:
    instance = PhaseSchedule.from_arrays(
        [1] * 9, [1] * 9, [1] * 10, backward=[1] * 9, tape=[1] * 9, training=True,
        policies=["stash", "recompute"],
    )  # fmt: skip
    rows = baselines.checkpoints(RangeCosts(instance, 1))
    policy = rows.policy(len(rows) - 10 * 9 // 2 + 8)
    assert policy == ("recompute", "recompute", "stash") * 3


def test_given_policies_are_examined_exactly() -> None:
    instance = PhaseSchedule.from_arrays(
        [1] * 3, [1, 2, 3], [1, 2, 4, 8], backward=[1] * 3, tape=[16, 32, 64], training=True,
        policies=list(Policy), steps=2,
    )  # fmt: skip
    costs = RangeCosts(instance, 1)
    rows = chosen(costs, lambda a, b: [Policy.KEEP] * (b - a))
    two = int(np.flatnonzero((costs.first == 0) & (costs.end == 2))[0])
    assert rows.kept[two] == 16 + 2 + 32  # x_2 is read by the next group
    assert rows.stored[two] == rows.again[two] == 0
    last = int(np.flatnonzero((costs.first == 0) & (costs.end == 3))[0])
    assert rows.kept[last] == 0  # one phase: kept within the step
