"""Minimises the sum of compute C and transfer T over their trade-off, by intervals of T.

Let C(T) be the least compute with transfers of at most T; it falls with T.  A partition with a
transfer in [first, last] has a sum of at least first + C(last).  An interval is finished when this
bound is not below the best known sum.  Intervals are processed in order of their bounds.  A probe
of an interval either bisects on C(last) or, when that is known well enough, asks for any better
partition; if there is one, the interval is halved.  What a probe excludes for one transfer limit is
excluded for all smaller ones.

Cost: the number of probes depends on how many steps of the staircase come close to the best sum,
not on their total number; probes with small transfer limits examine only the cuts within them.
Source: own work.
"""

from __future__ import annotations

import bisect
import heapq

from stagepack.heuristics.pipeline.bounds import filled
from stagepack.heuristics.pipeline.prober import LeastLimit
from stagepack.instances.pipeline import PipelineSolution
from stagepack.progress import Progress


class _Floor:
    """What is known of C(T) from below: a step function that falls with T."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._transfers: list[int] = []
        self._computes: list[int] = []

    def __call__(self, transfer: int) -> int:
        """Return a lower bound on C at a transfer."""
        at = bisect.bisect_left(self._transfers, transfer)
        return self._computes[at] if at < len(self._computes) else self._least

    def lift(self, transfer: int, compute: int) -> None:
        """Take that C is at least `compute` up to `transfer`."""
        if compute <= self(transfer):
            return
        end = bisect.bisect_right(self._transfers, transfer)
        begin = end
        while begin and self._computes[begin - 1] <= compute:
            begin -= 1
        self._transfers[begin:end] = [transfer]
        self._computes[begin:end] = [compute]

    def steps(self, transfer: int, total: int) -> list[int]:
        """Return transfers from each of which up to the next compute alone makes up for `total`.

        No partition has less than `transfer`, and C(T) + T is at least `total`, whatever T.
        """
        found = [transfer]
        for last, compute in zip(self._transfers, [*self._computes, self._least][1:], strict=True):
            if last >= found[-1] and found[-1] + compute < total:
                found.append(last + 1)
        return found


class _Descent:
    """Closes intervals of transfers until none is left that may hold a better sum."""

    def __init__(
        self,
        search: LeastLimit,
        least: int,
        progress: Progress[PipelineSolution],
        found: PipelineSolution | None,
        cells: int,
    ) -> None:
        self._search, self._progress, self._cells = search, progress, cells
        self._floor = _Floor(least)
        costs = self._costs = search.costs
        known = [costs.objective(one) for one in (progress.solution, found) if one is not None]
        self.best = min(known)
        self._pending = found if self.best < known[0] or progress.solution is None else None
        # Open intervals by their bound: (bound, first, last, compute that suffices at last).
        first = self._least = costs.transfer_bound() + costs.host
        self._open = [(first + least, first, self.best - 1 - least, self.best)]

    @property
    def bound(self) -> int:
        """What every partition sums to at least, in ticks."""
        return min(self.best, self._open[0][0]) if self._open else self.best

    def run(self) -> None:
        """Close all intervals, or as many as there is time for."""
        told = -1
        try:
            while self._open:
                self._step()
                if self._progress.stale:
                    self.offer()
                if self.bound > told:
                    told = self.bound
                    steps = self._floor.steps(self._least, told)
                    evidence = filled(self._costs, steps)
                    self._progress.raise_bound(
                        self._costs.bound(told), "exhausted search", evidence
                    )
                self._progress.require_time()
        finally:
            self.offer()

    def offer(self) -> None:
        """Report the best partition, unless that was done."""
        if self._pending is not None:
            solution, self._pending = self._pending, None
            self._progress.offer(solution, "dp")

    def _step(self) -> None:
        """Take the interval with the least bound, and probe it once."""
        known, first, last, enough = heapq.heappop(self._open)
        useful = self.best - 1 - self._floor(last)
        shorter = last > useful
        if shorter:
            last, enough = useful, self.best
        least, most = self._floor(last), self.best - 1 - first
        if last < first or least > most:
            return
        if first + least > known:  # others may come first now
            heapq.heappush(self._open, (first + least, first, last, enough))
            return
        width, sure = last - first, min(most + 1, enough)
        closely = sure - least <= 2 * width + 1
        # A little less transfer than just now is soon found, and would be again.
        halved = closely and (enough <= most or (shorter and width > 0))
        compute = most if closely else (least + sure) // 2
        if width > 0 and not halved:
            halved = self._search.looks_at_more(self._cells, compute, last)
            if halved and not closely:
                compute = least + (compute - least) // 16  # what that excludes is soon excluded
                halved = self._search.looks_at_more(self._cells, compute, last)
        if halved:
            self._halve(first, last, least, enough)
            return
        found = self._search.probe(compute, last)
        if found is None:
            self._floor.lift(last, max(compute + 1, self._search.next_compute))
        else:
            enough = min(enough, found[0])
            if sum(found) < self.best:
                self.best, self._pending = sum(found), self._search.partition()
        heapq.heappush(self._open, (first + self._floor(last), first, last, enough))

    def _halve(self, first: int, last: int, least: int, enough: int) -> None:
        """Replace an interval by its two halves."""
        middle = (first + last) // 2
        heapq.heappush(self._open, (middle + 1 + least, middle + 1, last, enough))
        heapq.heappush(self._open, (first + least, first, middle, self.best))


def descend(
    search: LeastLimit,
    least: int,
    progress: Progress[PipelineSolution],
    found: PipelineSolution | None = None,
    *,
    cells: int,
) -> None:
    """Find and prove the least sum, from the best partition known.

    The `search` of the least compute is at its end, or has not begun; no partition computes less
    than `least` ticks.  `found` is one not offered yet; without it `progress` knows one.  Above so
    many `cells` of a probe, its interval is halved instead.  When it is stopped for time,
    `progress` holds the best partition and a safe bound.
    """
    _Descent(search, least, progress, found, cells).run()
