from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier import label_search
from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.label_search import Decision
from stagepack.heuristics.graph.frontier.model import Model, unsupported
from stagepack.heuristics.graph.frontier.plan import reduced
from stagepack.heuristics.graph.frontier.sweeps import Sweeps
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.graph import Compact, GraphPartition
from stagepack.instances.profile import Array
from stagepack.progress import Stopped
from tests.random_graphs import brute_force, random_instance

REPEATING = {"deterministic": True}


def drawn(seed: int, nodes: int, **options: Any) -> GraphPartition:
    return random_instance(np.random.default_rng(seed), nodes, **options)


def branchy(rng: np.random.Generator, cells: int, accelerators: int) -> GraphPartition:
    """Cells of four branches each, which read the two cells before."""
    edges, last = [], [0, 0]
    nodes = 1
    for _ in range(cells):
        out = nodes + 4
        for branch in range(4):
            edges += [(last[branch % 2], nodes + branch), (nodes + branch, out)]
        last = [last[1], out]
        nodes += 5
    traffic = rng.integers(1, 12, nodes)
    users: list[list[int]] = [[] for _ in range(nodes)]
    for u, v in edges:
        users[u].append(v)
    return GraphPartition.from_arrays(
        rng.integers(1, 20, nodes),
        accelerators=accelerators,
        producer=np.arange(nodes)[[bool(row) for row in users]],
        consumers=[v for row in users for v in row],
        consumer_ptr=np.cumsum([0, *(len(row) for row in users if row)]),
        traffic=traffic[[bool(row) for row in users]],
        bandwidth=1,
    )


@pytest.mark.parametrize("block", range(4))
def test_agrees_with_trying_everything(block: int) -> None:
    asked = 0
    for seed in range(40 * block, 40 * block + 40):
        objective = ("memory", "sum", "overlap", "overlap", "forward+backward")[seed % 5]
        instance = drawn(seed, 2 + seed % 6, objective=objective, contiguous=True)
        if unsupported(instance):
            continue
        asked += 1
        result = sp.solve(instance, method="frontier", warm_start=None)
        best = brute_force(instance)
        if best is None:
            assert result.solution is None
            continue
        assert result.status is not sp.Status.INFEASIBLE
        assert result.bound is not None
        slack = 1e-9 * float(best[0])
        assert result.bound <= float(best[0]) + slack
        if result.objective is not None:
            assert result.objective >= float(best[0]) - slack
        exact = instance.empty_devices and objective != "forward+backward"
        if exact and not instance.stash.any():
            assert result.objective == pytest.approx(float(best[0]))
            assert result.bound == pytest.approx(float(best[0]))
    assert asked > 10


@pytest.mark.parametrize("delta", [0, 3, 9])
@pytest.mark.parametrize("first", [False, True])
def test_sweeps_in_turns_lose_no_partition(delta: int, first: bool) -> None:
    # What each leaves to the next one, merged or not, must let the best partitions pass.
    for seed in range(15):
        rng = np.random.default_rng(seed)
        instance = drawn(
            seed, 7, objective="sum", contiguous=True, cpus=0, accelerators=int(rng.integers(2, 4))
        )
        compact = Compact.of(instance)
        best = brute_force(instance)
        if best is None or unsupported(instance) or instance.stash.any():
            continue
        limit = math.ceil(best[0] * compact.scale) + compact.rounding
        sweeps = Sweeps(Model.all_of(compact), lambda: None, seed)
        guide = sweeps.guide(limit)
        for reverse in itertools.islice(itertools.cycle((first, not first)), 5):
            swept = sweeps.run(reverse, limit, delta, guide)
            assert swept.status == state.DONE, seed
            assert swept.guide is not None
            guide = swept.guide
            found = sweeps.run(not reverse, limit, 0, guide, beam=10_000)
            assert found.stages is not None, seed
            classes = sweeps.models[0].classes
            assert compact.loads(found.stages, classes).max() <= limit


def test_bounds_are_safe_and_runs_repeat_on_a_branchy_graph() -> None:
    instance = branchy(np.random.default_rng(1), 12, 4)
    results = [
        sp.solve(instance, method="frontier", time_limit=1.0, seed=3, options=REPEATING)
        for _ in range(2)
    ]
    assert results[0].solution == results[1].solution
    assert results[0].bound == results[1].bound
    assert results[0].bound_source == "frontier labels"
    assert results[0].objective is not None
    assert results[0].bound is not None
    assert results[0].bound <= results[0].objective


def test_decisions_that_are_interrupted_end_as_others() -> None:
    compact = Compact.of(branchy(np.random.default_rng(3), 8, 3))
    sweeps = Sweeps(Model.all_of(compact), lambda: None, 0)
    work = int(sweeps.models[0].work[0].max(axis=0).sum())
    answers = []
    for limit in range(work // 3, work, work // 20):
        found: list[int] = []

        def take(stages: Array, model: Model, found: list[int] = found) -> int:
            found.append(int(compact.loads(stages, model.classes).max()))
            return found[-1]

        at_once = Decision(sweeps, limit, take, True)
        answer = at_once.go_on()
        bit_by_bit = Decision(sweeps, limit, take, True)
        while bit_by_bit.go_on(1e-9) is None and not bit_by_bit.stuck:
            pass
        assert answer is not None
        assert answer == (bit_by_bit.limit < limit)
        assert at_once.limit == bit_by_bit.limit
        assert not answer or at_once.limit == min(found) - 1
        answers.append(answer)
    assert answers == sorted(answers)
    assert len(set(answers)) == 2


def test_models_ask_while_they_are_made() -> None:
    """On a complete bipartite graph nothing was asked for 0.23 s."""

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        Model.all_of(Compact.of(branchy(np.random.default_rng(4), 8, 3)), stop)


def test_limits_may_fall_while_they_are_decided() -> None:
    # What is known of partitions within a limit is true of those within a lower one.
    compact = Compact.of(branchy(np.random.default_rng(4), 8, 3))
    models = Model.all_of(compact)
    sweeps = Sweeps(models, lambda: None, 0)

    def take(stages: Array, model: Model) -> int:
        return int(compact.loads(stages, model.classes).max())

    decision = Decision(sweeps, int(models[0].work[0].max(axis=0).sum()), take, True, eager=True)
    while decision.go_on():
        pass
    least = decision.limit + 1
    assert not decision.stuck
    assert Decision(sweeps, least - 1, take, False).go_on() is False
    assert Decision(sweeps, least, take, False).go_on() is True


def test_little_room_for_labels_weakens_but_never_breaks_bounds() -> None:
    compact = Compact.of(branchy(np.random.default_rng(2), 12, 3))
    ample = Sweeps(Model.all_of(compact), lambda: None, 0)
    tuning = TUNING.labels.changed({"sweeps": {"memory": 2**20}})
    scarce = Sweeps(Model.all_of(compact), lambda: None, 0, tuning)
    loads = compact.loads(np.zeros(compact.blocks, dtype=np.int64), ample.models[0].classes)
    for limit in range(int(loads.max()) // 3, int(loads.max()), 40):
        guide = ample.guide(limit)
        if ample.run(False, limit, 4, guide).status == state.DONE:
            assert scarce.run(False, limit, 4, guide).status in (state.DONE, state.FULL)


@pytest.mark.parametrize("objective", ["sum", "overlap", "forward+backward", "memory"])
def test_beams_find_what_is_best_where_graphs_are_small(objective: str) -> None:
    asked = 0
    for seed in range(12):
        options: dict[str, Any] = {
            "objective": objective,
            "contiguous": True,
            "empty_devices": True,
        }
        instance = drawn(seed, 3 + seed % 4, **options)
        best = brute_force(instance)
        if unsupported(instance) or instance.stash.any() or best is None:
            continue
        asked += 1
        result = sp.solve(instance, method="beam", warm_start=None)
        assert {event.source for event in result.trace.events if event.kind == "incumbent"} <= {
            "beam"
        }
        assert result.objective is not None
        grain = 1.003 if objective != "forward+backward" else 2.0
        assert float(best[0]) <= result.objective * (1 + 1e-9)
        assert result.objective <= grain * float(best[0]) + 1
    assert asked > 5


def test_unlike_devices_are_tried_in_every_order() -> None:
    # The long block is last, and only the fast device, wherever it stands, can take it in time.
    edges = [(0, 1), (1, 2)]
    given: dict[str, Any] = {
        "time": [4, 4, 12],
        "traffic": [1, 1, 0],
        "bandwidth": 1,
        "objective": "overlap",
    }
    for speeds in ([3, 1], [1, 3]):
        instance = GraphPartition.from_edges(3, edges, accelerators=2, speeds=speeds, **given)
        result = sp.solve(instance, method="frontier", warm_start=None)
        assert result.status is sp.Status.OPTIMAL
        assert result.objective == pytest.approx(16 / 3)
        assert [model.classes.tolist() for model in Model.all_of(Compact.of(instance))] == [
            [0, 1],
            [1, 0],
        ]


def test_memory_limits_loads_where_bytes_are_the_load() -> None:
    # Together six bytes fill both devices, though three on each would be less on the fuller one.
    instance = GraphPartition.from_arrays(
        [1, 1, 1], accelerators=2, objective="memory", memory=[3, 2, 1], capacity=[4, 2]
    )
    result = sp.solve(instance, method="frontier")
    assert result.status is sp.Status.OPTIMAL
    assert result.objective == 4


def test_edges_that_others_imply_are_left_out() -> None:
    assert reduced([[], [0], [0, 1], [1, 2]]) == ([[], [0], [1], [2]], [[1], [2], [3], []])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"objective": "replicated"}, "replicated"),
        ({"contiguous": False}, "contiguous"),
        ({"speeds": [1, 2, 3, 4, 5], "accelerators": 5}, "120 are too many"),
        ({"time": [1] * 10_001}, "10,001 nodes"),
    ],
)
def test_says_what_it_cannot_answer(options: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"accelerators": 2, "objective": "sum", **options}
    instance = GraphPartition.from_arrays(**{"time": [1, 2, 3], **given})
    assert reason in unsupported(instance)


def towers(rng: np.random.Generator, cells: int, **given: Any) -> GraphPartition:
    """Cells of four towers of layers each, whose outputs are joined, as in Inception networks."""
    time, traffic = [50], [2000]
    edges: list[tuple[int, int]] = []

    def layer(ticks: int, size: int, *read: int) -> int:
        edges.extend((source, len(time)) for source in read)
        time.append(ticks)
        traffic.append(size)
        return len(time) - 1

    joined = 0
    for _ in range(cells):
        outputs = []
        for depth in (1, 2, 3, 2):
            last = joined
            for _ in range(depth):
                last = layer(int(rng.integers(40, 400)), int(rng.integers(50, 300)), last)
                last = layer(int(rng.integers(5, 30)), traffic[last], last)
            outputs.append(last)
        joined = layer(int(rng.integers(5, 20)), sum(traffic[v] for v in outputs), *outputs)
    return GraphPartition.from_edges(
        len(time), edges, time=time, traffic=traffic, bandwidth=2, **given
    )


def test_auto_proves_towers_before_it_anneals() -> None:
    instance = towers(np.random.default_rng(17), 17, accelerators=16, objective="sum")
    result = sp.solve(instance, options=REPEATING)
    assert result.status is sp.Status.OPTIMAL
    assert "local-search" not in {event.source for event in result.trace.events}


@pytest.mark.parametrize("close", [TUNING.labels.close, 1.0])
def test_a_limit_that_was_not_decided_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, close: float
) -> None:
    compact = Compact.of(branchy(np.random.default_rng(1), 20, 4))
    tried: list[int] = []

    class Recorded(Decision):
        def __init__(self, sweeps: Sweeps, limit: int, *how: Any, **more: Any) -> None:
            tried.append(limit)
            super().__init__(sweeps, limit, *how, **more)

    def value(stages: Array, model: Model) -> int:
        return int(compact.loads(stages, model.classes).max())

    def pause() -> None:
        if effort.spent() > 1:
            raise TimeoutError

    monkeypatch.setattr(label_search, "Decision", Recorded)
    tuning = TUNING.labels.changed({"round_seconds": 1e-4, "between": [0.5], "close": close})
    with effort.counting(), contextlib.suppress(TimeoutError):
        sweeps = Sweeps(Model.all_of(compact), pause, 0, tuning)
        search = label_search.LabelSearch(sweeps, 1, value, lambda bound: None)
        search.take(np.zeros(compact.blocks, dtype=np.int64), search.model)
        search.run()
    assert len(set(tried)) == len(tried)
    if close < 1:
        assert len(tried) > 2
    else:  # nothing is far enough from the bound to be tried beside the best partition
        assert len(tried) == 1


def test_what_is_found_aside_is_what_labels_go_on_from() -> None:
    compact = Compact.of(branchy(np.random.default_rng(1), 20, 4))
    given: list[float] = []
    known: list[int] = []

    def value(stages: Array, model: Model) -> int:
        return int(compact.loads(stages, model.classes).max())

    def aside(seconds: float) -> None:
        given.append(seconds)
        found = np.minimum(3, 4 * np.arange(compact.blocks) // compact.blocks)
        search.take(found, search.model)
        known.append(search.value)
        if len(given) == 3:
            raise TimeoutError

    tuning = TUNING.labels.changed({"round_seconds": 1e-6})
    with effort.counting(), contextlib.suppress(TimeoutError):
        sweeps = Sweeps(Model.all_of(compact), lambda: None, 0, tuning)
        search = label_search.LabelSearch(sweeps, 1, value, lambda bound: None, aside)
        search.take(np.zeros(compact.blocks, dtype=np.int64), search.model)
        whole = search.value
        search.run()
    assert given == pytest.approx([given[0], 2 * given[0], 4 * given[0]])
    assert known[0] < whole
