"""Methods of graph partitioning: rules of thumb, and why there is no partition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack import catalog
from stagepack.heuristics.graph import dp
from stagepack.instances.graph import Compact
from stagepack.methods.graph.explain import impossible
from tests.random_graphs import brute_force, random_instance

CHAIN: dict[str, Any] = {
    "nodes": ["a", "b", "c", "d"],
    "edges": [("a", "b"), ("b", "c"), ("c", "d")],
    "time": [1, 2, 3, 4],
    "memory": [10, 20, 30, 40],
    "accelerators": 2,
}


def chain(**changes: Any) -> sp.GraphPartition:
    return sp.GraphPartition.from_edges(**{**CHAIN, **changes})


@pytest.mark.parametrize("seed", range(60))
def test_equal_work_is_never_better_than_the_best(seed: int) -> None:
    rng = np.random.default_rng([seed, 12])
    instance = random_instance(rng, int(rng.integers(1, 6)))
    best = brute_force(instance)
    result = sp.solve(instance, method="equal-work")
    if impossible(Compact.of(instance)):
        assert best is None
        assert result.status == "INFEASIBLE"
        return
    if best is None:
        assert result.status == "UNKNOWN"
        assert "equal-work" in result.reason
        return
    assert result.bound is not None
    assert result.bound <= float(best[0]) * (1 + 1e-12)
    if result.objective is not None:
        assert result.objective >= float(best[0]) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accelerator": [1, 1, 0, 1]}, "node c may run on no accelerator; let it run"),
        (
            {"accelerator": [1, 1, 0, 1], "cpu_time": [9] * 4},
            "node c may run on no accelerator; give a CPU, on which it may run",
        ),
        (
            {"accelerators": 0, "cpus": 2, "cpu_time": [9] * 4, "cpu": [1, 0, 1, 1]},
            "node b may run on no CPU; give an accelerator",
        ),
        (
            {"colour": [5, 5, -1, -1], "cpus": 1, "cpu_time": [9] * 4, "cpu": [0, 1, 1, 1],
             "accelerator": [1, 0, 1, 1]},
            "the 2 nodes of colour 5 (a, b) share a device, but b may run on no accelerator, "
            "a may run on no CPU",
        ),
        ({"capacity": 39}, "node d needs 40 bytes but the largest device for it has 39: 1 too"),
        (
            {"capacity": [60, 50], "colour": [-1, 2, -1, 2]},
            "3 nodes that colours keep together (b, c, ...) need 90 bytes but the largest device "
            "for it has 60: 30 too many; give a device of 90 bytes",
        ),
        (
            {"colour": [-1, 2, 2, 2], "accelerators": 3, "empty_devices": False},
            "3 devices need 3 stages, but the graph can be cut into 2 at most",
        ),
        (
            {"capacity": 45},
            "needs at least 100 bytes but all devices together have 90: 10 too many; give at least "
            "50 bytes each",
        ),
    ],
)  # fmt: skip
def test_what_makes_it_impossible(changes: dict[str, Any], words: str) -> None:
    result = sp.solve(chain(**changes))
    assert result.status == "INFEASIBLE"
    assert words in result.reason


@pytest.mark.parametrize("engine", ["highs", "cp-sat"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_auto_runs_on_the_engine_that_is_asked_for(engine: str, contiguous: bool) -> None:
    instance = sp.load("graph/random/branchy", operators=9, contiguous=contiguous)
    result = sp.solve(instance, engine=engine, time_limit=60)
    assert (result.engine, result.status) == (engine, "OPTIMAL")
    assert result.objective == sp.solve(instance, time_limit=60).objective


@pytest.mark.parametrize("method", ["dp", "milp"])
def test_chains_on_devices_of_many_kinds_are_cut_along_orders_first(method: str) -> None:
    """Ideals are few, and sets of devices too many for them."""
    time = np.random.default_rng(3).integers(5, 99, 30)
    edges = itertools.pairwise(range(30))
    many = sp.GraphPartition.from_edges(
        30, edges, time=time, accelerators=24, speeds=np.repeat(range(1, 7), 4)
    )
    assert "linear-dp" in [event.source for event in sp.solve(many, method, target=30).trace.events]


def test_a_model_starts_in_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(
        compact: object, known: int, pause: Callable[[], object], *_: object, **more: object
    ) -> None:
        while True:
            pause()

    monkeypatch.setattr(dp, "solve", endless)
    open_one = chain(time=[4, 5, 7, 6], traffic=[2, 3, 1, 0], accelerators=3)
    assert sp.solve(open_one, "milp", time_limit=0.4).engine == "highs"


def test_a_cpu_takes_what_accelerators_cannot_hold() -> None:
    limited = {"capacity": 39, "cpus": 1, "cpu_time": [10] * 4}
    assert not impossible(Compact.of(chain(**limited)))


def test_equal_shares_follow_speeds_and_leave_none_empty() -> None:
    fast = chain(time=[1] * 4, speeds=[1, 3])
    solution = sp.solve(fast, method="equal-work").solution
    assert solution is not None
    assert solution.assignment.tolist() == [0, 1, 1, 1]
    front = chain(time=[100, 1, 1, 1], accelerators=4, empty_devices=False)
    assert sp.solve(front, method="equal-work").solution.to_dict()["order"] == [0, 1, 2, 3]


def test_what_is_shown() -> None:
    instance = sp.load("graph/squeezenet", capacity=10**6)
    result = sp.solve(instance, method="equal-work")
    text = str(result.solution.to_dataframe(instance))
    assert "received" in text
    assert "accelerators" in str(instance)


PROFILE: dict[str, Any] = {"devices": 4, "bandwidth": 1e9 / 2**30, "training": True}


def test_best_known_values_of_public_graphs(data_dir: Path) -> None:
    files = {f"{path.parent.name}/{path.name}": path for path in data_dir.glob("dnn-part*/*/*")}
    files |= {path.name: path for path in data_dir.glob("pipedream/*")}
    known = [one for one in catalog.BEST_KNOWN if "search over ideals" in one.source]
    assert len(known) == 11
    for one in known:
        given: dict[str, Any] = {"objective": one.objective}
        if one.source.endswith("no CPU"):
            given["cpus"] = 0
        if one.name.endswith(".txt"):
            given |= PROFILE | {"empty_devices": one.objective == "replicated"}
        instance = sp.read(files[one.name], kind="graph-partition", **given)
        assert catalog.best_known(instance) == one
        result = sp.solve(instance, method="dp")
        assert result.status == "OPTIMAL"
        assert result.objective == pytest.approx(one.value, rel=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_methods_agree_with_trying_everything(seed: int) -> None:
    """Every method of the kind, on every sort of graph; engines on some, rules for a moment."""
    rng = np.random.default_rng([seed, 1000])
    instance = random_instance(rng, int(rng.integers(2, 6)))
    best = brute_force(instance)
    for info in sp.methods(instance):
        if not info.available or (info.engines and seed % 5):
            continue
        result = sp.solve(instance, info.name, time_limit=20 if info.exact else 0.02)
        if best is None:
            assert result.objective is None, info.name
            continue
        least = float(best[0])
        assert result.status != "INFEASIBLE", info.name
        assert result.bound is None or result.bound <= least * (1 + 1e-9), info.name
        assert result.objective is None or result.objective >= least * (1 - 1e-9), info.name
        if result.status == "OPTIMAL":
            assert result.objective == pytest.approx(least), info.name
