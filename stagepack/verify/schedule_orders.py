"""Proofs of schedules by all orders in which operations can start.

All ways to start one operation after the other are followed, at moments that do not fall.  Each
starts as early as what it waits for and its device allow; starts any later help nothing, for memory
depends on the order of a device alone.  What is still to come depends on how many operations of
each row have started, when devices are free, and when results are there: of two states of equal
numbers the one that is nowhere earlier is left out, and so is one whose rest takes too long.  An
operation that takes no memory and could end before the next start is not put off: it delays
nothing.  Without a value to show, times do not matter and all count as 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from stagepack.instances.schedule.data import ScheduleData
from stagepack.verify.rules import Claimed, UnprovedError
from stagepack.verify.schedule_rows import Row, Rows, Ways

FEW = 6_000
"""Starts up to which all orders are looked at where no evidence speaks of them."""

Key = tuple[int, ...]


class _Orders:
    """States of schedules that are built by one start after the other.

    A state is how many operations of each row have started.  What is known of it beside is a list
    of moments, none before the last start: from when each device is free, and from when what
    operations that have not started wait for is there.
    """

    def __init__(self, rows: Rows, claimed: Claimed, most: float) -> None:
        self._rows, self._claimed, self._most, self._steps = rows, claimed, most, 0
        self._timed = claimed.bound is not None
        self._until = math.inf if claimed.bound is None else math.ceil(claimed.bound) - 1
        self._row = rows.order
        self._number = {row: r for r, row in enumerate(rows.order)}
        self._device = [rows.device[s] for s, _ in self._row]
        self._count = [rows.m[s] for s, _ in self._row]
        self._time = [rows.time(row) if self._timed else 0 for row in self._row]
        self._delta = [rows.delta[k][s] for s, k in self._row]
        # Arcs between rows: (before, after, lag), and those that enter each row.
        self._arcs = [
            (r, self._number[then], lag)
            for r, row in enumerate(self._row)
            for then, lag in rows.then[row]
        ]
        self._into = [
            [a for a, arc in enumerate(self._arcs) if arc[1] == r] for r in range(len(self._row))
        ]
        ends: dict[Row, float] = {r: rows.after[rows.device[r[0]]] for r in self._row}
        tails = Ways(rows, claimed).tails(ends)
        self._tail = [tails[row] for row in self._row]

    def refute(self) -> None:
        """Raise an error if some schedule is worth less than claimed, or there is one."""
        start = (0,) * len(self._row)
        layer: dict[Key, list[list[Any]]] = {
            start: [[[0] * self._rows.d, [[] for _ in self._arcs]]]
        }
        for _ in range(sum(self._count)):
            then: dict[Key, list[list[Any]]] = {}
            for state, labels in layer.items():
                held = [0] * self._rows.d
                for r, done in enumerate(state):
                    held[self._device[r]] += done * self._delta[r]
                ready = [
                    r
                    for r, done in enumerate(state)
                    if done < self._count[r]
                    and all(state[self._arcs[a][0]] > done for a in self._into[r])
                    and (
                        self._delta[r] <= 0
                        or held[self._device[r]] + self._delta[r]
                        <= self._rows.limit[self._device[r]]
                    )
                ]
                for label in labels:
                    for r, more in self._next(state, ready, label):
                        key = (*state[:r], state[r] + 1, *state[r + 1 :])
                        self._keep(then.setdefault(key, []), more)
            layer = then
        if layer:
            raise UnprovedError("some schedule is shorter, or fits")

    def _next(
        self, state: Key, ready: list[int], label: list[Any]
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yield rows whose next operation may start next, and what is known then."""
        free, there = label
        starts = {
            r: max([free[self._device[r]], *(there[a][0] for a in self._into[r])]) for r in ready
        }
        ends = [
            start + self._time[r]
            for r, start in starts.items()
            if self._delta[r] <= 0 or self._rows.limit[self._device[r]] == math.inf
        ]
        first = min(ends, default=math.inf)
        for r, now in starts.items():
            if now >= first and self._timed:
                continue
            self._steps += 1
            self._claimed.step(self._steps)
            if self._steps > self._most:
                raise UnprovedError("there are too many orders")
            end = now + self._time[r]
            if end + self._tail[r][state[r]] > self._until:
                continue
            times = [max(now, t) for t in free]
            times[self._device[r]] = end
            arrivals = []
            for a, (before, after, lag) in enumerate(self._arcs):
                known = there[a][1:] if after == r else there[a]
                known = [*known, end + lag] if before == r else known
                least = times[self._device[after]]
                arrivals.append([max(least, t) for t in known])
            if self._hopeless(state, r, times, arrivals):
                continue
            yield r, [times, arrivals]

    def _hopeless(self, state: Key, r: int, times: list[int], arrivals: list[list[int]]) -> bool:
        """Whether what has to follow takes too long."""
        for a, (_, after, _) in enumerate(self._arcs):
            done = state[after] + (after == r)
            if (
                arrivals[a]
                and arrivals[a][0] + self._time[after] + self._tail[after][done] > self._until
            ):
                return True
        for d, free in enumerate(times):
            left = [
                (self._count[q] - state[q] - (q == r), q)
                for q in range(len(state))
                if self._device[q] == d and self._count[q] > state[q] + (q == r)
            ]
            if left:
                work = sum(n * self._time[q] for n, q in left)
                if free + work + min(self._tail[q][-1] for _, q in left) > self._until:
                    return True
        return False

    def _keep(self, labels: list[list[Any]], more: list[Any]) -> None:
        """Add a label to those of a state unless one is nowhere later; drop those it is before."""

        def flat(label: list[Any]) -> list[int]:
            return [*label[0], *itertools.chain(*label[1])]

        own = flat(more)
        for other in labels:
            if all(x <= y for x, y in zip(flat(other), own, strict=True)):
                return
        labels[:] = [
            o for o in labels if not all(x >= y for x, y in zip(flat(o), own, strict=True))
        ]
        labels.append(more)


def orders(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show by all orders that no makespan is less, or that no order keeps within the memory."""
    _refute(instance, claimed, math.inf)


def few_orders(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Do the same where there are few."""
    _refute(instance, claimed, FEW)


def _refute(instance: ScheduleData, claimed: Claimed, most: float) -> None:
    rows = Rows(instance)
    if rows.spans and claimed.bound is not None:
        raise UnprovedError("is about the makespan, where starts any later help nothing")
    _Orders(rows, claimed, most).refute()
