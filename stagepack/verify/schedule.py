"""Proofs of schedules: why none is shorter, or none fits.

Stage s takes f, b, w cycles for F, B and W; c is the lag of an edge, none within a device.  A value
counts from A to Z and adds what comes after the last end of a device, its optimizer.  For the
makespan A and Z are the begin and the end of the schedule, for the span of a device its first start
and its last end.

**machine**: whatever an operation waits for, directly or not, ends before it; of the ways that lead
to it from A, none is longer than its head, and of those from its end to Z none than its tail.  The
first of some rows of a device starts at or after the least of their heads, the last ends at least
the least of their tails before Z, and between these the device does them all, one at a time.  For
spans a way begins, and ends, with an operation of the device.

**counting**: the same of single operations.  Before one starts on its device, what it waits for in
its stage has run, and all earlier ones of its row; and of what comes later in the stage, as many as
must have made room: what has not run a kind holds at least the least that it can before that, all
else the least that it can.  So it starts after the head of any of these, and all those that have
this head or a later one have run between, one at a time; tails likewise.

**memory**: when an operation of the last microbatch of a stage runs, it lacks room, though all
others of its device hold the least they can.

**ramps**: where every stage has a device to itself, see :func:`ramps`.

**orders**: all ways to start one operation after the other are followed, each as early as what it
waits for, its device and the start before it allow; starts any later help nothing, for memory
depends on the order of a device alone.  For spans this is so in a view for each device, which
counts from its first start; whether the first starts of all fit together is not asked.  What is to
come depends on how many operations of each row have started and on moments, which count as no
earlier than what waits for them could be: of two labels of a state the one that is nowhere earlier
is left out, and so is one whose rest takes too long.  Nor does an operation start after another one
could have ended that takes no memory: put first, this delays nothing (for spans, if its device has
begun).  Without a value to show, all times are 0.
"""

from __future__ import annotations

import graphlib
import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import le
from typing import TYPE_CHECKING, Any

from stagepack.evidence import Proof
from stagepack.verify.rules import Claimed, Rules, UnprovedError

if TYPE_CHECKING:
    from stagepack.instances.schedule.data import ScheduleData

PAIRS, EACH = 1_000_000, 20
"""Pairs of operations of a device up to which they are looked at, and as how many a row counts."""

FEW, MANY = 300_000, 20_000_000
"""Moments at which orders are given up: where no evidence speaks of them, in some tenths of a
second, and where some does, in a quarter of a minute."""

Row = tuple[int, int]
"""Stage and kind, 0 (F), 1 (B), 2 (W): its operations of all microbatches, one after the other."""
Arcs = list[tuple[Any, int]]
Ints = Sequence[int]
Hops = Sequence[Sequence[tuple[int, int]]]
Counts = tuple[int, ...]
Label = tuple[float, ...]
Ready = dict[int, tuple[bool, list[int]]]


class _Jobs:
    """What devices do, in an order in which nothing waits for what comes later.

    Each job has its device, how long it takes at least and how long in all; and, forward and
    backward, what it waits for: how long after the end, -1: both are of one stage, and take turns.
    """

    def __init__(self) -> None:
        self.home, self.time, self.work = dict[Any, int](), dict[Any, int](), dict[Any, int]()
        self.waits = (defaultdict[Any, Arcs](list), defaultdict[Any, Arcs](list))

    def wait(self, job: Any, other: Any, lag: int) -> None:
        """Let a job wait for another one."""
        self.waits[0][job].append((other, lag))
        self.waits[1][other].append((job, lag))

    def ways(self, begin: dict[Any, float], backward: bool = False) -> dict[Any, float]:
        """Return the longest way to each job, from those where they begin; -inf: there is none.

        `backward`: the way from its end to where they end, the same with time backward.
        """
        found = dict(begin)
        for job in reversed(self.home) if backward else self.home:
            turns = 0
            for other, lag in sorted(self.waits[backward][job], key=lambda one: -found[one[0]]):
                turns += self.time[other] * (lag < 0)
                way = turns if lag < 0 else self.time[other] + lag
                found[job] = max(found[job], found[other] + way)
        return found


class _Rows(_Jobs):
    """Stages and rows of an instance, and what they wait for."""

    def __init__(self, instance: ScheduleData) -> None:
        super().__init__()
        self.p, self.d = instance.p, instance.d
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
        rows = list(itertools.product(range(self.p), range(self.kinds)))
        arcs = [((s, k), (s, k + 1), 0) for s, k in rows if k + 1 < self.kinds]
        arcs += [((a, 0), (b, 0), lag) for a, b, lag in self.edges]
        arcs += [((b, 1), (a, 1), lag) for a, b, lag in self.edges if self.kinds > 1]
        for row, then, lag in arcs:
            self.wait(then, row, lag)
        needs = {row: [other for other, _ in self.waits[0][row]] for row in rows}
        for s, k in graphlib.TopologicalSorter(needs).static_order():
            self.home[s, k], self.time[s, k] = self.device[s], self.duration[k][s]
            self.work[s, k] = self.m[s] * self.duration[k][s]
        # Of a microbatch, before its first operation and after each.
        self.held = [[0, *itertools.accumulate(d[s] for d in self.delta)] for s in range(self.p)]
        self.busy, self._room = [0] * self.d, list(self.limit)
        for (s, k), time in self.work.items():
            self.busy[self.device[s]] += time
            self._room[self.device[s]] -= self.m[s] * min(self.held[s]) * (k == 0)

    def needs(self, s: int, k: int, i: int) -> list[int]:
        """Return how many operations of each kind of a stage must end before one of them starts.

        That one is among them where memory is short.
        """
        held, m = self.held[s], self.m[s]
        room = self._room[self.device[s]] + m * min(held)  # for all of the stage
        room -= max(held[k : k + 2]) + (m - 1 - i) * min(held[: k + 1])
        least = [min(held[k + 1 : x + 2]) for x in range(k, self.kinds)]  # of each before it
        found = [i + 1] * k + [i + (i * least[-1] > room)]
        for more in least[:-1]:  # of each that has not run the next kind
            over = i * more - room
            each = more - least[-1]
            found.append(min(i, int(-(-over // each))) if over > 0 and each > 0 else 0)
        return found


def machine(
    instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed, *, apart: bool = False
) -> None:
    """Show that some device cannot do all it must between heads and tails.

    Rows are jobs, or, `apart`, single operations.
    """
    rows = _Rows(instance)
    if claimed.bound is None:
        raise UnprovedError("is about values")
    if max(map(int.__add__, rows.busy, rows.after)) >= claimed.bound:
        return
    views, n = range(rows.d) if rows.spans else [-1], rows.kinds * sum(rows.m)
    if len(views) * (n * n // rows.d if apart else len(rows.home) * EACH) > PAIRS:
        raise UnprovedError("there are too many operations or devices")
    jobs: _Jobs = _Counted(rows) if apart else rows
    for d in views:
        begin = {job: 0 if d in (-1, e) else -math.inf for job, e in jobs.home.items()}
        end = {job: x + rows.after[jobs.home[job]] for job, x in begin.items()}
        head, tail = jobs.ways(begin), jobs.ways(end, backward=True)
        for side in (head, tail):
            work, other = [0] * rows.d, [math.inf] * rows.d
            for job in sorted(head, key=side.__getitem__, reverse=True):
                if head[job] > -math.inf < tail[job]:
                    e = jobs.home[job]
                    work[e] += jobs.work[job]
                    other[e] = min(other[e], head[job] + tail[job] - side[job])
                    if side[job] + work[e] + other[e] >= claimed.bound:
                        return
    raise UnprovedError("every device has the time for its operations")


class _Counted(_Jobs):
    """Operations as jobs, which wait for one another for memory, too."""

    def __init__(self, rows: _Rows) -> None:
        super().__init__()
        for i, (s, k) in itertools.product(range(max(rows.m)), rows.home):
            if i < rows.m[s]:
                job = (s, k), i
                self.home[job] = rows.device[s]
                self.time[job] = self.work[job] = rows.duration[k][s]
                for row, lag in rows.waits[0][s, k]:
                    if row[0] != s:
                        self.wait(job, (row, i), lag)
                for x, n in enumerate(rows.needs(s, k, i)):
                    for j in range(n):
                        self.wait(job, ((s, x), j), -1)


def ramps(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that a value below the claimed one leaves too little time for the ramps.

    All work of stage s lies between A and Z; the rest of that time is idle: its budget.  Let S be
    its first start, T the start of its first B, V the end of its last B.

    In [A, T] the device runs whole F's only, as many as memory holds before a B, and is idle at
    least until one can reach it.  For an edge (s, t) S_t >= S_s + f_s + c and T_s >= T_t + b_t + c.
    In [V, Z] it runs whole W's only, as many as memory holds for after the last B, and V_s >= V_t +
    b_s + c.  For spans let Z be S and the value, less what comes after.

    Both lengths are followed along the edges, and the idle times of both must fit in the budget.
    """
    rows = _Rows(instance)
    if claimed.bound is None or rows.kinds == 1 or len({*rows.device}) < rows.p:
        raise UnprovedError("is about values, where stages with B's have a device each")
    value, (f, b) = math.ceil(claimed.bound) - 1, rows.duration[:2]
    w = rows.duration[2] if rows.kinds > 2 else [0] * rows.p
    after = [rows.after[d] for d in rows.device]
    budget = [value - a - rows.busy[d] for a, d in zip(after, rows.device, strict=True)]
    head = rows.ways(dict.fromkeys(rows.home, 0))
    entry = [0 if rows.spans else int(head[s, 0]) for s in range(rows.p)]
    up, down = ([list[tuple[int, int]]() for _ in range(rows.p)] for _ in range(2))
    for s, t, c in rows.edges:
        later = f[s] + c if rows.spans else 0  # from S_s to S_t
        up[t].append((s, b[t] + c + later))
        down[s].append((t, b[s] + c + later + after[s] - after[t]))
    order = [s for s, k in rows.home if k == 0]
    ahead = [
        bisect_left(range(m), 1, key=partial(lambda s, i: rows.needs(s, 0, i)[1], s))
        for s, m in enumerate(rows.m)
    ]
    behind = [m - rows.needs(s, 1, m - 1)[-1] for s, m in enumerate(rows.m)]
    least = [e + x for e, x in zip(entry, f, strict=True)]
    first = _idle(order[::-1], up, least, f, ahead, entry, budget)
    last = _idle(order, down, w[:], w, behind, [0] * rows.p, budget)
    if all(x + y <= z for x, y, z in zip(first, last, budget, strict=True)):
        raise UnprovedError("the ramps leave every stage the time for its operations")


def _idle(
    order: Ints, arcs: Hops, least: list[int], each: Ints, most: Ints, head: Ints, budget: Ints
) -> list[float]:
    """Return idle cycles of ramps of k <= most times `each` and head <= idle <= budget."""
    found = [0.0] * len(order)
    for s in order:
        count = min(most[s], max(0, least[s] - head[s]) // each[s]) if each[s] else most[s]
        length = max(least[s], count * each[s] + head[s])
        if length - count * each[s] > budget[s]:  # it takes one more, and no idle time beside
            if count == most[s] or head[s] > budget[s]:
                return [math.inf] * len(order)
            length = head[s] + (count + 1) * each[s]
        found[s] = max(head[s], least[s] - most[s] * each[s])
        for t, hop in arcs[s]:
            least[t] = max(least[t], length + hop)
    return found


def memory(instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Show that some operation of the last microbatch of its stage needs too much memory."""
    rows = _Rows(instance)
    if all(rows.needs(s, k, rows.m[s] - 1)[k] < rows.m[s] for s, k in rows.home):
        raise UnprovedError("every device has the memory for its operations one by one")


class _Orders:
    """Schedules that are built by one start after the other.

    A state is how many operations of each row have started.  A label has, in each view, moments:
    the last start, from when each device is free, and from when what other devices have sent is
    there for operations that have not started.
    """

    def __init__(self, rows: _Rows, until: float) -> None:
        self._limit, self._until, timed = rows.limit, until, until < math.inf
        self._device, self._time = [*rows.home.values()], [x * timed for x in rows.time.values()]
        self.count = [rows.m[s] for s, _ in rows.home]
        self._delta = [rows.delta[k][s] for s, k in rows.home]
        number = {row: r for r, row in enumerate(rows.home)}
        arcs = [(x, y, c) for y in number for x, c in rows.waits[0][y]]
        self._arcs = [(number[x], number[y], c * timed) for x, y, c in arcs]
        self._sent = [a for a in self._arcs if self._device[a[0]] != self._device[a[1]]]
        self._spans, self._views = rows.spans and timed, list[tuple[list[float], list[float]]]()
        views, d = range(rows.d) if self._spans else [-1], range(-1, rows.d)
        self.start: Label = tuple(0 if v in (e, -1) else -math.inf for v in views for e in d)
        for v in views:
            after = [x if v in (e, -1) else -math.inf for e, x in enumerate(rows.after)]
            ends = {row: after[e] for row, e in rows.home.items()}
            self._views.append((after, [*rows.ways(ends, backward=True).values()]))

    def ready(self, state: Counts) -> Ready:
        """Return rows whose next operation has what it waits for, and memory.

        Of each, whether it must not come before others at no cost, and its moments in a view.
        """
        room, begun, size = list(self._limit), set[int](), 1 + len(self._limit)
        for d, done, delta in zip(self._device, state, self._delta, strict=True):
            room[d] -= done * delta
            begun |= {d} if done or not self._spans else set()
        found: Ready = {}
        waiting = {y for x, y, _ in self._arcs if state[x] == state[y]}
        for r, (d, delta) in enumerate(zip(self._device, self._delta, strict=True)):
            if r not in waiting and state[r] < self.count[r] and delta <= max(0, room[d]):
                found[r] = d not in begun or (delta > 0 and room[d] < math.inf), [0, 1 + d]
        for x, y, _ in self._sent:
            if y in found:
                found[y][1].append(size)
            size += state[x] - state[y]
        return found

    def starts(self, ready: Ready, label: Label) -> Iterator[tuple[int, list[float]]]:
        """Yield which rows may go on, and when in each view."""
        views, ends = range(0, len(label), len(label) // len(self._views)), list[list[float]]()
        found = [
            ([max(label[v + at] for at in places) for v in views], fixed, r)
            for r, (fixed, places) in ready.items()
        ]
        for begins, fixed, r in sorted(found):
            if not any(all(map(le, end, begins)) for end in ends):
                yield r, begins
                ends += [] if fixed else [[begin + self._time[r] for begin in begins]]

    def then(self, state: Counts, r: int, label: Label, begins: list[float]) -> Label:
        """Return the label after the start of one more operation of a row."""
        size, found, d = len(label) // len(begins), list[float](), 1 + len(self._limit)
        rows = enumerate(zip(self._device, self.count, state, strict=True))
        left = {e for x, (e, m, done) in rows if m > done + (x == r)}
        for view, begin in enumerate(begins):
            now, at = label[view * size : (view + 1) * size], d
            more = [begin, *(max(x, begin) if e in left else x for e, x in enumerate(now[1:d]))]
            more[1 + self._device[r]] = end = begin + self._time[r]
            for x, y, c in self._sent:
                queue = now[at + (y == r) : at + state[x] - state[y]] + (end + c,) * (x == r)
                at, least = at + state[x] - state[y], more[1 + self._device[y]]
                for moment in queue:
                    more.append(max(least, moment))
                    least = more[-1] + self._time[y]
            found += more
        return tuple(found)

    def latest(self, state: Counts) -> Label:
        """Return how late moments of labels may be, for the rest not to take too long."""
        found = list[float]()
        left = [m - done for m, done in zip(self.count, state, strict=True)]
        for after, tail in self._views:
            free, rest = [self._until - x for x in after], [0] * len(after)
            for r in sorted(range(len(left)), key=tail.__getitem__, reverse=True):
                d = self._device[r]
                rest[d] += left[r] * self._time[r]
                if left[r]:
                    free[d] = min(free[d], self._until - rest[d] - tail[r])
            found += [math.inf, *free]
            for x, y, _ in self._sent:
                for more in range(left[y], left[x], -1):
                    found.append(self._until - more * self._time[y] - tail[y])
        return tuple(found)


def orders(
    instance: ScheduleData, evidence: Mapping[str, Any], claimed: Claimed, most: int
) -> None:
    """Show by all orders, in `most` moments, that no value is less, or that none has the memory."""
    rows = _Rows(instance)
    steps = len(rows.home) * (rows.d if rows.spans else 1)  # of setting up
    if steps > most:
        raise UnprovedError("there are too many stages")
    build = _Orders(rows, math.inf if claimed.bound is None else math.ceil(claimed.bound) - 1)
    layer: dict[Counts, tuple[Label, list[Label]]] = {(0,) * len(build.count): ((), [build.start])}
    while layer and tuple(build.count) not in layer:
        then = dict[Counts, tuple[Label, list[Label]]]()
        for state, (_, labels) in layer.items():
            ready = build.ready(state)
            for label in labels:
                for r, begins in build.starts(ready, label):
                    after = (*state[:r], state[r] + 1, *state[r + 1 :])
                    if after not in then:
                        then[after] = build.latest(after), []
                        steps += 3 * len(after)
                    latest, others = then[after]
                    more = build.then(state, r, label, begins)
                    steps += len(more) + len(others)
                    claimed.step(0)
                    if steps > most:
                        raise UnprovedError("there are too many orders")
                    if all(map(le, more, latest)) and not any(
                        all(map(le, o, more)) for o in others
                    ):
                        others[:] = [o for o in others if not all(map(le, more, o))] + [more]
        layer = then
    if any(labels for _, labels in layer.values()):
        raise UnprovedError("some schedule is shorter, or fits")


RULES: Rules = {
    "machine": (Proof.WITNESS, machine),
    "counting": (Proof.WITNESS, partial(machine, apart=True)),
    "ramps": (Proof.WITNESS, ramps),
    "memory": (Proof.WITNESS, memory),
    "orders": (Proof.LOG, partial(orders, most=MANY)),
    "few-orders": (Proof.LOG, partial(orders, most=FEW)),
}
UNAIDED = ("machine", "ramps", "memory", "counting", "few-orders")
