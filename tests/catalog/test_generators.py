from __future__ import annotations

import msgspec
import pytest

from stagepack import catalog
from stagepack.catalog.pipeline import GENERATORS, least_capacity
from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.ranges import RangeCosts
from tests.catalog.exact import optimum, pareto

RANDOM = [name.removeprefix("random/") for name in GENERATORS if name.startswith("random/")]


@pytest.mark.parametrize("name", RANDOM)
def test_same_seed_same_instance(name: str) -> None:
    def load(seed: int) -> PipelinePartition:
        loaded = catalog.load(f"pipeline/random/{name}", seed=seed, layers=24, devices=3)
        assert isinstance(loaded, PipelinePartition)
        return loaded

    instance = load(5)
    assert instance.digest == load(5).digest
    assert instance.digest != load(6).digest
    assert (instance.n, instance.k) == (24, 3)
    assert instance.name == f"{name}-24x3-seed5"
    for seed in range(5):
        assert (optimum(load(seed)) is None) == (name == "infeasible")


@pytest.mark.parametrize("name", RANDOM)
def test_smallest_sizes(name: str) -> None:
    for devices in (1, 2, 3):
        instance = catalog.load(f"pipeline/random/{name}", layers=devices, devices=devices)
        assert instance.n == instance.k == devices
        assert (optimum(instance) is None) == (name == "infeasible")
    with pytest.raises(InputError, match="2 layers for 3 devices"):
        catalog.load(f"pipeline/random/{name}", layers=2, devices=3)


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_the_adversarial_staircase_grows(devices: int) -> None:
    steps = [
        len(pareto(catalog.load("pipeline/random/adversarial", layers=n, devices=devices)))
        for n in (devices * 4, devices * 8, devices * 16)
    ]
    assert steps[0] >= 3
    assert steps[1] >= 1.6 * steps[0]
    assert steps[2] >= 1.6 * steps[1]
    assert steps[2] >= 12


def test_no_step_of_the_adversarial_staircase_is_much_better() -> None:
    pairs = pareto(catalog.load("pipeline/random/adversarial"))
    sums = [c + t for c, t in pairs]
    assert sum(value < 1.01 * min(sums) for value in sums) >= 0.8 * len(sums)


def test_the_bert_like_staircase_is_short() -> None:
    bert_like, heterogeneous = (
        catalog.load(f"pipeline/random/{name}", layers=40, devices=4)
        for name in ("bert-like", "heterogeneous")
    )
    assert len(pareto(bert_like)) <= 3
    values = [len(set(RangeCosts(i).recv.ravel().tolist())) for i in (bert_like, heterogeneous)]
    assert values[1] > 10 * values[0]


def with_capacity(instance: PipelinePartition, change: int) -> PipelinePartition:
    devices = tuple(
        msgspec.structs.replace(device, memory=(device.memory or 0) + change)
        for device in instance.cluster.devices
    )
    return instance.replace(cluster=msgspec.structs.replace(instance.cluster, devices=devices))


@pytest.mark.parametrize("seed", range(8))
def test_infeasible_by_one_byte(seed: int) -> None:
    instance = catalog.load("pipeline/random/infeasible", layers=17, devices=4, seed=seed)
    assert optimum(instance) is None
    assert optimum(with_capacity(instance, 1)) is not None


def test_tight_memory_matters() -> None:
    tight = catalog.load("pipeline/random/tight-memory")
    loose = with_capacity(tight, 10**12)
    best, free = optimum(tight), optimum(loose)
    assert best is not None
    assert free is not None
    assert best > free
    exactly = catalog.load("pipeline/random/tight-memory", slack=0)
    assert exactly.cluster.devices[0].memory == least_capacity(exactly, [1] * exactly.k)
    assert optimum(exactly) is not None


def test_devices_are_unlike() -> None:
    instance = catalog.load("pipeline/random/unlike-devices")
    assert RangeCosts(instance).classes >= 4
    assert len({device.speed for device in instance.cluster.devices}) > 1
    assert len({device.memory for device in instance.cluster.devices}) > 1
    assert catalog.load("pipeline/random/unlike-devices", free_order="yes").free_order


def test_shared_variables_leave_room() -> None:
    for seed in range(10):
        instance = catalog.load("pipeline/random/shared-variables", layers=12, devices=5, seed=seed)
        assert instance.variables
        assert instance.allowed_cuts.sum() >= 6
