"""Moving little as a second objective: least and proved by the models, valid and told by all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, Objective, PackingSolution, measure
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods import Settings
from stagepack.methods.packing import relocation
from stagepack.progress import Progress
from stagepack.result import Status, Termination
from stagepack.solve import methods, solve
from tests.heuristics.packing.constructive.test_greedy import random_plain
from tests.packing_cases import FEATURES, brute_force, random_packing

PROVING = ("auto", "cp-sat", "milp")


def moved(instance: LmemPacking, result: Any) -> int:
    assert isinstance(result.solution, PackingSolution)
    found = measure(instance, result.solution).moved_bytes
    assert found is not None
    return found


def least_moved(instance: LmemPacking, ceiling: int) -> int:
    """Return the fewest bytes that a placement within a height moves, by trying all."""
    second = instance.replace(objective=Objective.MOVES, capacity=ceiling)
    best = brute_force(second)
    assert best is not None
    return second.evaluate(best)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(FEATURES), max_size=2, unique=True))
def test_the_fewest_bytes_move_at_the_least_peak(seed: int, features: list[str]) -> None:
    rng = np.random.default_rng(seed)
    try:
        instance = random_packing(rng, features=features, objective=Objective.PEAK, n=5)
        instance = instance.replace(previous=rng.integers(0, instance.size.sum() + 1, instance.n))
    except InputError:  # features that contradict each other
        return
    best = brute_force(instance)
    if best is None:
        return
    peak = instance.evaluate(best)
    fewest = least_moved(instance, peak)
    for info in methods(instance):
        if info.name not in relocation.METHODS or not info.available:
            continue
        result = solve(instance, info.name, time_limit=30 if info.exact else 1)
        if info.exact:
            assert (result.status, result.objective) == (Status.OPTIMAL, peak), info.name
        if result.objective == peak:
            assert moved(instance, result) >= fewest
        if info.name in PROVING:
            assert moved(instance, result) == fewest, info.name
            told = "the fewest of any placement as low" if fewest else "nothing leaves"
            assert told in result.reason, info.name


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(FEATURES), max_size=2, unique=True))
def test_the_fewest_bytes_move_within_the_capacity(seed: int, features: list[str]) -> None:
    rng = np.random.default_rng(seed)
    try:
        instance = random_packing(rng, features=features, objective=Objective.FIT, n=5)
        instance = instance.replace(previous=rng.integers(0, instance.size.sum() + 1, instance.n))
    except InputError:
        return
    possible = brute_force(instance) is not None
    for name in PROVING:
        result = solve(instance, name, time_limit=30)
        if not possible:
            assert result.status is Status.INFEASIBLE, name
            continue
        assert result.termination is Termination.TARGET
        assert instance.ceiling is not None
        fewest = least_moved(instance, instance.ceiling)
        # Where `auto` finds nothing near the old places, it takes whatever fits.
        if name != "auto" or "leave" in result.reason:
            assert moved(instance, result) == fewest, name


@pytest.mark.parametrize("method", relocation.METHODS)
def test_an_old_placement_as_low_is_kept_by_every_method(method: str) -> None:
    instance = random_plain(np.random.default_rng(3), 60, longest=20)
    old = solve(instance, "exact", time_limit=60)
    assert old.status is Status.OPTIMAL
    assert old.solution is not None
    # Turned over, so that nothing ends up there by chance.
    turned = old.objective - old.solution.offsets - instance.size
    again = instance.replace(previous=turned)
    result = solve(again, method, time_limit=2)
    if result.objective == old.objective:
        assert moved(again, result) == 0
        assert result.reason == "nothing leaves its previous offset"
    else:
        assert method in ("portfolio", "dive", "anneal", "beam")


def test_greedy_answers_say_that_nothing_is_proved() -> None:
    # The two halves change places: whichever stays, the other cannot.
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], previous=[2, 2])
    result = solve(instance, "exact")
    assert (result.objective, moved(instance, result)) == (8, 8)
    assert result.reason == (
        "8 bytes leave their previous offsets, not proved to be the fewest (auto and cp-sat "
        "look for a proof, given time)"
    )
    proved = solve(instance, "cp-sat")
    assert "8 bytes leave their previous offsets, the fewest" in proved.reason


def test_single_rules_and_instances_without_old_offsets_have_no_second_objective() -> None:
    instance = LmemPacking.from_arrays([4, 4, 4], [0] * 3, [1] * 3, previous=[8, 4, 0])
    assert not relocation.matter("greedy-by-size", instance)
    assert solve(instance, "greedy-by-size").reason == ""
    assert not relocation.matter("cp-sat", instance.replace(previous=[-1] * 3))


def test_a_model_too_fine_for_moves_leaves_the_answer_alone() -> None:
    # Sizes share a large unit, old offsets do not: the MILP refuses the second objective only.
    unit = 2**30
    instance = LmemPacking.from_arrays(
        [4 * unit, 4 * unit, unit], [0, 0, 1], [2, 1, 2], previous=[1, 3, 5]
    )
    result = solve(instance, "milp")
    assert (result.status, result.objective) == (Status.OPTIMAL, 8 * unit)
    assert "not proved to be the fewest" in result.reason


def test_many_buffers_are_kept_by_passes_over_time() -> None:
    tuning = TUNING.changed({"relocation": {"searched_blocks": 0}})
    rng = np.random.default_rng(5)
    instance = random_plain(rng, 400, longest=40)
    old = greedy.place(Blocks.of(instance), RULES["best-fit-lifetime"], tuning=tuning)
    assert old is not None
    capacity = int((old + instance.size).max())
    old[rng.permutation(400)[:20]] = -1
    again = instance.replace(previous=old, capacity=capacity, objective="fit")
    result = solve(again, "dive")
    assert result.termination is Termination.TARGET
    assert moved(again, result) <= instance.size.sum() // 20
    assert "leave" in result.reason


def test_what_was_known_of_an_answer_is_still_told() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4], [0, 0], [1, 1], previous=[2, 2], capacity=6, objective="peak"
    )
    reason = solve(instance, "exact").reason
    assert "leave their previous offsets" in reason
    assert "exceeds the capacity of 6" in reason
    instance = instance.replace(capacity=None)
    progress: Progress[PackingSolution] = Progress(instance.evaluate, instance.check)
    progress.offer(PackingSolution.of(instance, [4, 0]), "test")
    progress.reason = "known before"
    relocation.after("portfolio", instance, progress, Settings())
    assert progress.reason.startswith("known before; 8 bytes leave")


def test_engines_that_cannot_do_what_is_asked_are_refused() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], previous=[2, 2])
    progress: Progress[PackingSolution] = Progress(instance.evaluate, instance.check)
    progress.offer(PackingSolution.of(instance, [4, 0]), "test")
    with pytest.raises(InputError, match="nonesuch"):
        relocation.after("cp-sat", instance, progress, Settings(engine="nonesuch"))


def test_limits_are_shared_with_moving_little() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], previous=[2, 2])
    progress: Progress[PackingSolution] = Progress(
        instance.evaluate, instance.check, time_limit=100
    )
    with relocation.reserved(instance, progress):
        assert 70 < progress.remaining < 81
    assert progress.remaining > 90
    assert progress.keep_going()
    fit = instance.replace(objective="fit", capacity=8)
    with relocation.reserved(
        fit, progress
    ):  # where any placement will do, the one that moves least
        assert progress.remaining > 90


def test_a_part_of_the_time_that_is_used_up_ends_the_run_but_not_what_follows() -> None:
    instance = LmemPacking.from_arrays([4], [0], [1])
    progress: Progress[PackingSolution] = Progress(
        instance.evaluate, instance.check, time_limit=1000
    )
    with progress.reserving(1.0):
        assert not progress.keep_going()
    assert progress.remaining > 900
    assert progress.stop_reason() is Termination.TIME_LIMIT
