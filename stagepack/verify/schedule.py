"""Proofs of schedules: why none is shorter, or none fits.

Stage s takes f, b, w cycles for F, B and W; c is the lag of an edge, none within a device.  A value
counts from A to Z and adds what comes after the last end of a device, its optimizer.  For the
makespan A and Z are the begin and the end of the schedule, for the span of a device its first start
and its last end.

**machine**: whatever an operation waits for, directly or not, ends before it; of the ways that lead
to it from A, none is longer than its head, and of those from its end to Z none than its tail.  A
device does its operations one at a time between these, which takes no less time than if they could
be interrupted, when the one of longest tail goes first (Jackson).  For spans a way begins, and
ends, with an operation of the device.  Memory makes operations wait, too, see :func:`_waits`.

**ramps**: where every stage has a device to itself, see :class:`_Ramps`.

**memory**: see :func:`memory`.

**orders**: all ways to start one operation after the other are followed, at moments that do not
fall.  Each starts as early as what it waits for and its device allow; starts any later help
nothing, for memory depends on the order of a device alone.  What is still to come depends on how
many operations of each row have started, when devices are free and results there: of two states of
equal numbers the one that is nowhere earlier is left out.  An operation that takes no memory and
could end before the next start is not put off: it delays nothing.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from stagepack.evidence import Proof
from stagepack.instances.schedule.data import ScheduleData
from stagepack.verify.rules import Claimed, Rules, UnprovedError

PAIRS = 100_000
"""Operations times devices up to which the span of each is looked at where none is named."""

FEW = 6_000
"""Starts up to which all orders are looked at where no evidence speaks of them."""

Key = tuple[int, ...]
Row = tuple[int, int]
"""Stage and kind: 0 (F), 1 (B), 2 (W)."""


class _Rows:
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
        found: int = self.duration[row[1]][row[0]]
        return found

    def work(self) -> list[int]:
        """Return the cycles of all operations of each device."""
        total = [0] * self.d
        for s, k in self.then:
            total[self.device[s]] += self.m[s] * self.duration[k][s]
        return total

    def above(self) -> list[set[int]]:
        """Return the stages on paths to each stage."""
        found: list[set[int]] = [set() for _ in range(self.p)]
        for s, k in self.order:
            for (t, other), _ in self.then[s, k] if k == 0 else ():
                if other == 0:
                    found[t] |= found[s] | {s}
        return found


# ---------------------------------------------------------------------- one machine


def _waits(rows: _Rows, claimed: Claimed) -> dict[tuple[Row, int], list[tuple[Row, int]]]:
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
        here = [t for t in above[s] if rows.device[t] == rows.device[s]] + [s]
        limit, low = rows.limit[rows.device[s]], sum(least[t] for t in here)
        every = sum(f[t] for t in here)
        for t in here:
            up = [u for u in here if u in above[t] or u == t]
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


class _Ways:
    """Longest ways to and from all operations: lists by row, of all microbatches."""

    def __init__(self, rows: _Rows, claimed: Claimed) -> None:
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


def _jackson(jobs: list[tuple[float, int, float]]) -> float:
    """Return the least makespan of jobs of (head, time, tail) that may be interrupted."""
    jobs = sorted(jobs, reverse=True)
    ready: list[list[float]] = []
    now, latest = -math.inf, -math.inf
    while jobs or ready:
        if not ready:
            now = max(now, jobs[-1][0])
        while jobs and jobs[-1][0] <= now:
            _, time, tail = jobs.pop()
            heapq.heappush(ready, [-tail, time])
        run = min(ready[0][1], jobs[-1][0] - now if jobs else math.inf)
        now, ready[0][1] = now + run, ready[0][1] - run
        if not ready[0][1]:
            latest = max(latest, now - heapq.heappop(ready)[0])
    return latest


def machine(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that some device cannot do all it must between heads and tails."""
    rows = _Rows(instance)
    if claimed.bound is None:
        raise UnprovedError("is about values")
    # By itself a device does its work.
    if max(a + b for a, b in zip(rows.work(), rows.after, strict=True)) >= claimed.bound:
        return
    ways, size = _Ways(rows, claimed), sum(rows.m) * rows.kinds
    spans = range(rows.d) if size * rows.d <= PAIRS else range(0)
    if "device" in evidence:
        spans = range(rows.d)[evidence["device"] :][:1]
    for d in spans if rows.spans else [-1]:
        own = {row: 0 if d in (-1, rows.device[row[0]]) else -math.inf for row in rows.order}
        head = ways.heads(own)
        tail = ways.tails({r: x + rows.after[rows.device[r[0]]] for r, x in own.items()})
        for e in range(rows.d):
            jobs = [
                (head[row][i], rows.time(row), tail[row][i])
                for row in rows.order
                for i in range(rows.m[row[0]] if rows.device[row[0]] == e else 0)
                if head[row][i] > -math.inf and tail[row][i] > -math.inf
            ]
            if _jackson(jobs) >= claimed.bound:
                return
    raise UnprovedError("every device has the time for its operations")


# ---------------------------------------------------------------------- ramps


class _Ramps:
    """Idle cycles that the ramps at both ends force on stages with a device each.

    Let S be the first start of stage s, T the start of its first B, U the end of its last F, V that
    of its last B.  All work of s lies between A and Z, the rest of that time is idle: its budget.

    1. In [A, T] the device runs whole F's only, as many as memory holds before a B, and is idle at
       least until an F can reach it.  So T - A is k f + i.  For an edge (s, t) S_t >= S_s + f_s + c
       and T_s >= T_t + b_t + c.
    2. In [V, Z] it runs whole W's only, as many as memory holds for after the last B, and the last
       of them.  V_s >= V_t + b_s + c.
    3. Between U and the start of the last B it runs n B's, whose microbatches waited when the last
       F started, and W's of these and of those that waited for W then: n b + k w + i.  For an edge
       (s, t) U_t >= U_s + f_t + c, and the last B of s starts b_t + c after that of t.

    Each length is followed along the edges, as the least that can be made up in this way, idle for
    no more than the budget.  Idle times of windows that do not overlap must fit in it together: the
    first and the last two never do, the first and the third not if memory does not hold all F's.
    """

    def __init__(self, rows: _Rows) -> None:
        self._rows, p = rows, rows.p
        none = [0] * p
        self._f, self._b = rows.duration[:2]
        self._w = rows.duration[2] if rows.kinds > 2 else none
        self._after = [rows.after[d] for d in rows.device]
        self._order = [s for s, k in rows.order if k == 0]
        self._into, self._out = ([list[tuple[int, int]]() for _ in range(p)] for _ in range(2))
        for a, b, lag in rows.edges:
            self._into[b].append((a, lag))
            self._out[a].append((b, lag))
        self._ahead, self._behind = rows.m[:], rows.m[:] if rows.kinds > 2 else none[:]
        self._queue = [m - 1 for m in rows.m]
        taken, given = rows.delta[:2]
        for s, m in enumerate(rows.m):
            room, used = rows.limit[rows.device[s]] - taken[s], max(given[s], 0)
            held = taken[s] + given[s]
            rest = held + (rows.delta[2][s] if rows.kinds > 2 else 0)
            if room == math.inf:
                continue
            if taken[s] > 0:
                self._ahead[s] = max(0, min(m, int(room + taken[s] - used) // taken[s]))
                self._queue[s] = max(0, min(m - 1, int(room) // taken[s]))
            if rows.kinds > 2 and held > rest:
                # The last B runs while all others wait for W, or have run it.
                spare = int(room) - used + held - m * rest
                self._behind[s] = max(0, min(m, spare // (held - rest)))
        self._entry = [0] * p
        for s in self._order if not rows.spans else ():
            ends = (self._entry[t] + self._f[t] + lag for t, lag in self._into[s])
            self._entry[s] = max(ends, default=0)
        self._filled = [
            max(n * self._b[s] + self._w[s] * self._waiting(s, n) for n in range(q + 1))
            for s, q in enumerate(self._queue)
        ]

    def _waiting(self, s: int, n: int) -> int:
        """Return the W's that can run while n B's wait for the last F to end."""
        rows = self._rows
        taken, held = rows.delta[0][s], rows.delta[0][s] + rows.delta[1][s]
        room = rows.limit[rows.device[s]] - taken
        count = rows.m[s] - 1 - n
        if held > 0 and room < math.inf:
            count = min(count, max(0, int(room) - n * taken) // held)
        return int(n + count)

    def leave_too_little(self, value: int) -> bool:
        """Whether no schedule has a value of so much."""
        rows, work = self._rows, self._rows.work()
        budget = [value - a - work[d] for a, d in zip(self._after, rows.device, strict=True)]
        first, last, middle = ([(0, 0)] * rows.p for _ in range(3))  # lengths, and idle cycles
        for s in reversed(self._order):
            least, twice = self._entry[s] + self._f[s], 0
            for t, lag in self._out[s]:
                hop = self._f[s] + 2 * lag if rows.spans else lag
                least = max(least, first[t][0] + self._b[t] + hop)
                twice = max(twice, middle[t][0] + self._f[t] + self._b[t] + 2 * lag)
            head, many = self._entry[s], self._ahead[s]
            length = _whole(least, self._f[s], many, head, budget[s])
            between = min(
                n * self._b[s]
                + _whole(
                    max(0, twice - n * self._b[s]), self._w[s], self._waiting(s, n), 0, budget[s]
                )
                for n in range(min(self._queue[s], twice // self._b[s] + 1) + 1)
            )
            if math.inf in (length, between):
                return True
            first[s] = int(length), max(head, least - many * self._f[s])
            middle[s] = int(between), max(0, twice - self._filled[s])
        for s in self._order:
            least = self._w[s]
            for t, lag in self._into[s]:
                hop = self._b[t] + lag + self._after[t] - self._after[s]
                least = max(least, last[t][0] + hop + (self._f[t] + lag if rows.spans else 0))
            length = _whole(least, self._w[s], self._behind[s], 0, budget[s])
            if length == math.inf:
                return True
            last[s] = int(length), max(0, least - self._behind[s] * self._w[s])
        for s, (a, b, c) in enumerate(zip(first, middle, last, strict=True)):
            both = a[1] + b[1] if self._ahead[s] < rows.m[s] else max(a[1], b[1])
            if both + c[1] > budget[s]:
                return True
        return False


def _whole(length: int, each: int, most: int, head: int, budget: int) -> float:
    """Return the least sum >= length of k <= most times `each` and head <= idle <= budget."""
    if head > budget:
        return math.inf
    count = min(most, max(0, length - head) // each) if each else most
    if length - count * each <= budget:
        return max(length, count * each + head)
    return head + (count + 1) * each if count < most else math.inf


def ramps(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that a value below the claimed one leaves too little time for the ramps."""
    rows = _Rows(instance)
    if claimed.bound is None or rows.kinds == 1 or rows.d < rows.p:
        raise UnprovedError("is about values, where stages with B's have a device each")
    if not _Ramps(rows).leave_too_little(math.ceil(claimed.bound) - 1):
        raise UnprovedError("the ramps leave every stage the time for its operations")


# ---------------------------------------------------------------------- memory


def memory(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that some operation of the last microbatch of its stage needs too much memory.

    When it runs, F of all microbatches of the stages above has run, of the last one without its B
    if that is still to wait for this operation; earlier ones of this stage have run this kind; and
    stages below have run B of all microbatches if B is what runs, or W.  Whatever else has run
    holds at least the least it can.
    """
    rows = _Rows(instance)
    above = rows.above()
    for s, m in enumerate(rows.m):
        device = rows.device[s]
        held = [list(itertools.accumulate(d[t] for d in rows.delta)) for t in range(rows.p)]
        up = [held[t] for t in above[s] if rows.device[t] == device]
        low = sum(min(h) for h in up)
        below = sum(
            min(held[t][1:], default=0)
            for t in range(rows.p)
            if rows.device[t] == device and s in above[t]
        )
        for k in range(rows.kinds):
            need = max(rows.delta[k][s], 0) + (sum(h[0] for h in up) if k < 2 else low)
            need += (held[s][k - 1] + below) if k else 0
            rest = min(held[s][k:]) + low + (below if k else 0)
            if need + (m - 1) * rest > rows.limit[device]:
                return
    raise UnprovedError("every device has the memory for its operations one by one")


# ---------------------------------------------------------------------- all orders


class _Orders:
    """States of schedules that are built by one start after the other.

    A state is how many operations of each row have started.  What is known of it beside is a list
    of moments, none before the last start: from when each device is free, and from when what
    operations that have not started wait for is there.
    """

    def __init__(self, rows: _Rows, claimed: Claimed, most: float) -> None:
        self._rows, self._claimed, self._most, self._steps = rows, claimed, most, 0
        self._timed = claimed.bound is not None
        self._until = math.inf if claimed.bound is None else math.ceil(claimed.bound) - 1
        self._row = rows.order
        self._number = {row: r for r, row in enumerate(rows.order)}
        self._device = [rows.device[s] for s, _ in self._row]
        self._count = [rows.m[s] for s, _ in self._row]
        self._time = [rows.time(row) if self._timed else 0 for row in self._row]
        self._delta = [rows.delta[k][s] for s, k in self._row]
        # Arcs between rows: (before, after, lag), and those that enter and leave each row.
        self._arcs = [
            (r, self._number[then], lag)
            for r, row in enumerate(self._row)
            for then, lag in rows.then[row]
        ]
        self._into = [
            [a for a, arc in enumerate(self._arcs) if arc[1] == r] for r in range(len(self._row))
        ]
        self._out = [
            [a for a, arc in enumerate(self._arcs) if arc[0] == r] for r in range(len(self._row))
        ]
        ends: dict[Row, float] = {r: rows.after[rows.device[r[0]]] for r in self._row}
        tails = _Ways(rows, claimed).tails(ends)
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


def orders(
    instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed, most: float = math.inf
) -> None:
    """Show by all orders that no makespan is less, or that no order keeps within the memory."""
    rows = _Rows(instance)
    if rows.spans and claimed.bound is not None:
        raise UnprovedError("is about the makespan, where starts any later help nothing")
    _Orders(rows, claimed, most).refute()


def few_orders(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Do the same where there are few."""
    orders(instance, {}, claimed, FEW)


RULES: Rules = {
    "machine": (Proof.WITNESS, machine),
    "ramps": (Proof.WITNESS, ramps),
    "memory": (Proof.WITNESS, memory),
    "orders": (Proof.LOG, orders),
    "few-orders": (Proof.LOG, few_orders),
}

UNAIDED = ("machine", "ramps", "memory", "few-orders")
"""Rules that need no evidence, in the order in which they are tried."""
