"""Why buffers do not fit, beside one memory: who, when, by how much, and what would mend it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, Memory, Objective
from stagepack.methods.packing import iis
from stagepack.progress import Progress
from stagepack.result import Status
from stagepack.solve import solve
from tests.packing_cases import TIGHT, brute_force, random_packing

START, END, SIZE = np.array(TIGHT).T


def questions(instance: LmemPacking) -> iis.Questions:
    return iis.Questions(Progress(instance.evaluate, instance.check))


def assert_irreducible(instance: LmemPacking, found: iis.InfeasibleBuffers | None) -> None:
    assert found is not None
    assert found.irreducible
    ceiling = instance.ceiling
    assert brute_force(iis.part(instance, list(found.buffers), ceiling)) is None
    for left_out in found.buffers:
        rest = [i for i in found.buffers if i != left_out]
        # Colocated buffers are left out together.
        group = next((g for g in instance.colocated if left_out in g), ())
        rest = [i for i in rest if i not in group]
        assert not rest or brute_force(iis.part(instance, rest, ceiling)) is not None


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize(
    "features", [["in-place"], ["allowed", "fixed"], ["gaps", "alignment"], ["colocated"]]
)
def test_irreducible_whatever_the_rules(
    features: list[str], by_model: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_model:  # as where the exact search does not know a rule
        monkeypatch.setattr(exact, "unsupported", lambda *_, **__: "not asked")
    met = 0
    for seed in range(60):
        instance = random_packing(np.random.default_rng(seed), features=features)
        best = brute_force(instance)
        if best is not None:
            instance = instance.replace(objective="fit", capacity=instance.evaluate(best) - 1)
        if instance.capacity == 0:
            continue
        found = iis.find(instance, instance.ceiling, questions(instance))
        assert_irreducible(instance, found)
        met += 1
        if met == 6:
            return


def test_in_place_pairs_that_do_not_fit_are_named() -> None:
    # Buffer 8 is born in place of 7, and no part of what is wrong.
    instance = LmemPacking.from_arrays(
        [*SIZE, 3], [*START, 4], [*END, 6], in_place=[(7, 8)], capacity=16, ids=list("abcdefghi")
    )
    for method in ("auto", "cp-sat"):
        result = solve(instance, method, time_limit=60)
        assert result.status is Status.INFEASIBLE
        assert "buffers a, b, c, d, e, f, g, h (alive from 0 to 4)" in result.reason
        assert "do not fit together in 16 bytes; any one fewer fits" in result.reason
        assert "a capacity of 17 would do, 1 more" in result.reason


def test_several_memories_that_do_not_do_are_told_with_the_least_more() -> None:
    instance = LmemPacking.from_arrays(
        SIZE, START, END, memories=[Memory("near", 8, 1), Memory("far", 9, 5)]
    )
    result = solve(instance, time_limit=60)
    assert result.status is Status.INFEASIBLE
    assert "into near (8), far (9), however they are spread; any one fewer fits" in result.reason
    found = re.search(r"a capacity of (\d+) for (near|far) would do, (\d+) more", result.reason)
    assert found is not None
    enough, name, more = int(found[1]), found[2], int(found[3])
    assert enough - more == {"near": 8, "far": 9}[name]
    for capacity, fits in ((enough, True), (enough - 1, False)):
        memories = [
            Memory(m.name, capacity if m.name == name else m.capacity, m.cost)
            for m in instance.memories
        ]
        assert (brute_force(instance.replace(memories=memories)) is not None) is fits


def test_ranges_without_a_capacity_are_told_with_the_least_wider_one() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 3, 9], [0, 0, 0, 5], [3, 3, 2, 6], allowed=[(0, 0, 6), (1, 0, 7)]
    )
    for method in ("auto", "exact", "cp-sat", "milp"):
        result = solve(instance, method)
        assert result.status is Status.INFEASIBLE
        assert "buffers 0, 1 (alive at time 0) do not fit together" in result.reason
        assert "a range of buffer 1 to 8 would do, 1 more than now" in result.reason
    assert brute_force(instance.replace(allowed=[(0, 0, 6), (1, 0, 8)])) is not None


def test_fixed_buffers_in_one_another_are_told() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 3], [0, 0, 5], [3, 3, 6], fixed=[0, 3, -1], ids=["in", "out", "late"]
    )
    result = solve(instance)
    assert "buffers in, out (alive at time 0)" in result.reason
    assert result.reason.endswith("it would do not to fix buffer in or out")


def test_a_graph_has_no_time() -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 3], conflicts=[(0, 1), (1, 2)], fixed=[0, 3, -1], in_place=[(1, 2)]
    )
    result = solve(instance)
    assert "buffers 0, 1 do not fit together" in result.reason
    assert iis.lifetime(instance, (0, 1)) is None


def test_nothing_is_asked_without_time_or_hope() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], capacity=7)
    over = iis.Questions(Progress(instance.evaluate, instance.check, time_limit=1e-9))
    assert over.fits(instance) is Status.UNKNOWN
    assert over.asked == 0
    assert iis.find(instance, 7, over) is None
    patient = questions(instance)
    patient.undecided = TUNING.reasons.undecided
    assert patient.fits(instance) is Status.UNKNOWN
    assert questions(instance).fits(instance) is Status.INFEASIBLE


def test_a_question_left_open_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = LmemPacking.from_arrays(SIZE, START, END, capacity=16)
    ask = questions(instance)
    real = iis.Questions.fits

    def forgetful(self: iis.Questions, given: LmemPacking) -> Status:
        return Status.UNKNOWN if given.n == 7 else real(self, given)

    monkeypatch.setattr(iis.Questions, "fits", forgetful)
    bigger = LmemPacking.from_arrays([*SIZE, 5], [*START, 9], [*END, 10], capacity=16)
    found = iis.find(bigger, 16, ask)
    assert found is not None
    assert (found.buffers, found.irreducible) == (tuple(range(8)), False)


def test_least_that_fits_is_a_multiple_and_needs_a_sure_end() -> None:
    instance = LmemPacking.from_arrays([6, 4, 4], [0, 0, 0], [1, 1, 1])
    ask = questions(instance)

    def within(capacity: int) -> LmemPacking:
        return instance.replace(objective=Objective.FIT, capacity=capacity)

    assert iis.least_that_fits(9, 40, 2, within, ask) == 14
    assert iis.least_that_fits(3, 13, 2, lambda at: within(min(at, 12)), ask) is None
    assert iis.larger_capacity(instance, 9, ask) == 14
