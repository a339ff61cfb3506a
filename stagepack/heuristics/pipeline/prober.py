"""One question, answered fast: is there a partition within these limits, and which?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.heuristics.pipeline import kernels
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts, assign_devices
from stagepack.instances.profile import Array
from stagepack.result import Progress

MODES = {
    Objective.BOTTLENECK: kernels.BOTTLENECK,
    Objective.TRANSFER_BOUNDED: kernels.TRANSFER_BOUNDED,
    Objective.SUM: kernels.SUM,
    Objective.OVERLAP: kernels.OVERLAP,
}
UNLIMITED = 2**61
CHUNK = 20_000_000  # elementary steps between two looks at the clock: well under 0.2 s


class Prober:
    """Decides whether partitions within a compute and a transfer limit exist.

    A probe costs O(transitions * n) steps and builds nothing of size n x n; with explicit tables
    O(transitions * n^2).

    Parameters
    ----------
    costs : RangeCosts
    progress : Progress, optional
        Asked for the time between chunks of a probe (raises
        :class:`~stagepack.result.Stopped` when it is over).
    """

    def __init__(
        self, costs: RangeCosts, progress: Progress[PipelineSolution] | None = None
    ) -> None:
        self.costs = costs
        self._progress = progress
        self._mode = MODES[costs.instance.objective]
        order = costs.order
        pairs = list(zip(order.device_class.tolist(), order.stashes.tolist(), strict=True))
        known: dict[tuple[int, int], int] = {}
        self._window = np.array([known.setdefault(pair, len(known)) for pair in pairs])
        n = costs.n
        if costs.tabular:
            self._fits = np.stack([costs.fits_matrix(*pair) for pair in known])
            self._compute = np.stack([costs.compute_matrix(c) for c in range(costs.classes)])
            self._steps = n * n
        else:
            self._reach = np.stack([costs.reach(*pair) for pair in known])
            self._steps = n
        self._placed = np.zeros((order.states, n + 1), dtype=np.bool_)
        self._lowest = np.empty(order.states, dtype=np.int64)
        self._highest = np.empty(order.states, dtype=np.int64)
        self._queue = np.empty(n + 2, dtype=np.int64)
        self._limits = (0, 0)

    def probe(self, compute_limit: int = UNLIMITED, transfer_limit: int = UNLIMITED) -> bool:
        """Return whether a partition with all stages within the limits (in ticks) exists."""
        costs, order = self.costs, self.costs.order
        self._limits = (compute_limit, transfer_limit)
        n = costs.n
        self._placed[:] = False
        self._placed[0, n] = True
        self._lowest[:] = n + 1
        self._highest[:] = -1
        self._lowest[0] = self._highest[0] = n
        transitions = len(order.source)
        chunk = max(1, CHUNK // self._steps)
        for begin in range(0, transitions, chunk):
            if begin and self._progress is not None:
                self._progress.require_time()
            span = (begin, min(begin + chunk, transitions))
            edges = (order.source, order.target, order.device_class, self._window)
            if costs.tabular:
                kernels.place_tails_tabular(
                    *span,
                    *edges,
                    self._fits,
                    self._compute,
                    costs.recv,
                    costs.send,
                    costs.host,
                    self._mode,
                    compute_limit,
                    transfer_limit,
                    self._placed,
                )
            else:
                kernels.place_tails(
                    *span,
                    *edges,
                    self._reach,
                    costs.prefix,
                    costs.weight,
                    costs.recv,
                    costs.send,
                    costs.host,
                    costs.allowed,
                    self._mode,
                    compute_limit,
                    transfer_limit,
                    self._placed,
                    self._lowest,
                    self._highest,
                    self._queue,
                )
        return bool((self._placed[:, 0] & order.accepting).any())

    def solution(self) -> PipelineSolution:
        """Return a partition that the last successful probe found, read from the first layer on."""
        order = self.costs.order
        state = int(np.flatnonzero(self._placed[:, 0] & order.accepting)[0])
        boundaries, classes = [0], []
        while state != 0:
            state, end, device_class = next(self._next_stages(state, boundaries[-1]))
            boundaries.append(end)
            classes.append(device_class)
        return assign_devices(self.costs, boundaries, classes)

    def values(self, solution: PipelineSolution) -> tuple[int, int]:
        """Return what `solution` needs of the two limits, in ticks.

        For the objectives with one limit, that limit is the objective value and the other 0.
        """
        costs = self.costs
        compute, transfer = 0, 0
        for first, end, device in solution.stages:
            c = int(costs.device_class[device])
            work = costs.compute(first, end, c)
            if self._mode == kernels.TRANSFER_BOUNDED:
                transfer = max(transfer, costs.transfer(first, end, c))
            elif self._mode == kernels.SUM:
                work += costs.transfer(first, end, c)
            elif self._mode == kernels.OVERLAP:
                work = max(work, int(costs.recv[c, first]), int(costs.send[c, end]))
            compute = max(compute, work)
        return compute, transfer

    def _next_stages(self, state: int, first: int) -> Iterator[tuple[int, int, int]]:
        """Yield (state before, end, class) of stages that begin at `first` and lead to `state`."""
        order = self.costs.order
        for t in np.flatnonzero(order.target == state).tolist():
            source, c = int(order.source[t]), int(order.device_class[t])
            ends = first + 1 + np.flatnonzero(self._placed[source, first + 1 :])
            within = ends[self._within(int(self._window[t]), c, first, ends)]
            for end in within.tolist():
                yield source, end, c

    def _within(self, window: int, c: int, first: int, ends: Array) -> Array:
        """Return a mask of the `ends` for which the stage is within the last limits."""
        costs = self.costs
        compute_limit, transfer_limit = self._limits
        if costs.tabular:
            within = self._fits[window, first, ends]
            work = self._compute[c, first, ends]
        else:
            within = ends <= self._reach[window, first]
            work = (costs.prefix[ends] - costs.prefix[first]) * costs.weight[c]
        recv, send = costs.recv[c, first], costs.send[c, ends]
        if self._mode == kernels.SUM:
            work = work + (recv + send + costs.host)
        elif self._mode == kernels.TRANSFER_BOUNDED:
            within = within & (recv + send + costs.host <= transfer_limit)
        elif self._mode == kernels.OVERLAP:
            work = np.maximum(np.maximum(work, recv), send)
        return np.asarray(within & (work <= compute_limit))
