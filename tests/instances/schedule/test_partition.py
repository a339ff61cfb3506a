from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stagepack import catalog
from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.instances.schedule import PipelineSchedule
from stagepack.instances.schedule.reasons import reasons

CLUSTER = Cluster(
    devices=(
        Device(memory=100, send=Link(GBps=1, idle=2), name="left"),
        Device(memory=90, speed=2, recv=Link(GBps=0.5), send=Link(GBps=2)),
        Device(memory=80, recv=Link(GBps=4, idle=1)),
    ),
    clock=2**30,  # 1 GB/s is one byte a cycle
)
CUTS = PipelineSolution.in_order((0, 2, 3, 5))


def partition(**fields: Any) -> PipelinePartition:
    given: dict[str, Any] = {
        "forward": [3, 4, 5, 6, 7],
        "backward": [6, 9, 11, 12, 14],
        "cluster": CLUSTER,
        "exclusive": [10, 10, 20, 5, 5],
        "stash": [1, 2, 3, 4, 5],
        "in_bytes": [2, 3, 4, 5, 6, 7],
        "out_bytes": [2, 3, 4, 5, 6, 7],
        "training": True,
        "microbatches": 4,
        "layer_names": list("abcde"),
        "name": "five",
    }
    return PipelinePartition.from_arrays(**{**given, **fields})


def test_every_figure_by_hand() -> None:
    instance = PipelineSchedule.from_partition(partition(), CUTS)
    assert instance.name == "five"
    assert instance.microbatches.tolist() == [4, 4, 4]
    assert instance.forward.tolist() == [7, 3, 13]  # the second: 5 / 2, rounded up
    assert instance.backward is not None
    assert instance.weight is not None
    assert (instance.backward + instance.weight).tolist() == [15, 6, 26]
    assert instance.weight.tolist() == [7, 3, 13]
    # Cut 2, 4 bytes: 2 + 4 to send, 4 / 0.5 to receive.  Cut 3, 5 bytes: 3 to send, 1 + 2.
    assert instance.latency.tolist() == [8, 3]
    assert instance.memory_forward.tolist() == [3 + 2, 3 + 4, 9 + 5]
    assert instance.memory_weight.tolist() == [-2, -3, -7]
    assert instance.memory_backward.tolist() == [-3, -4, -7]
    assert instance.limit is not None
    assert instance.limit.tolist() == [80, 70, 70]
    assert instance.stage_names == ("a to b", "c", "d to e")
    assert instance.device_names == ("left", "device 1", "device 2")


def test_fused_and_inference() -> None:
    fused = PipelineSchedule.from_partition(partition(), CUTS, split=False, microbatches=7)
    assert fused.kinds == ("F", "B")
    assert fused.backward is not None
    assert fused.backward.tolist() == [15, 6, 26]
    assert fused.memory_backward.tolist() == [-5, -7, -14]
    assert fused.microbatches.tolist() == [7, 7, 7]
    inference = PipelineSchedule.from_partition(partition(training=False), CUTS)
    assert inference.kinds == ("F",)
    assert not inference.memory_forward.any()


def test_what_is_received_is_kept_where_stashes_count() -> None:
    counted = PipelineSchedule.from_partition(partition(memory="memory,stash,received"), CUTS)
    assert counted.memory_forward.tolist() == [3 + 2, 3 + 4, 9 + 5]
    alone = PipelineSchedule.from_partition(partition(memory="memory,stash"), CUTS)
    assert alone.memory_forward.tolist() == [3, 3, 9]
    left_out = PipelineSchedule.from_partition(partition(memory="memory"), CUTS)
    assert not left_out.memory_forward.any()
    assert not left_out.memory_backward.any()


def test_options_replace_what_is_derived() -> None:
    instance = PipelineSchedule.from_partition(
        partition(), CUTS, objective="span", limit=50, latency=0, optimizer=3, steps=2
    )
    assert (instance.objective, instance.steps) == ("span", 2)
    assert instance.limit is not None
    assert instance.limit.tolist() == [50, 50, 50]
    shared = PipelineSchedule.from_partition(partition(), CUTS, devices=[0, 1, 0])
    assert shared.limit is not None
    assert shared.limit.tolist() == [80 - 30, 70]  # the least memory, what both hold taken off
    with pytest.raises(InputError, match="devices: has shape"):
        PipelineSchedule.from_partition(partition(), CUTS, devices=[0, 1])


def test_fractions_and_tables() -> None:
    floats = partition(forward=[0.5, 0.5, 1.5, 2.25, 0.25], backward=[2.5] * 5)
    assert PipelineSchedule.from_partition(floats, CUTS).forward.tolist() == [1, 1, 3]
    table = np.add.outer(-np.arange(6), np.arange(6)).clip(0)
    sums = partition(compute_table=table, training=False)
    assert PipelineSchedule.from_partition(sums, CUTS).forward.tolist() == [2, 1, 2]
    transfers = partition(recv_cycles=np.full((3, 6), 4.2), send_cycles=np.full((3, 6), 2))
    assert PipelineSchedule.from_partition(transfers, CUTS).latency.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("fields", "cuts", "words"),
    [
        ({}, (0, 2, 5), "is no partition of five: devices"),
        ({"compute_table": np.ones((6, 6))}, (0, 2, 3, 5), "only together"),
        ({"backward": None}, (0, 2, 3, 5), "stage 0 .* takes no backward cycles"),
        ({"backward": [6, 9, 1, 12, 14]}, (0, 2, 3, 5), "split: the backward pass of stage 1"),
        ({"forward": [0, 0, 1, 1, 1]}, (0, 2, 3, 5), "stage 0 .* takes no forward cycles"),
    ],
)
def test_what_will_not_do(fields: dict[str, Any], cuts: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PipelineSchedule.from_partition(partition(**fields), PipelineSolution.in_order(cuts))


def test_too_many_stages_for_a_device() -> None:
    with pytest.raises(InputError, match="device 0 holds 105 bytes all the time, 25 more"):
        PipelineSchedule.from_partition(
            partition(exclusive=[10, 15, 70, 5, 5]), CUTS, devices=[0, 0, 0]
        )


def test_devices_without_a_limit() -> None:
    devices = tuple(Device(memory=memory) for memory in (None, 90, 80))
    free = partition(cluster=Cluster(devices=devices))
    limit = PipelineSchedule.from_partition(free, CUTS).limit
    assert limit is not None
    assert limit[0] > 2**61
    assert limit[1:].tolist() == [70, 70]
    nowhere = partition(cluster=Cluster.uniform(3))
    assert PipelineSchedule.from_partition(nowhere, CUTS).limit is None


@pytest.mark.parametrize("name", ["bert-base", "resnet-50"])
def test_networks(name: str) -> None:
    instance = catalog.load(f"schedule/{name}")
    assert reasons(instance) == ()
    longest = max(int(instance.forward.max()), 1)
    assert math.isclose(instance.forward.min() / longest, 1, abs_tol=0.5)
