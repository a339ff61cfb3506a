"""What packing does where there is not the time for it."""

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.packing.constructive import valleys
from stagepack.heuristics.packing.constructive.rules import BANKS, RULES
from stagepack.heuristics.packing.local_search import cores
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import quick
from stagepack.methods.packing.attempt import Attempt
from stagepack.progress import Progress

SEARCHES = ("auto", "portfolio", "dive", "anneal", "beam", "exact")
GREEDY = tuple(name for name, rule in RULES.items() if rule.policy != BANKS)


def crowd(n: int, seed: int = 0) -> LmemPacking:
    """Return buffers of which a third is alive together in the middle."""
    rng = np.random.default_rng(seed)
    moments = np.sort(rng.integers(0, 2 * n, (2, n)), axis=0)
    return LmemPacking.from_arrays(rng.integers(1, 10_000, n), moments[0], moments[1] + 1)


@pytest.mark.parametrize("method", [*SEARCHES, *GREEDY])
def test_no_method_leaves_a_stack_when_there_is_no_time(method: str) -> None:
    result = sp.solve(crowd(3000), method, objective="peak", time_limit=1e-6)
    assert result.objective is not None
    assert result.bound is not None
    assert result.objective <= 1.1 * result.bound


@pytest.mark.parametrize(
    "options",
    [
        {"alignment": 64},
        {"alignment": np.where(np.arange(3000) % 2, 7, 1)},
        {"fixed": np.where(np.arange(3000), -1, 0)},
        {"reserved": [(500, 900)]},
        {"colocated": [(i, i + 1) for i in range(0, 200, 2)]},
        {"in_place": [(i, i + 1) for i in range(0, 200, 2)]},
    ],
    ids=lambda options: "-".join(options),
)
def test_nor_for_buffers_of_any_kind(options: dict[str, object]) -> None:
    instance = crowd(3000).replace(**options)
    result = sp.solve(instance, objective="peak", time_limit=1e-6)
    assert result.objective is not None
    assert result.bound is not None
    assert result.objective <= 1.5 * result.bound


def test_nor_around_a_circle() -> None:
    line = crowd(3000)
    start = line.start % 3000
    instance = LmemPacking.from_arrays(
        line.size, start, start + np.minimum(line.end - line.start, 3000), period=3000
    )
    result = sp.solve(instance, objective="peak", time_limit=1e-6)
    assert result.objective is not None
    assert result.bound is not None
    assert result.objective <= 1.2 * result.bound


def test_a_rule_that_did_not_end_says_so() -> None:
    result = sp.solve(crowd(3000), "greedy-by-size", objective="peak", time_limit=1e-6)
    assert "greedy-by-size did not end in time" in result.reason


@pytest.mark.parametrize("method", ["exact", "anneal"])
def test_searches_give_way_where_too_much_is_alive_together(method: str) -> None:
    tuning = {"exact": {"pair_limit": 10}}
    instance = sp.load("packing/random/powerlaw", buffers=400, seed=3)
    result = sp.solve(instance, method, time_limit=1, options={"tuning": tuning})
    assert result.objective is not None
    assert result.status == "OPTIMAL" or "too many for the exact search" in result.reason


def test_a_peak_far_above_its_bound_is_told_in_words() -> None:
    tuning = {"scale": {"far": 1.0}}
    instance = sp.load("packing/random/powerlaw", buffers=2000, seed=3)
    result = sp.solve(instance, "first-fit-start", objective="peak", options={"tuning": tuning})
    assert "times its bound (load bound)" in result.reason


@pytest.mark.parametrize(
    ("left", "following", "begun"),
    [
        (1.0, (3.0,), 0),  # another one would not end
        (2.0, (3.0,), 4),  # nor would what follows
        (3.5, (3.0,), 0),  # what follows, and nothing else
        (9.0, (3.0,), 4),
        (2.0, (), 4),
        (5.0, (3.0, 6.0), 4),
        (8.0, (3.0, 6.0), 0),  # what follows, and once more
        (9.0, (3.0, 6.0), 4),
    ],
)
def test_nothing_is_begun_that_would_not_end(
    left: float, following: tuple[float, ...], begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, clock, placed = crowd(300), [0.0], []
    tuning = TUNING.changed({"scale": {"poor": np.inf}})
    attempt = Attempt(instance, Progress(instance.evaluate, instance.check), tuning=tuning)

    def first(*_: object, **__: object) -> tuple[np.ndarray, str]:
        clock[0] += 1
        return np.cumsum(instance.size) - instance.size, "stack"

    monkeypatch.setattr(Progress, "elapsed", property(lambda _: clock[0]))
    monkeypatch.setattr(Progress, "remaining", left)
    monkeypatch.setattr(valleys, "first", first)
    monkeypatch.setattr(valleys, "place", lambda *_, **__: placed.append(1))
    placed_first = quick.place_first(attempt)
    assert placed_first.seconds == 1
    quick.place_more(attempt, placed_first, following=following)
    assert len(placed) == begun


def test_where_time_is_full_evenly_there_is_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, start = np.random.default_rng(0), np.arange(3000)
    size, lasting = rng.integers(900, 1000, 3000), rng.integers(100, 200, 3000)
    instance = LmemPacking.from_arrays(size, start, start + lasting)
    monkeypatch.setattr(cores, "best", lambda *_, **__: pytest.fail("a core of everything"))
    assert sp.solve(instance, "dive", time_limit=0.5).trace.incumbents


@pytest.mark.parametrize(
    "odd",
    [
        {"alignment": [1, 8, 12] * 20},
        {"reserved": [(50_000, 50_001)]},
        {"period": 130, "alignment": [1, 8, 12] * 20},
        {"fixed": [5] + [-1] * 59, "alignment": [1, 8, 12] * 20},
        {"alignment": [1, 8, 12] * 20, "objective": "fit", "capacity": 1},
    ],
)
def test_many_buffers_of_any_kind_are_placed_anew(
    odd: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = {"scale": {"blocks": 50}}
    anew: list[object] = []
    monkeypatch.setattr(valleys, "improve", lambda *_, **__: anew.append(1))
    instance = crowd(60)
    if "capacity" in odd:
        odd = {**odd, "capacity": int(Blocks.of(instance).load.max())}
    instance = instance.replace(**odd)
    sp.solve(instance, time_limit=5, options={"tuning": tuning})
    assert anew


def test_what_failed_once_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(valleys, "first", lambda _, keep_going=None, **__: tried.append(keep_going))
    instance = LmemPacking.from_arrays([3, 4, 5], [0, 0, 1], [2, 1, 2])
    result = sp.solve(instance, "auto", time_limit=1e-9)
    assert result.trace.events[-1].source == "stack"
    assert sum(asked is not None for asked in tried) == 1  # but for the warming up
