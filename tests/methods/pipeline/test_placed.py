"""Several stages a device: exact methods against all cuts, their bounds, and what refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.evidence import Proof
from stagepack.formulations.pipeline import CpSatPlaced
from stagepack.heuristics.pipeline import rounds
from stagepack.heuristics.pipeline.bounds import counted
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods.pipeline import METHODS
from stagepack.verify import verify
from tests.placed_pipelines import optimum, random_placed, solutions

MEGATRON = [30] + [100] * 46 + [250]
BATCHES = [range(start, start + 100) for start in range(0, 500, 100)]


def chain(cycles: Any = MEGATRON, devices: int = 16, **options: Any) -> PipelinePartition:
    return PipelinePartition.from_arrays(
        cycles, devices=devices, **{"stages_per_device": 2, "placement": "v", **options}
    )


@pytest.mark.parametrize("method", ["auto", "rounds"])
def test_a_v_of_two_stages_a_device_is_not_chunk_by_chunk(method: str) -> None:
    instance = chain(fewer_stages=True)
    result = sp.solve(instance, method)
    assert (result.status, result.objective, result.bound) == ("OPTIMAL", 350, 350)
    assert result.proof is Proof.SEARCH


@pytest.mark.parametrize(
    ("placement", "fewer", "value"),
    [("v", False, 380), ("loop", False, 350), ("loop", True, 350)],
)
def test_its_relatives(placement: str, fewer: bool, value: int) -> None:
    result = sp.solve(chain(placement=placement, fewer_stages=fewer))
    assert (result.status, result.objective) == ("OPTIMAL", value)


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_agrees_with_trying_everything(seeds: range) -> None:
    for seed in seeds:
        instance = random_placed(seed)
        best = optimum(instance)
        costs = RangeCosts.of(instance)
        if best is not None:
            assert costs.bound(counted(costs)) <= best + 1e-9 * abs(best), seed
        names = ["rounds", *(["cp-sat"] if seed % 10 == 0 else [])]
        for method in METHODS:
            if method.name not in names or method.unsupported(instance):
                continue
            limit = 1 if method.unproved(instance) else 60
            result = sp.solve(instance, method.name, time_limit=limit)
            proved = not method.unproved(instance) and (method.name == "rounds" or instance.whole)
            if best is None:
                assert result.status in (["INFEASIBLE"] if proved else ["INFEASIBLE", "UNKNOWN"])
                continue
            assert result.status == "OPTIMAL" or not proved, (seed, method.name)
            if result.status == "OPTIMAL":
                assert result.objective == pytest.approx(best, rel=1e-9), (seed, method.name)
            if result.bound is not None:
                assert result.bound <= best + 1e-6 * abs(best), (seed, method.name)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_every_solution_is_in_the_model(seed: int) -> None:
    instance = random_placed(seed)
    model = CpSatPlaced(RangeCosts.of(instance))
    for solution in list(solutions(instance))[::9]:
        values = model.hint(solution)
        found = model.decode(values)
        assert instance.evaluate(found) == instance.evaluate(solution)


def backwards(given: PipelinePartition) -> PipelinePartition:
    """Return a chain read from its end: a V stays one, a loop has its devices reversed."""
    n, columns = given.n, ("forward", "backward", "temporary", "carry")
    return given.replace(
        **{name: getattr(given, name)[::-1] for name in columns},
        exclusive={name: column[::-1] for name, column in given.exclusive.items()},
        fixed_cuts=[n - cut for cut in given.fixed_cuts],
        forbidden_cuts=[n - cut for cut in given.forbidden_cuts],
        stages_per_device=1,
        placement=given.stage_devices[::-1],
    )


def split(given: PipelinePartition) -> PipelinePartition:
    """Return a chain whose last layer is two of half its work and bytes each."""
    times = np.append(np.ones(given.n - 1), 2).astype(int)

    def halves(column: Any) -> Any:
        found = (2 * column).repeat(times)
        found[-2:] //= 2
        return found

    memory = {name: halves(column) for name, column in given.exclusive.items()}
    devices = tuple(
        sp.Device(memory=None if d.memory is None else 2 * d.memory, speed=d.speed)
        for d in given.cluster.devices
    )
    sizes = {name: 2 * getattr(given, name).repeat(times) for name in ("temporary", "carry")}
    return PipelinePartition.from_arrays(
        halves(given.forward), cluster=sp.Cluster(devices=devices), exclusive=memory, **sizes,
        fixed_cuts=given.fixed_cuts, forbidden_cuts=given.forbidden_cuts,
        stages_per_device=given.stages_per_device, placement=given.placement,
        fewer_stages=given.fewer_stages,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_relations(seed: int) -> None:
    """Devices under other names, more memory, stages that may be empty, one round of two, ends.

    Layers that are split, times that are trebled, and a device more than is needed.
    """
    instance = random_placed(3 * seed + 1)
    if rounds.unsupported(instance) or rounds.unproved(instance):
        return

    def value(given: PipelinePartition) -> float:
        result = sp.solve(given, "rounds")
        return float("inf") if result.objective is None else float(result.objective)

    known = value(instance)
    table, devices = instance.stage_devices, instance.cluster.devices
    renamed = [(device + 1) % instance.k for device in table]
    cluster = sp.Cluster(devices=(devices[-1], *devices[:-1]))
    moved = instance.replace(cluster=cluster, stages_per_device=1, placement=renamed)
    assert value(moved) == known
    trebled = instance.replace(forward=3 * instance.forward, backward=3 * instance.backward)
    assert value(trebled) == pytest.approx(3 * known)
    if not instance.stash.any():
        assert value(backwards(instance)) == pytest.approx(known)
        if instance.whole:
            assert value(split(instance)) <= 2 * known
    if instance.fewer_stages and isinstance(instance.placement, str) and not instance.stash.any():
        wider = sp.Cluster(devices=(*devices, devices[-1]))
        assert value(instance.replace(cluster=wider)) <= known
    more = tuple(sp.Device(memory=None, speed=device.speed) for device in devices)
    assert value(instance.replace(cluster=sp.Cluster(devices=more))) <= known
    if rounds.unsupported(instance.replace(fewer_stages=True)):
        return
    relaxed = value(instance.replace(fewer_stages=True))
    assert relaxed <= known
    if not instance.stash.any():
        single = sp.solve(
            instance.replace(stages_per_device=1, placement="loop", fewer_stages=True)
        )
        assert single.objective is None or relaxed <= single.objective + 1e-9


def test_one_stage_a_device_is_the_old_problem() -> None:
    plain = PipelinePartition.from_arrays(MEGATRON, devices=4)
    for options in ({"placement": "v"}, {"placement": [0, 1, 2, 3]}, {"stages_per_device": 1}):
        same = PipelinePartition.from_arrays(MEGATRON, devices=4, **options)
        assert same.digest == plain.digest
        assert not same.placed


@pytest.mark.parametrize("fewer", [False, True])
def test_a_single_round_in_another_order_is_no_two_rounds(fewer: bool) -> None:
    instance = PipelinePartition.from_arrays(
        [2, 10, 3, 4], devices=2, placement=[1, 0], speed=[1, 2], fewer_stages=fewer
    )
    assert "two rounds" in rounds.unsupported(instance)
    result = sp.solve(instance)
    assert (result.status, result.objective) == ("OPTIMAL", optimum(instance))


@pytest.mark.parametrize("placement", ["loop", "v"])
def test_layers_that_stay_together_count_as_one_span(placement: str) -> None:
    cluster = sp.Cluster(devices=(sp.Device(memory=16), sp.Device()))
    instance = PipelinePartition.from_arrays(
        [20, 15, 20, 18, 6, 9, 0],
        cluster=cluster,
        exclusive=[11, 13, 0, 13, 0, 0, 5],
        variables=[("v", 3, 4)],
        stages_per_device=2,
        placement=placement,
        fewer_stages=True,
    )
    result = sp.solve(instance, "rounds")
    assert (result.status, result.objective) == ("OPTIMAL", optimum(instance))


def test_a_cache_says_nothing_of_several_stages() -> None:
    options: dict[str, Any] = {"capacity": 90, "kv_bytes": 1, "exclusive": [4] * 8}
    instance = PipelinePartition.from_arrays(
        [1] * 8, devices=2, stages_per_device=2, placement="v", **options
    )
    assert "fewest tokens" not in dict(sp.explain(instance).critical)


def test_what_knows_one_stage_a_device_refuses() -> None:
    instance = chain()
    for method in METHODS:
        knows = method.name in ("auto", "equal-layers", "greedy", "rounds", "cp-sat")
        assert bool(method.unsupported(instance)) != knows, method.name
    assert rounds.unsupported(PipelinePartition.from_arrays(MEGATRON, devices=4))
    claim = verify(instance, 300, Proof.WITNESS, {"rule": "fill"})
    assert not claim.shown


def test_counting_takes_heads_and_tails_from_their_devices() -> None:
    instance = PipelinePartition.from_arrays(
        [30] + [100] * 94 + [250], devices=16, stages_per_device=4, placement="v"
    )
    costs = RangeCosts.of(instance)
    assert counted(costs) == 680  # device 0 has both; 650 where stages may be empty
    assert counted(RangeCosts.of(instance.replace(fewer_stages=True))) == 650


def test_devices_have_no_room_for_so_many_of_the_smallest_layers() -> None:
    layers = [95, 99, 101, 105, 96, 104, 98, 102]  # some of three devices has three of them
    for placement in ("v", "loop"):
        instance = chain(layers, devices=3, placement=placement, fewer_stages=True)
        costs = RangeCosts.of(instance)
        best = optimum(instance)
        assert costs.compute_bound() == 267
        assert best is not None
        assert 95 + 96 + 98 + 99 + 101 + 102 <= 2 * counted(costs) <= 2 * best


@pytest.mark.parametrize("seed", range(20))
def test_loops_without_empty_stages(seed: int) -> None:
    """Few costs that differ, hardly more layers than stages: the furthest states do not suffice."""
    draw = np.random.default_rng(seed)
    k = int(draw.integers(2, 5))
    cycles = np.where(draw.random(2 * k + 2) < 0.4, 100, draw.integers(1, 30, 2 * k + 2))
    instance = chain(cycles, devices=k, placement="loop")
    result = sp.solve(instance, "rounds")
    assert (result.status, result.objective) == ("OPTIMAL", optimum(instance))


def test_why_nothing_fits() -> None:
    instance = chain([10] * 8, devices=2, exclusive=[10] * 8, capacity=35)
    result = sp.solve(instance)
    assert result.status == "INFEASIBLE"
    assert "no partition into 4 stages fits" in result.reason
    assert "5 bytes more on every device" in result.reason


@pytest.mark.parametrize("each", [3, 4])
@pytest.mark.parametrize("placement", ["v", "loop"])
def test_more_rounds_are_proved_by_counting(each: int, placement: str) -> None:
    cycles = [30] + [100] * 94 + [250]
    instance = chain(cycles, stages_per_device=each, placement=placement, fewer_stages=True)
    result = sp.solve(instance, "rounds")
    assert (result.status, result.objective) == ("OPTIMAL", 650)


def test_more_rounds_with_memory() -> None:
    draw = np.random.default_rng(0)
    cycles = draw.integers(1, 9, 24)
    instance = chain(
        cycles, devices=3, stages_per_device=4, exclusive=cycles, capacity=int(cycles.sum()) // 2
    )
    result = sp.solve(instance, "rounds")
    assert result.solution is not None
    assert instance.check(result.solution) == ()


def test_rounds_that_stay_make_the_fixed_cuts() -> None:
    """Two rounds of three are cut anew at a time; the third one had a stage across the cut."""
    instance = PipelinePartition.from_arrays(
        [24, 28, 26, 28, 26, 11, 13, 14],
        devices=2,
        variables=[("x", 4, 5)],
        fixed_cuts=[7],
        stages_per_device=3,
        placement="v",
        fewer_stages=True,
    )
    result = sp.solve(instance, "rounds")
    assert result.solution is not None
    assert 7 in result.solution.boundaries
    assert result.objective == sp.solve(instance, "cp-sat").objective


def test_a_start_is_taken() -> None:
    instance = chain([1, 2, 3, 4, 5, 6, 7, 8], devices=2)
    start = PipelineSolution((0, 2, 4, 6, 8), (0, 1, 1, 0))
    for method in ("rounds", "cp-sat"):
        result = sp.solve(instance, method, warm_start=start)
        assert result.objective is not None
        assert result.objective <= instance.evaluate(start)


def test_explanations_of_several_stages_say_nothing_of_the_room_of_one() -> None:
    chain = sp.PipelinePartition.from_arrays(
        [3, 4, 5], devices=1, stages_per_device=2, capacity=15, kv_bytes=[1, 1, 1]
    )
    assert "fewest tokens" not in dict(sp.explain(chain).critical)
