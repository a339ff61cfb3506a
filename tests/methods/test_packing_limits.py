"""Limits in work, undecided fits, and instances too dense for lists of pairs."""

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

from benchmarks.hostile import FAMILIES
from benchmarks.hostile.packing import spilling
from stagepack.errors import InputError
from stagepack.formulations.packing import CpSat, Milp, frame
from stagepack.heuristics.packing import bounds, effort, relocation
from stagepack.heuristics.packing import iis as iis_of_blocks
from stagepack.heuristics.packing.constructive import greedy, greedy_kernels, spill, valleys
from stagepack.heuristics.packing.constructive.rules import RULES, Measures, Rule
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.local_search import annealing, repair
from stagepack.instances import catalog
from stagepack.instances.packing import Banks, LmemPacking, PackingSolution, meetings_kernels, sweep
from stagepack.instances.packing.blocks import Blocks
from stagepack.methods.packing import attempt as attempts
from stagepack.methods.packing import iis, quick, searches, steps
from stagepack.progress import Progress
from stagepack.result import Status, Termination
from stagepack.solve import solve
from tests.packing_cases import FEATURES, random_packing

UNDECIDED = exact.Decision(Status.UNKNOWN, None, 0, 0, 0)


def dense(buffers: int, layers: int, kept: int) -> LmemPacking:
    instance = catalog.load(
        "packing/random/training", buffers=buffers, layers=layers, kept=kept, seed=0
    )
    assert isinstance(instance, LmemPacking)
    return instance


def test_an_undecided_fit_says_how_near_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = catalog.load("packing/above-load")
    load = int(Blocks.of(instance).load.max())
    minimise = exact.minimise

    def short_of_a_proof(blocks: Blocks, **options: Any) -> Status:
        return minimise(blocks, **{**options, "lower": load + 1, "on_bound": None})

    monkeypatch.setattr(exact, "decide", lambda *_, **__: UNDECIDED)
    monkeypatch.setattr(exact, "minimise", short_of_a_proof)
    result = solve(instance.replace(capacity=load, objective="fit"), "exact", time_limit=None)
    assert result.status is Status.UNKNOWN
    assert result.solution is None
    over = [event.value for event in result.trace.events if event.kind == "over-capacity"]
    assert over == sorted(set(over), reverse=True)
    assert over[-1] == load + 1  # not one first fit
    assert f"needs {load + 1:,} bytes, 1 (" in result.reason
    assert f"capacity of {load:,}" in result.reason
    assert f"bound is {result.bound:,}" in result.reason
    assert "objective peak" in result.reason


def test_a_capacity_that_resists_is_still_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "decide", lambda *_, **__: UNDECIDED)
    smallest = catalog.load("packing/above-load")
    load = int(Blocks.of(smallest).load.max())
    result = solve(smallest.replace(capacity=load, objective="fit"), "exact", time_limit=None)
    assert result.status is Status.INFEASIBLE


@pytest.mark.parametrize("objective", ["peak", "fit"])
def test_dense_instances_need_no_lists_of_pairs(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(1500, 8, 60)
    blocks = Blocks.of(instance)
    instance = instance.replace(capacity=int(blocks.load.max()), objective=objective)
    for module in (exact, attempts, frame):
        monkeypatch.setattr(module, "LARGEST_PAIRS", 1000)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("pairs are listed")

    monkeypatch.setattr(Blocks, "neighbours", refused)
    monkeypatch.setattr(steps, "solve_model", refused)
    monkeypatch.setattr(steps, "search_exactly", refused)
    for method in ("auto", "anneal", "repair"):
        result = solve(instance, method, time_limit=0.3, options={"deterministic": True})
        assert result.status is not Status.INFEASIBLE


def test_what_is_dense_goes_the_way_of_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = dense(1500, 8, 60)
    monkeypatch.setattr(searches, "DENSE", Blocks.of(instance).pairs - 1)
    monkeypatch.setattr(searches, "_search_all", lambda *_: pytest.fail("lists pairs"))
    result = solve(instance, "auto", time_limit=0.5, options={"deterministic": True})
    assert result.solution is not None


def test_windows_take_turns_with_annealing_within_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of work as of the clock: what annealing does not find by then, windows may."""
    begun: list[float] = []

    def anneal(_: Blocks, low: np.ndarray[Any, Any], **options: Any) -> np.ndarray[Any, Any]:
        while options.get("keep_going", bool)():
            effort.spend(0.1)
        return low

    monkeypatch.setattr(annealing, "improve", anneal)
    monkeypatch.setattr(steps, "repair_windows", lambda *_: begun.append(effort.spent()))
    instance = catalog.load("packing/above-load")
    solve(instance, "anneal", time_limit=10, options={"deterministic": True})
    assert len(begun) >= 3
    assert begun[0] < 3


def test_windows_of_dense_instances_stay_within_their_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "MOST_PAIRS", 20_000)
    monkeypatch.setattr(repair, "LARGEST_WINDOW", 300)
    listed: list[int] = []
    rows = annealing._rows

    def watched(blocks: Blocks, free: Any) -> Any:
        ptr, other = rows(blocks, free)
        listed.append(len(other))
        return ptr, other

    monkeypatch.setattr(annealing, "_rows", watched)
    monkeypatch.setattr(annealing, "BUDGET", 100_000)
    blocks = Blocks.of(dense(1500, 8, 60))
    low = greedy.place(blocks, RULES["first-fit-start"])
    assert low is not None
    looks = iter(range(200))
    found = repair.improve(
        blocks,
        low,
        target=int(blocks.load.max()),
        keep_going=lambda: next(looks, None) is not None,
    )
    assert (found + blocks.size).max() <= (low + blocks.size).max()
    assert listed
    assert max(listed) <= 20_000


def test_rows_of_movable_blocks_are_those_of_all() -> None:
    blocks = Blocks.of(dense(300, 4, 10))
    free = np.arange(blocks.b) % 3 > 0
    ptr, other = annealing._rows(blocks, free)
    whole_ptr, whole = blocks.neighbours()
    for i in range(blocks.b):
        row = whole[whole_ptr[i] : whole_ptr[i + 1]].tolist() if free[i] else []
        assert sorted(other[ptr[i] : ptr[i + 1]].tolist()) == row


@pytest.mark.parametrize(
    ("method", "engine"), [("cp-sat", None), ("milp", None), ("auto", "cp-sat")]
)
def test_models_of_dense_instances_are_refused_by_name(
    method: str, engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(300, 4, 10)
    pairs = Blocks.of(instance).pairs
    monkeypatch.setattr(frame, "LARGEST_PAIRS", pairs - 1)
    with pytest.raises(InputError, match=f"{pairs:,} pairs of buffers are alive together"):
        solve(instance, method, engine=engine, objective="peak", time_limit=1)


@pytest.mark.parametrize("objective", ["moves", "fit", "peak"])
def test_old_placements_of_dense_instances_need_no_lists_of_pairs(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(300, 4, 10)
    low = greedy.place(Blocks.of(instance), RULES["greedy-by-size"])
    assert low is not None
    old = low.copy()
    old[::3] = old[0]  # clashes, so that some are released
    capacity = 2 * int((low + instance.size).max())
    instance = instance.replace(previous=old, capacity=capacity, objective=objective)
    monkeypatch.setattr(exact, "LARGEST_PAIRS", 10)
    monkeypatch.setattr(frame, "LARGEST_PAIRS", 10)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("pairs are listed")

    monkeypatch.setattr(Blocks, "neighbours", refused)
    method = "replan" if objective == "moves" else "auto"
    result = solve(instance, method, time_limit=0.5, options={"deterministic": True})
    assert result.solution is not None
    if objective != "peak":
        assert (result.solution.offsets == old).sum() > instance.n // 2


@pytest.mark.parametrize("seed", range(30))
def test_old_offsets_are_kept_the_largest_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.choice(FEATURES, rng.integers(0, 3), replace=False).tolist()
    instance = random_packing(rng, features=features, n=10)
    old = rng.integers(0, 20, instance.n)
    instance = instance.replace(previous=old, capacity=1000, objective="moves", memories=())
    blocks = Blocks.of(instance)
    kept = relocation._consistent(instance, 1000, lambda: True)
    usable = relocation._fits_alone(instance, blocks, 1000)
    if kept.tolist() == usable.tolist():
        return
    ptr, other = blocks.neighbours()
    at = np.where(instance.fixed >= 0, instance.fixed, old)
    placed = instance.fixed >= 0
    for i in sorted(np.flatnonzero(usable), key=lambda i: (-instance.size[i], i)):
        mine = blocks.block[i]
        near = other[ptr[mine] : ptr[mine + 1]]
        clash = any(
            at[j] != at[i]
            if blocks.block[j] == mine
            else blocks.block[j] in near
            and at[j] < at[i] + instance.size[i]
            and at[i] < at[j] + instance.size[j]
            for j in np.flatnonzero(placed)
        )
        assert kept[i] == (not clash)
        placed[i] |= not clash


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
def test_old_places_are_compared_while_there_is_time(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relocation, "STEP_BUDGET", 1000)
    blocks = Blocks.of(dense(300, 4, 10))
    low = greedy.place(blocks, RULES["greedy-by-size"])
    assert low is not None
    old = low.copy()
    old[::3] = old[0]
    ceiling = 2 * int((low + blocks.size).max())
    # So that each round of the sieve asks: once, where the answer is no.
    back, kept = Asked(1 if over else float("inf")), Asked(1 if over else float("inf"))
    with effort.counting():
        moved = relocation.returned(blocks, low, old, keep_going=back)
        assert effort.spent() > effort.LOOK * back.times
    found = relocation.around(blocks, old, ceiling, keep_going=kept)
    if over:
        assert (back.times, kept.times) == (1, 1)
        assert moved.tolist() == low.tolist()
        assert found is None
    else:
        assert back.times > 5
        assert kept.times > 5
        assert moved.tolist() == relocation.returned(blocks, low, old).tolist()
        assert found is not None


# ---------------------------------------------------------------------- clocks of work


def test_a_clock_is_carried_into_another_thread() -> None:
    with effort.counting(10.0):
        worker = threading.Thread(target=effort.carried(lambda: effort.spend(3.0)))
        worker.start()
        worker.join()
        assert effort.spent() == 3.0
        assert effort.left() == 7.0


def test_a_model_counts_what_is_built_of_it() -> None:
    def built(buffers: int) -> float:
        instance = LmemPacking.from_arrays([3] * buffers, [0] * buffers, [1] * buffers)
        with effort.counting():
            Milp(instance, spend=effort.spend)
            return effort.spent()

    assert built(40) > 3 * built(20) > 0  # of pairs, at least


def test_a_model_of_rectangles_counts_the_pairs_built_of_it() -> None:
    def built(buffers: int) -> float:
        pairs = np.stack(np.triu_indices(buffers, 1), axis=1)
        instance = LmemPacking.from_arrays(
            range(3, 3 + buffers),
            [0] * buffers,
            [1] * buffers,
            banks=Banks(8, 2**10, pairs),
            objective="bank-conflicts",
        )
        with effort.counting():
            CpSat(instance, spend=effort.spend)
            return effort.spent()

    assert built(24) > 3 * built(12) > 0


def test_models_of_many_rectangles_go_without_presolve() -> None:
    def parameters(buffers: int) -> dict[str, object]:
        return CpSat(
            LmemPacking.from_arrays([3] * buffers, [0] * buffers, [1] * buffers)
        ).parameters

    assert not parameters(50)
    assert parameters(250) == {"cp_model_presolve": False}


def test_an_engine_that_counts_no_work_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = FAMILIES["lmem-packing"]["prime-alignments-dense"](1)
    clock = itertools.count(step=5)
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    result = solve(instance, "cp-sat", time_limit=5, options={"deterministic": True})
    assert result.termination is Termination.TIME_LIMIT
    assert "ended by the clock" in result.reason


def test_a_model_too_large_to_build_ends_by_the_limit_in_work() -> None:
    instance = FAMILIES["lmem-packing"]["just-too-small"](0.5)
    result = solve(instance, "milp", time_limit=0.5, options={"deterministic": True})
    assert result.termination is Termination.TIME_LIMIT
    assert not result.trace.events[-1].source.endswith("(Milp)")


@pytest.mark.parametrize("method", ["auto", "cp-sat", "milp"])
def test_a_model_that_takes_longer_to_build_than_is_left_is_not_begun(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = FAMILIES["lmem-packing"]["banks-of-many"](0.5)
    assert min(model.building(instance) for model in (CpSat, Milp)) > 0.5
    for model in (CpSat, Milp):
        monkeypatch.setattr(model, "build", lambda _: pytest.fail("begun"))
    result = solve(instance, method, time_limit=0.5, options={"deterministic": True})
    assert result.status is Status.FEASIBLE
    assert "to build, more than is left" in result.reason


@pytest.mark.parametrize("model", [CpSat, Milp])
@pytest.mark.parametrize("feature", ["plain", *FEATURES])
def test_what_building_takes_is_told_beforehand(model: type[CpSat | Milp], feature: str) -> None:
    rng = np.random.default_rng(FEATURES.index(feature) if feature in FEATURES else 99)
    instance = random_packing(rng, features=set(FEATURES) & {feature}, n=8)
    spent: list[float] = []
    model(instance, spend=spent.append)
    assert model.building(instance) <= 1.01 * sum(spent)


@pytest.mark.parametrize("asked", [0, 1, 5, 50])
def test_spilling_ends_soon_after_a_no_and_has_an_answer(asked: int) -> None:
    instance, since = spilling(300, 9), [0]

    def keep_going() -> bool:
        since[0] += 1
        return since[0] <= asked

    with effort.counting():
        placed = spill.place(instance, keep_going)
        assert effort.spent() > 0
    assert placed is not None
    assert not instance.check(PackingSolution.of(instance, *placed))
    assert since[0] < asked + 20


def test_spilling_counts_its_work() -> None:
    def work(buffers: int) -> float:
        with effort.counting():
            spill.place(spilling(buffers, 9), lambda: True)
            return effort.spent()

    assert work(2000) > 2 * work(200)


def test_no_iis_is_sought_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    n, now = 200, [0.0]
    instance = LmemPacking.from_arrays([3] * n, [0] * n, [1] * n, capacity=3 * n - 1)
    part = iis.part

    def slow(*arguments: Any) -> LmemPacking:
        now[0] += 1
        return part(*arguments)

    monkeypatch.setattr(iis, "part", slow)
    monkeypatch.setattr(iis, "SECONDS", 3.0)
    progress: Any = Progress(instance.evaluate, instance.check)
    progress.limit_by(lambda: now[0], 10.0)
    iis.find(instance, instance.ceiling, iis.Questions(progress))
    assert now[0] <= 4


def test_no_conflict_is_sought_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, asked = Blocks.of(dense(200, 8, 10)), [0]
    decided = exact.Decision(Status.INFEASIBLE, None, 0, 0, 0)
    monkeypatch.setattr(exact, "decide_packing", lambda *_, **__: decided)
    monkeypatch.setattr(
        iis_of_blocks._Filter, "_narrowed", lambda _, which, first, end: (first, end)
    )
    prepared = [0]

    def counted(*_: Any) -> None:
        prepared[0] += 1

    monkeypatch.setattr(exact, "prepared", counted)

    def keep_going() -> bool:
        asked[0] += 1
        return asked[0] < 4

    iis_of_blocks._Filter(blocks, 1, keep_going, 10).run(None)
    assert prepared[0] <= 4


def test_a_first_placement_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = LmemPacking.from_arrays([3, 5], [0, 0], [1, 1], capacity=7, objective="fit")
    made = []

    def over(*_: Any, **__: Any) -> tuple[Any, str]:
        made.append(1)
        return np.array([0, 3]), "over the capacity"

    monkeypatch.setattr(quick, "compile_kernels", lambda *_: None)  # it places, too
    monkeypatch.setattr(valleys, "first", over)
    monkeypatch.setattr(bounds, "overload", lambda *_: "")
    progress: Any = Progress(instance.evaluate, instance.check, time_limit=0)
    quick.place_first(attempts.Attempt(instance, progress))
    quick.last_resort(instance, progress)
    assert len(made) == 1


# ---------------------------------------------------------------------- asking for the time


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


@pytest.mark.parametrize("until", [1, 7, 60])
def test_repair_asks_between_windows_and_ends(until: int) -> None:
    blocks = Blocks.of(dense(1500, 8, 60))
    low = greedy.place(blocks, RULES["first-fit-start"])
    assert low is not None
    with effort.counting():
        asked = Paced(until)
        found = repair.improve(blocks, low, target=0, keep_going=asked)
    assert until <= asked.times <= until + 3
    assert asked.most < 0.2
    assert (found + blocks.size).max() <= (low + blocks.size).max()


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
    heaviest = bounds.clique_bound(instance, blocks, asked)
    assert heaviest == bounds.clique_bound(instance, blocks)
    assert asked.times > 20
    assert int(blocks.load.max()) <= bounds.clique_bound(instance, blocks, few) <= heaviest
    assert few.times <= 40


def test_where_all_conflict_no_clique_is_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.stack(np.triu_indices(30, 1), axis=1)
    instance = LmemPacking.from_arrays(np.arange(1, 31), conflicts=pairs)
    blocks = Blocks.of(instance)
    monkeypatch.setattr(Blocks, "neighbours", lambda _: pytest.fail("listed"))
    assert bounds.objective_bound(instance, blocks) == 30 * 31 // 2


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_orders_ask_before_each_sort(rule: Rule) -> None:
    measures = Measures(Blocks.of(dense(60, 4, 10)))
    asked, keys = Asked(), len(rule.keys(measures))
    by_all = np.lexsort(rule.keys(measures)[::-1])
    assert rule.order(measures, asked).tolist() == by_all.tolist()
    assert asked.times == keys


def test_blocks_placed_whatever_the_time_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "STEP_BUDGET", 1)
    blocks, over = Blocks.of(conflicting(60)), Asked(0)
    spans = valleys.Spans(blocks)
    assert len(spans.scattered) > 20
    assert valleys.first(spans, keep_going=over) is not None
    assert over.times > len(spans.scattered)


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

    attempts.warm_up("greedy")  # which places, too
    monkeypatch.setattr(greedy, "fill_slabs", watched)
    monkeypatch.setattr(quick, "EACH", 1e-2)  # seconds a block: more than there are
    result = solve(instance, "first-fit-size", time_limit=1, options={"deterministic": True})
    assert not began
    assert result.solution is not None
    assert "did not end in time" in result.reason
    monkeypatch.setattr(quick, "EACH", 1e-6)
    result = solve(instance, "first-fit-size", time_limit=1, options={"deterministic": True})
    assert began
    assert "did not end in time" not in result.reason


@pytest.mark.parametrize(("buffers", "needed"), [(40, False), (700, True)])
def test_few_buffers_need_no_kernels_of_many(
    buffers: int, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: set[str] = set()
    monkeypatch.setattr(attempts, "_warm", set())
    monkeypatch.setattr(attempts, "warm_up", lambda *parts: compiled.update(parts))
    instance = LmemPacking.from_arrays(range(1, buffers + 1), [0] * buffers, [1] * buffers)
    assert solve(instance, "portfolio").status is Status.OPTIMAL
    assert "greedy" in compiled
    assert ("valleys" in compiled) == needed


def test_kernels_of_what_may_share_or_comes_in_pieces_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: set[Any] = set()

    def noted(kernel: Any) -> Any:
        def runs(*given: Any) -> Any:
            loaded.add(kernel)
            return kernel(*given)

        return runs

    kernels = [(sweep, sweep.sweep), (meetings_kernels, meetings_kernels.close_up)]
    for place, kernel in kernels:
        monkeypatch.setattr(place, kernel.__name__, noted(kernel))
    for part in ("sharing", "general"):
        attempts.warm_up.__wrapped__(part)
    assert loaded == {kernel for _, kernel in kernels}


def test_few_buffers_have_an_answer_whatever_the_time() -> None:
    instance = LmemPacking.from_arrays([3, 5, 7], [0, 1, 2], [2, 3, 4])
    assert solve(instance, "portfolio", time_limit=1e-9).solution is not None


def test_cliques_of_conflict_graphs_are_sought_without_lists_of_all_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a wheel the hub and two neighbours on the rim; two buffers of the rim share a block."""
    rim = [(at, (at + 1) % 6) for at in range(6)]
    instance = LmemPacking.from_arrays(
        [5, 5, 3, 2, 4, 4, 7],
        conflicts=[*rim, *((at, 6) for at in range(6))],
        colocated=[[0, 2]],
    )
    blocks = Blocks.of(instance)
    monkeypatch.delattr(Blocks, "neighbours")
    assert bounds.clique_bound(instance, blocks) == 5 + 5 + 7


def test_first_fit_copies_no_pieces() -> None:
    instance = LmemPacking.from_arrays([5, 6, 7], conflicts=[(0, 1), (1, 2)], reserved=[(3, 9)])
    blocks = Blocks.of(instance)
    pieces = greedy._pieces(blocks, None)
    for name in ("first", "end", "low", "range_low", "range_high"):
        assert np.shares_memory(getattr(pieces, name), getattr(blocks, name)), name
