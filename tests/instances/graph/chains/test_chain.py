from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formats import door
from stagepack.instances.graph import GraphPartition, GraphSolution, Objective
from stagepack.instances.graph.chains.chain import chain
from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.data import GraphOrder
from stagepack.instances.schedule import PipelineSchedule
from stagepack.report.pipeline import VIEW
from stagepack.solve import solve
from tests.random_graphs import random_instance

EDGES = [(0, 1), (1, 2), (0, 2)]
NODES: dict[str, Any] = {"time": [10, 20, 30], "traffic": [6, 4, 0], "accelerators": 3}


def three(**options: Any) -> GraphPartition:
    return GraphPartition.from_edges(3, EDGES, **{**NODES, **options})


def spread(instance: GraphPartition, *devices: int) -> GraphSolution:
    return GraphSolution.of(instance, devices or range(3))


def test_a_tensor_that_skips_a_stage_crosses_both_cuts() -> None:
    instance = three(bandwidth=2, memory=[1, 2, 3], capacity=[9, 8, 7], device_order="fixed")
    made = chain(instance, spread(instance))
    assert made.forward.tolist() == [10, 20, 30]
    assert made.in_bytes.tolist() == made.out_bytes.tolist() == [0, 6, 10, 0]
    assert made.recv_cycles is not None
    assert made.recv_cycles.tolist() == [[0, 3, 5, 0]] * 3
    assert [device.memory for device in made.cluster.devices] == [9, 8, 7]
    assert made.cluster.devices[1].name == "device 1"
    assert made.layer_name(2) == "stage 2"
    assert made.objective == "sum"


def test_stages_are_in_their_order_on_their_devices() -> None:
    instance = three(speeds=[1, 2, 5], cpus=1, cpu_time=[7, 7, 7])
    made = chain(instance, spread(instance, 3, 2, 1))
    assert made.forward.tolist() == [7, 4, 15]
    assert [device.name for device in made.cluster.devices] == ["CPU 0", "device 2", "device 1"]


def test_forward_and_backward_are_told_apart_and_gradients_share_the_link() -> None:
    instance = GraphPartition.from_edges(
        4, [(0, 1), (1, 2), (2, 3)], time=[10, 20, 40, 20], traffic=[6, 0, 8, 0],
        stash=[5, 7, 0, 0],
        backward=[False, False, True, True], colour=[0, 1, 1, 0], accelerators=2, microbatches=4,
    )  # fmt: skip
    made = chain(instance, GraphSolution.of(instance, [0, 1, 1, 0]))
    assert made.training
    assert made.forward.tolist() == [10, 20]
    assert made.backward.tolist() == [20, 40]
    assert made.in_bytes.tolist() == [0, 8, 0]
    assert made.stash.tolist() == [5, 7]
    assert made.microbatches == 4
    schedule = PipelineSchedule.from_partition(made, PipelineSolution.in_order([0, 1, 2]))
    assert schedule.forward.tolist() == [10, 20]
    assert schedule.latency.tolist() == [8]
    assert solve(schedule, "1f1b").solution is not None


def test_fractions_become_cycles() -> None:
    instance = three(time=[0.5, 0.25, 1.0], traffic=[0.125, 0.0, 0.0])
    made = chain(instance, spread(instance), cycles=1000)
    assert made.forward.tolist() == [500, 250, 1000]
    assert made.recv_cycles is not None
    assert made.recv_cycles[0].tolist() == [0, 125, 125, 0]
    schedule = PipelineSchedule.from_partition(made, PipelineSolution.in_order([0, 1, 2, 3]))
    assert schedule.latency.tolist() == [125, 125]


def test_without_skips_the_chain_is_worth_what_the_graph_is() -> None:
    rng = np.random.default_rng(11)
    seen = 0
    for _ in range(300):
        n = int(rng.integers(2, 9))
        objective = str(rng.choice([Objective.SUM, Objective.OVERLAP]))
        instance = random_instance(
            rng,
            n,
            objective=objective,
            contiguous=True,
            cpus=0,
            cpu_time=None,
            cpu=None,
            accelerator=None,
            backward=None,
            colour=None,
        )
        solution = solve(instance, "equal-work").solution
        if solution is None or not instance.uniform:
            continue
        made = chain(instance, solution)
        worth = made.evaluate(PipelineSolution.in_order(range(made.n + 1)))
        place = {device: at for at, device in enumerate(solution.order or ())}
        far = [
            abs(place.get(a, a) - place.get(b, b))
            for a, b in solution.assignment[instance.edges].tolist()
        ]
        assert worth >= instance.evaluate(solution) - 1e-9
        if max(far, default=0) <= 1:
            assert worth == pytest.approx(instance.evaluate(solution))
            seen += 1
    assert seen >= 30


def test_a_chain_of_a_graph_says_that_it_is_one_order(tmp_path: Path) -> None:
    """Nodes 1 and 2 may change places; in a graph that is a chain none may."""
    split = GraphPartition.from_edges(
        4, [(0, 1), (0, 2), (1, 3), (2, 3)], time=[1, 2, 3, 4], traffic=[1] * 4, accelerators=2
    )
    made = chain(split, GraphSolution.of(split, [0, 0, 1, 1]))
    assert made.order == GraphOrder(edges=4, loose=1)
    result = solve(made)
    assert "for one order of the layers" in result.reason
    assert "--kind graph-partition" in result.to_dict()["reason"]
    door.write(made, tmp_path / "chain.json")
    assert door.read(tmp_path / "chain.json").order == made.order
    assert ("Their order", "one of many of a graph") in VIEW.lines(VIEW.facts(made))
    straight = GraphPartition.from_edges(3, [(0, 1), (1, 2)], time=[1, 2, 3], accelerators=2)
    assert chain(straight, GraphSolution.of(straight, [0, 0, 1])).order is None


def test_what_is_no_chain_is_said() -> None:
    instance = three(contiguous=False, accelerators=2)
    with pytest.raises(InputError, match="node 1 of stage 1 is read by 2 of stage 0"):
        chain(instance, spread(instance, 0, 1, 0))
    shared = three(objective="replicated")
    with pytest.raises(
        InputError, match="stage 0 runs on 2 devices, which chains and schedules cannot"
    ):
        chain(shared, GraphSolution.of(shared, [0, 0, 1], replicas=(2, 1)))
    wrong = three()
    with pytest.raises(InputError, match="contiguity"):
        chain(wrong, spread(wrong, 0, 1, 0))
    with pytest.raises(InputError, match="no number of cycles"):
        chain(wrong, spread(wrong), cycles=0)
