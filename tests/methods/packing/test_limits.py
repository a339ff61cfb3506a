"""Limits in work and in time: undecided fits, models, kernels, first answers."""

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

from benchmarks.hostile import FAMILIES
from benchmarks.hostile.packing import spilling
from stagepack import catalog
from stagepack.formulations.packing import CpSat, Milp
from stagepack.heuristics import effort
from stagepack.heuristics.packing import bounds, relocation
from stagepack.heuristics.packing.constructive import greedy, spill, valleys
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import Banks, LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import attempt as attempts
from stagepack.methods.packing import quick, steps
from stagepack.progress import Progress
from stagepack.result import Status, Termination
from stagepack.solve import solve
from tests.packing_cases import FEATURES, random_packing

UNDECIDED = exact.Decision(Status.UNKNOWN, None, 0, 0)


def test_an_undecided_fit_says_how_near_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = catalog.load("packing/above-load")
    load = int(Blocks.of(instance).load.max())
    monkeypatch.setattr(exact, "decide", lambda *_, **__: UNDECIDED)
    monkeypatch.setattr(steps, "raise_by_windows", lambda *_, **__: None)  # they would prove it
    given: Any = {"time_limit": 0.5, "options": {"deterministic": True}}
    result = solve(instance.replace(capacity=load, objective="fit"), "exact", **given)
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


@pytest.mark.parametrize("seed", range(30))
def test_old_offsets_are_kept_the_largest_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.choice(FEATURES, rng.integers(0, 3), replace=False).tolist()
    instance = random_packing(rng, features=features, n=10)
    old = rng.integers(0, 20, instance.n)
    instance = instance.replace(previous=old, capacity=1000, objective="moves", memories=())
    blocks = Blocks.of(instance)
    kept = relocation._consistent(instance, 1000, lambda: True, tuning=TUNING)
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
    result = solve(
        instance, "milp", objective="peak", time_limit=0.5, options={"deterministic": True}
    )
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


def test_spilling_counts_its_work() -> None:
    def work(buffers: int) -> float:
        with effort.counting():
            spill.place(spilling(buffers, 9), lambda: True)
            return effort.spent()

    assert work(2000) > 2 * work(200)


def test_a_first_placement_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = LmemPacking.from_arrays([3, 5], [0, 0], [1, 1], capacity=7, objective="fit")
    made = []

    def over(*_: Any, **__: Any) -> tuple[Any, str]:
        made.append(1)
        return np.array([0, 3]), "over the capacity"

    monkeypatch.setattr(valleys, "first", over)
    monkeypatch.setattr(bounds, "overload", lambda *_, **__: None)
    progress: Any = Progress(instance.evaluate, instance.check, time_limit=0)
    quick.place_first(attempts.Attempt(instance, progress))
    quick.last_resort(instance, progress)
    assert len(made) == 1


@pytest.mark.parametrize(("buffers", "needed"), [(40, False), (700, True)])
def test_few_buffers_need_no_kernels_of_many(
    buffers: int, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed, first = [], valleys.first

    def noted(*given: Any, **named: Any) -> Any:
        placed.append(given)
        return first(*given, **named)

    monkeypatch.setattr(valleys, "first", noted)
    instance = LmemPacking.from_arrays(range(1, buffers + 1), [0] * buffers, [1] * buffers)
    assert solve(instance, "portfolio").status is Status.OPTIMAL
    assert bool(placed) == needed


def test_few_buffers_have_an_answer_whatever_the_time() -> None:
    instance = LmemPacking.from_arrays([3, 5, 7], [0, 1, 2], [2, 3, 4])
    assert solve(instance, "portfolio", time_limit=1e-9).solution is not None


@pytest.mark.parametrize(("seconds", "sections"), [(0.0, 1), (1.0, 3)])
def test_cliques_of_conflicts_leave_the_time_that_the_rest_of_the_form_takes(
    seconds: float, sections: int
) -> None:
    tuning = {"graphs": {"covering_left": seconds}}
    triangle = LmemPacking.from_arrays([1, 2, 3], conflicts=[(0, 1), (0, 2), (1, 2)])
    assert (
        solve(triangle, "portfolio", time_limit=2.0, options={"tuning": tuning}).status
        is Status.OPTIMAL
    )
    assert Blocks.of(triangle).sections == sections


def test_conflicts_for_which_there_is_no_time_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten million took 2.9 s where one was asked."""
    tuning = {"graphs": {"least": 1.0}, "scale": {"late_conflicts": 2}}
    monkeypatch.setattr(Blocks, "_of", lambda *_, **__: pytest.fail("made a normal form"))
    triangle = LmemPacking.from_arrays([1, 2, 3], conflicts=[(0, 1), (0, 2), (1, 2)])
    result = solve(triangle, "auto", time_limit=1.0, options={"tuning": tuning})
    assert (result.objective, result.bound) == (6, 3)
    assert result.termination is Termination.FINISHED
    assert "3 conflicts" in result.reason


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
    assert bounds.heavy_clique(instance, blocks)[0] == 5 + 5 + 7


def test_first_fit_copies_no_pieces() -> None:
    instance = LmemPacking.from_arrays([5, 6, 7], conflicts=[(0, 1), (1, 2)], reserved=[(3, 9)])
    blocks = Blocks.of(instance)
    pieces = greedy._pieces(blocks, None)
    for name in ("first", "end", "low", "range_low", "range_high"):
        assert np.shares_memory(getattr(pieces, name), getattr(blocks, name)), name


def test_gaps_that_python_goes_through_count_as_work() -> None:
    gaps = [(0, 3 * at, 3 * at + 1) for at in range(500)]
    instance = LmemPacking.from_arrays([5, 6], [0, 0], [1500, 1500], gaps=gaps)
    progress = Progress[PackingSolution](instance.evaluate, instance.check)
    with effort.counting():
        attempt = attempts.Attempt(instance, progress)
        made = effort.spent()
        attempt.offer(np.array([0, 5]), "test")
        assert made > TUNING.prices.row * len(gaps)
        assert effort.spent() - made > TUNING.prices.row * len(gaps)
