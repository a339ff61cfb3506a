"""The main loop of the frontier method: closes the gap between the best partition and the bound.

A limit on the loads is decided by sweeps that merge fewer and fewer labels.  If no label is left,
the limit is a lower bound; if a beam reaches the end, it yields a better partition.  Most work is
spent on the limit just below the best partition, which either proves or improves it.  In addition,
each round tries limits nearer to the bound, which need less work, and other heuristics.  Every
round has twice the work of the one before.  If the first sweep for a limit was complete, more work
is spent on this limit, because the following sweeps are then fast.  If none was, :mod:`.reach` gets
most of the work instead.  Limits that remain undecided are continued in the next round.

Cost: that of the sweeps.  Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.reach import Reach
from stagepack.heuristics.graph.frontier.sweeps import Sweep, Sweeps
from stagepack.instances.profile import Array

Take = Callable[[Array, Model], int | None]
"""Told of stages on devices in the order of a model; returns ticks, None if they break a rule."""


class Decision:
    """Whether there is a partition within a limit of ticks, sweep after sweep.

    `take` is told of what a beam found.  `reverse`: the first sweep is from the last block to the
    first; `eager`: beams look for a partition from the first sweep on.  `limit` may be lowered:
    what is known stays true.  The decision is `stuck` when labels take too much room, or no sweep
    is left.
    """

    def __init__(
        self,
        sweeps: Sweeps,
        limit: int,
        take: Take,
        reverse: bool,
        eager: bool = False,
    ) -> None:
        self.limit, self.stuck, self.tuning = limit, False, sweeps.tuning
        self._sweeps, self._take, self._reverse = sweeps, take, reverse
        self._coarsest = 1.0 if eager else self.tuning.beam_from
        self._models = iter(sweeps.models)
        self._sweep: Sweep | None = None
        self._next()

    def _next(self) -> bool:
        """Turn to the next order of devices; return whether there is one."""
        model = next(self._models, None)
        if model is None:
            return False
        self._turn, self._sweep = 0, None
        self._guide = self._sweeps.guide(self.limit, model)
        return True

    @property
    def begun(self) -> bool:
        """Whether a sweep came to its end."""
        return self._turn > 0

    def go_on(self, work: float = np.inf) -> bool | None:
        """Sweep for about so many seconds of work; return the answer, None if there is none yet.

        If there is a partition the limit is then below the best one.
        """
        until, deltas = effort.spent() + work, self.tuning.deltas
        while not self.stuck and effort.spent() < until:
            part, reverse = deltas[self._turn], self._reverse ^ (self._turn % 2 == 1)
            if self._sweep is None:
                delta = int(part * self.limit)
                self._sweep = self._sweeps.begin(reverse, self.limit, delta, self._guide)
            swept = self._sweep.go_on(until - effort.spent())
            if swept.status == state.EMPTY:
                if not self._next():
                    return False
                continue
            if swept.guide is None:
                self.stuck = swept.status == state.FULL
                continue
            self._guide, self._sweep = swept.guide, None
            self._turn += 1
            self.stuck = self._turn == len(deltas)
            beam = self.tuning.beam if part > 0 else self.tuning.widest_beam
            if part <= self._coarsest and self._look(not reverse, beam):
                return True
        return None

    def _look(self, reverse: bool, beam: int) -> bool:
        """Let a beam look for partitions, and for ever better ones."""
        before = self.limit
        for step in self.tuning.steps:
            while True:
                limit = self.limit - int(step * self.limit)
                found = self._sweeps.run(reverse, limit, 0, self._guide, beam=beam)
                # Labels know less than the rules where stashes, or empty stages, count.
                value = (
                    None if found.stages is None else self._take(found.stages, self._guide.model)
                )
                if value is None or value > limit:
                    break
                self.limit = value - 1
            if self.limit == before:
                return False
        return True


class LabelSearch:
    """What is known of a graph, and what makes it better.

    No partition is below `bound` ticks; `on_bound` is told of every better bound, `offer` of
    partitions.  `aside` is called in every round with seconds of work, to find partitions in its
    own way and :meth:`take` them.  `best` are the stages of the best partition, on the devices of
    `model`, and `value` its ticks: a limit that all keep where there is none.  `impossible`: there
    is none at all.
    """

    def __init__(
        self,
        sweeps: Sweeps,
        bound: int,
        offer: Take,
        on_bound: Callable[[int], object],
        aside: Callable[[float], object] | None = None,
    ) -> None:
        self.sweeps, self.bound, self.tuning = sweeps, bound, sweeps.tuning
        self._offer, self._on_bound = offer, on_bound
        self._aside = aside if self.tuning.use_local_search else None
        self.best: Array | None = None
        self.model = sweeps.models[0]
        self.value = sweeps.most
        self.impossible = False
        self._open: list[Decision] = []
        reaching = self.tuning.use_reach and Reach.applies(sweeps)
        self._reach = Reach(sweeps) if reaching else None
        self._reached = self.value  # the least limit tried within which stages reach far enough
        self._stretched = 0  # the limit at work
        self._far = False  # whether no first sweep comes to its end
        self._reverse = True  # where to begin aside: changed when a first sweep takes too long

    def take(self, stages: Array, model: Model) -> int | None:
        """Offer stages; keep them if they are the best.  Return their ticks, if they are valid."""
        value = self._offer(stages, model)
        if value is not None and value < self.value:
            self.best, self.model, self.value = stages, model, value
        return value

    def run(self) -> None:
        """Search until the bound is met, or labels take too much room."""
        if self.best is None:
            limit = self.value - 1
            self._settle(Decision(self.sweeps, limit, self.take, False, eager=True), np.inf)
        tuning = self.tuning
        work = tuning.round_seconds * max(tuning.least_size, self.sweeps.blocks / 1000)
        known = 0, 0
        last = Decision(self.sweeps, self.value - 1, self.take, True)
        while True:
            crowded = self._approach(tuning.between_share * work)
            if self.best is None or self.bound >= self.value:
                return
            before, last.limit = (self.bound, self.value), self.value - 1
            aside = self._far and (self._reach is not None or not crowded)
            if not aside and self._settle(last, work):
                continue
            self._stretch((tuning.reach_share_far if self._far else tuning.reach_share_near) * work)
            if self.bound >= self.value:
                return
            if self._aside is not None:
                idle = not self._far and known == (self.bound, self.value)
                share = tuning.local_share_far if self._far else tuning.local_share_near
                self._aside((tuning.local_share_idle if idle else share) * work)
                known = self.bound, self.value
            if crowded and last.stuck and before == (self.bound, self.value):
                return
            work *= 2

    def _stretch(self, work: float) -> None:
        """Try limits above the bound, of which low ones take least, until stages reach far enough.

        At last look how far they reach within a limit just below the best partition.
        """
        until = effort.spent() + work
        while self._reach is not None and self.bound < self.value and effort.spent() < until:
            high = min(self._reached, self.value)
            last = high - self.bound <= self.tuning.known_well * self.value
            if not self.bound <= self._stretched < (self.value if last else high):
                step = self.tuning.step_far if self._far else self.tuning.step_near
                self._stretched = (
                    self.value - 1 if last else self.bound + int(step * (high - self.bound))
                )
            answer = self._reach.go_on(self._stretched, until - effort.spent(), whole=last)
            if answer is False:
                self._raise(self._stretched + 1)
            elif answer and last:
                self._reach = None
            elif answer:
                self._reached = self._stretched

    def _approach(self, work: float) -> bool:
        """Try limits between the bound and the best partition; return whether room is lacking."""
        stuck, begun, left = True, False, False
        for share in self.tuning.between if self.tuning.use_limits_between else ():
            while True:
                decision = self._at(share)
                if decision is None:
                    break
                settled = self._settle(decision, work)
                begun |= decision.begun
                if not settled:
                    stuck &= decision.stuck
                    left = True
                    self._reverse ^= not decision.begun
                    break
        self._far = left and not begun
        return stuck

    def _at(self, share: float) -> Decision | None:
        """Return the decision of a limit about this share above the bound, None if there is none.

        One that was begun is gone on with; those that are settled are forgotten.
        """
        gap = self.value - self.bound
        self._open = [one for one in self._open if 0 <= one.limit - self.bound < gap - 1]
        for one in self._open:
            low, high = self.tuning.near_low * share, self.tuning.near_high * share
            if low <= (one.limit - self.bound) / gap < high:
                return one
        limit = self.bound + int(share * gap)
        if limit + 1 >= self.value or gap < self.tuning.close * self.value:
            return None
        self._open.append(Decision(self.sweeps, limit, self.take, self._reverse))
        return self._open[-1]

    def _settle(self, decision: Decision, work: float) -> bool:
        """Raise the bound beyond a limit, or find a partition within it; False: neither."""
        answer = decision.go_on(work)
        if answer is None and decision.begun:
            answer = decision.go_on(self.tuning.extension * work)
        if answer is False:
            self._raise(decision.limit + 1)
        return answer is not None

    def _raise(self, bound: int) -> None:
        """Take a better bound; without a partition, it may prove that there is none."""
        self.bound = bound
        if self.best is None and bound >= self.value:
            self.impossible = True
        else:
            self._on_bound(bound)
