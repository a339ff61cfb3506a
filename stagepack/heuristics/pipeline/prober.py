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
        known: dict[tuple[int, int], int] = {}
        window = np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)
        reach = np.zeros((1, 1), dtype=np.int64)
        fits = np.zeros((1, 1, 1), dtype=np.bool_)
        compute = np.zeros((1, 1, 1), dtype=np.int64)
        if costs.tabular:
            fits = np.stack([costs.fits_matrix(*pair) for pair in known])
            compute = np.stack([costs.compute_matrix(c) for c in range(costs.classes)])
        else:
            reach = np.stack([costs.reach(*pair) for pair in known])
        self._chain = kernels.Chain(
            order.source,
            order.target,
            order.device_class,
            window,
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
            np.zeros((order.states, n + 1), dtype=np.bool_),
            *(np.zeros(size, dtype=np.int64) for size in (order.states, order.states, n + 2)),
            *(np.zeros(size, dtype=np.int64) for size in (order.states, order.states, 1)),
        )
        steps = n * n if costs.tabular else n  # of one transition
        self._transitions_at_once = max(1, CHUNK // steps)
        self._probes_at_once = CHUNK // (steps * len(pairs))

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

    def narrow(
        self, low: int, high: int, *, compute: int | None = None, transfer: int | None = None
    ) -> tuple[int, int]:
        """Return a shorter interval that holds the least limit that can be met, in [low, high].

        Exactly one limit is given and held; the other is bisected, by as many probes as fit
        between two looks at the clock.
        """
        on_transfer = transfer is None
        other = compute if transfer is None else transfer
        assert other is not None
        if self._probes_at_once >= 1:
            return self._kernels.narrow(
                low, high, other, on_transfer, self._probes_at_once, self._chain, self._scratch
            )
        middle = (low + high) // 2
        needs = self.probe(other, middle) if on_transfer else self.probe(middle, other)
        return (middle + 1, high) if needs is None else (low, max(low, needs[on_transfer]))

    def solution(self) -> PipelineSolution:
        """Return the partition that the last successful probe found."""
        stages = int(self._scratch.stages[0])
        ends = self._scratch.ends[:stages].tolist()
        return assign_devices(self.costs, [0, *ends], self._scratch.classes[:stages].tolist())


@functools.cache
def load_kernels() -> None:
    """Compile the kernels or load them from the cache, once per process."""
    one: Any = PipelinePartition.from_arrays([1, 1], devices=2)
    prober = Prober(RangeCosts(one))
    prober.probe()
    prober.narrow(1, 2, transfer=UNLIMITED)
