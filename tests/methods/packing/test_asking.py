"""Searches and rules of packings ask for the time, often, and end soon after a no."""

from typing import Any

import numpy as np
import pytest

from benchmarks.hostile.packing import spilling
from stagepack.errors import InputError
from stagepack.heuristics import effort
from stagepack.heuristics.packing import bounds, relocation
from stagepack.heuristics.packing.constructive import greedy, greedy_kernels, spill, valleys
from stagepack.heuristics.packing.constructive.rules import RULES, Measures, Rule
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import iis
from stagepack.progress import Progress
from stagepack.solve import solve
from tests.packing_cases import dense


class Asked:
    """A `keep_going` that counts, and says no from some question on."""

    def __init__(self, until: float = float("inf")) -> None:
        self.times, self.until = 0, until

    def __call__(self) -> bool:
        self.times += 1
        return self.times < self.until


class Paced(Asked):
    """One that also notes the most work, in seconds, between two of its questions."""

    def __init__(self, until: float = float("inf")) -> None:
        super().__init__(until)
        self.most = self.last = effort.spent()

    def __call__(self) -> bool:
        now = effort.spent()
        self.most, self.last = max(self.most, now - self.last), now
        return super().__call__()


@pytest.mark.parametrize("method", ["dive", "exact", "cp-sat"])
def test_a_normal_form_is_made_within_the_limit(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = LmemPacking.from_arrays([3, 5, 7, 2], conflicts=[(0, 1), (1, 2), (2, 3), (0, 3)])
    heard, make, keep_going = [0], Blocks._of, Progress.keep_going
    asked: list[int] = []

    def hear(progress: Progress[Any]) -> bool:
        heard[0] += 1
        return keep_going(progress)

    def made(given: LmemPacking, look: Any) -> Blocks:
        before = heard[0]
        form = make(given, look)
        if given is instance:
            asked.append(heard[0] - before)
        return form

    monkeypatch.setattr(Progress, "keep_going", hear)
    monkeypatch.setattr(Blocks, "_of", made)
    if method == "dive":
        with pytest.raises(InputError, match="plain blocks"):
            solve(instance, method)
    else:
        solve(instance, method)
    assert len(asked) == 1
    assert asked[0] > 3


def test_replan_ends_when_asked_to_before_it_has_compared_all() -> None:
    instance = dense(300, 4, 10)
    old = np.zeros(instance.n, dtype=np.int64)
    load = int(Blocks.of(instance).load.max())
    instance = instance.replace(previous=old, capacity=2 * load, objective="moves")
    looks = 0

    def few() -> bool:
        nonlocal looks
        looks += 1
        return looks <= 10

    relocation.move_less(instance, 2 * load, keep_going=few, on_solution=lambda _: None)
    assert looks < 30


@pytest.mark.parametrize("over", [False, True])
def test_old_places_are_compared_while_there_is_time(over: bool) -> None:
    tuning = TUNING.changed({"relocation": {"budget": 1000}})
    blocks = Blocks.of(dense(300, 4, 10))
    low = greedy.place(blocks, RULES["greedy-by-size"], tuning=tuning)
    assert low is not None
    old = low.copy()
    old[::3] = old[0]
    ceiling = 2 * int((low + blocks.size).max())
    # So that each round of the sieve asks: once, where the answer is no.
    back, kept = Asked(1 if over else float("inf")), Asked(1 if over else float("inf"))
    with effort.counting():
        moved = relocation.returned(blocks, low, old, keep_going=back, tuning=tuning)
        assert effort.spent() > TUNING.prices.call * back.times
    found = relocation.around(blocks, old, ceiling, keep_going=kept, tuning=tuning)
    if over:
        assert (back.times, kept.times) == (1, 1)
        assert moved.tolist() == low.tolist()
        assert found is None
    else:
        assert back.times > 5
        assert kept.times > 5
        assert moved.tolist() == relocation.returned(blocks, low, old, tuning=tuning).tolist()
        assert found is not None


@pytest.mark.parametrize("asked", [0, 1, 5, 50])
def test_spilling_ends_soon_after_a_no_and_has_an_answer(asked: int) -> None:
    instance, since = spilling(300, 9), [0]

    def keep_going() -> bool:
        since[0] += 1
        return since[0] <= asked

    with effort.counting():
        placed = spill.place(instance, keep_going)
        assert effort.spent() > 0
    assert placed.fits
    assert not instance.check(PackingSolution.of(instance, placed.offsets, placed.memory))
    assert since[0] < asked + 20


def test_no_iis_is_sought_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    n, now = 200, [0.0]
    instance = LmemPacking.from_arrays([3] * n, [0] * n, [1] * n, capacity=3 * n - 1)
    part = iis.part

    def slow(*arguments: Any) -> LmemPacking:
        now[0] += 1
        return part(*arguments)

    monkeypatch.setattr(iis, "part", slow)
    tuning = TUNING.changed({"reasons": {"seconds": 3.0}})
    progress: Any = Progress(instance.evaluate, instance.check)
    progress.limit_by(lambda: now[0], 10.0)
    iis.find(instance, instance.ceiling, iis.Questions(progress, tuning=tuning), tuning=tuning)
    assert now[0] <= 4


@pytest.mark.parametrize("until", [1, 7, 60])
def test_replan_asks_between_placements_and_ends(until: int) -> None:
    instance = dense(1500, 8, 60)
    blocks = Blocks.of(instance)
    low = greedy.place(blocks, RULES["greedy-by-size"])
    assert low is not None
    capacity = int((low + blocks.size).max())
    old = np.random.default_rng(0).permutation(blocks.expand(low))
    instance = instance.replace(previous=old, capacity=capacity, objective="moves")
    with effort.counting():
        asked = Paced(until)
        relocation.move_less(instance, capacity, keep_going=asked, on_solution=lambda _: None)
    assert until <= asked.times <= until + 3
    assert asked.most < 0.2


def conflicting(buffers: int) -> LmemPacking:
    random = np.random.default_rng(buffers)
    pairs = np.sort(random.integers(0, buffers, (buffers * 4, 2)), axis=1)
    return LmemPacking.from_arrays(
        random.integers(1, 99, buffers), conflicts=pairs[pairs[:, 0] < pairs[:, 1]]
    )


def test_the_clique_of_a_conflict_graph_is_sought_while_there_is_time() -> None:
    instance = conflicting(60)
    blocks, asked, few = Blocks.of(instance), Asked(), Asked(5)
    heaviest = bounds.heavy_clique(instance, blocks, asked)[0]
    assert heaviest == bounds.heavy_clique(instance, blocks)[0]
    assert asked.times > 20
    assert int(blocks.load.max()) <= bounds.heavy_clique(instance, blocks, few)[0] <= heaviest
    assert few.times <= 40


def test_where_all_conflict_no_clique_is_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.stack(np.triu_indices(30, 1), axis=1)
    instance = LmemPacking.from_arrays(np.arange(1, 31), conflicts=pairs)
    blocks = Blocks.of(instance)
    monkeypatch.setattr(Blocks, "neighbours", lambda _: pytest.fail("listed"))
    assert bounds.objective_bound(instance, blocks)[0] == 30 * 31 // 2


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_orders_ask_before_each_sort(rule: Rule) -> None:
    measures = Measures(Blocks.of(dense(60, 4, 10)))
    asked, keys = Asked(), len(rule.keys(measures))
    by_all = np.lexsort(rule.keys(measures)[::-1])
    assert rule.order(measures, asked).tolist() == by_all.tolist()
    assert asked.times == keys


def test_blocks_placed_whatever_the_time_ask_for_it() -> None:
    tuning = TUNING.changed({"greedy": {"budget": 1}})
    blocks, over = Blocks.of(conflicting(60)), Asked(0)
    spans = valleys.Spans(blocks, tuning=tuning)
    assert len(spans.scattered) > 20
    assert valleys.first(spans, keep_going=over, tuning=tuning) is not None
    assert over.times > len(spans.scattered)


def test_lists_ask_while_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of six million pieces took 2 s, without a question."""
    blocks, asked = Blocks.of(conflicting(60)), Asked(4)
    monkeypatch.setattr(greedy, "fill_lists", None)  # not come to
    offsets = np.full(blocks.b, -1, dtype=np.int64)
    assert not greedy.place_limited(blocks, np.arange(blocks.b), offsets, keep_going=asked)
    assert asked.times == 4


def test_slabs_ask_before_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = [0], Asked(3)
    make = greedy_kernels.make_slabs

    def counted(*arguments: Any) -> Any:
        made[0] += 1
        return make(*arguments)

    monkeypatch.setattr(greedy, "make_slabs", counted)
    length = np.array([500, 250, 120, 60] + [1] * 500)
    start = np.array([0] * 4 + list(range(500)))
    blocks = Blocks.of(LmemPacking.from_arrays([3] * 504, start, start + length))
    order = np.argsort(-length, kind="stable")
    assert greedy.place_in_order(blocks, order) is not None
    assert made == [5]
    assert greedy.place_in_order(blocks, order, keep_going=asked) is None
    assert made == [6]


def test_a_rule_leaves_the_time_for_a_first_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, began = dense(200, 8, 10), []
    fill = greedy_kernels.fill_slabs

    def watched(*arguments: Any) -> Any:
        began.append(1)
        return fill(*arguments)

    monkeypatch.setattr(greedy, "fill_slabs", watched)
    tuning = {"scale": {"block": 1e-2}}  # seconds a block: more than there are
    result = solve(
        instance, "first-fit-size", time_limit=1, options={"deterministic": True, "tuning": tuning}
    )
    assert not began
    assert result.solution is not None
    assert "did not end in time" in result.reason
    tuning = {"scale": {"block": 1e-6}}
    result = solve(
        instance, "first-fit-size", time_limit=1, options={"deterministic": True, "tuning": tuning}
    )
    assert began
    assert "did not end in time" not in result.reason
