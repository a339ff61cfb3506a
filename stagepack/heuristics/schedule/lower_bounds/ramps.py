"""Ramps at both ends of a pipeline: how many cycles they leave in which its stages may be idle.

Three chains of lengths are propagated along the edges.  Stage by stage, each length is rounded up
to the next one that whole operations and the idle cycles of the stage can fill.  O(edges +
microbatches of all stages) for each value tested.  Source: own work; after the ramps of Qi et al.
2024, Zero bubble pipeline parallelism (arXiv 2401.10241).
"""

from __future__ import annotations

import contextlib

import numpy as np

from stagepack.heuristics.schedule.effort import PART, Going, Looks
from stagepack.heuristics.schedule.lower_bounds.ramps_kernels import (
    ENTRY,
    FILLED,
    HEAD,
    MIDDLE,
    TAIL,
    Stages,
    ramp,
)
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.progress import Stopped


def ramp_bound(instance: PipelineSchedule, least: int = 0, keep_going: Going | None = None) -> int:
    """Return the least value, `least` or more, at which no ramp needs more idling than there is.

    See :class:`Ramps`, whose answer is monotone in the value: bisection.  `least` is returned where
    ramps say nothing of the instance.  `keep_going` is asked with the steps since; once it says no,
    the least value that is not ruled out is returned.
    """
    if not instance.training or instance.d < instance.p:
        return least
    low = least
    with contextlib.suppress(Stopped):
        ramps = Ramps(instance, Looks(keep_going))
        if ramps.feasible(low):
            return low
        low, step = low + 1, 1
        while not ramps.feasible(min(low - 1 + step, FAR)):
            low, step = low + step, 2 * step
        high = min(low - 1 + step, FAR)
        while high > low:
            middle = (low + high) // 2
            if ramps.feasible(middle):
                high = middle
            else:
                low = middle + 1
    return low


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
        self._applies = instance.training and instance.d == instance.p
        if not self._applies:
            return
        self._looks.at(0)
        self._stages = _stages(instance)
        self._looks.at(instance.p + len(instance.edges))
        self._work = instance.work[instance.devices]
        self._length, self._idle = np.zeros((2, 5, instance.p), dtype=np.int64)
        if not self._stages.spans:
            self._find(ENTRY, self._work)
        self._find(FILLED, self._work)

    def feasible(self, value: int) -> bool:
        """Whether the ramps leave every stage within its budget at `value`."""
        if not self._applies:
            return True
        budget = self._budget(value)
        if budget.min() < 0 or not all(self._find(part, budget) for part in (HEAD, TAIL, MIDDLE)):
            return False
        head, tail, middle = self._idle[[HEAD, TAIL, MIDDLE]]
        apart = self._stages.ahead < self._stages.microbatches
        idle = np.where(apart, head + middle, np.maximum(head, middle)) + tail
        return bool((idle <= budget).all())

    def warm_up(self, value: int) -> Array | None:
        """Return how many F's each stage runs before its first B in the least head at `value`."""
        if not self._applies or not self._find(HEAD, self._budget(value)):
            return None
        count = (self._length[HEAD] - self._length[ENTRY]) // self._stages.f
        return np.asarray(np.minimum(self._stages.ahead, count))

    def _budget(self, value: int) -> Array:
        """Return the cycles that stages may be idle within a value."""
        return np.asarray(value - self._stages.after - self._work)

    def _find(self, part: int, budget: Array) -> bool:
        """Find one part of all stages; return whether each has one within its budget."""
        state = np.zeros(2, dtype=np.int64)
        while 0 <= state[0] < len(budget):
            before = int(state[1])
            ramp(part, self._stages, budget, self._length, self._idle, state, PART)
            self._looks.at(int(state[1]) - before)
        return bool(state[0] > 0)


def _stages(instance: PipelineSchedule) -> Stages:
    """Return the figures of the stages of `instance`, each of which has its device to itself."""
    m = np.array(instance.microbatches)
    none = np.zeros(instance.p, dtype=np.int64)
    forward, backward, weight = (
        none if column is None else np.array(column)
        for column in (instance.forward, instance.backward, instance.weight)
    )
    taken, given = np.array(instance.memory_forward), instance.memory_backward
    held, rest = taken + given, taken + given + instance.memory_weight
    ahead, behind, queue, room = m.copy(), m.copy() if instance.split else none, m - 1, none
    if instance.limit is not None:
        limit = instance.limit[instance.devices]
        used, room = np.maximum(given, 0), limit - taken
        takes, keeps = taken > 0, held > rest
        ahead[takes] = np.clip((limit - used)[takes] // taken[takes], 0, m[takes])
        queue[takes] = np.clip(room[takes] // taken[takes], 0, queue[takes])
        if instance.split:
            # While the last B runs, all others wait for their W or have run it, and none of them
            # holds less than nothing:
            # (left - 1) * held + (m - left) * rest + taken + used <= limit
            spare = room - used + held - m * rest
            behind[keeps] = np.clip((spare // np.maximum(held - rest, 1))[keeps], 0, m[keeps])
    return Stages(
        spans=int(instance.objective is Objective.SPAN),
        order=np.array(instance.order, dtype=np.int64),
        into=instance.producers,
        out=instance.consumers,
        f=forward,
        b=backward,
        w=weight,
        after=np.array(instance.after[instance.devices]),
        microbatches=m,
        ahead=ahead,
        behind=behind,
        queue=queue,
        room=room,
        taken=taken,
        held=held if instance.limit is not None else none,
    )
