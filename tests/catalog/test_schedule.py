from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stagepack import catalog
from stagepack.catalog import pipeline as pipelines
from stagepack.catalog.networks import NETWORKS
from stagepack.errors import InputError
from stagepack.instances.pipeline.check import stage_compute
from stagepack.instances.schedule import PipelineSchedule, least_memory, measure
from stagepack.instances.schedule.partition import balanced
from stagepack.instances.schedule.reasons import reasons
from tests.catalog.exact import optimum
from tests.random_schedules import by_list

ENTRIES = [entry.name for entry in catalog.entries("pipeline-schedule")]


@pytest.mark.parametrize("name", ENTRIES)
def test_defaults_are_sound(name: str) -> None:
    instance: PipelineSchedule = catalog.load(name)
    assert instance.kind == "pipeline-schedule"
    assert reasons(instance) == ()
    assert instance.training
    assert catalog.load(name, objective="span").objective == "span"
    assert catalog.load(name, steps="7").steps == 7
    free = instance.replace(limit=None)
    solution = by_list(free.replace(microbatches=np.minimum(free.microbatches, 4)))
    assert free.replace(microbatches=np.minimum(free.microbatches, 4)).check(solution) == ()


def test_every_network_has_a_schedule() -> None:
    assert set(ENTRIES) >= {f"schedule/{name}" for name in NETWORKS}


def test_first_stages_run_as_pytorch_runs_them() -> None:
    plain, torch = (
        catalog.load("schedule/zero-bubble/small", whole_first=yes) for yes in (False, True)
    )
    assert plain.backward is not None
    assert plain.weight is not None
    assert torch.backward is not None
    assert torch.weight is not None
    assert (plain.backward.tolist(), plain.weight.tolist()) == ([6] * 4, [4] * 4)
    assert (torch.backward.tolist(), torch.weight.tolist()) == ([1, 6, 6, 6], [9, 4, 4, 4])
    assert catalog.load("schedule/zero-bubble/small", whole_first="true").digest == torch.digest
    with pytest.raises(InputError, match="whole_first: the backward pass is not split"):
        catalog.load("schedule/gpt2-small", split=False, whole_first=True)


def test_device_maps() -> None:
    load = catalog.load
    assert load("schedule/uniform", devices=3).devices.tolist() == [0, 1, 2]
    dealt = load("schedule/interleaved", devices=3, chunks=3)
    assert dealt.devices.tolist() == [0, 1, 2] * 3
    shaped = load("schedule/v-shaped", devices=3, latency=4)
    assert shaped.devices.tolist() == [0, 1, 2, 2, 1, 0]
    assert shaped.lag.tolist() == [4, 4, 0, 4, 4]
    both = load("schedule/bidirectional", devices=3, microbatches=5)
    assert both.devices.tolist() == [0, 1, 2, 2, 1, 0]
    assert both.microbatches.tolist() == [3] * 3 + [2] * 3
    assert both.edges == ((0, 1), (1, 2), (3, 4), (4, 5))


def test_units_of_memory() -> None:
    load = catalog.load
    split = load("schedule/uniform", capacity=8)
    assert split.limit is not None
    assert split.limit.tolist() == [8] * 4
    assert least_memory(split).tolist() == [2] * 4
    fused = load("schedule/uniform", weight=0, backward=2)
    assert fused.kinds == ("F", "B")
    assert fused.memory_backward.tolist() == [-2] * 4
    assert load("schedule/uniform", weight=0, backward=0).kinds == ("F",)
    assert "1 too little" in reasons(load("schedule/uniform", capacity=1))[0]


def test_unlike_stages_follow_the_seed() -> None:
    first, second = (catalog.load("schedule/unlike", seed=seed) for seed in (0, 1))
    assert first.digest != second.digest
    assert first.digest == catalog.load("schedule/unlike").digest
    assert len(set(first.forward.tolist())) > 1


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("schedule/uniform", {"backward": 0}, "0 though weight is not"),
        ("schedule/uniform", {"microbatches": 0}, "0 will not do as microbatches"),
        ("schedule/uniform", {"forward": 0}, "0 will not do as forward"),
        ("schedule/uniform", {"steps": 0}, "0 will not do as steps"),
        ("schedule/uniform", {"objective": "peak"}, "choose one of makespan, span"),
        ("schedule/bidirectional", {"microbatches": 1}, "at least one a direction"),
        ("schedule/bert-large", {"cluster": "ipu-pod2"}, "do not fit 2 devices"),
        ("schedule/zero-bubble/smal", {}, "did you mean schedule/zero-bubble/small"),
    ],
)
def test_wrong_parameters(name: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        catalog.load(name, **parameters)
    assert caught.value.remedy


def test_the_hard_cases() -> None:
    small = catalog.load("schedule/zero-bubble/small")
    assert small.limit is not None
    assert small.backward is not None
    assert small.weight is not None
    assert (small.p, small.objective, small.limit.tolist()) == (4, "span", [10] * 4)
    assert [c[0] for c in (small.forward, small.backward, small.weight)] == [5, 6, 4]
    for name, p, m, limit in (("measured-4x12", 4, 12, 32), ("measured-8x32", 8, 32, 59520)):
        instance: PipelineSchedule = catalog.load(f"schedule/zero-bubble/{name}")
        assert (instance.p, int(instance.microbatches[0])) == (p, m)
        assert instance.limit is not None
        assert set(instance.limit.tolist()) == {limit}
        released = instance.memory_backward + instance.memory_weight
        assert (instance.memory_forward + released == 0).all()
        known = catalog.best_known(instance)
        assert known is not None
        works = [d.busy for d in measure(instance, by_list(instance.replace(limit=None))).devices]
        assert max(works) < known.value


def test_best_known_values_name_their_instances() -> None:
    count = 0
    for known in catalog.BEST_KNOWN:
        if known.name.startswith("schedule/"):
            name, *settings = known.name.split()
            parameters = dict(setting.split("=") for setting in settings)
            instance = catalog.load(name, **parameters)
            assert catalog.best_known(instance) == known
            assert (instance.source, instance.objective) == (known.name, known.objective)
            assert known.source
            count += 1
    assert count >= 6


@pytest.mark.parametrize("name", ["bert-base", "vgg-16", "vit-b-16"])
def test_stages_have_the_least_bottleneck(name: str) -> None:
    parameters = {
        **pipelines.parameters(name), "batch": 1, "training": True,
        "objective": "bottleneck", "host_transfer": False,
    }  # fmt: skip
    partition = pipelines.of_network(name, **parameters)
    solution = balanced(partition)
    assert partition.check(solution) == ()
    value = max(
        stage_compute(partition, first, end, device)
        for device, (first, end) in enumerate(pairwise(solution.boundaries))
    )
    assert value == partition.evaluate(solution) == optimum(partition)
