"""Bounds that count, for each device, the operations that must run before an operation can start.

1. *Heads.*  In addition to longest paths: all operations of a device that must precede v, of the
   same and earlier microbatches and on any of its stages, run one at a time.  If v allocates
   memory, other operations must first have released what exceeds the limit, which takes time, too.
   Raised heads are propagated along the precedences for a few rounds.  Tails are the heads of the
   reversed schedule, in which operations that allocate memory release it.
2. *One machine.*  The operations of a device are scheduled with these heads and tails.
3. *Ramps.*  Before a time r, a device can work at most as long as the operations with heads before
   r take, as many of them as memory has room for; the rest of the time it is idle.  The same holds
   at the end.  The two are added if their windows do not overlap; no window is longer than a value
   that is already proved.

For the longest span each device is treated separately: time counts from its first start to its last
end, and heads on other devices are relative to its operations.

Cost: O(k^2) for the k operations of a device and round; once for the makespan, once a device for
spans.  Source: own work; energetic reasoning as in cumulative scheduling (Baptiste, Le Pape,
Nuijten 2001), memory as in resource-constrained scheduling with reservoirs.
"""

from __future__ import annotations

import contextlib

import numpy as np

from stagepack.heuristics.schedule.effort import Going, Looks
from stagepack.heuristics.schedule.lower_bounds import counting_kernels as kernels
from stagepack.heuristics.schedule.lower_bounds.bounds import Network, one_machine
from stagepack.heuristics.schedule.lower_bounds.counting_kernels import Side
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.heuristics.schedule.tuning import TUNING, BoundsTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.progress import Stopped

Ramp = tuple[Array, Array]
"""Moments, in order, and how long a device is idle before each at least."""


def unsupported(instance: PipelineSchedule, tuning: BoundsTuning = TUNING.bounds) -> str:
    """Return why nothing is counted for `instance`, or ''."""
    if len(instance.operations.count) > tuning.counted_rows:
        return f"is for up to {tuning.counted_rows:,} rows of operations"
    pairs = int((_sizes(instance) ** 2).sum())
    if pairs * (instance.d if instance.objective is Objective.SPAN else 1) > tuning.counted_pairs:
        return f"is for up to {tuning.counted_pairs:,} pairs of operations"
    operations = instance.operations
    held = int(np.abs(operations.row_delta // _unit(instance)) @ operations.count)
    if held * int(operations.row_duration.max()) >= FAR:
        return "multiplies bytes and cycles within 64 bits"
    return ""


def _unit(instance: PipelineSchedule) -> int:
    """Return the greatest unit of which all changes of memory are multiples."""
    return max(1, int(np.gcd.reduce(instance.operations.row_delta)))


def _sizes(instance: PipelineSchedule) -> Array:
    """Return the number of operations of each device."""
    operations = instance.operations
    return np.bincount(operations.row_device, weights=operations.count, minlength=instance.d)


def counting_bound(
    instance: PipelineSchedule,
    least: int = 0,
    keep_going: Going | None = None,
    tuning: BoundsTuning = TUNING.bounds,
) -> int:
    """Return the greatest bound found, `least`, which is proved, or more.

    `least` is returned where the instance is :func:`unsupported`.  `keep_going` is asked with the
    steps since; once it says no, what was found is returned.
    """
    if unsupported(instance, tuning):
        return least
    spans = instance.objective is Objective.SPAN
    with contextlib.suppress(Stopped):
        counting = Counting(instance, Looks(keep_going), tuning)
        for d in range(instance.d) if spans else [None]:
            for value in counting.values(d, least):
                least = max(least, value)
    return least


class Counting:
    """Heads, tails and what follows from them, of one instance that is not :func:`unsupported`.

    `looks` asks the clock after every device.
    """

    def __init__(
        self, instance: PipelineSchedule, looks: Looks, tuning: BoundsTuning = TUNING.bounds
    ) -> None:
        self.instance, self._rounds = instance, tuning.rounds
        self._looks = looks
        self._net = Network.of(instance, looks)
        operations = instance.operations
        device = operations.device
        self._own = [np.flatnonzero(device == d) for d in range(instance.d)]
        self._work = instance.work
        count, kinds = operations.count, operations.kinds
        unit = _unit(instance)
        delta = operations.row_delta // unit
        net = np.zeros(instance.d, dtype=np.int64)
        np.add.at(net, operations.row_device, delta * count)
        forth = back = np.full(instance.d, FAR)
        if instance.limit is not None:
            forth = instance.limit // unit
            back = forth - net
        turn, reach = operations.microbatch, _reach(instance)
        self._forth = Side(reach, turn, delta, forth, kinds, 1)
        turn = count[operations.row] - 1 - turn
        self._back = Side(reach.T.copy(), turn, -delta, back, kinds, -1)

    def values(self, device: int | None, least: int) -> list[int]:
        """Return bounds on the makespan, or on the span of a device; `least` is proved."""
        instance = self.instance
        head, tail = self.ends(device)
        found = [least]
        for d in range(instance.d) if device is None else [device]:
            own = self._own[d]
            duration = instance.operations.duration[own]
            found.append(one_machine(head[own], duration, tail[own], self._looks))
            first, last = self.ramps(d, head, tail)
            work, after = int(self._work[d]), int(instance.after[d])
            found.append(both_ends(work, after, first, last, max(found)))
        return found

    def ends(self, device: int | None = None) -> tuple[Array, Array]:
        """Return heads and tails, shape (n,), in the makespan or in the span of a device."""
        own = self.instance.operations.device
        here = np.full(len(own), True) if device is None else own == device
        head = self._raised(self._forth, np.where(here, 0, -FAR))
        return head, self._raised(self._back, np.where(here, self.instance.after[own], -FAR))

    def _raised(self, side: Side, head: Array) -> Array:
        """Return heads, or tails, raised by paths and by counting in turn."""
        paths = self._net.heads if side is self._forth else self._net.tails
        head = paths(head, self._looks)
        place = np.zeros(len(head), dtype=np.int64)
        for _ in range(self._rounds):
            found, raised = head.copy(), False
            for d, own in enumerate(self._own):
                by = own[np.argsort(-head[own], kind="stable")]
                place[by] = np.arange(len(by))
                graph, limit = self._net.graph, int(side.limit[d])
                raised |= kernels.tighten(graph, side, by, place, head, found, limit)
                self._looks.at(len(by) ** 2)
            if not raised:
                break
            head = paths(found, self._looks)
        return head

    def ramps(self, d: int, head: Array, tail: Array) -> tuple[Ramp, Ramp]:
        """Return how long device `d` is idle in its first and in its last cycles at least.

        `head` and `tail`, int64 (operations,), are cycles that pass at least before each operation
        begins, and after it ends.
        """
        tail = tail - self.instance.after[d]
        return self._idle(d, self._forth, head), self._idle(d, self._back, tail)

    def _idle(self, d: int, side: Side, head: Array) -> Ramp:
        """Return moments, in order, and how long device d is idle before each at least."""
        own = self._own[d]
        by = own[np.argsort(head[own], kind="stable")]
        moment, least = np.zeros((2, len(by) + 1), dtype=np.int64)
        graph, limit = self._net.graph, int(side.limit[d])
        count = kernels.idle(graph, side.delta, limit, by, head, moment, least)
        self._looks.at(len(by) ** 2)
        return moment[:count], least[:count]


def both_ends(work: int, after: int, first: Ramp, last: Ramp, least: int) -> int:
    """Return the bound of idle times at both ends of what a device does, `least` or more.

    They add up where windows do not overlap in any schedule that takes what is proved, `least`.
    `work` and `after` are cycles of the device, and of what the objective adds to its last end;
    `first` and `last` idle cycles before moments, and after moments that count from the last end
    back.
    """
    (begin, idle_first), (end, idle_last) = first, last
    longest = np.maximum.accumulate(idle_last)
    best = max(least, work + after + int(max(idle_first.max(), idle_last.max())))
    while True:
        place = np.searchsorted(end, best - after - begin, side="right") - 1
        both = np.where(place >= 0, idle_first + longest[np.maximum(place, 0)], 0)
        value = work + after + int(both.max())
        if value <= best:
            return best
        best = value


def _reach(instance: PipelineSchedule) -> Array:
    """Return whether row a comes before row b, or is it, bool, shape (rows, rows)."""
    operations, kinds = instance.operations, instance.operations.kinds
    stages = np.array(instance.order)
    turns = [stages * kinds, *((stages[::-1] * kinds + kind) for kind in range(1, kinds))]
    reach = np.eye(len(operations.count), dtype=bool)
    for row in reversed(np.concatenate(turns).tolist()):
        after = operations.after[operations.first[row] : operations.first[row + 1]]
        reach[row] |= reach[after].any(axis=0)
    return reach
