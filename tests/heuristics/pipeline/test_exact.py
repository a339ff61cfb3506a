"""Exact searches against brute force; baselines and bounds on the right side of the optimum."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.heuristics.pipeline import (
    baselines,
    bisect,
    bounds,
    dp,
    prober,
    reference,
)
from stagepack.heuristics.pipeline.bounds import dearest_span, objective_bound
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Cluster
from stagepack.kernels import compiled
from stagepack.progress import Progress, Stopped
from stagepack.result import Status, Termination
from stagepack.solve import solve
from tests.random_pipelines import OBJECTIVES
from tests.strategies import brute_force, pipelines


def run(
    search: Callable[..., bool], instance: PipelinePartition, **limits: Any
) -> Progress[PipelineSolution]:
    progress: Progress[PipelineSolution] = Progress(
        instance.evaluate, instance.check, tolerance=instance.tolerance, **limits
    )
    with contextlib.suppress(Stopped):
        if search(RangeCosts(instance), progress) is False:
            progress.prove_infeasible("exhausted search")
    return progress


@pytest.mark.parametrize("search", [dp, reference, bisect], ids=["dp", "dp-reference", "bisect"])
@given(data=st.data())
@settings(max_examples=150)
def test_exact_searches_agree_with_brute_force(search: Any, data: st.DataObject) -> None:
    fixed: dict[str, Any] = {}
    if search is reference:
        fixed = {"fewer_stages": False, "free_order": False}
    if search is bisect:
        fixed = {"objective": Objective.BOTTLENECK, "training": False, "free_order": False}
    instance = data.draw(pipelines(tables=search is not bisect, **fixed))
    if search is not dp and search.unsupported(instance):
        return
    best = brute_force(instance)
    progress = run(search.solve, instance)
    status, termination = progress.outcome()
    assert termination is Termination.PROVED
    if best is None:
        assert status is Status.INFEASIBLE
        assert progress.infeasible_reason
    else:
        assert status is Status.OPTIMAL
        assert progress.objective == pytest.approx(best, rel=instance.tolerance, abs=0)


@given(pipelines(tables=True))
@settings(max_examples=150)
def test_a_search_in_the_smallest_steps_comes_to_the_same(instance: PipelinePartition) -> None:
    best = brute_force(instance)
    slack = 0 if best is None else instance.tolerance * max(1, abs(best))
    costs = RangeCosts(instance)
    if instance.objective is Objective.TRANSFER_BOUNDED:  # only compute is bisected on
        instance = instance.replace(objective="bottleneck")
        best, costs = brute_force(instance), RangeCosts(instance)
    tuning = dataclasses.replace(TUNING.probes, steps_at_once=1)  # one transition at a time
    search = prober.LeastLimit(costs, objective_bound(costs), tuning=tuning)
    steps, bounds = 0, [search.bound]
    while not (search.done or search.infeasible):
        search.go_on()
        steps += 1
        bounds.append(search.bound)
        if search.best is not None:
            assert best is not None
            assert instance.check(search.best_partition()) == ()
            assert costs.bound(search.bound) <= best + slack
    assert bounds == sorted(bounds)
    assert steps >= len(costs.order.source)
    assert search.infeasible == (best is None)
    if best is not None:
        assert instance.evaluate(search.best_partition()) == pytest.approx(best, abs=slack)


def test_long_chains_agree_with_the_recurrence() -> None:
    rng = np.random.default_rng(1)
    for objective in OBJECTIVES:
        for n in (25, 60):
            nbytes = rng.integers(10**6, 10**8, n)
            instance = PipelinePartition.from_arrays(
                rng.integers(1, 10**6, n),
                devices=5,
                speed=[1, 2, 1, 0.5, 1],
                bandwidth=100,
                capacity=int(nbytes.sum()) // 3,
                exclusive=nbytes,
                in_bytes=rng.integers(0, 10**8, n + 1),
                out_bytes=rng.integers(0, 10**8, n + 1),
                fixed_cuts=(n // 3,),
                forbidden_cuts=rng.choice(np.arange(n // 2, n), 4, replace=False).tolist(),
                objective=objective,
            )
            found = [run(search.solve, instance) for search in (dp, reference)]
            assert found[0].outcome() == found[1].outcome()
            assert found[0].outcome()[0] is Status.OPTIMAL
            assert found[0].objective == found[1].objective


@given(pipelines())
@settings(max_examples=150)
def test_baselines_never_beat_the_optimum_nor_bounds_exceed_it(
    instance: PipelinePartition,
) -> None:
    best = brute_force(instance)
    costs = RangeCosts(instance)
    slack = instance.tolerance * max(1, best or 0)
    for rule in (baselines.equal_layers, baselines.greedy):
        solution = rule(costs)
        if solution is not None and not instance.check(solution):
            assert best is not None
            assert instance.evaluate(solution) >= best - slack
    if best is not None:
        assert costs.value(objective_bound(costs)) <= best + slack


def test_staircase_meets_every_pair_that_matters() -> None:
    # Cutting later computes less and sends more: each cut is a non-dominated pair.
    n = 40
    send = np.zeros((2, n + 1), dtype=np.int64)
    send[0] = np.arange(n + 1) ** 2
    instance = PipelinePartition.from_arrays(
        [1] * (n - 1) + [400],
        devices=2,
        send_cycles=send,
        recv_cycles=np.zeros_like(send),
        objective="transfer-bounded",
    )
    best = min(instance.evaluate(PipelineSolution.in_order((0, cut, n))) for cut in range(1, n))
    assert run(dp.solve, instance).objective == best


def test_what_is_found_soon_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least compute is where a descent begins, and seldom where it ends."""
    rng = np.random.default_rng(5)
    instance = PipelinePartition.from_arrays(
        rng.integers(0, 1000, 60),
        devices=6,
        bandwidth=1,
        clock=2**30,
        in_bytes=rng.integers(0, 2000, 61),
        out_bytes=rng.integers(0, 2000, 61),
        objective="transfer-bounded",
    )
    checked = []

    def check(solution: PipelineSolution) -> tuple[object, ...]:
        checked.append(solution)
        return instance.check(solution)

    progress: Progress[PipelineSolution] = Progress(instance.evaluate, check)
    monkeypatch.setattr(Progress, "stale", False)  # however slow the machine
    dp.solve(RangeCosts(instance), progress)
    assert progress.outcome()[0] is Status.OPTIMAL
    assert progress.objective == run(reference.solve, instance).objective
    assert checked == [progress.solution]


@pytest.mark.parametrize("many", [TUNING.staircase_cells, 100])
@pytest.mark.parametrize("few", [TUNING.probes.fewest_cuts, 2])
def test_short_descents_agree_with_the_recurrence(many: int, few: int) -> None:
    # Chains are made shorter again and again.
    tuning = TUNING.changed({"staircase_cells": many, "probes": {"fewest_cuts": few}})
    search = functools.partial(dp.solve, tuning=tuning)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        instance = PipelinePartition.from_arrays(
            rng.integers(0, 1000, 40),
            devices=6,
            speed=[1, 2, 1, 1, 2, 0.5] if seed % 2 else None,
            bandwidth=1,
            clock=2**30,
            in_bytes=rng.integers(0, 2000, 41) * (seed % 3),
            out_bytes=rng.integers(0, 2000, 41),
            exclusive=rng.integers(0, 9, 40),
            stash=rng.integers(0, 3, 40),
            backward=[0] * 40,
            training=seed % 4 == 0,
            microbatches=3,
            capacity=60,
            fixed_cuts=(11,),
            forbidden_cuts=(20, 21),
            objective="transfer-bounded",
        )
        assert run(search, instance).outcome() == run(reference.solve, instance).outcome()
        assert run(search, instance).objective == run(reference.solve, instance).objective


@pytest.mark.parametrize(("n", "k"), [(5_000, 100), (50_000, 100), (20_000, 400)])
def test_few_probes_prove_a_sum_of_two_limits(
    n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The staircase has thousands of steps; every cut has random bytes of its own.
    rng = np.random.default_rng(n)
    instance = PipelinePartition.from_arrays(
        rng.integers(0, 10**6, n),
        devices=k,
        bandwidth=10,
        in_bytes=rng.integers(0, 10**9, n + 1),
        out_bytes=rng.integers(0, 10**9, n + 1),
        objective="transfer-bounded",
    )
    cells: list[int] = []
    probe, measured = prober.Prober.probe, prober.Prober.cells

    def counted(self: prober.Prober, *limits: int) -> tuple[int, int] | None:
        cells.append(measured(self, *limits))
        return probe(self, *limits)

    monkeypatch.setattr(prober.Prober, "probe", counted)
    progress = run(dp.solve, instance)
    assert progress.outcome()[0] is Status.OPTIMAL
    assert len(cells) < 200
    assert sum(cells) < 10 * n * k  # as ten probes without windows


@pytest.mark.parametrize("giant", [0, 10**9])
def test_where_compute_does_not_bind_limits_on_transfer_narrow_the_windows(giant: int) -> None:
    n, k = 4_000, 40
    probes = {"cell_limit": n * k // 3, "fewest_cuts": 20}
    tuning = TUNING.changed({"staircase_cells": n * k // 10, "probes": probes})
    rng = np.random.default_rng(n)
    cycles = np.zeros(n, dtype=np.int64)
    cycles[n // 2] = giant
    moved = rng.integers(0, 10**9, n + 1)
    moved[n // 2 : n // 2 + 2] = 0
    instance = PipelinePartition.from_arrays(
        cycles,
        devices=k,
        bandwidth=10,
        in_bytes=moved,
        out_bytes=moved,
        objective="transfer-bounded",
    )
    progress: Progress[PipelineSolution] = Progress(instance.evaluate, instance.check)
    costs = RangeCosts(instance)
    progress.offer(PipelineSolution.in_order([*range(k), n]), "test")
    dp.solve(costs, progress, tuning)
    assert progress.outcome()[0] is Status.OPTIMAL
    assert progress.objective is not None
    # Stages between the cheapest cuts, each of which is received at and sent at.
    least = np.sort(costs.recv[0, 1:n] + costs.send[0, 1:n])
    assert giant <= progress.objective <= giant + least[k]


@pytest.mark.parametrize("objective", ["sum", "overlap"])
def test_dear_cuts_are_left_out_where_transfers_are_all_that_counts(objective: str) -> None:
    n, k = 4_000, 40
    tuning = TUNING.changed({"probes": {"cell_limit": n * k // 3, "fewest_cuts": 20}})
    moved = np.random.default_rng(n).integers(0, 10**9, n + 1)
    options: dict[str, Any] = {"bandwidth": 10, "in_bytes": moved, "out_bytes": moved}
    zero = [0] * n
    instance = PipelinePartition.from_arrays(zero, devices=k, objective=objective, **options)
    for start in (None, PipelineSolution.in_order([*range(k), n])):
        progress: Progress[PipelineSolution] = Progress(instance.evaluate, instance.check)
        if start is not None:
            progress.offer(start, "test")
        costs = RangeCosts(instance)
        with contextlib.suppress(Stopped):  # proved
            dp.solve(costs, progress, tuning)
        assert progress.outcome()[0] is Status.OPTIMAL
        assert progress.objective is not None
        dearest = np.sort(costs.recv[0, 1:n])[k - 2]  # of the cuts that are needed
        most = dearest if objective == "overlap" else 2 * dearest
        assert dearest <= progress.objective <= most


@given(pipelines())
@settings(max_examples=150)
def test_shortened_chains_have_the_same_optimum(instance: PipelinePartition) -> None:
    best = brute_force(instance)
    tuning = TUNING.changed({"probes": {"fewest_cuts": 0}})
    progress = run(functools.partial(dp.solve, tuning=tuning), instance)
    assert progress.outcome()[1] is Termination.PROVED
    if best is not None:
        assert progress.objective == pytest.approx(best, rel=instance.tolerance, abs=0)


def test_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from stagepack.heuristics.pipeline import kernels

    monkeypatch.setattr(compiled, "WARM_UP", 0.0)

    cycles, nbytes = np.arange(12), np.arange(13)
    table = np.arange(169).reshape(13, 13)
    cases: list[dict[str, Any]] = [
        {"objective": "overlap", "in_bytes": nbytes, "out_bytes": nbytes, "bandwidth": 1},
        {"exclusive": cycles, "capacity": 1, "speed": [1, 1.5, 2]},
        {"training": True, "stash": cycles, "exclusive": cycles, "capacity": 10**3},
        {"objective": "transfer-bounded", "recv_cycles": np.ones((3, 13))},
        {"compute_table": table, "memory_table": table, "capacity": 150},
        *(
            {"objective": objective, "training": True, "tied": {"w": (9, [0, 11])}, "bandwidth": 1}
            for objective in ("sum", "overlap", "transfer-bounded")
        ),
    ]
    for options in cases:
        run(dp.solve, PipelinePartition.from_arrays(cycles / 2, **{"devices": 3, **options}))
    prober.Prober(RangeCosts(PipelinePartition.from_arrays(cycles, devices=3))).probe()
    made = [
        len(getattr(getattr(kernel, "dispatcher", kernel), "signatures", ()))
        for kernel in vars(kernels).values()
    ]
    assert max(made) == 1


@pytest.mark.parametrize("more", [0, 2])
@pytest.mark.parametrize("objective", ["transfer-bounded", "sum", "overlap"])
def test_a_layer_a_device_leaves_few_cuts_to_a_slot(objective: str, more: int) -> None:
    tuning = TUNING.changed({"probes": {"cell_limit": 2_000}})
    k = 300
    rng = np.random.default_rng(k)
    cycles = rng.integers(0, 10**6, k + more)
    moved = rng.integers(0, 10**9, k + more + 1)
    options: dict[str, Any] = {"bandwidth": 10, "in_bytes": moved, "out_bytes": moved}
    instance = PipelinePartition.from_arrays(cycles, devices=k, objective=objective, **options)
    progress = run(functools.partial(dp.solve, tuning=tuning), instance)
    assert progress.outcome()[0] is Status.OPTIMAL
    one_each = instance.evaluate(PipelineSolution.in_order([*range(k), k + more]))
    assert progress.objective is not None
    assert progress.objective <= one_each
    assert more or progress.objective == one_each


def test_chains_made_shorter_need_no_kernels_of_their_own() -> None:
    tuning = dataclasses.replace(TUNING.probes, fewest_cuts=2)
    moved = np.arange(41) * 100
    instance = PipelinePartition.from_arrays(
        [1] * 40,
        devices=3,
        speed=[1, 2, 3],
        bandwidth=1,
        clock=2**30,
        in_bytes=moved,
        out_bytes=moved,
        objective="transfer-bounded",
    )
    search = prober.LeastLimit(RangeCosts(instance), 0, tuning=tuning)
    search.probe(1000, 2000)
    short = search._affordable(1000, 2000)[0]
    assert len(short.allowed) < 41
    assert all(row.flags.c_contiguous for row in (short.prefix, short.recv, short.send))


def test_odd_speeds_without_a_common_multiple() -> None:
    speeds = [1.0003, 0.9967, 1.1239, 0.8731, 1.0501, 0.9203, 1.3307, 1.2109]
    rng = np.random.default_rng(0)
    instance = PipelinePartition.from_arrays(
        rng.integers(10**8, 10**9, 40), devices=8, speed=speeds
    )
    assert instance.tolerance > 0
    progress = run(dp.solve, instance)
    assert progress.outcome()[0] is Status.OPTIMAL
    other = run(reference.solve, instance)
    assert progress.objective == pytest.approx(other.objective, rel=instance.tolerance)


def greedy_in_python(costs: RangeCosts) -> list[int] | None:
    instance, n, k = costs.instance, costs.n, costs.k
    cuts = np.flatnonzero(costs.allowed).tolist()
    if len(cuts) - 1 < k:
        return None
    speed = [1 / max(1, costs.compute(0, n, int(c))) for c in costs.device_class]
    found = [0]
    for i, c in enumerate(costs.device_class.tolist()):
        stashes = min(instance.microbatches, k - i) if instance.training else 0
        fits = costs.fits_matrix(c, stashes)[found[-1]]
        last = len(cuts) - (k - i)
        low = last if i == k - 1 else cuts.index(found[-1]) + 1
        share = costs.compute(found[-1], n, c) * speed[i] / sum(speed[i:])
        ends = [b for b in cuts[low : last + 1] if fits[b]]
        if not ends:
            return None
        found.append(min(ends, key=lambda b: abs(costs.compute(found[-1], b, c) - share)))
    return found


@given(pipelines(fewer_stages=False, free_order=False))
@settings(max_examples=100)
def test_greedy_agrees_with_its_plain_twin(instance: PipelinePartition) -> None:
    costs = RangeCosts(instance)
    found, twin = baselines.greedy(costs), greedy_in_python(costs)
    assert (found is None) == (twin is None)
    if found is not None and twin is not None:
        value = instance.evaluate(found)
        assert value == pytest.approx(instance.evaluate(PipelineSolution.in_order(twin)), rel=1e-9)


def test_a_probe_keeps_the_windows_alone() -> None:
    rng = np.random.default_rng(0)
    instance = PipelinePartition.from_arrays(
        rng.integers(1, 10**6, 20_000),
        devices=256,
        in_bytes=rng.integers(0, 10**6, 20_001),
        out_bytes=rng.integers(0, 10**6, 20_001),
        bandwidth=100,
        objective="transfer-bounded",
    )
    progress = run(dp.solve, instance)
    assert progress.outcome()[0] is Status.OPTIMAL
    costs = RangeCosts(instance)
    search = prober.LeastLimit(costs, costs.compute_bound())
    while not search.done:
        search.go_on()
    assert len(search._scratch.cells) < instance.n * instance.k // 10
    # Where even the windows are too many, what is known is kept, and said.
    tuning = TUNING.changed({"probes": {"cell_limit": 10}})
    left: Progress[PipelineSolution] = Progress(instance.evaluate, instance.check)
    with pytest.raises(InputError, match="cells"):
        dp.solve(costs, left, tuning)
    few = {"tuning": {"probes": {"cell_limit": 10}}}
    kept = solve(instance, "dp", warm_start=search.best_partition(), options=few)
    assert "cells" in kept.reason
    assert kept.status is Status.FEASIBLE


@pytest.mark.parametrize("fewer", [False, True])
def test_many_devices_are_filled_alike_compiled_or_not(
    fewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    instance = PipelinePartition.from_arrays(
        rng.integers(1, 100, 900), devices=60, fewer_stages=fewer, forbidden_cuts=range(5, 600, 7)
    )
    plain = run(bisect.solve, instance)
    compiled_ones = functools.partial(bisect.solve, tuning=TUNING.changed({"compiled_devices": 1}))
    assert run(compiled_ones, instance).solution == plain.solution
    assert plain.objective == run(dp.solve, instance).objective


def unlike(n: int, devices: int, seed: int = 0, **more: Any) -> PipelinePartition:
    """Return a chain whose cuts receive and send different amounts."""
    draw = np.random.default_rng(seed)
    given: dict[str, Any] = {
        "forward": draw.integers(0, 10**6, n),
        "in_bytes": draw.integers(0, 10**8, n + 1),
        "out_bytes": draw.integers(0, 10**8, n + 1),
    }
    return PipelinePartition.from_arrays(
        devices=devices, bandwidth=10.0, objective="sum", **{**given, **more}
    )


def test_transfers_narrow_the_windows_of_sums() -> None:
    instance = unlike(20_000, 100)
    costs, best = RangeCosts(instance), run(dp.solve, instance).objective
    assert best is not None
    limit = int(best * costs.scale)
    spare = (100 * limit - int(costs.prefix[0, -1])) // 500_000  # layers that still have room
    assert prober.Prober(costs).cells(limit, prober.UNLIMITED) < 100 * spare / 3


def test_the_bound_of_a_giant_layer_counts_what_is_moved_around_it() -> None:
    cycles = np.random.default_rng(1).integers(0, 10**6, 399)
    cycles[137] = 10**9
    instance = unlike(399, 7, forward=cycles)
    costs = RangeCosts(instance)
    bound, first, last = dearest_span(costs, lambda: None)
    assert first <= 137 < last
    assert bound == costs.compute(first, last, 0) + costs.transfer(first, last, 0)
    assert bound > costs.prefix[0, 138] - costs.prefix[0, 137]
    assert costs.bound(bound) == run(dp.solve, instance).objective


@given(data=st.data())
@settings(max_examples=100)
def test_no_bound_of_a_span_exceeds_the_optimum(data: st.DataObject) -> None:
    instance = data.draw(pipelines(tables=False, objective=Objective.SUM))
    best = brute_force(instance)
    costs = RangeCosts(instance)
    bound = costs.bound(dearest_span(costs, lambda: None)[0])
    assert best is None or bound <= best + instance.tolerance * best


@pytest.mark.parametrize("seed", range(8))
def test_a_chain_of_few_cuts_comes_before_large_searches(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = unlike(120, 4, seed, fewer_stages=bool(seed % 2))
    best = run(dp.solve, instance).objective
    asked: list[int] = []

    def chosen(*given: Any) -> Any:
        found = bounds.cheap_cuts(*given)
        asked.append(int(found.sum()))
        return found

    monkeypatch.setattr("stagepack.heuristics.pipeline.dp.cheap_cuts", chosen)
    monkeypatch.setattr(prober.LeastLimit, "begins_with_more", lambda *_: True)
    tuning = TUNING.changed({"first_cuts": 1})
    progress = run(functools.partial(dp.solve, tuning=tuning), instance)
    assert progress.objective == best
    assert progress.outcome()[0] is Status.OPTIMAL
    assert len(asked) == 1
    assert 16 < asked[0] < 22


def test_a_giant_layer_leaves_no_large_search() -> None:
    cycles = np.random.default_rng(1).integers(0, 10**6, 8_000)
    cycles[3_000] = 10**11
    probes = {"first_cell_limit": 10_000, "cell_limit": 100_000}  # all have 400,000
    tuning = TUNING.changed({"first_cuts": 1, "large_cells": 10_000, "probes": probes})
    progress = run(functools.partial(dp.solve, tuning=tuning), unlike(8_000, 50, forward=cycles))
    assert progress.outcome()[0] is Status.OPTIMAL


def test_sixteen_unlike_devices_in_any_order_are_proved() -> None:
    """Two layers for each device, in proportion to its speed, the devices shuffled."""
    draw = np.random.default_rng(7)
    speeds = (10 + draw.permutation(16)).tolist()
    halves = draw.integers(1, 10, 16) * 50
    pairs = [(half, 100 * speed - half) for half, speed in zip(halves, speeds, strict=True)]
    layers = np.ravel(pairs)
    instance = PipelinePartition.from_arrays(
        layers, devices=16, speed=sorted(speeds), exclusive=layers, free_order=True
    )
    progress = run(dp.solve, instance)
    assert progress.proved
    assert progress.objective == 100
    limited = instance.replace(
        cluster=Cluster(
            devices=tuple(
                msgspec.structs.replace(device, memory=int(100 * device.speed))
                for device in instance.cluster.devices
            )
        )
    )
    assert run(dp.solve, limited).objective == 100
