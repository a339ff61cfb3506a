"""Which order of a graph becomes the chain, and that an answer says so."""

from __future__ import annotations

import functools
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.instances.pipeline import Objective, PipelinePartition
from stagepack.instances.pipeline.order_kernels import INFINITE
from stagepack.instances.pipeline.orders import best_order, least_value
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Cluster, LayerProfile, Link, ModelProfile
from tests.random_pipelines import OBJECTIVES


def profile(rng: random.Random, n: int) -> ModelProfile:
    """Return a random graph; every layer but the first reads at least one before it."""
    tensors = {f"t{at}": rng.randint(1, 400) for at in range(n)}
    layers = [
        LayerProfile(
            name=f"l{at}",
            forward=rng.randint(0, 40),
            backward=rng.randint(0, 40),
            exclusive={"parameters": rng.randint(0, 9)},
            stash=rng.randint(0, 5),
            inputs=tuple(
                f"t{source}"
                for source in sorted(rng.sample(range(at), min(at, rng.choice((1, 1, 2)))))
            ),
            outputs=(f"t{at}",),
        )
        for at in range(n)
    ]
    return ModelProfile(layers=tuple(layers), tensors=tensors, results=(f"t{n - 1}",))


def build(graph: ModelProfile, **options: Any) -> PipelinePartition:
    memory = options.pop("memory", None)
    cluster = Cluster.uniform(3, memory=memory, link=Link(GBps=10), clock=2**30)
    return PipelinePartition.from_profile(graph, cluster, **options)


def orders(graph: ModelProfile) -> list[ModelProfile]:
    """Return the profile in every topological order, by trying all permutations."""
    found = []
    for layers in itertools.permutations(graph.layers):
        known: set[str] = set()
        for layer in layers:
            if not known.issuperset(layer.inputs):
                break
            known.update(layer.outputs)
        else:
            found.append(ModelProfile(layers=layers, tensors=graph.tensors, results=graph.results))
    return found


@pytest.mark.parametrize("objective", [*OBJECTIVES, Objective.LATENCY])
def test_the_best_of_all_orders_of_small_graphs(objective: Objective) -> None:
    missed = 0
    for seed in range(6):
        rng = random.Random(seed)
        graph = profile(rng, 6)
        options: dict[str, Any] = {
            "objective": objective,
            "training": bool(rng.getrandbits(1)),
            "fewer_stages": bool(rng.getrandbits(1)),
            "memory": rng.choice((None, 60)),
        }
        values = [sp.solve(build(order, **options)).objective for order in orders(graph)]
        chosen = best_order(graph, functools.partial(build, **options))
        least = min((value for value in values if value is not None), default=None)
        found = sp.solve(chosen).objective
        given = sp.solve(build(graph, **options)).objective
        assert given is None or (found is not None and found <= given)
        assert found is None or (least is not None and found >= least)
        missed += found != least
    assert missed <= 1, "48 orders nearly always hold the best of a few hundred"


@pytest.mark.parametrize("objective", [*OBJECTIVES, Objective.LATENCY])
def test_orders_are_judged_by_their_optimum(objective: Objective) -> None:
    for seed in range(10):
        rng = random.Random(100 + seed)
        memory = rng.choice((None, 90))
        instance = build(profile(rng, 14), objective=objective, memory=memory, training=True)
        result = sp.solve(instance, method="dp")
        value = least_value(instance)
        if result.objective is None:
            assert value == INFINITE
        else:
            assert RangeCosts.of(instance).value(value) == result.objective


def test_the_same_order_every_time() -> None:
    graph = profile(random.Random(3), 40)
    first, second = (best_order(graph, build) for _ in range(2))
    assert first.layer_names == second.layer_names
    assert sorted(first.layer_names or ()) == sorted(layer.name for layer in graph.layers)


def test_the_last_layer_stays_where_its_output_is_the_result() -> None:
    graph = profile(random.Random(8), 20)
    graph = ModelProfile(layers=graph.layers, tensors=graph.tensors)
    chosen = best_order(graph, lambda p: build(p, objective="sum"))
    assert (chosen.layer_names or ())[-1] == "l19"


def test_an_answer_says_that_it_is_for_one_order(tmp_path: Path) -> None:
    instance = build(profile(random.Random(1), 9), objective="sum")
    assert instance.order is not None
    assert instance.order.tried == 1
    result = sp.solve(instance)
    assert "one order of the layers" in result.reason
    assert "graph-partition" in result.to_dict()["reason"]
    path = tmp_path / "chain.json"
    sp.write(instance, path)
    again = sp.read(path)
    assert again.order == instance.order
    assert again.digest == instance.digest


def test_a_chain_says_nothing() -> None:
    layers = tuple(
        LayerProfile(forward=1, inputs=(f"t{at}",), outputs=(f"t{at + 1}",)) for at in range(5)
    )
    chain = ModelProfile(layers=layers, tensors={f"t{at}": 1 for at in range(6)})
    instance = best_order(chain, build)
    assert instance.order is None
    assert sp.solve(instance).reason == ""
    # Nor does one of whose graph nothing is known.
    assert sp.PipelinePartition.from_arrays([1, 2, 3], devices=2).order is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_public_graphs_are_read_in_a_better_order(data_dir: Path, objective: Objective) -> None:
    path = data_dir / "pipedream" / "nasnetamobile_graph.txt"
    given: dict[str, Any] = {
        "kind": "pipeline-partition", "devices": 8, "bandwidth": 10, "training": True,
        "objective": objective,
    }  # fmt: skip
    best, file = sp.read(path, **given), sp.read(path, order="file", **given)
    assert best.order is not None
    assert best.order.tried > 1
    assert file.order is not None
    assert file.order.tried == 1
    assert best.cycles.sum() == file.cycles.sum()
    ours, theirs = sp.solve(best).objective, sp.solve(file).objective
    assert ours is not None
    assert theirs is not None
    assert ours <= theirs
