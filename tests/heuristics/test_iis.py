"""The deletion filter on sets of which it is known what clashes."""

from __future__ import annotations

import itertools

import pytest

from stagepack.heuristics.iis import reduce
from stagepack.result import Status


@pytest.mark.parametrize("clashes", [[{3}], [{0, 9}], [{1, 2, 3}, {3, 4}], [{5, 6}, {7, 8}]])
@pytest.mark.parametrize("least", [1, 3])
def test_what_is_left_clashes_and_every_member_is_needed(
    clashes: list[set[int]], least: int
) -> None:
    def decide(rest: list[int]) -> Status:
        assert rest
        found = any(clash <= set(rest) for clash in clashes)
        return Status.INFEASIBLE if found else Status.FEASIBLE

    left, needed = reduce(range(10), decide, least=least)
    assert needed
    assert decide(left) is Status.INFEASIBLE
    if least == 1:
        assert set(left) in clashes
        for rest in itertools.combinations(left, len(left) - 1):
            assert not rest or decide(list(rest)) is Status.FEASIBLE
    assert left == sorted(left)


def test_what_is_not_known_is_not_said_to_be_needed() -> None:
    left, needed = reduce(range(4), lambda _: Status.UNKNOWN)
    assert left == [0, 1, 2, 3]
    assert not needed
    assert reduce([7], lambda _: Status.UNKNOWN) == ([7], True)  # nothing at all is feasible


def test_it_ends_when_it_is_told_to() -> None:
    questions: list[int] = []

    def decide(rest: list[int]) -> Status:
        questions.append(len(rest))
        return Status.INFEASIBLE

    left, needed = reduce(range(100), decide, lambda: len(questions) < 2)
    assert len(questions) == 2
    assert not needed
    assert len(left) < 100
