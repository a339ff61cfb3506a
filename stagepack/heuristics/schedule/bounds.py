"""Lower bounds on makespan and span that need no search, each proved where it is computed.

Throughout, stage s takes f, b, w cycles for F, B, W (w = 0 where B is the whole backward pass), c
is the lag of an edge, and *budget* of a device is the value asked about, less its optimizer, less
the work of the device: the cycles it may be idle.

Costs are those of :func:`bound`.  Sources: one machine with heads and tails, Jackson's preemptive
schedule, Carlier 1982, The one-machine sequencing problem; ramps are own work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from stagepack.heuristics.schedule import bounds_kernels as kernels
from stagepack.heuristics.schedule.timing import graph_of
from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule, memory_arcs
from stagepack.progress import Stopped

Going = Callable[[int], bool]
"""Whether to go on, asked several times a second with the steps since the last time."""

PART = 500_000
"""Operations, arcs or events in a kernel call: less than a tenth of a second."""

STAGE = 500
"""Steps that a look at a stage takes outside of kernels."""

FEW = 64
"""Sums of operations that are tried one by one before all others are at once."""

PAIRS = 4_000_000
"""Operations that all pairs of devices may have together; more, and each device stands alone."""


def bound(instance: PipelineSchedule, keep_going: Going | None = None) -> tuple[int, str]:
    """Return the best of all lower bounds on the instance's objective, and what it is called.

    Once `keep_going` says no, nothing more is looked at.  Heads and tails
    take O(operations + arcs), a machine O(k log(k)) for its k operations: once each for the
    makespan; for the longest span heads and tails once a device, and all machines once a device
    up to `PAIRS`, else one.  Ramps take O(edges + microbatches of all stages) for each of
    O(log(value)) values.
    """
    best, source = work_bound(instance), "work bound"
    ramp = ramp_bound(instance, best, keep_going)
    window = window_bound(instance, keep_going)
    if window > best:
        best, source = window, "one-machine bound"
    if ramp > best:
        best, source = ramp, "ramp bound"
    return best, source


# ---------------------------------------------------------------------- work


def work_bound(instance: PipelineSchedule) -> int:
    """Return the work of the busiest device: it does one thing at a time."""
    return int((instance.work + instance.after).max())


# ---------------------------------------------------------------------- one machine


def window_bound(instance: PipelineSchedule, keep_going: Going | None = None) -> int:
    """Return the best bound of one device among heads and tails; of those that time allows.

    The head of an operation is a longest path from a moment that the objective counts from, its
    tail one to a moment that it counts to; one device must do all its operations between, one at
    a time, which takes no less time than if they could be interrupted.

    For the makespan these are the start and the end of the schedule.  For the span of a device d
    they are its first start and its last end: every operation of d starts at or after the first
    and ends at or before the second.  Any device e, d among them, must do between the two what
    lies on paths from d to d; for e = d that is everything.

    The paths follow the precedences and, where memory binds, the arcs of :func:`memory_arcs`.
    """
    try:
        return _window_bound(instance, Looks(keep_going))
    except Stopped:
        return 0


def _window_bound(instance: PipelineSchedule, looks: Looks) -> int:
    looks.at(0)
    net = Network.of(instance, looks)
    operations = instance.operations
    n = len(operations)
    base, count, device = operations.base, operations.count, operations.row_device
    after = instance.after
    best = 0

    def machine(e: int, head: Array, tail: Array) -> int:
        stages = instance.stages_of(e)
        own = np.flatnonzero(device == e)
        duration = np.repeat(operations.row_duration[own], count[own])
        heads, tails = (
            np.concatenate([column[base[s] : base[s + 1]] for s in stages])
            for column in (head, tail)
        )
        looks.at(5 * len(heads))
        return _one_machine(heads, duration, tails, looks)

    with contextlib.suppress(Stopped):
        if instance.objective is Objective.MAKESPAN:
            head = net.heads(np.zeros(n, dtype=np.int64), looks)
            tail = net.tails(np.repeat(after[device], count), looks)
            for e in range(instance.d):
                best = max(best, machine(e, head, tail))
            return best
        pairs = n * instance.d <= PAIRS
        for d in range(instance.d):
            here = np.repeat(device == d, count)
            head = net.heads(np.where(here, 0, -FAR), looks)
            tail = net.tails(np.where(here, after[d], -FAR), looks)
            for e in range(instance.d) if pairs else (d,):
                best = max(best, machine(e, head, tail))
    return best


class Looks:
    """Looks at the clock between parts of long loops; raises :class:`Stopped` at the end of it."""

    def __init__(self, keep_going: Going | None = None) -> None:
        self._keep_going = keep_going

    def at(self, steps: int) -> None:
        """Count steps, and go on if there is time."""
        if self._keep_going is not None and not self._keep_going(steps):
            raise Stopped

    def parts(self, count: int, each: float = 1.0) -> Iterator[tuple[int, int]]:
        """Yield [low, high) of `count` things of `each` steps, and look after every one."""
        for low in range(0, count, PART):
            high = min(count, low + PART)
            yield low, high
            self.at(int(each * (high - low)))


def _one_machine(head: Array, duration: Array, tail: Array, looks: Looks | None = None) -> int:
    """Return the least makespan of jobs with heads and tails on one machine, with preemption.

    See :func:`.bounds_kernels.one_machine`.  O(k log k).

    Parameters
    ----------
    head, duration, tail : ndarray of int64, shape (k,)
        Cycles; -FAR in head or tail: the job does not count.
    looks : Looks, optional
    """
    looks = looks or Looks()
    state = np.array([0, 0, -FAR, -FAR])
    order, rest, heap = np.argsort(head, kind="stable"), duration.copy(), np.empty_like(head)
    while not kernels.one_machine(order, head, rest, tail, heap, state, PART):
        looks.at(10 * PART)
    looks.at(20 * min(PART, len(head)))
    return int(state[3])


@dataclass(frozen=True, eq=False)
class Network:
    """Precedences, memory arcs by the operation they leave, and a topological order."""

    graph: Graph
    first: Array
    after: Array
    visit: Array

    @classmethod
    def of(cls, instance: PipelineSchedule, looks: Looks) -> Network:
        """Return the network of `instance`.  O(operations + memory arcs)."""
        n = len(instance.operations)
        graph = graph_of(instance, looks.at)
        before, after = memory_arcs(instance, looks.at)
        first, by = np.zeros(n + 1, dtype=np.int64), np.empty_like(before)
        if len(before):
            np.cumsum(np.bincount(before, minlength=n), out=first[1:])
            looks.at(10 * n)
        place = first[:-1].copy()
        for low, high in looks.parts(len(before)):
            kernels.by_source(before, place, by, low, high)
        visit = instance.operations.topological()  # memory arcs lead to later microbatches
        looks.at(10 * n)
        after = after[by]
        looks.at(10 * len(after))
        return cls(graph, first, after, visit)

    def heads(self, head: Array, looks: Looks) -> Array:
        """Return the longest paths to the start of each operation, in `head`: where they begin."""
        looks.at(5 * len(head))
        for low, high in looks.parts(len(head), self._each):
            kernels.heads(self.graph, self.first, self.after, self.visit, head, low, high)
        return head

    def tails(self, tail: Array, looks: Looks) -> Array:
        """Return the longest paths from the end of each operation, in `tail`: where they end."""
        n = len(tail)
        looks.at(5 * n)
        for low, high in looks.parts(n, self._each):
            kernels.tails(self.graph, self.first, self.after, self.visit, tail, n - high, n - low)
        return tail

    @property
    def _each(self) -> float:
        """Steps for an operation, in the mean."""
        return (self.graph.arcs + len(self.after)) / len(self.visit) + 1


# ---------------------------------------------------------------------- ramps


def ramp_bound(instance: PipelineSchedule, least: int = 0, keep_going: Going | None = None) -> int:
    """Return the least value at which no ramp needs more idling than there is.

    See :class:`Ramps`, whose answer is monotone in the value: bisection.

    Parameters
    ----------
    instance : PipelineSchedule
    least : int
        No smaller value is returned.
    keep_going : callable, optional
        Asked with the steps since; once it says no, the least value that is not ruled out is
        returned.
    """
    if not instance.training or instance.d < instance.p:
        return least
    low = least
    with contextlib.suppress(Stopped):
        ramps = Ramps(instance, Looks(keep_going))
        if ramps.feasible(low):
            return low
        low, step = low + 1, 1
        while not ramps.feasible(low - 1 + step):
            low, step = low + step, 2 * step
        high = low - 1 + step
        while high > low:
            middle = (low + high) // 2
            if ramps.feasible(middle):
                high = middle
            else:
                low = middle + 1
    return low


@dataclass(frozen=True)
class _Stage:
    """Figures of a stage that has its device to itself."""

    f: int
    b: int
    w: int
    ahead: int  # F's that memory allows before the first B
    behind: int  # W's that memory allows after the last B
    waiting: Array  # W's that can wait, or get to, when n B's wait for the last F
    filled: int  # the most cycles of those
    head: int  # before its first start, as far as the objective counts it
    after: int
    work: int


class Ramps:
    """Idling that the ramps at both ends force on stages, chained along the edges.

    Holds where every device has one stage.  Let s be a stage, S its first start, T the start of
    its first B, U the end of its last F, V the end of its last B; the objective counts from A (A
    = S for spans, A = 0 for the makespan) to Z (S + value, or value, less the optimizer).  All
    work of s lies between A and Z, and the rest is idle: at most its budget.

    1. *Head.*  In [A, T] the device runs F's only, at most `ahead` of them, and whole ones, as
       what runs there ends before B starts.  So x = T - A is k f + i with k <= ahead and idle i
       between its head (the longest path before S; 0 for spans) and its budget.
       For an edge (s, t), S_t >= S_s + f_s + c and T_s >= T_t + b_t + c, so
       x_s >= x_t + b_t + f_s + 2c for spans, and x_s >= x_t + b_t + c for the makespan.
    2. *Tail.*  In [V, Z] the device runs W's only, at most `behind`, whole ones; so z = Z - V is
       k w + i.  V_s >= V_t + c + b_s, so z_t >= z_s + Z_t - Z_s + b_s + c, where for spans
       Z_t - Z_s = S_t - S_s + .. >= f_s + c + ..; and z_s >= w_s, for the last W comes after V.
    3. *Middle.*  Between U and the start of the last B the device runs only B's and W's of other
       microbatches.  When the last F starts, n of them wait for B and j for W, and hold what is
       left of the limit at most; so in between run n B's, which are all there are, and at most n
       + j W's: y = n b + k w + i.  For an edge (s, t), y_s >= y_t + f_t + b_t + 2c.

    Each chain is followed from its end, with the least length that is a sum of whole operations
    and an idle time within the budget.  That least length grows with the one before and shrinks
    with the budget, so the whole is monotone in the value.  The windows of head and tail, and of
    middle and tail, do not overlap; those of head and middle do not where not all F's fit before
    the first B.  The least idle times of windows that do not overlap, added, must be within the
    budget too.
    """

    def __init__(self, instance: PipelineSchedule, looks: Looks | None = None) -> None:
        self._looks = looks or Looks()
        self._order = instance.order
        self._spans = instance.objective is Objective.SPAN
        self._applies = instance.d == instance.p
        self._out = instance.consumers
        into: list[list[tuple[int, int]]] = [[] for _ in range(instance.p)]
        for s, consumers in enumerate(self._out):
            for t, lag in consumers:
                into[t].append((s, lag))
        self._in = into
        self._looks.at(STAGE * (instance.p + len(instance.edges)) // 10)
        none = [0] * instance.p
        forward, backward, weight = (
            none if column is None else column.tolist()
            for column in (instance.forward, instance.backward, instance.weight)
        )
        head = [0] * instance.p
        if not self._spans:
            for s in self._order:
                for a, lag in self._in[s]:
                    head[s] = max(head[s], head[a] + forward[a] + lag)
        self._looks.at(STAGE * (instance.p + len(instance.edges)) // 10)
        self._stages = []
        self._microbatches = instance.microbatches.tolist()
        for s in range(instance.p):
            self._looks.at(4 * STAGE + 20 * self._microbatches[s])
            device = int(instance.devices[s])
            f, b, w = forward[s], backward[s], weight[s]
            limit = None if instance.limit is None else int(instance.limit[device])
            waiting = _waiting(instance, s, limit)
            self._stages.append(
                _Stage(
                    f=f,
                    b=b,
                    w=w,
                    ahead=_most_ahead(instance, s, limit),
                    behind=_most_behind(instance, s, limit),
                    waiting=waiting,
                    filled=int((b * np.arange(len(waiting)) + w * waiting).max()),
                    head=head[s],
                    after=int(instance.after[device]),
                    work=self._microbatches[s] * (f + b + w),
                )
            )

    def feasible(self, value: int) -> bool:
        """Whether the ramps leave every stage within its budget at `value`."""
        if not self._applies:
            return True
        budget = [value - stage.after - stage.work for stage in self._stages]
        if min(budget) < 0:
            return False
        head = self._head_idle(budget)
        self._looks.at(STAGE * len(budget))
        tail = self._tail_idle(budget)
        self._looks.at(STAGE * len(budget))
        middle = self._middle_idle(budget)
        self._looks.at(STAGE * len(budget))
        if head is None or tail is None or middle is None:
            return False
        for s, stage in enumerate(self._stages):
            apart = stage.ahead < self._microbatches[s]
            idle = head[s] + middle[s] if apart else max(head[s], middle[s])
            if idle + tail[s] > budget[s]:
                return False
        return True

    def warm_up(self, value: int) -> list[int] | None:
        """Return how many F's each stage runs before its first B in the least head at `value`."""
        if not self._applies:
            return None
        counts = [0] * len(self._stages)
        budget = [value - stage.after - stage.work for stage in self._stages]
        return None if self._head_idle(budget, counts) is None else counts

    def _head_idle(self, budget: list[int], counts: list[int] | None = None) -> list[int] | None:
        x, idle = [0] * len(budget), [0] * len(budget)
        for s in reversed(self._order):
            stage = self._stages[s]
            x[s] = stage.head + stage.f
            for t, lag in self._out[s]:
                hop = stage.f + 2 * lag if self._spans else lag
                x[s] = max(x[s], x[t] + self._stages[t].b + hop)
            found = _whole(x[s], stage.f, stage.ahead, stage.head, budget[s])
            if found is None:
                return None
            idle[s] = max(stage.head, x[s] - stage.ahead * stage.f)
            x[s] = found
            if counts is not None:
                counts[s] = min(stage.ahead, (found - stage.head) // stage.f)
        return idle

    def _tail_idle(self, budget: list[int]) -> list[int] | None:
        z, idle = [0] * len(budget), [0] * len(budget)
        for t in self._order:
            stage = self._stages[t]
            z[t] = stage.w
            for s, lag in self._in[t]:
                other = self._stages[s]
                hop = other.b + lag + other.after - stage.after
                if self._spans:
                    hop += other.f + lag
                z[t] = max(z[t], z[s] + hop)
            found = _whole(z[t], stage.w, stage.behind, 0, budget[t])
            if found is None:
                return None
            idle[t] = max(0, z[t] - stage.behind * stage.w)
            z[t] = found
        return idle

    def _middle_idle(self, budget: list[int]) -> list[int] | None:
        y, idle = [0] * len(budget), [0] * len(budget)
        for s in reversed(self._order):
            stage = self._stages[s]
            for t, lag in self._out[s]:
                other = self._stages[t]
                y[s] = max(y[s], y[t] + other.f + other.b + 2 * lag)
            idle[s] = max(0, y[s] - stage.filled)
            found = _mixed(y[s], stage, budget[s], self._looks)
            if found is None:
                return None
            y[s] = found
        return idle


def _mixed(length: int, stage: _Stage, budget: int, looks: Looks) -> int | None:
    """Return the least sum, >= length, of some B's, W's beside them, and 0 <= idle <= budget."""
    best = None
    most = min(len(stage.waiting) - 1, length // stage.b + 1)
    for n in range(most, max(-1, most - FEW), -1):
        rest = max(0, length - n * stage.b)
        found = _whole(rest, stage.w, int(stage.waiting[n]), 0, budget)
        if found is not None and (best is None or n * stage.b + found < best):
            best = n * stage.b + found
        if best == length:
            return best
    if most < FEW:
        return best
    looks.at(20 * most)
    # The same for all others, as arrays.
    b = stage.b * np.arange(most - FEW + 1)
    rests, counts = np.maximum(0, length - b), stage.waiting[: len(b)]
    count = counts if stage.w == 0 else np.minimum(counts, rests // stage.w)
    worked = count * stage.w
    fits, more = rests - worked <= budget, count < counts
    sums = b + np.where(fits, np.maximum(rests, worked), worked + stage.w)
    sums = sums[fits | more]
    if len(sums) and (best is None or sums.min() < best):
        best = int(sums.min())
    return best


def _whole(length: int, each: int, most: int, head: int, budget: int) -> int | None:
    """Return the least sum, >= length, of k <= most times `each` and head <= idle <= budget."""
    if head > budget:
        return None
    count = most if each == 0 else min(most, max(0, length - head) // each)
    if length - count * each <= budget:
        return max(length, count * each + head)
    if count < most:
        return head + (count + 1) * each
    return None


def _most_ahead(instance: PipelineSchedule, s: int, limit: int | None) -> int:
    """Return how many F's of a stage can have run when its first B starts."""
    m = int(instance.microbatches[s])
    g, b, _ = instance.changes(s)
    if limit is None or g <= 0:
        return m
    return max(0, min(m, (limit - max(b, 0)) // g))


def _most_behind(instance: PipelineSchedule, s: int, limit: int | None) -> int:
    """Return how many W's of a stage can be left when its last B ends.

    While that B runs, all others wait for their W or have run it, and none of them holds less
    than nothing.
    """
    m = int(instance.microbatches[s])
    if not instance.split:
        return 0
    g, b, w = instance.changes(s)
    waiting = g + b
    rest = g + b + w
    if limit is None or waiting <= rest:
        return m
    # (left - 1) * waiting + (m - left) * rest + g + max(b, 0) <= limit
    room = limit - g - max(b, 0) + waiting - m * rest
    return max(0, min(m, room // (waiting - rest)))


def _waiting(instance: PipelineSchedule, s: int, limit: int | None) -> Array:
    """Return, for n = 0, 1, .., the most W's that can run between the last F and the last B.

    When that F starts, n other microbatches wait for B, and as many for W as still fit beside
    them; after its B any of the n may run its W too.
    """
    others = int(instance.microbatches[s]) - 1
    g, b, _ = instance.changes(s)
    most, room = others, 0
    if limit is not None:
        room = limit - g
        most = others if g <= 0 else max(0, min(others, room // g))
    n = np.arange(most + 1)
    if not instance.split:
        return np.zeros_like(n)
    count = others - n
    if limit is not None and g + b > 0:
        count = np.minimum(count, np.maximum(0, room - n * g) // (g + b))
    return np.asarray(n + count)


@cache
def warm_up() -> None:
    """Run every kernel once, so that all are compiled."""
    bound(PipelineSchedule.from_arrays([1], microbatches=1))
