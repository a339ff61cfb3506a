"""Methods of packing through the one door: agreement, certificates, objectives, warm starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.catalog.packing.dissections import planted
from stagepack.errors import InputError
from stagepack.heuristics import effort
from stagepack.heuristics.packing.beam_search import beam
from stagepack.heuristics.packing.constructive import dive
from stagepack.heuristics.packing.constructive.rules import Measures
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, Memory, Objective, PackingSolution, measure
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import attempt, steps
from stagepack.progress import Stopped
from stagepack.result import EventKind, Status, Termination
from stagepack.solve import REGISTRY, methods, pack, solve
from tests.packing_cases import FEATURES, brute_force, random_packing, tight

EXACT = [method.name for method in REGISTRY["lmem-packing"] if method.exact]
CONSTANT = (  # buffer 0 lives as long as all others: a search takes it out
    [5, 4, 6, 5, 4, 2, 7, 7, 8],
    [0, 0, 0, 0, 1, 1, 2, 3, 4],
    [5, 2, 1, 3, 2, 4, 5, 4, 5],
)


def test_beams_are_begun_where_orders_do_not_suffice_only(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = LmemPacking.from_arrays([4, 6, 5], [0, 0, 1], [2, 1, 3])
    begun: list[int] = []
    monkeypatch.setattr(beam.BeamSearch, "start", lambda _, capacity, *__: begun.append(capacity))
    assert solve(instance, "exact", objective="peak").status is Status.OPTIMAL
    assert not begun


def test_what_needs_hardly_any_search_is_found_before_the_rules_run() -> None:
    instance = planted(40, 3, 64)
    result = solve(instance, "exact", objective="peak")
    assert result.status is Status.OPTIMAL
    assert [event.source for event in result.trace.incumbents] == ["exact"]


def test_cores_are_cut_by_the_clock_that_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def dive_for_long(attempt: attempt.Attempt, _: Any, going: Callable[[], bool]) -> None:
        while going():
            effort.spend(0.01)
        left.append(attempt.progress.remaining)

    tuning = {"scale": {"blocks": 0}}
    monkeypatch.setattr(steps, "dive_with_cores", dive_for_long)
    solve(tight(), time_limit=2, options={"deterministic": True, "tuning": tuning})
    assert left == [pytest.approx(2 * (1 - TUNING.scale.core_share), abs=0.1)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from(FEATURES), max_size=3, unique=True),
    st.sampled_from(list(Objective)),
)
def test_all_methods_agree_with_enumeration(
    seed: int, features: list[str], objective: Objective
) -> None:
    try:
        instance = random_packing(
            np.random.default_rng(seed), features=features, objective=objective
        )
    except InputError:  # features that contradict each other
        return
    best = brute_force(instance)
    for info in methods(instance):
        if not info.available:
            assert info.reason
            continue
        if not info.exact and info.name not in ("portfolio", "dive", "replan", "spill-by-value"):
            continue
        result = solve(instance, info.name, time_limit=30)
        if best is None:
            assert result.solution is None
            assert result.status is Status.INFEASIBLE or not info.exact
            assert result.reason
            continue
        value = instance.evaluate(best)
        assert result.status is not Status.INFEASIBLE, (info.name, result.reason)
        assert result.bound is None or result.bound <= value, info.name
        assert result.objective is None or result.objective >= value, info.name
        if info.exact and objective is Objective.FIT:
            assert result.termination is Termination.TARGET, info.name
        elif info.exact:
            assert (result.status, result.objective) == (Status.OPTIMAL, value), info.name


@pytest.mark.parametrize("method", EXACT)
def test_every_exact_method_proves_a_peak_above_the_load(method: str) -> None:
    result = solve(tight(), method, time_limit=60)
    assert (result.status, result.objective, result.bound) == (Status.OPTIMAL, 17, 17)
    fits = solve(tight().replace(capacity=17, objective="fit"), method, time_limit=60)
    assert fits.termination is Termination.TARGET
    assert fits.objective == 17
    low = solve(tight().replace(capacity=16, objective="fit"), method, time_limit=60)
    assert low.status is Status.INFEASIBLE
    assert "16" in low.reason


def test_fit_is_optimal_only_when_the_peak_meets_the_bound() -> None:
    result = solve(tight().replace(capacity=40, objective="fit"))
    assert result.termination is Termination.TARGET
    assert result.bound == 16
    assert result.status is Status.FEASIBLE
    flat = solve(LmemPacking.from_arrays([3, 4], [0, 0], [1, 1], capacity=9))
    assert (flat.status, flat.termination) == (Status.OPTIMAL, Termination.TARGET)


def test_a_packing_with_blocks_that_never_die_is_improved() -> None:
    instance = LmemPacking.from_arrays(*CONSTANT)
    high = PackingSolution.of(instance, [40, 0, 4, 10, 4, 15, 0, 20, 7])
    assert not instance.check(high)
    for method in ("exact", "auto", "anneal"):
        result = solve(instance, method, warm_start=high, time_limit=5, target=44)
        assert result.objective is not None
        assert result.objective < 45, method
    assert solve(instance, "exact", warm_start=high).objective == 22


def test_infeasible_names_the_buffers_and_what_would_do() -> None:
    result = solve(tight().replace(capacity=16, objective="fit"))
    assert "do not fit together in 16 bytes" in result.reason
    assert "17" in result.reason
    crowded = solve(tight().replace(capacity=15, objective="fit"))
    assert "1 more than the capacity of 15" in crowded.reason


@pytest.mark.parametrize("seed", range(4))
def test_planted_packings_are_found(seed: int) -> None:
    instance = planted(40, seed, 1024)
    result = solve(instance, objective="peak", time_limit=30)
    assert (result.status, result.objective) == (Status.OPTIMAL, 1024)


def test_replanning_keeps_what_can_stay() -> None:
    # Buffer 3 is new and needs room beside 0, 1 and 2; moving 2 alone is enough.
    instance = LmemPacking.from_arrays(
        [4, 4, 2, 6],
        [0, 0, 0, 0],
        [4, 4, 4, 4],
        capacity=16,
        previous=[0, 4, 12, -1],
        objective="moves",
    )
    result = solve(instance)
    assert result.status is Status.OPTIMAL
    assert result.objective == 2
    assert measure(instance, _solution(result)).moved == 1


def test_an_old_placement_decides_between_equal_peaks() -> None:
    instance = LmemPacking.from_arrays([4, 4, 4], [0] * 3, [1] * 3, previous=[8, 4, 0])
    result = solve(instance)
    assert result.objective == 12
    assert _solution(result).offsets.tolist() == [8, 4, 0]


def test_spilling_keeps_what_is_used_most() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 4],
        [0] * 3,
        [1] * 3,
        accesses=[1, 9, 5],
        memories=[Memory("fast", 8, 1), Memory("slow", None, 10)],
    )
    for method in ("auto", "spill-by-value", "cp-sat", "milp"):
        result = solve(instance, method)
        assert result.objective == 9 + 5 + 10, method
    assert _solution(result).to_dict()["memories"] == {"0": "slow", "1": "fast", "2": "fast"}


def test_same_seed_same_answer() -> None:
    instance = planted(60, 3, 4096)
    one, other = (solve(instance, objective="peak", seed=5, time_limit=60) for _ in range(2))
    assert one.objective == other.objective
    assert one.solution == other.solution


def test_three_arrays_are_enough() -> None:
    offsets, result = pack([4, 4, 4], [0, 3, 0], [3, 9, 9], capacity=12)
    assert offsets is not None
    assert result.status is Status.OPTIMAL
    assert sp.pack is pack
    none, result = pack([4, 4, 4], [0, 3, 0], [3, 9, 9], capacity=7, method="exact")
    assert none is None
    assert result.status is Status.INFEASIBLE
    with pytest.raises(InputError, match="end"):
        pack([4], [3], [3])
    assert pack(["1KiB", "4"], start=[0, 0], end=[1, 1], capacity="2KiB")[0] is not None
    assert pack([4, 4], conflicts=[(0, 1)])[1].objective == 8
    with pytest.raises(InputError, match=r"ends: is no option .* did you mean end"):
        pack([4], start=[3], ends=[4])


def test_warm_starts_are_checked_and_used() -> None:
    instance = tight()
    best = solve(instance)
    again = solve(instance, "cp-sat", warm_start=best.solution)
    assert again.trace.warm_starts
    assert again.trace.incumbents[0].value == 17
    wrong = PackingSolution.of(instance, np.zeros(8))
    with pytest.raises(InputError, match="overlap"):
        solve(instance, "exact", warm_start=wrong)
    with pytest.raises(InputError, match="unknown warm start"):
        solve(instance, "exact", warm_start="auto-magic")


def test_an_answer_even_without_time() -> None:
    result = solve(planted(200, 0, 4096), objective="peak", time_limit=1e-9)
    assert result.status is Status.FEASIBLE
    assert result.termination is Termination.TIME_LIMIT


@pytest.mark.parametrize("method", ["auto", "exact", "anneal", "beam", "dive"])
def test_runs_limited_by_work_repeat(method: str) -> None:
    instance = planted(300, 1, 2**20)
    options = {"deterministic": True}
    one, other = (
        solve(instance, method, objective="peak", time_limit=0.3, options=options) for _ in range(2)
    )
    assert one.solution == other.solution
    assert one.objective == other.objective


def test_annealing_starts_no_higher_than_single_dives() -> None:
    instance = planted(300, 1, 2**20).replace(objective="peak", capacity=None)
    blocks = Blocks.of(instance)
    measures = Measures(blocks)
    peaks = [
        int((dive.place(blocks, np.lexsort(keys(measures)[::-1])) + blocks.size).max())
        for keys in dive.ORDERS.values()
    ]
    result = solve(instance, "anneal", time_limit=0.1, options={"deterministic": True})
    dives = [event.value for event in result.trace.incumbents if event.source == "dive"]
    assert result.objective is not None
    assert result.objective <= min(peaks)
    assert not dives or dives[-1] == min(peaks)


@pytest.mark.parametrize("limit", [2, 4])
def test_what_resists_is_mostly_annealed_where_overlaps_are_not_minimised(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    rng = np.random.default_rng(31)
    start = rng.integers(0, 40, 120)
    instance = LmemPacking.from_arrays(
        rng.integers(64, 1024, 120),
        start,
        start + rng.integers(1, 30, 120),
        alignment=rng.choice([1, 7, 33, 100], 120),
    )
    annealed: list[tuple[float, float]] = []

    def improve(
        _: attempt.Attempt,
        low: object,
        seed: int,
        seconds: float = math.inf,
        near: bool = False,
    ) -> None:
        seconds = min(seconds, effort.left())
        annealed.append((effort.spent(), seconds))
        effort.spend(seconds)

    monkeypatch.setattr(steps, "improve", improve)
    solve(instance, time_limit=limit, options={"deterministic": True})
    assert annealed[0][0] < 0.6
    assert sum(seconds for _, seconds in annealed) > 0.6 * limit


def test_graph_bounds_look_for_cliques() -> None:
    # A cover by edges alone would say 5: the triangle needs 7.
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)]
    instance = LmemPacking.from_arrays([2, 3, 2, 1, 4], conflicts=pairs)
    assert solve(instance, "first-fit-size").bound == 7
    shared = solve(instance.replace(in_place=[(0, 2)]), "exact")
    assert (shared.objective, shared.bound) == (5, 5)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 4, 6]))
def test_rounding_to_one_alignment_is_a_bound(seed: int, step: int) -> None:
    instance = random_packing(np.random.default_rng(seed)).replace(alignment=step)
    best = brute_force(instance)
    assert best is not None
    for method in ("auto", "exact", "dive"):
        result = solve(instance, method, time_limit=1)  # without a proof dives go on
        assert result.bound is not None
        assert result.bound <= instance.evaluate(best)


def test_rules_beside_colocation() -> None:
    # At equal offsets buffers 1 and 2 hold different halves, so that all three share one place.
    instance = LmemPacking.from_arrays(
        [4, 4, 4],
        [0, 2, 0],
        [2, 4, 4],
        gaps=[(1, 2, 4, 0, 2), (2, 2, 4, 2, 4)],
        in_place=[(0, 2)],
        colocated=[(0, 1)],
    )
    for method in ("auto", "exact", "cp-sat", "milp"):
        assert solve(instance, method).objective == 4, method
    skew = LmemPacking.from_arrays(
        [4, 4], [0, 1], [2, 3], alignment=[4, 8], fixed=[4, -1], colocated=[(0, 1)]
    )
    for method in ("auto", "exact", "cp-sat", "milp"):
        assert solve(skew, method).status is Status.INFEASIBLE, method


def test_a_start_that_settles_lower_is_reported() -> None:
    instance = LmemPacking.from_arrays([12, 4, 10], [0, 1, 2], [2, 3, 3])
    start = PackingSolution.of(instance, [1000, 500, 0])
    result = solve(instance, "exact", warm_start=start)
    assert (result.status, result.objective) == (Status.OPTIMAL, 16)


def test_a_start_too_high_does_not_mix_with_the_bottom() -> None:
    # Buffer 14 lies at the bottom of all; a start that has it elsewhere is settled first.
    instance = LmemPacking.from_arrays(
        [28, 14, 35, 28, 7, 7, 21, 7, 14, 7, 7, 35, 35, 21, 7],
        [5, 5, 4, 3, 2, 2, 2, 1, 1, 0, 0, 1, 0, 0, 0],
        [6, 6, 5, 6, 4, 3, 4, 5, 3, 4, 2, 2, 1, 1, 6],
        capacity=83,
    )
    low, least = solve(instance, "exact"), solve(instance, "exact", objective="peak")
    assert (low.status, least.status, least.objective) == (Status.INFEASIBLE, Status.OPTIMAL, 84)


def test_a_stretch_of_time_that_is_too_full_is_refuted_by_itself(data_dir: Any) -> None:
    # Half a minute of searching the whole does not tell; eleven buffers are to blame.
    tuning = {"auto": {"asked_capacity": 0.1}}
    path = str(data_dir / "minimalloc" / "K.1048576.csv")
    instance = sp.load("packing/relative", of=path, changes=2, seed=1005, number=35)
    result = solve(
        instance, "exact", time_limit=4, options={"deterministic": True, "tuning": tuning}
    )
    assert result.status is Status.INFEASIBLE
    assert "window" in result.trace.bounds[-1].source


def test_overlaps_come_before_the_exact_search_where_conflicts_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They lowered most, and late: by the clock hardly anything was left to them."""
    begun: list[str] = []
    for name in ("search_exactly", "minimise_overlaps", "improve"):
        step = getattr(steps, name)

        def noted(*args: Any, name: str = name, step: Any = step, **options: Any) -> None:
            begun.append(name)
            step(*args, **options)

        monkeypatch.setattr(steps, name, noted)
    random = np.random.default_rng(5)
    i, j = np.triu_indices(60, 1)
    meet = random.random(len(i)) < 0.3
    conflicts = np.stack([i[meet], j[meet]], axis=1)
    instance = LmemPacking.from_arrays(random.integers(1, 2000, 60), conflicts=conflicts)
    solve(instance, time_limit=0.4, options={"deterministic": True})
    assert begun[:3] == ["minimise_overlaps", "search_exactly", "improve"]


@pytest.mark.parametrize(("objective", "first"), [("fit", (3.0, 0.5)), ("peak", (1.0, 1.0))])
def test_a_capacity_gets_more_of_the_exact_search(
    monkeypatch: pytest.MonkeyPatch, objective: str, first: tuple[float, float]
) -> None:
    """What `exact` decided in 1.6 s took `auto` 4: after a second of it came all others."""
    given: list[float] = []

    def searched(*args: Any) -> None:
        given.append(args[-1])

    def improved(*args: Any, near: bool = False) -> None:
        given.append(args[-1])
        raise Stopped

    for name, step in (("search_exactly", searched), ("improve", improved)):
        monkeypatch.setattr(steps, name, step)
    monkeypatch.setattr(steps, "glance", lambda *_, **__: None)
    monkeypatch.setattr(steps, "minimise_overlaps", lambda *_, **__: None)
    solve(
        tight().replace(capacity=16),
        time_limit=60,
        objective=objective,
        options={"deterministic": True},
    )
    assert tuple(given[:2]) == first


@pytest.mark.parametrize("method", ["auto", "exact", "beam", "cp-sat", "milp"])
def test_a_capacity_that_stays_undecided_is_annealed_towards(method: str) -> None:
    """What was shown was a first fit, 67 % over the capacity; 55 % is soon found."""
    random = np.random.default_rng(5)
    i, j = np.triu_indices(80, 1)
    meet = random.random(len(i)) < 0.5
    conflicts = np.stack([i[meet], j[meet]], axis=1)
    instance = LmemPacking.from_arrays(random.integers(1, 2000, 80), conflicts=conflicts)
    bound = solve(instance, "first-fit-start").bound
    tight = instance.replace(objective="fit", capacity=bound)
    result = solve(tight, method, time_limit=0.5, options={"deterministic": True})
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.TIME_LIMIT)
    known = [event for event in result.trace.events if event.kind == EventKind.OVER_CAPACITY]
    assert known[-1].source in ("anneal", "overlaps")


def test_replanning_beside_colocated_and_fixed_buffers() -> None:
    instance = LmemPacking.from_arrays(
        [8, 2, 6],
        [3, 2, 4],
        [5, 5, 5],
        fixed=[-1, 2, -1],
        previous=[0, 2, 6],
        capacity=13,
        colocated=[(0, 1, 2)],
        in_place=[(1, 2)],
    )
    assert _solution(solve(instance)).offsets.tolist() == [2, 2, 2]


def test_mixed_alignments() -> None:
    instance = LmemPacking.from_arrays(
        [36, 12, 24, 36, 12, 24, 12, 36],
        [3, 4, 5, 3, 4, 5, 1, 0],
        [5, 6, 9, 7, 5, 7, 5, 1],
        alignment=[3, 12, 6, 6, 8, 8, 8, 8],
    )
    values = {solve(instance, method).objective for method in ("exact", "cp-sat")}
    assert len(values) == 1


def _solution(result: Any) -> PackingSolution:
    assert isinstance(result.solution, PackingSolution)
    return result.solution
