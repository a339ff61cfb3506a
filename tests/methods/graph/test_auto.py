"""What ``auto`` of graph partitioning does where its exact search is slow, or does not apply."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.graph.ideals import TooManyError
from stagepack.heuristics.graph.linear import Hunt
from stagepack.heuristics.graph.local_search import PartitionSearch
from stagepack.heuristics.graph.staging import Staging
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphSolution
from stagepack.instances.profile import Array
from stagepack.methods import Settings
from stagepack.methods.graph.exact import CompactSearch as Exact
from stagepack.progress import Progress
from tests.random_graphs import brute_force, random_instance


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("operators/bert_l-3_inference", 21.9084),
        ("operators/bert_l-3_training", 54.2074),
        ("throughput/bert24_training", 39.7895),
    ],
)
def test_stages_that_need_not_be_contiguous(data_dir: Path, name: str, optimum: float) -> None:
    instance = sp.read(data_dir / "dnn-partitioning" / f"{name}.json", contiguous=False)
    result = sp.solve(instance, time_limit=2, options={"deterministic": True})
    assert result.solution is not None
    assert result.objective is not None
    assert result.bound is not None
    assert optimum * 0.9999 <= result.objective <= optimum * 1.002
    assert result.bound <= optimum * 1.0001


def test_local_search_starts_where_auto_gives_up() -> None:
    # So many sources that no exact search comes to an end in a second.
    rng = np.random.default_rng(0)
    edges = [(int(rng.integers(0, 150)), 150 + v) for v in range(250)]
    instance = sp.GraphPartition.from_edges(
        400, edges, time=rng.integers(1, 50, 400), traffic=rng.integers(1, 9, 400), accelerators=5
    )
    result = sp.solve(instance, time_limit=3)
    alone = sp.solve(instance, method="equal-work")
    assert result.objective is not None
    assert alone.objective is not None
    assert result.bound is not None
    assert result.bound <= result.objective <= alone.objective


def test_few_ideals_are_given_the_time_that_they_need() -> None:
    edges = [(v, v + 2) for v in range(28)] + [(28, 30), (29, 30)]
    instance = sp.GraphPartition.from_edges(
        31, edges, time=[3 + v * v % 7 for v in range(31)], traffic=[2] * 31, accelerators=4
    )
    progress = Progress[GraphSolution](instance.evaluate, instance.check)
    with effort.counting(None):
        search = Exact(instance, progress, Settings())
        enough_to_begin = 2e-5
        with pytest.raises(TooManyError):
            search.over_ideals(enough_to_begin)
        search.over_ideals(enough_to_begin, few=60.0)
    assert progress.objective == progress.bound


def test_too_many_ideals_are_not_listed_again_in_little_more_time() -> None:
    instance = sp.GraphPartition.from_edges(60, [], time=[1] * 60, accelerators=4)
    progress = Progress[GraphSolution](instance.evaluate, instance.check)
    with effort.counting(None):
        search = Exact(instance, progress, Settings())
        assert not search.hopeless(0.02)
        with pytest.raises(TooManyError):
            search.over_ideals(0.02)
        assert search.hopeless(0.04)
        assert not search.hopeless(0.2)


def test_forms_count_as_work_whether_they_are_kept_from_an_earlier_run_or_not() -> None:
    instance = sp.GraphPartition.from_edges(90, [], time=[1] * 90, accelerators=4)
    spent = []
    for _ in range(2):
        progress = Progress[GraphSolution](instance.evaluate, instance.check)
        with effort.counting(None):
            assert Exact(instance, progress, Settings()).staging.n == 90
            spent.append(effort.spent())
    assert spent[0] == spent[1] > 0


def test_many_orders_are_others_than_the_few_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    cut = Hunt.try_order

    def try_order(hunt: Hunt, order: Array, grain: int = 1, *, ties: bool = False) -> bool:
        tried.append(order.tobytes())
        return cut(hunt, order, grain, ties=ties)

    monkeypatch.setattr(Hunt, "try_order", try_order)
    instance = sp.load("graph/random/layered", operators=40, devices=4)
    progress = Progress[GraphSolution](instance.evaluate, instance.check)
    few = {"orders": 3, "quick_patience": 0, "patience": 0, "starts": 2}
    search = Exact(instance, progress, Settings(tuning=TUNING.changed({"orders": few})))
    search.along_few_orders()
    search.along_many_orders(9)  # its first start goes on where that ended
    assert len(tried) == 7
    assert len(set(tried)) == 7


def test_parts_are_put_in_the_same_order_whatever_was_tried_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compact = Compact.of(sp.load("graph/random/layered", operators=40, devices=4))
    rank = np.arange(compact.blocks) // 10
    tried: list[bytes] = []
    for orders in (0, 5):
        hunt = Hunt(Staging.of(compact), lambda: None, lambda _: None, seed=0)
        hunt.search(orders, 0, 9)
        with monkeypatch.context() as patch:
            patch.setattr(hunt, "try_order", lambda order: tried.append(order.tobytes()))
            hunt.along(rank)
    assert len(tried) == 2
    assert tried[0] == tried[1]


def test_orders_go_on_from_an_equal_partition_that_nobody_is_told_of() -> None:
    compact = Compact.of(sp.load("graph/random/layered", operators=80, devices=4))
    told: list[int] = []
    hunt = Hunt(Staging.of(compact), lambda: None, lambda found: told.append(found.whole), seed=0)
    hunt.search(3, 0, 9)
    best = hunt.best
    assert best is not None
    again = np.argsort(-best.stage_of, kind="stable").astype(np.int32)
    before = list(told)
    assert not hunt.try_order(again, ties=True)
    assert told == before
    assert hunt.best is best
    hunt.search(3, 30, 9)
    assert told[-1] < before[-1]
    assert told == sorted(told, reverse=True)


def test_small_graphs_with_too_many_ideals_are_proved_by_cp_sat() -> None:
    instance = sp.load("graph/random/layered", operators=40, devices=8)
    result = sp.solve(instance, time_limit=2, options={"deterministic": True})
    assert result.status == "OPTIMAL"
    assert result.reason == ""


def test_loads_of_blocks_that_wait_for_none_are_balanced_by_cp_sat() -> None:
    times = np.random.default_rng(1).integers(1, 100, 130)
    instance = sp.GraphPartition.from_edges(130, [], time=times, accelerators=8)
    result = sp.solve(instance, time_limit=3, options={"deterministic": True})
    assert (result.status, result.objective) == ("OPTIMAL", 841)


def test_why_a_model_proves_nothing_is_told_rather_than_that_there_is_no_local_search() -> None:
    # Stages on several devices take thirds of what has no common unit, so that bounds are rounded.
    rng = np.random.default_rng([5008, 4])
    n = int(rng.integers(4, 7))
    instance = random_instance(rng, n, time=np.sqrt(np.arange(2, n + 2)))
    models = {"tuning": {"auto": {"everything": False}}}
    result = sp.solve(instance, time_limit=10, options=models)
    assert result.reason.startswith("cp-sat calls it optimal")


def test_auto_agrees_with_trying_everything() -> None:
    for seed in range(40):
        instance = random_instance(np.random.default_rng(7_000 + seed), 5)
        optimum = brute_force(instance)
        result = sp.solve(instance, time_limit=20)
        if optimum is None:
            assert result.solution is None
            continue
        assert result.objective == pytest.approx(float(optimum[0]), rel=1e-6, abs=1e-9)
        if result.bound is not None:
            assert result.bound <= float(optimum[0]) * (1 + 1e-9)


def test_stages_of_a_solution_are_read_back() -> None:
    for seed in range(60):
        instance = random_instance(np.random.default_rng(seed), 6)
        result = sp.solve(instance, method="linear-dp", time_limit=5)
        compact = Compact.of(instance)
        if result.solution is None or PartitionSearch.unsupported(compact):
            continue
        again = compact.assignment(*compact.stages(result.solution))
        assert instance.check(again) == ()
        assert instance.evaluate(again) == pytest.approx(instance.evaluate(result.solution))


@pytest.mark.parametrize("times", [8, 25])
@pytest.mark.parametrize("kind", ["branchy", "layered"])
def test_devices_that_may_stay_empty_are_no_worse_than_fewer(kind: str, times: int) -> None:
    """Where tensors are dear, few devices are enough: at one limit they are found among more."""
    graph = sp.load(f"graph/random/{kind}", operators=60, devices=8, seed=1)
    graph = graph.replace(traffic=times * graph.traffic, empty_devices=True)
    options = {"deterministic": True}
    whole = sp.solve(graph, time_limit=0.3, options=options)
    for count in (6, 3):
        fewer = graph.replace(accelerators=count, speeds=graph.speeds[:count])
        found = sp.solve(fewer, time_limit=0.3, options=options)
        assert whole.objective is not None
        assert found.objective is not None
        assert whole.objective <= found.objective
