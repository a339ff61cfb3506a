"""Lower bounds on makespan and span without search; each is proved where it is computed.

Throughout, stage s takes f, b, w cycles for F, B, W (w = 0 if B is the whole backward pass), and c
is the lag of an edge.  The *budget* of a device is the number of cycles that it may be idle: the
value to be refuted, minus its optimizer, minus the work of the device.

Cost: see :func:`bound`.  Sources: one machine with heads and tails, Jackson's preemptive
schedule, Carlier 1982, The one-machine sequencing problem; ramps are own work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.schedule.effort import PART, Going, Looks
from stagepack.heuristics.schedule.lower_bounds import bounds_kernels as kernels
from stagepack.heuristics.schedule.lower_bounds.queues import queue_bound
from stagepack.heuristics.schedule.lower_bounds.ramps import ramp_bound
from stagepack.heuristics.schedule.timing import graph_of
from stagepack.heuristics.schedule.timing_kernels import FAR, Graph, heads
from stagepack.heuristics.schedule.tuning import TUNING, BoundsTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule, memory_arcs
from stagepack.progress import Stopped

PASSED = 0.33
"""Steps that an operation or an arc costs in the mean: many have no path, and are passed by."""

SORT = 4
"""Steps of sorting, for a job: less where heads rise, as they mostly do."""


def bound(
    instance: PipelineSchedule,
    keep_going: Going | None = None,
    tuning: BoundsTuning = TUNING.bounds,
) -> tuple[int, str]:
    """Return the best of all lower bounds on the instance's objective, and what it is called.

    Once `keep_going`, asked several times a second with the steps since, says no, nothing more is
    looked at.  Heads and tails take O(operations + arcs), a machine O(k log(k)) for its k
    operations: once each for the makespan; for the longest span heads and tails once a device, and
    all machines once a device up to `tuning.pairs` operations, else one.  Ramps take O(edges +
    microbatches of all stages) for each of O(log(value)) values, closed queues O(p + edges) once.
    """
    best, source = work_bound(instance), "work bound"
    ramp = ramp_bound(instance, best, keep_going)
    window = window_bound(instance, keep_going, tuning)
    if window > best:
        best, source = window, "one-machine bound"
    if ramp > best:
        best, source = ramp, "ramp bound"
    with contextlib.suppress(Stopped):
        queue = queue_bound(instance, Looks(keep_going))
        if queue > best:
            best, source = queue, "closed-queue bound"
    return best, source


# ---------------------------------------------------------------------- work


def work_bound(instance: PipelineSchedule) -> int:
    """Return the work of the busiest device: it does one thing at a time."""
    return int((instance.work + instance.after).max())


# ---------------------------------------------------------------------- one machine


def window_bound(
    instance: PipelineSchedule,
    keep_going: Going | None = None,
    tuning: BoundsTuning = TUNING.bounds,
) -> int:
    """Return the best bound of one device among heads and tails; of those that time allows.

    The head of an operation is a longest path from a moment that the objective counts from, its
    tail one to a moment that it counts to; one device must do all its operations between, one at a
    time, which takes no less time than if they could be interrupted.

    For the makespan these are the start and the end of the schedule.  For the span of a device d
    they are its first start and its last end: every operation of d starts at or after the first and
    ends at or before the second.  Any device e, d among them, must do between the two what lies on
    paths from d to d; for e = d that is everything.

    The paths follow the precedences and, where memory binds, the arcs of :func:`memory_arcs`.  Once
    `keep_going`, asked with the steps since, says no, what was found is returned.
    """
    best, looks = 0, Looks(keep_going)
    with contextlib.suppress(Stopped):
        looks.at(0)
        net = Network.of(instance, looks)
        operations = instance.operations
        count, device, after = operations.count, operations.row_device, instance.after
        every = Machines(instance)
        if instance.objective is Objective.MAKESPAN:
            head = net.heads(np.zeros(len(operations), dtype=np.int64), looks)
            tail = net.tails(np.repeat(after[device], count), looks)
            for low, high in every.parts():
                best = max(best, every.least(low, high, head, tail, looks))
            return best
        pairs = len(operations) * instance.d <= tuning.pairs
        for d in range(instance.d):
            here = np.repeat(device == d, count)
            head = net.heads(np.where(here, 0, -FAR), looks)
            tail = net.tails(np.where(here, after[d], -FAR), looks)
            for low, high in every.parts() if pairs else [(d, d + 1)]:
                best = max(best, every.least(low, high, head, tail, looks))
    return best


class Machines:
    """The devices as machines, which do one operation at a time."""

    def __init__(self, instance: PipelineSchedule) -> None:
        self._operations = operations = instance.operations
        self._rows = np.argsort(operations.row_device, kind="stable")
        rows = np.cumsum(np.bincount(operations.row_device))
        count = np.cumsum(operations.count[self._rows])
        # Where each device begins, among the rows in this order and among their operations.
        self._row, self._begin = np.concatenate([[[0], [0]], [rows, count[rows - 1]]], axis=1)

    def parts(self) -> Iterator[tuple[int, int]]:
        """Yield devices [low, high), of about `PART` operations together, but at least one."""
        low, d = 0, len(self._row) - 1
        while low < d:
            high = int(np.searchsorted(self._begin, self._begin[low] + PART, side="right")) - 1
            yield low, max(low + 1, high)
            low = max(low + 1, high)

    def least(self, low: int, high: int, head: Array, tail: Array, looks: Looks) -> int:
        """Return the most that any device from `low` up to `high` needs at least for its
        operations.

        `head` and `tail`, int64 (n,), are those of all operations, in cycles; -FAR: the operation
        does not count.  `looks` asks the clock between parts.
        """
        operations = self._operations
        rows = self._rows[self._row[low] : self._row[high]]
        count = operations.count[rows]
        own = np.repeat(operations.origin[rows] - np.cumsum(count) + count, count)
        for begin, end in looks.parts(len(own), 2):
            own[begin:end] += np.arange(begin, end)
        first = self._begin[low : high + 1] - self._begin[low]
        duration = np.repeat(operations.row_duration[rows], count)
        looks.at(len(own))
        head = head[own]
        looks.at(len(own))
        tail = tail[own]
        looks.at(len(own))
        return one_machine(head, duration, tail, looks, first)


def one_machine(
    head: Array,
    duration: Array,
    tail: Array,
    looks: Looks | None = None,
    first: Array | None = None,
) -> int:
    """Return the least makespan of jobs with heads and tails, where they may be interrupted.

    `head`, `duration` and `tail`, int64 (k,), are cycles before a job begins, of the job, and after
    its end.  Machine e does the jobs first[e] .. first[e + 1] - 1; all are on one machine when
    `first`, int64 (machines + 1,), is absent.  `looks` asks the clock between parts.
    """
    looks = looks or Looks()
    if first is None:
        first = np.array([0, len(head)])
    if len(first) == 2:
        order = np.argsort(head, kind="stable")
    else:
        order = np.lexsort((head, np.repeat(np.arange(len(first) - 1), np.diff(first))))
    looks.at(SORT * len(head))
    state = np.array([0, 0, 0, -FAR, -FAR, 0])
    rest, heap = duration.copy(), np.empty_like(head)  # at most all jobs are there at once
    while not kernels.machines(first, order, head, rest, tail, heap, state, PART):
        looks.at(int(state[5]))
    looks.at(int(state[5]))
    return int(state[4])


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
        looks.at(len(before))
        # Those of v begin at first[v + 1] until they are there, then at first[v].
        first, by = np.zeros(n + 2, dtype=np.int64), np.empty_like(before)
        for low, high in looks.parts(len(before)):
            kernels.count_by_source(before, first[2:], low, high)
        if len(before):
            np.cumsum(first, out=first)
            looks.at(n)
        for low, high in looks.parts(len(before)):
            kernels.by_source(before, first[1:], by, low, high)
        # Memory arcs lead to later microbatches.
        visit = instance.operations.topological(lambda written: looks.at(2 * written))
        after = after[by]
        looks.at(2 * len(after))
        return cls(graph, first[:-1], after, visit)

    def heads(self, head: Array, looks: Looks) -> Array:
        """Return the longest paths to the start of each operation, in `head`: where they begin."""
        looks.at(len(head) // 4)
        for low, high in looks.parts(len(head), self._each):
            heads(self.graph, self.first, self.after, self.visit, head, low, high)
        return head

    def tails(self, tail: Array, looks: Looks) -> Array:
        """Return the longest paths from the end of each operation, in `tail`: where they end."""
        n = len(tail)
        looks.at(n // 4)
        for low, high in looks.parts(n, self._each):
            kernels.tails(self.graph, self.first, self.after, self.visit, tail, n - high, n - low)
        return tail

    @property
    def _each(self) -> float:
        """Steps for an operation, in the mean."""
        return PASSED * ((self.graph.arcs + len(self.after)) / len(self.visit) + 1)
