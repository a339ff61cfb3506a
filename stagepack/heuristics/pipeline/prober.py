"""Two questions, answered fast: is there a partition within these limits, and which is best?"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts, assign_devices
from stagepack.result import Progress

UNLIMITED = 2**61  # as in the kernels, which are imported only when needed
CHUNK = 20_000_000  # elementary steps between two looks at the clock: well under 0.2 s


class Prober:
    """Decides whether partitions within a compute and a transfer limit exist, and finds the best.

    A probe costs O(transitions * n) steps at most and builds nothing of size n x n; with explicit
    tables O(transitions * n^2).

    Parameters
    ----------
    costs : RangeCosts
    progress : Progress, optional
        Asked for the time between chunks of work (raises
        :class:`~stagepack.result.Stopped` when it is over).
    """

    def __init__(
        self, costs: RangeCosts, progress: Progress[PipelineSolution] | None = None
    ) -> None:
        from stagepack.heuristics.pipeline import kernels

        self.costs = costs
        self._progress = progress
        self._kernels = kernels
        order, n = costs.order, costs.n
        pairs = list(zip(order.device_class.tolist(), order.stashes.tolist(), strict=True))
        row = {pair: index for index, pair in enumerate(dict.fromkeys(pairs))}
        if costs.tabular:
            reach = np.zeros((1, 1), dtype=np.int64)
            fits = np.stack([costs.fits_matrix(*pair) for pair in row])
            compute = np.stack([costs.compute_matrix(c) for c in range(costs.classes)])
        else:
            reach = np.empty((len(row), n), dtype=np.int64)
            for pair, index in row.items():
                reach[index] = costs.reach(*pair)
            fits = np.zeros((1, 1, 1), dtype=np.bool_)
            compute = np.zeros((1, 1, 1), dtype=np.int64)
        self._chain = kernels.Chain(
            order.source,
            order.target,
            order.device_class,
            np.array([row[pair] for pair in pairs], dtype=np.int64),
            order.accepting,
            costs.tabular,
            reach,
            costs.prefix,
            fits,
            compute,
            costs.recv,
            costs.send,
            costs.host,
            costs.allowed,
            getattr(kernels, costs.instance.objective.name),
        )
        self._scratch = kernels.Scratch(
            np.empty((order.states, n + 1), dtype=np.bool_),
            np.empty(n + 2, dtype=np.int64),
            np.empty(2, dtype=np.int64),
            np.empty(1, dtype=np.int64),
            *np.empty((7, order.states), dtype=np.int64),
        )
        steps = n * n if costs.tabular else n  # of one transition
        self._transitions_at_once = max(1, CHUNK // steps)

    def probe(
        self, compute_limit: int = UNLIMITED, transfer_limit: int = UNLIMITED
    ) -> tuple[int, int] | None:
        """Return what a partition with all stages within the limits needs of them, or None.

        Limits and needs are in ticks.  For the objectives with a single limit that is the
        compute limit, and what is needed of it is the partition's objective value.
        """
        limits = (compute_limit, transfer_limit)
        transitions = len(self._chain.source)
        for begin in range(0, transitions, self._transitions_at_once):
            if begin and self._progress is not None:
                self._progress.require_time()
            end = min(begin + self._transitions_at_once, transitions)
            self._kernels.place_tails(begin, end, self._chain, *limits, self._scratch)
        compute, transfer = self._kernels.read_partition(self._chain, *limits, self._scratch)
        return None if compute < 0 else (compute, transfer)


class Search(Prober):
    """Finds the best partition, or that there is none, in steps of a fraction of a second.

    Bisects on the compute limit and, where transfers count, walks down the staircase of
    non-dominated pairs (compute, transfer) as far as they can beat the best sum.

    Parameters
    ----------
    costs : RangeCosts
    compute_floor, transfer_floor : int
        No partition needs less of the two limits, in ticks.

    Attributes
    ----------
    done, infeasible : bool
        Whether `best` is proved to be the least, whether there is no partition.
    best : int or None
        Value of the best partition met, in ticks.
    bound : int
        Safe lower bound on all partitions, in ticks.
    """

    def __init__(self, costs: RangeCosts, compute_floor: int, transfer_floor: int = 0) -> None:
        super().__init__(costs)
        self._state = self._kernels.first_state(compute_floor, transfer_floor)
        self.done = self.infeasible = False
        self.best: int | None = None
        self.bound = compute_floor + transfer_floor

    def go_on(self) -> None:
        """Search for another fraction of a second."""
        kernels = self._kernels
        kernels.search(self._state, CHUNK, self._chain, self._scratch)
        state = self._state.tolist()
        self.done = state[kernels.PHASE] == kernels.DONE
        self.infeasible = state[kernels.PHASE] == kernels.INFEASIBLE
        if state[kernels.STAGES]:
            floors = state[kernels.COMPUTE_FLOOR] + state[kernels.TRANSFER_FLOOR]
            self.best = state[kernels.BEST]
            self.bound = self.best if self.done else min(self.best, floors)

    def partition(self) -> PipelineSolution:
        """Return the best partition met."""
        stages = int(self._state[self._kernels.STAGES])
        ends = self._scratch.best_ends[:stages].tolist()
        classes = self._scratch.best_classes[:stages].tolist()
        return assign_devices(self.costs, [0, *ends], classes)


@functools.cache
def load_kernels() -> None:
    """Compile the kernels or load them from the cache, once per process."""
    one: Any = PipelinePartition.from_arrays([1, 1], devices=2)
    search = Search(RangeCosts(one), 1)
    search.probe()
    search.go_on()
