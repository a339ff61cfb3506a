"""The epsilon-constraint method on staircases that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.result import Result, Status, Termination
from stagepack.tradeoffs.staircase import Staircase

Points = dict[int, int]


class Oracle:
    """Answers within a limit out of a list of solutions {used: value}, some without proof."""

    def __init__(
        self, points: Points, loose: frozenset[int] = frozenset(), hard: int | None = None
    ) -> None:
        self.points, self.loose, self.hard = points, loose, hard
        self.asked: list[int | None] = []

    def __call__(self, limit: int | None, start: object, target: object) -> Result[Any]:
        self.asked.append(limit)
        fits = {x: y for x, y in self.points.items() if limit is None or x <= limit}
        if not fits:
            return Result(status=Status.INFEASIBLE, termination=Termination.PROVED)
        loose = len(self.asked) in self.loose or (limit is not None and limit == self.hard)
        # Of equal values the one that uses most: as unhelpful as can be.
        used = max(fits, key=lambda x: (-fits[x], x)) if not loose else max(fits)
        best = min(fits.values())
        return Result(
            status=Status.FEASIBLE if loose else Status.OPTIMAL,
            termination=Termination.TIME_LIMIT if loose else Termination.PROVED,
            objective=fits[used],
            bound=best - 1 if loose else best,
            solution=used,
        )


def search(oracle: Oracle, most: int = 1000) -> Staircase:
    found = Staircase(oracle, lambda result: int(result.solution), 0.0)
    found.climb(most)
    return found


def front(points: Points) -> list[tuple[int, int]]:
    best: float = math.inf
    found = []
    for x in sorted(points):
        if points[x] < best:
            found.append((x, points[x]))
            best = points[x]
    return found


POINTS = st.dictionaries(st.integers(1, 90), st.integers(0, 9), max_size=9)


@settings(max_examples=50)
@given(POINTS)
def test_finds_every_point_and_proves_it(points: Points) -> None:
    found = search(Oracle(points))
    assert [(one.used, one.value) for one in found.known] == front(points)
    assert not found.open()
    assert all(map(found.proved, found.known))


@pytest.mark.parametrize("hard", range(1, 9))
def test_what_lies_above_a_limit_that_stays_open_is_asked_about(hard: int) -> None:
    found = search(Oracle({x: 20 - x for x in range(1, 9)}, hard=hard))
    assert [one.used for one in found.known] == [*range(1, 9)]
    assert [one.used for one in found.known if not found.proved(one)] in ([hard], [])


@settings(max_examples=50)
@given(POINTS, st.frozensets(st.integers(1, 12)))
def test_what_is_not_proved_is_left_open_and_bounds_stay_safe(
    points: Points, loose: frozenset[int]
) -> None:
    oracle = Oracle(points, loose)
    found = search(oracle)
    assert len(oracle.asked) == len(set(oracle.asked)), "no question twice"
    for limit in range(1, 91):
        fits = [y for x, y in points.items() if x <= limit]
        if found.known and limit <= found.known[-1].used:
            assert found.bound(limit) <= min(fits, default=math.inf)
    exact = set(front(points))
    hidden = found.open()
    for x, y in exact:
        known = (x, y) in {(one.used, one.value) for one in found.known}
        beyond = not found.known or x > found.known[-1].used
        assert (
            known
            or beyond
            or any(s.low <= x <= s.high for s in hidden)
            or not all(map(found.proved, found.known))
        )


def test_takes_few_questions_where_answers_are_good() -> None:
    points = {1000 * at: 100 - at for at in range(1, 41)}
    found = search(Oracle(points))
    assert len(found.known) == 40
    assert found.questions <= 3 * 40 + 12


@pytest.mark.parametrize("most", [2, 5, 9])
def test_few_points_lie_apart(most: int) -> None:
    points = {1000 * at: 1000 - at for at in range(1, 200)}
    found = search(Oracle(points), most)
    assert len(found.known) == most
    used = [one.used for one in found.known]
    widest = max(b - a for a, b in zip([0, *used], [*used, 199_000], strict=False))
    assert widest <= 4 * 199_000 / most
    assert found.open()
