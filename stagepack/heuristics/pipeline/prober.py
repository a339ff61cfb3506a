"""One question, answered fast: is there a partition within these limits, and which?"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts, assign_devices
from stagepack.result import Progress

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
        from stagepack.heuristics.pipeline import kernels

        self.costs = costs
        self._kernels = kernels
        self._progress = progress
        self._mode: int = getattr(kernels, costs.instance.objective.name)
        order, n = costs.order, costs.n
        pairs = list(zip(order.device_class.tolist(), order.stashes.tolist(), strict=True))
        known: dict[tuple[int, int], int] = {}
        window = np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)
        self._edges = (order.source, order.target, order.device_class, window)
        if costs.tabular:
            self._fits = np.stack([costs.fits_matrix(*pair) for pair in known])
            self._compute = np.stack([costs.compute_matrix(c) for c in range(costs.classes)])
            self._reach = np.zeros((1, 1), dtype=np.int64)
        else:
            self._fits = np.zeros((1, 1, 1), dtype=np.bool_)
            self._compute = np.zeros((1, 1, 1), dtype=np.int64)
            self._reach = np.stack([costs.reach(*pair) for pair in known])
        self._transfers = (costs.recv, costs.send, costs.host)
        self._chunk = max(1, CHUNK // (n * n if costs.tabular else n))
        self._placed = np.zeros((order.states, n + 1), dtype=np.bool_)
        self._scratch = (
            np.empty(order.states, dtype=np.int64),
            np.empty(order.states, dtype=np.int64),
            np.empty(n + 2, dtype=np.int64),
        )
        self._ends = np.zeros(order.states, dtype=np.int64)
        self._classes = np.zeros(order.states, dtype=np.int64)
        self._stages = 0

    def probe(
        self, compute_limit: int = UNLIMITED, transfer_limit: int = UNLIMITED
    ) -> tuple[int, int] | None:
        """Return what a partition with all stages within the limits needs of them, or None.

        Limits and needs are in ticks.  For the objectives with a single limit that is the
        compute limit, and what is needed of it is the partition's objective value.
        """
        costs, order = self.costs, self.costs.order
        limits = (self._mode, compute_limit, transfer_limit)
        for begin in range(0, len(order.source), self._chunk):
            if begin and self._progress is not None:
                self._progress.require_time()
            end = min(begin + self._chunk, len(order.source))
            if costs.tabular:
                self._kernels.place_tails_tabular(
                    begin,
                    end,
                    *self._edges,
                    self._fits,
                    self._compute,
                    *self._transfers,
                    *limits,
                    self._placed,
                )
            else:
                self._kernels.place_tails(
                    begin,
                    end,
                    *self._edges,
                    self._reach,
                    costs.prefix,
                    *self._transfers,
                    costs.allowed,
                    *limits,
                    self._placed,
                    *self._scratch,
                )
        goals = np.flatnonzero(self._placed[:, 0] & order.accepting)
        if not len(goals):
            return None
        self._stages, compute, transfer = self._kernels.trace_back(
            int(goals[0]),
            *self._edges,
            costs.tabular,
            self._reach,
            costs.prefix,
            self._fits,
            self._compute,
            *self._transfers,
            *limits,
            self._placed,
            self._ends,
            self._classes,
        )
        return compute, transfer

    def solution(self) -> PipelineSolution:
        """Return the partition that the last successful probe found."""
        ends = self._ends[: self._stages].tolist()
        return assign_devices(self.costs, [0, *ends], self._classes[: self._stages].tolist())


@functools.cache
def load_kernels(tabular: bool) -> None:
    """Compile the kernels or load them from the cache, once per process."""
    options: dict[str, Any] = {"compute_table": np.ones((3, 3), dtype=np.int64)} if tabular else {}
    Prober(RangeCosts(PipelinePartition.from_arrays([1, 1], devices=2, **options))).probe()
