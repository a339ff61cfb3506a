"""What schedules wait for: rows of operations, what memory keeps in order, and longest ways.

Stage s takes f, b, w cycles for F, B and W, kinds 0, 1 and 2, and changes memory by as many bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from stagepack.instances.schedule.data import ScheduleData
from stagepack.verify.rules import Claimed, UnprovedError

MOST = 2_000
"""Stages up to which it is looked at which are above which, where devices have several."""

Row = tuple[int, int]
"""Stage and kind: 0 (F), 1 (B), 2 (W)."""


class Rows:
    """Stages, and rows of operations: all of a kind of a stage, microbatch after microbatch."""

    def __init__(self, instance: ScheduleData) -> None:
        self.instance, self.p, self.d = instance, instance.p, instance.d
        self.kinds = 1 + (instance.backward is not None) + (instance.weight is not None)
        self.device, self.m = instance.devices.tolist(), instance.microbatches.tolist()
        times = (instance.forward, instance.backward, instance.weight)
        bytes_ = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
        self.duration = [column.tolist() for column in times if column is not None]
        self.delta = [column.tolist() for column in bytes_[: self.kinds]]
        self.limit = [math.inf] * self.d if instance.limit is None else instance.limit.tolist()
        optimizer = instance.optimizer.tolist()
        if instance.objective.value not in ("makespan", "span"):
            raise UnprovedError(f"the objective {instance.objective.value} is unknown")
        self.spans = instance.objective.value == "span"
        alone = self.spans or instance.post_validation
        self.after = optimizer if alone else [max(optimizer)] * self.d
        self.edges = [
            (a, b, 0 if self.device[a] == self.device[b] else lag)
            for (a, b), lag in zip(instance.edges, instance.latency.tolist(), strict=True)
        ]
        # Rows that wait for another one, microbatch by microbatch, and how long after its end.
        self.then: dict[Row, list[tuple[Row, int]]] = {
            (s, k): [] for s in range(self.p) for k in range(self.kinds)
        }
        for a, b, lag in self.edges:
            self.then[a, 0].append(((b, 0), lag))
            if self.kinds > 1:
                self.then[b, 1].append(((a, 1), lag))
        for s, k in self.then:
            if k + 1 < self.kinds:
                self.then[s, k].append(((s, k + 1), 0))
        self.order = self._order()

    def _order(self) -> list[Row]:
        """Return the rows so that each comes after all that it waits for."""
        waiting = dict.fromkeys(self.then, 0)
        for then, _ in itertools.chain(*self.then.values()):
            waiting[then] += 1
        order = [row for row in waiting if not waiting[row]]
        for row in order:  # which grows
            for then, _ in self.then[row]:
                waiting[then] -= 1
                if not waiting[then]:
                    order.append(then)
        return order

    def time(self, row: Row) -> int:
        """Return the cycles of an operation of a row."""
        found: int = self.duration[row[1]][row[0]]
        return found

    def work(self) -> list[int]:
        """Return the cycles of all operations of each device."""
        total = [0] * self.d
        for s, k in self.then:
            total[self.device[s]] += self.m[s] * self.duration[k][s]
        return total

    def above(self) -> list[int]:
        """Return the stages on paths to each stage, as bits; where devices have one, none."""
        found = [0] * self.p
        if self.d == self.p:
            return found
        if self.p > MOST:
            raise UnprovedError("there are too many stages")
        for s, k in self.order:
            for (t, other), _ in self.then[s, k] if k == 0 else ():
                found[t] |= found[s] | 1 << s if other == 0 else 0
        return found

    def together(self, stage: int, above: list[int]) -> list[int]:
        """Return a stage, at last, and those above it that are on its device."""
        if self.d == self.p:
            return [stage]
        same = (t for t in range(self.p) if self.device[t] == self.device[stage])
        return [t for t in same if above[stage] >> t & 1] + [stage]


def _waits(rows: Rows, claimed: Claimed) -> dict[tuple[Row, int], list[tuple[Row, int]]]:
    """Return for operations (row, microbatch) which others memory makes wait for their end.

    Let F of stage s and microbatch i start, and look at s and the stages of its device on paths to
    s.  F of microbatches 0 .. i has run on these; whatever has run F holds at least e bytes, the
    least after F, B or W, and f while it waits for B.

    1. Had B of stage t, s or one on a path to s, and microbatch k < i not ended, microbatches k ..
       i of t and of all on paths to t would wait for B, as these wait for that of t; the others
       hold e at least.
    2. Had B of s and microbatch k not ended when F of such a t and microbatch i > k starts, or when
       F of s and k does if that is later, microbatches k .. i of t and of all on paths to t would
       wait, and k of s and all on paths to it; the earlier ones of all these hold e at least.
    3. Had W of t and k not ended, microbatches k .. i of t would hold the less of what they hold
       after F and after B.

    Where that exceeds the limit, the operation has ended: of each row the latest such k is told.
    """
    found: dict[tuple[Row, int], list[tuple[Row, int]]] = {}
    if rows.instance.limit is None or rows.kinds == 1:
        return found
    f, b = rows.delta[:2]
    w = rows.delta[2] if rows.kinds > 2 else [0] * rows.p
    waits = [min(x, x + y) for x, y in zip(f, b, strict=True)]
    least = [min(x, f[s] + b[s] + w[s]) for s, x in enumerate(waits)]
    above, steps = rows.above(), 0
    for s in range(rows.p):
        here = rows.together(s, above)
        limit, low = rows.limit[rows.device[s]], sum(least[t] for t in here)
        every = sum(f[t] for t in here)
        for t in here:
            up = [u for u in here if above[t] >> u & 1 or u == t]
            own, rest = sum(f[u] for u in up), sum(least[u] for u in up)
            # Bytes: start + i * each - k * less.
            each = low - rest + own
            claims = [((s, 0), (t, 1), f[s] - least[s] + each if t != s else own, each, own - rest)]
            if t != s:
                claims.append(((t, 0), (s, 1), every, own, own - low))
            if rows.kinds > 2:
                each = low - least[t] + waits[t]
                start = f[s] - (waits[s] if t == s else least[s]) + each
                claims.append(((s, 0), (t, 2), start, each, waits[t] - least[t]))
            for row, other, start, each, less in claims:
                last = -1
                for i in range(1, rows.m[s]):
                    claimed.step(steps := steps + 1)
                    over = start + i * each - limit
                    k = (
                        i - 1
                        if over - (i - 1) * less > 0
                        else -(-over // less) - 1
                        if less > 0
                        else -1
                    )
                    if k > last:
                        last = k
                        found.setdefault((other, k), []).append((row, i))
    return found


class Ways:
    """Longest ways to and from all operations: lists by row, of all microbatches."""

    def __init__(self, rows: Rows, claimed: Claimed) -> None:
        self._rows, self._claimed, self._steps = rows, claimed, 0
        self._waits = _waits(rows, claimed)
        m = max(rows.m)
        self._turns = [(row, i) for i in range(m) for row in rows.order if i < rows.m[row[0]]]

    def _then(self, row: Row, i: int) -> Iterator[tuple[Row, int, int]]:
        """Yield what waits for the end of an operation, and for how long after it."""
        self._steps += 1
        self._claimed.step(self._steps)
        for then, lag in self._rows.then[row]:
            yield then, i, lag
        if i + 1 < self._rows.m[row[0]]:
            yield row, i + 1, 0
        for then, later in self._waits.get((row, i), ()):
            yield then, later, 0

    def heads(self, start: dict[Row, float]) -> dict[Row, list[float]]:
        """Return heads, of operations in rows where ways begin; -inf: no way leads there."""
        head = {row: [start[row]] * self._rows.m[row[0]] for row in self._rows.order}
        for row, i in self._turns:
            end = head[row][i] + self._rows.time(row)
            for then, later, lag in self._then(row, i):
                head[then][later] = max(head[then][later], end + lag)
        return head

    def tails(self, end: dict[Row, float]) -> dict[Row, list[float]]:
        """Return tails, of operations in rows where ways end."""
        tail = {row: [end[row]] * self._rows.m[row[0]] for row in self._rows.order}
        for row, i in reversed(self._turns):
            for then, later, lag in self._then(row, i):
                way = lag + self._rows.time(then) + tail[then][later]
                tail[row][i] = max(tail[row][i], way)
        return tail
