"""The epsilon-constraint method: the optimum for every limit, with few solves.

Let v(e) be the least value of solutions that use at most e of a resource.  v is a step function
that falls as e rises.  Solving with the limit e yields a solution that uses some x <= e and has the
value y, so v <= y from x on, and a bound b on v(e), so v >= b up to e.  A limit is open if the
smallest y known for it is above the largest b.  Between two neighbouring solutions, the open limits
are the upper part of the interval.

Each open interval is solved alternately at its upper end, where the next point of the front is, and
in its middle.  A point takes two solves in the best case and O(log(limits)) in any case.  Below all
known solutions only the middle is used.  Intervals with the largest area come first, so that the
points known after an early stop are far apart.  If a solve hits its time limit and leaves its own
limit open, the interval above it is continued with.  Limits are at least 1.

If no limit is open in the end, the front is exact: each point has the least value within its limit,
and no smaller limit allows that value (Haimes, Lasdon and Wismer 1971, with other steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stagepack.contracts import Number
from stagepack.result import Result, Status, slack


class Known(NamedTuple):
    """A solution: what it uses, what it is worth, and the result that holds it."""

    used: int
    value: Number
    result: Result[Any]


class Stretch(NamedTuple):
    """Open limits [low, high] from one solution (None: below all of them) to the next."""

    low: int
    high: int
    left: Known | None


Ask = Callable[[int | None, Result[Any] | None, Number | None], Result[Any]]


@dataclass
class Staircase:
    """The search, over limits of what solutions use.

    ``ask(limit, start, target)`` answers within a limit (None: the instance's own); `used` says
    what the solution of a result uses, and `tolerance`, relative, which values are equal.  `known`
    are solutions of which none is better in both, rising; `bounds` say for a limit that no solution
    within it is worth less, infinite ones that there is none.
    """

    ask: Ask
    used: Callable[[Result[Any]], int]
    tolerance: float
    known: list[Known] = field(default_factory=list)
    bounds: dict[int, Number] = field(default_factory=dict)
    questions: int = 0
    _asked: set[int] = field(default_factory=set)
    _ends: set[int] = field(default_factory=set)
    """Uses of solutions below which the middle is asked about next."""

    def climb(self, most: int, goes_on: Callable[[], bool] = lambda: True) -> Result[Any]:
        """Ask until no stretch is open or `most` points are known; return the first answer."""
        first = self._question(None, None)
        while len(self.known) < most and goes_on() and (stretches := self._to_ask()):
            stretch = max(stretches, key=self._urgency)
            low, high, left = stretch
            at_end = left is not None and high + 1 not in self._ends
            limit = high if at_end else (low + high) // 2
            result = self._question(limit, left)
            if not at_end:
                self._ends.discard(high + 1)
            elif result.solution is not None:
                self._ends.add(self.used(result))
        return first

    def bound(self, limit: int) -> Number:
        """Return a bound on the value of all that use at most `limit`; minus infinity: none."""
        return max((b for e, b in self.bounds.items() if e >= limit), default=-math.inf)

    def open(self) -> list[Stretch]:
        """Return the stretches of limits whose least value is not known, rising."""
        found = []
        left: Known | None = None
        for right in self.known:
            stretch = self._between(left, right.used - 1)
            if stretch.low <= stretch.high:
                found.append(stretch)
            left = right
        return found

    def proved(self, point: Known) -> bool:
        """Return whether nothing that uses as little as a solution is worth less."""
        return self._close(point.value, self.bound(point.used))

    def _between(self, left: Known | None, high: int) -> Stretch:
        """Return the open limits from a solution on."""
        value = math.inf if left is None else left.value
        settled = [e for e, b in self.bounds.items() if self._close(value, b)]
        return Stretch(max([0 if left is None else left.used - 1, *settled]) + 1, high, left)

    def _to_ask(self) -> list[Stretch]:
        """Return the open stretches, each above the limits whose answers left them open."""
        found = []
        for low, high, left in self.open():
            low = max([low, *(limit + 1 for limit in self._asked if limit <= high)])
            if low <= high:
                found.append(Stretch(low, high, left))
        return found

    def _urgency(self, stretch: Stretch) -> tuple[float, int]:
        width = stretch.high - stretch.low + 1
        if stretch.left is None:
            left, right = self.known[0], self.known[-1]
        else:
            left, right = stretch.left, self.known[self.known.index(stretch.left) + 1]
        return width * float(left.value - right.value), width

    def _question(self, limit: int | None, left: Known | None) -> Result[Any]:
        """Ask about one limit, and note the answer."""
        self.questions += 1
        lowest = -math.inf if limit is None else self.bound(limit)
        target = lowest if math.isfinite(lowest) else None
        result = self.ask(limit, None if left is None else left.result, target)
        if limit is not None:
            self._asked.add(limit)
        if result.solution is not None and result.objective is not None:
            self._add(Known(self.used(result), result.objective, result))
        elif limit is None:
            return result
        highest = self.known[-1].used if limit is None else limit
        bound = math.inf if result.status is Status.INFEASIBLE else result.bound
        if bound is not None:
            self.bounds[highest] = max(bound, lowest)
        return result

    def _add(self, new: Known) -> None:
        """Keep a solution unless one that uses no more is worth no more; drop what it beats."""
        if any(one.used <= new.used and self._close(one.value, new.value) for one in self.known):
            return
        kept = [
            one
            for one in self.known
            if one.used < new.used or not self._close(new.value, one.value)
        ]
        self.known = sorted([*kept, new], key=lambda one: one.used)

    def _close(self, value: Number, bound: Number) -> bool:
        """Return whether a value is no larger than a bound, up to rounding."""
        if math.isinf(value) or math.isinf(bound):
            return value <= bound
        return value <= bound + slack(bound, self.tolerance)
