"""The objective latency of graphs: what it is worth, what is checked, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.graph import GraphSolution
from tests.latency_graphs import makespan, random_instance


def test_values_and_rules_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(20)
    valid = 0
    for _ in range(250):
        instance = random_instance(rng, int(rng.integers(1, 7)))
        for _ in range(12):
            devices = tuple(rng.integers(0, instance.devices, instance.n).tolist())
            solution = GraphSolution.of(instance, devices)
            value = makespan(instance, devices)
            assert (value is None) == bool(instance.check(solution))
            if value is not None:
                valid += 1
                assert instance.evaluate(solution) == pytest.approx(float(value), rel=1e-12)
    assert valid > 500


def test_branches_run_side_by_side_and_cpus_do_any_number_at_once() -> None:
    graph = sp.GraphPartition.from_edges(
        ["in", "left", "right", "out"],
        [("in", "left"), ("in", "right"), ("left", "out"), ("right", "out")],
        time=[1, 10, 10, 1],
        cpu_time=[2, 30, 30, 2],
        traffic=[1, 1, 1, 0],
        accelerators=2,
        cpus=1,
        objective="latency",
    )
    by = {
        (0, 0, 0, 0): 22,  # one device, in one go
        (2, 2, 2, 2): 34,  # CPU: both branches at once
        (2, 0, 1, 2): 2 + 12 + 2,  # a device for each branch, which receives and sends
        (2, 0, 2, 2): 2 + 30 + 2,
        (0, 0, 1, 0): None,  # 0 waits for 1, and 1 for 0
    }
    for devices, value in by.items():
        solution = GraphSolution.of(graph, devices)
        broken = {one.rule for one in graph.check(solution)}
        assert broken == (set() if value is not None else {"contiguity"})
        if value is not None:
            assert graph.evaluate(solution) == value


def test_an_order_is_one_of_accelerators() -> None:
    chain = sp.GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[1, 1, 1], cpu_time=[1, 1, 1], accelerators=2, cpus=1,
        objective="latency",
    )  # fmt: skip
    for order, broken in (((1, 0, 2), set()), ((2, 1, 0), set()), ((0, 1, 2), {"contiguity"})):
        solution = GraphSolution.of(chain, [1, 0, 2], order)
        assert {one.rule for one in chain.check(solution)} == broken
    apart = GraphSolution.of(chain, [2, 0, 2])  # before and after device 0
    assert not chain.check(apart)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("contiguous", {"contiguous": False}),
        ("device_order", {"device_order": "fixed"}),
        ("empty_devices", {"empty_devices": False}),
        ("bandwidth", {"bandwidth": [[0, 1], [2, 0]]}),
        ("backward", {"backward": [False, True]}),
        ("microbatches", {"microbatches": 2, "stash": [1, 1]}),
    ],
)
def test_what_latency_does_not_know_is_refused_by_name(field: str, options: Any) -> None:
    with pytest.raises(sp.InputError, match="latency") as caught:
        sp.GraphPartition.from_edges(
            2, [(0, 1)], time=[1, 1], accelerators=2, objective="latency", **options
        )
    assert str(caught.value).startswith(field)


def test_stages_of_latency_are_no_chain_and_no_schedule() -> None:
    graph = sp.GraphPartition.from_edges(
        2, [(0, 1)], time=[1, 1], accelerators=2, objective="latency"
    )
    solution = GraphSolution.of(graph, [0, 1])
    for convert in (sp.chain, sp.PipelineSchedule.from_graph):
        with pytest.raises(sp.InputError, match="latency"):
            convert(graph, solution)
    with pytest.raises(sp.InputError, match="latency"):
        sp.plan_model(graph)


def test_on_a_chain_it_is_the_latency_of_chains() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        n, k = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        time, traffic = rng.integers(0, 20, n), rng.integers(0, 9, n)
        graph = sp.GraphPartition.from_edges(
            n, [(at, at + 1) for at in range(n - 1)], time=time, traffic=traffic, accelerators=k,
            objective="latency",
        )  # fmt: skip
        for cuts in product(range(k), repeat=n):
            if list(cuts) != sorted(cuts):
                continue
            ends = [at for at in range(1, n) if cuts[at] != cuts[at - 1]]
            value = int(time.sum()) + 2 * sum(int(traffic[at - 1]) for at in ends)
            assert graph.evaluate(GraphSolution.of(graph, cuts)) == value
