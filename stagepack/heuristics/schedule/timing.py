"""The best schedule for a given order of operations on each device.

With fixed orders the memory use is determined, and times follow from longest paths: earliest starts
give the shortest makespan, and the shortest spans are a cycle of greatest mean weight.

Cost: O(n + arcs) for the makespan, O(d (n + arcs) + d^3) for the shortest spans.  Source: longest
paths as in job shops once orders are fixed; Karp 1978 (:func:`.timing_kernels.least_period`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.schedule import timing_kernels as kernels
from stagepack.heuristics.schedule.effort import PART
from stagepack.heuristics.schedule.patterns import by_moment
from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution

PATHS = 200_000_000
"""Steps up to which the shortest spans are found, for paths from all devices and for cycles of
these: about a second."""


class Timing:
    """Longest paths through the operations of an instance, for any orders of its devices.

    `look` is called several times a second with the operations and arcs looked at since; it may
    raise.
    """

    def __init__(
        self, instance: PipelineSchedule, look: Callable[[int], object] | None = None
    ) -> None:
        self.instance = instance
        self._look = look
        operations = instance.operations
        self.n = len(operations)
        self.graph = graph_of(instance, self._looked)
        self.ptr = np.zeros(instance.d + 1, dtype=np.int64)
        np.add.at(self.ptr[1:], operations.row_device, operations.count)
        self.ptr = np.cumsum(self.ptr)
        self._start = np.zeros(0, dtype=np.int64)
        self._follower, self._visit, self._waits = np.zeros((3, self.n), dtype=np.int32)

    @property
    def d(self) -> int:
        """Number of devices."""
        return len(self.ptr) - 1

    def order_of(self, start: Array) -> Array:
        """Return the orders, flat, of a schedule with these starts."""
        return by_moment(self.instance, start, self._looked)

    def _looked(self, amount: int) -> None:
        """Tell who looks at the clock."""
        if self._look is not None:
            self._look(amount)

    def _parts(self, each: float = 0) -> Iterator[tuple[int, int]]:
        """Yield [low, high) of all operations, part by part, and look at the clock between.

        Each counts as so many steps; one and its arcs when `each` is 0.
        """
        each = each or self.graph.arcs / self.n + 1
        for low in range(0, self.n, PART):
            high = min(self.n, low + PART)
            yield low, high
            self._looked(int(each * (high - low)))

    def earliest(self, order: Array) -> Array | None:
        """Return the earliest starts, shape (n,), or None when the orders contradict one another.

        `order`, int64 (n,), is what each device runs, one device after another.
        """
        graph, visit, waits = self.graph, self._visit, self._waits
        start = self._start = np.empty(self.n, dtype=np.int64)
        write, next_one = 0, self._follower
        for low, high in self._parts(1):
            write = kernels.begin(graph, order, next_one, start, visit, waits, low, high, write)
        for low, high in self._parts():
            write = kernels.advance(graph, next_one, start, visit, waits, low, write, high)
            if write < high:
                return None
        return start

    def peaks(self, order: Array) -> Array:
        """Return the most memory each device holds, shape (d,)."""
        held, peak = np.zeros((2, self.d), dtype=np.int64)
        for low, high in self._parts(1):
            kernels.peaks(self.graph, order, held, peak, low, high)
        return peak

    def fits(self, order: Array) -> bool:
        """Whether the orders keep within the memory limits."""
        return bool((self.peaks(order) <= self.graph.limit).all())

    def shortest_spans(self, order: Array) -> tuple[int, Array] | None:
        """Return the least longest span of these orders and starts that have it.

        None when the orders contradict one another.  For instances whose objective is the longest
        span.  Let L(d, e) be the longest path from the first start of device d to the last end of
        device e, its optimizer included.  Ends T and spans of at most S exist if and only if ``T[e]
        >= T[d] - S + L(d, e)`` for all d and e: every device then starts as late as the ends allow,
        and a path between two devices is never shorter than its parts.  The least S is the greatest
        mean weight of a cycle of L. O(d * (n + arcs) + d**3).
        """
        if self.earliest(order) is None:
            return None
        last = order[self.ptr[1:] - 1]
        ends = self.graph.duration[self.graph.row[last]] + self.graph.rest
        length = np.empty((self.d, self.d), dtype=np.int64)
        distance = np.empty(self.n, dtype=np.int64)
        for d in range(self.d):
            for low, high in self._parts(1):
                distance[low:high] = -FAR
            distance[order[self.ptr[d]]] = 0
            follower, visit = self._follower, self._visit
            for low, high in self._parts():
                kernels.heads_in_turn(self.graph, follower, visit, distance, low, high)
            reached = distance[last]
            length[d] = np.where(reached > -FAR, reached + ends, -FAR)
        span = int(kernels.least_period(length, np.empty((self.d + 1, self.d), dtype=np.int64)))
        end = np.zeros(self.d, dtype=np.int64)
        for _ in range(self.d):
            later = np.where(length > -FAR, end[:, None] - span + length, -FAR).max(axis=0)
            end = np.maximum(end, later)
        return span, self._from_zero(end - self.graph.rest)

    def latest(self, deadline: Array) -> Array:
        """Return the latest starts for devices that are done by `deadline`, shape (d,).

        In the orders of the last call of :meth:`earliest`, whose starts become these.
        """
        n = self.n
        for low, high in self._parts():
            kernels.backward(
                self.graph, self._follower, self._visit, deadline, self._start, n - high, n - low
            )
        return self._start

    def _from_zero(self, deadline: Array) -> Array:
        """Return the latest starts for these deadlines, all as much earlier that the least is 0."""
        self.latest(deadline)
        self._start -= self._start.min()
        return self._start

    def short_spans(self, order: Array) -> Array | None:
        """Return starts of short spans: devices start as late as their earliest ends allow.

        None when the orders contradict one another.  O(n + arcs).
        """
        start = self.earliest(order)
        if start is None:
            return None
        last = order[self.ptr[1:] - 1]
        return self._from_zero(start[last] + self.graph.duration[self.graph.row[last]])

    @property
    def exact(self) -> bool:
        """Whether :meth:`best` finds the best times, not only good ones.

        Makespans it always does, the longest span up to `PATHS` steps.
        """
        if self.instance.objective is not Objective.SPAN:
            return True
        arcs = self.n + self.graph.arcs
        return self.d * max(arcs, self.d**2) <= PATHS

    def best(self, order: Array) -> Array | None:
        """Return the starts of least objective for these orders; None when they contradict.

        Of few cycles at least, where not :attr:`exact`.
        """
        if self.exact and self.instance.objective is Objective.SPAN:
            found = self.shortest_spans(order)
            return None if found is None else found[1]
        return self.good(order)

    def good(self, order: Array) -> Array | None:
        """Return starts of few cycles for these orders, the best for makespans.  O(n + arcs).

        None when the orders contradict one another.
        """
        if self.instance.objective is Objective.SPAN:
            return self.short_spans(order)
        return self.earliest(order)

    def timely(
        self, order: Array, affords: Callable[[int], bool], *, quick: bool = False
    ) -> Array | None:
        """Return the best starts that time allows for these orders, the earliest in any case.

        None when the orders contradict one another.  `order` is as in :meth:`earliest`.  `affords`
        says whether so many steps, of an operation or an arc, end in time; if `quick`, good starts
        will do.
        """
        once = self.n + self.graph.arcs
        if self.instance.objective is not Objective.SPAN:
            return self.earliest(order)
        if self.exact and not quick and affords((self.d + 2) * once):
            return self.best(order)
        return self.good(order) if affords(2 * once) else self.earliest(order)

    def value(self, order: Array) -> int | None:
        """Return the least objective value of these orders; None when they contradict."""
        start = self.best(order)
        if start is None:
            return None
        return int(self.instance.evaluate(ScheduleSolution.of(self.instance, start)))


def tighten(
    instance: PipelineSchedule,
    solution: ScheduleSolution,
    look: Callable[[int], object] | None = None,
) -> ScheduleSolution:
    """Return the best schedule with the orders of `solution`, by the instance's objective.

    For the makespan everything starts as early as it can; for the longest span, first operations
    start as late as they can.  `look` is that of :class:`Timing`.  `ValueError` is raised when the
    orders contradict a precedence.
    """
    timing = Timing(instance, look)
    start = timing.best(timing.order_of(solution.start))
    if start is None:
        raise ValueError("the solution breaks a precedence")
    return ScheduleSolution.of(instance, start)


def graph_of(instance: PipelineSchedule, look: Callable[[int], object]) -> Graph:
    """Return the operations of an instance as the kernels see them; `look` as of `Timing`."""
    operations, limit = instance.operations, instance.limit
    if "row" not in vars(operations):
        look(len(operations.row))
    return Graph(
        row=operations.row,
        duration=operations.row_duration,
        delta=operations.row_delta,
        device=operations.row_device,
        waits=np.bincount(operations.after, minlength=len(operations.count)),
        origin=operations.origin,
        first=operations.first,
        after=operations.after,
        lag=operations.lag,
        limit=np.full(instance.d, FAR) if limit is None else np.array(limit),
        rest=np.array(instance.after),
        arcs=operations.arcs,
    )


def entering(instance: PipelineSchedule) -> tuple[Array, Array, Array]:
    """Return what rows of operations wait for, those of the row itself left out: (first, row, lag).

    Microbatch by microbatch, an operation of row r waits for those of the rows row[first[r]] ..
    row[first[r + 1] - 1], int64, and their lags.  O(arcs).
    """
    operations = instance.operations
    before = np.repeat(np.arange(len(operations.count)), np.diff(operations.first))
    arcs = np.flatnonzero(before != operations.after)
    arcs = arcs[np.argsort(operations.after[arcs], kind="stable")]
    first = np.searchsorted(operations.after[arcs], np.arange(len(operations.count) + 1))
    return first, before[arcs], operations.lag[arcs]
