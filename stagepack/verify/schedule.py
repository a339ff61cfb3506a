"""Proofs of schedules: why none is shorter, or none fits.

Stage s takes f, b, w cycles for F, B and W; c is the lag of an edge, none within a device.  A value
counts from A to Z and adds what comes after the last end of a device, its optimizer.  For the
makespan A and Z are the begin and the end of the schedule, for the span of a device its first start
and its last end.

**machine**: whatever an operation waits for, directly or not, ends before it; of the ways that lead
to it from A, none is longer than its head, and of those from its end to Z none than its tail.  A
device does its operations one at a time between these, which takes no less time than if they could
be interrupted, when the one of longest tail goes first (Jackson).  For spans a way begins, and
ends, with an operation of the device.  Before a moment it runs only operations with earlier heads,
none for longer than since its head; of those that take memory no more than have room beside what
others can have given back before.  The rest of that time it is idle, and likewise at the end, where
time runs backward and who gives takes.  Memory makes operations wait, too, see :func:`_waits`.

**ramps**: where every stage has a device to itself, see :class:`_Ramps`.

**memory**: see :func:`memory`.

**orders**: see :mod:`.schedule_orders`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping
from typing import Any

from stagepack.evidence import Proof
from stagepack.instances.schedule.data import ScheduleData
from stagepack.verify.rules import Claimed, UnprovedError
from stagepack.verify.rules import Rules as Named
from stagepack.verify.schedule_orders import few_orders, orders
from stagepack.verify.schedule_rows import Rows, Ways

PAIRS = 100_000
"""Operations times devices up to which the span of each is looked at where none is named."""

PAIRED = 300
"""Operations of a device up to which its idle times are looked at."""


# ---------------------------------------------------------------------- one machine


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


def _idle(jobs: list[tuple[float, int, int]], room: float) -> list[tuple[float, float]]:
    """Return moments, and how long a device is idle before each at least.

    Parameters
    ----------
    jobs : list of (head, time, bytes)
        Bytes that it takes when it begins or, if they are negative, gives back when it ends.
    room : float
        Bytes that may be taken at first.
    """
    found: list[tuple[float, float]] = [(0, 0)]
    for moment in sorted({head for head, *_ in jobs if head > 0}):
        begun = [
            (min(time, moment - head), head + time, size)
            for head, time, size in jobs
            if -math.inf < head < moment
        ]
        busy = sum(part for part, _, size in begun if size <= 0)
        left = room - sum(size for _, end, size in begun if size < 0 and end < moment)
        takers = sorted((-part / size, part, size) for part, _, size in begun if size > 0)
        alike = len({size for *_, size in takers}) == 1
        for _, part, size in takers:
            # One of which a part fits counts in full, unless all are alike.
            busy += part if left >= size or (left > 0 and not alike) else 0
            left -= size
        found.append((moment, moment - busy))
    return found


def _both_ends(
    work: int, after: int, first: list[tuple[float, float]], last: list[tuple[float, float]]
) -> float:
    """Return a bound from idle times before moments, and before moments from the end backward.

    They add up where the two do not overlap in a schedule that takes as long as is known.
    """
    least = -math.inf
    more: float = work + after + max(idle for _, idle in first + last)
    while more > least:
        least = more
        for begin, idle in first:
            others = (x for end, x in last if begin + end <= least - after)
            more = max(more, work + after + idle + max(others, default=-math.inf))
    return least


def machine(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that some device cannot do all it must between heads and tails."""
    rows = Rows(instance)
    work, bound = rows.work(), claimed.bound
    if bound is None:
        raise UnprovedError("is about values")
    if max(a + b for a, b in zip(work, rows.after, strict=True)) >= bound:
        return
    ways, size = Ways(rows, claimed), sum(rows.m) * rows.kinds
    spans = range(rows.d) if size * rows.d <= PAIRS else range(0)
    if "device" in evidence:
        spans = range(rows.d)[evidence["device"] :][:1]
    for d in spans if rows.spans else [-1]:
        own = {row: 0 if d in (-1, rows.device[row[0]]) else -math.inf for row in rows.order}
        head = ways.heads(own)
        tail = ways.tails({r: x + rows.after[rows.device[r[0]]] for r, x in own.items()})
        for e in range(rows.d):
            mine = [
                (r, i) for r in rows.order if rows.device[r[0]] == e for i in range(rows.m[r[0]])
            ]
            jobs = [(head[r][i], rows.time(r), tail[r][i]) for r, i in mine]
            if _jackson([job for job in jobs if job[0] > -math.inf < job[2]]) >= bound:
                return
            if d in (-1, e) and len(jobs) <= PAIRED:
                bytes_ = [rows.delta[r[1]][r[0]] for r, _ in mine]
                limit, after = rows.limit[e], rows.after[e]
                sides = zip(jobs, bytes_, strict=True)
                first = _idle([(h, t, size) for (h, t, _), size in sides], limit)
                sides = zip(jobs, bytes_, strict=True)
                back = [(q - after, t, -size) for (_, t, q), size in sides]
                if _both_ends(work[e], after, first, _idle(back, limit - sum(bytes_))) >= bound:
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

    def __init__(self, rows: Rows) -> None:
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
    rows = Rows(instance)
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
    rows = Rows(instance)
    above = rows.above()
    held = [list(itertools.accumulate(d[s] for d in rows.delta)) for s in range(rows.p)]
    upper = [rows.together(s, above)[:-1] for s in range(rows.p)]
    below = [0] * rows.p
    for s, up in enumerate(upper):
        for t in up:
            below[t] += min(held[s][1:], default=0)
    for s, m in enumerate(rows.m):
        low, under = sum(min(held[t]) for t in upper[s]), below[s]
        for k in range(rows.kinds):
            need = max(rows.delta[k][s], 0)
            need += sum(held[t][0] for t in upper[s]) if k < 2 else low
            need += (held[s][k - 1] + under) if k else 0
            rest = min(held[s][k:]) + low + (under if k else 0)
            if need + (m - 1) * rest > rows.limit[rows.device[s]]:
                return
    raise UnprovedError("every device has the memory for its operations one by one")


RULES: Named = {
    "machine": (Proof.WITNESS, machine),
    "ramps": (Proof.WITNESS, ramps),
    "memory": (Proof.WITNESS, memory),
    "orders": (Proof.LOG, orders),
    "few-orders": (Proof.LOG, few_orders),
}

UNAIDED = ("machine", "ramps", "memory", "few-orders")
"""Rules that need no evidence, in the order in which they are tried."""
