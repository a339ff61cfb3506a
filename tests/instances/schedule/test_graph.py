"""Schedules of graph partitions: what runs in one go is a stage, and nothing waits for less."""

from __future__ import annotations

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.schedule import PipelineSchedule, graph
from stagepack.solve import solve
from tests.random_graphs import random_instance


def test_a_device_that_is_left_and_met_again_has_two_stages() -> None:
    """0 and 1 on one device, 2 on another, 3 on the first again."""
    instance = GraphPartition.from_edges(
        4, [(0, 1), (0, 2), (1, 3), (2, 3)], time=[3, 4, 5, 6], traffic=[8, 1, 2, 0],
        memory=[1, 2, 3, 4], capacity=20, accelerators=2, bandwidth=2, contiguous=False,
        microbatches=3,
    )  # fmt: skip
    made = PipelineSchedule.from_graph(instance, GraphSolution.of(instance, [0, 0, 1, 0]))
    assert made.forward.tolist() == [7, 5, 6]
    assert made.devices.tolist() == [0, 1, 0]
    assert made.edges == ((0, 1), (0, 2), (1, 2))
    assert made.latency.tolist() == [4, 0, 1]
    assert made.limit is not None
    assert made.limit.tolist() == [13, 17]
    assert made.microbatches.tolist() == [3] * 3
    assert made.stage_names == ("device 0 part 1", "device 1", "device 0 part 2")
    assert solve(made, "auto", time_limit=5).solution is not None


def test_the_backward_pass_goes_through_the_stages_in_reverse() -> None:
    """Layers 0, 1, 2 on devices 0, 1, 0, each with its backward node on the same."""
    instance = GraphPartition.from_edges(
        6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], time=[1, 2, 3, 6, 4, 2],
        traffic=[2, 2, 0, 5, 2, 0], stash=[7, 8, 9, 0, 0, 0], backward=[False] * 3 + [True] * 3,
        colour=[0, 1, 2, 2, 1, 0], accelerators=2, contiguous=False, microbatches=2,
    )  # fmt: skip
    solution = GraphSolution.of(instance, [0, 1, 0, 0, 1, 0])
    made = PipelineSchedule.from_graph(instance, solution)
    assert made.weight is not None
    assert made.backward is not None
    assert (made.backward + made.weight).tolist() == [2, 4, 6]
    assert made.latency.tolist() == [2, 5]
    assert made.memory_forward.tolist() == [7, 8, 9]
    assert (made.memory_backward + made.memory_weight).tolist() == [-7, -8, -9]
    whole = PipelineSchedule.from_graph(instance, solution, split=False, cycles=10)
    assert whole.weight is None
    assert whole.forward.tolist() == [10, 20, 30]
    assert solve(whole, "auto", time_limit=5).solution is not None


@pytest.mark.parametrize("split", [True, False])
def test_a_chain_has_the_same_schedule_both_ways_but_for_what_is_received(split: bool) -> None:
    instance = GraphPartition.from_edges(
        6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], time=[10, 20, 30, 60, 41, 20],
        traffic=[6, 8, 0, 5, 9, 0], stash=[7, 8, 9, 0, 0, 0], memory=[1, 2, 3, 0, 0, 0],
        backward=[False] * 3 + [True] * 3, colour=[0, 1, 2, 2, 1, 0], accelerators=3, capacity=99,
        bandwidth=2, microbatches=4,
    )  # fmt: skip
    solution = GraphSolution.of(instance, [0, 1, 2, 2, 1, 0])
    direct = PipelineSchedule.from_graph(instance, solution, split=split)
    layers = sp.chain(instance, solution)
    cuts = sp.PipelineSolution.in_order(range(layers.n + 1))
    relayed = PipelineSchedule.from_partition(layers, cuts, split=split)
    received = [0, 9, 8]
    assert (relayed.memory_forward - direct.memory_forward).tolist() == received
    kept = PipelineSchedule.from_partition(
        layers.replace(in_bytes=None, out_bytes=None), cuts, split=split
    )
    for column in (
        "forward", "backward", "weight", "latency", "limit", "devices", "microbatches",
        "memory_forward", "memory_backward", "memory_weight",
    ):  # fmt: skip
        assert str(getattr(kept, column)) == str(getattr(direct, column)), column


def test_sums_of_fractions_that_are_whole_take_no_cycle_more() -> None:
    """0.9 + 2.1 is 3, though the nearest floats add up to a little more."""
    instance = GraphPartition.from_edges(
        3, [(0, 2), (1, 2)], time=[0.9, 2.1, 1.0], traffic=[0.2, 1.8, 0.0], accelerators=2
    )
    made = PipelineSchedule.from_graph(instance, GraphSolution.of(instance, [0, 0, 1]))
    assert made.forward.tolist() == [3, 1]
    assert made.latency.tolist() == [2]


def test_contiguous_partitions_keep_a_stage_a_device() -> None:
    seen = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        instance = random_instance(
            rng, 7, contiguous=True, backward=None, objective="sum", accelerators=3, capacity=None
        )
        solution = solve(instance, "linear-dp").solution
        if solution is None:
            continue
        made = PipelineSchedule.from_graph(instance, solution)
        assert made.p == made.d == len(set(solution.assignment.tolist()))
        seen += made.p > 1
    assert seen > 20


@pytest.mark.parametrize("seed", range(60))
def test_whatever_reads_comes_later(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(4, 12))
    instance = random_instance(
        rng, nodes, contiguous=False, capacity=None, cpus=0, accelerator=None, cpu=None,
        cpu_time=None, objective="sum", colour=None, empty_devices=True,
        backward=None,
    )  # fmt: skip
    devices = rng.integers(0, instance.accelerators, nodes)
    made = PipelineSchedule.from_graph(instance, GraphSolution.of(instance, devices), cycles=1000)
    stage = graph._forward_stages(instance, devices)
    assert (made.devices[stage] == np.unique(devices, return_inverse=True)[1]).all()
    for u, v in stage[instance.edges].tolist():
        assert u == v or (u, v) in made.edges
    work = np.bincount(stage, instance.time / instance.speeds[devices])
    assert np.abs(made.forward - np.maximum(1, 1000 * work)).max() <= 1


def test_what_is_no_schedule_is_said() -> None:
    edges = [(0, 1), (1, 2), (2, 3)]
    instance = GraphPartition.from_edges(
        4, edges, time=[1] * 4, accelerators=3, contiguous=False, backward=[0, 0, 1, 1]
    )
    with pytest.raises(InputError, match="node 2 runs on device 2, whose stages all come after"):
        PipelineSchedule.from_graph(instance, GraphSolution.of(instance, [0, 1, 2, 0]))
    turned = instance.replace(backward=[True, False, False, False])
    with pytest.raises(InputError, match="node 1 of the forward pass reads from 0"):
        PipelineSchedule.from_graph(turned, GraphSolution.of(turned, [0] * 4))
    alone = instance.replace(backward=[True] * 4)
    with pytest.raises(InputError, match="has no forward nodes"):
        PipelineSchedule.from_graph(alone, GraphSolution.of(alone, [0] * 4))
    shared = sp.GraphPartition.from_edges(
        2, [(0, 1)], time=[1, 1], accelerators=3, objective="replicated"
    )
    with pytest.raises(InputError, match="stage 0 runs on 2 devices"):
        PipelineSchedule.from_graph(
            shared, GraphSolution.of(shared, [0, 1], [0, 1], replicas=(2, 1))
        )
