"""Answers two questions: does a partition within given limits exist, and which one is best?

The kernels run in chunks, and the clock is checked between them.  If transfers are limited, cuts
that no stage can afford are removed from the chain first.  Cost: see :mod:`.kernels`.  Source: own
work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.effort import SHORT, spend
from stagepack.heuristics.pipeline.tuning import TUNING, ProbeTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.costs import blocks
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress

if TYPE_CHECKING:
    from stagepack.heuristics.pipeline.kernels import Chain

UNLIMITED = 2**61  # as in the kernels, which are imported only when needed


class Prober:
    """Decides whether partitions within a compute and a transfer limit exist, and finds the best.

    A probe costs O(transitions * n) steps and bytes at most, far fewer near the optimum, where
    stages leave each other little room, and builds nothing of size n x n; with explicit tables
    O(transitions * n^2).  Where transfers are limited, cuts that no stage could afford are left out
    of the chain first, and the chain is kept for the next probe.

    `progress` is asked for the time between chunks of work (it raises
    :class:`~stagepack.progress.Stopped` when it is over); `chain` is the instance as the kernels
    see it.
    """

    def __init__(
        self,
        costs: RangeCosts,
        progress: Progress[PipelineSolution] | None = None,
        tuning: ProbeTuning = TUNING.probes,
    ) -> None:
        from stagepack.heuristics.pipeline import kernels

        self.costs = costs
        self._kernels = kernels
        self._progress, self._tuning = progress, tuning
        self.chain = chain = self._chain()
        self._mode = kernels.BOTTLENECK if costs.tabular else chain.mode
        self._cuts = np.arange(costs.n + 1, dtype=np.int32)
        self._chains = {UNLIMITED: (chain, self._cuts)}
        # Of partitions, too: a stage leads from each state to another, and never back.
        (lowest, highest, ahead, behind, offset, *partitions) = np.empty(
            (9, costs.order.states), dtype=np.int64
        )
        # By cells and cuts of a chain: a limit on compute within which probes look at no more.
        self._modest: dict[tuple[int, int], int] = {}
        self._scratch = kernels.Scratch(
            np.empty(0, dtype=np.bool_),
            np.empty(costs.n + 2, dtype=np.int64),  # every end queues once
            np.empty(2, dtype=np.int64),
            lowest,
            highest,
            ahead,
            behind,
            np.zeros((2, len(chain.source)), dtype=np.int64),
            offset,
            np.empty(5, dtype=np.int64),
            *partitions,
        )

    def _chain(self) -> Chain:
        """Return the instance as the kernels see it."""
        kernels, costs, order = self._kernels, self.costs, self.costs.order
        most = int(order.stashes.max()) + 1
        kinds = order.device_class * most + order.stashes
        if (kinds == kinds[0]).all():  # sooner asked than sorted
            kinds, window = kinds[:1], np.zeros(len(kinds), dtype=np.int64)
        else:
            kinds, window = np.unique(kinds, return_inverse=True)
        pairs = [divmod(kind, most) for kind in kinds.tolist()]
        reach = np.zeros((1, 1), dtype=np.int32)
        fits, compute = np.zeros((1, 1, 1), dtype=np.bool_), np.zeros((1, 1, 1), dtype=np.int64)
        extra = compute
        if costs.tabular and costs.instance.objective is Objective.TRANSFER_BOUNDED:
            none = [np.zeros((costs.n + 1, costs.n + 1), dtype=np.int64)] * costs.classes
            extra = self._rows(costs.extra or none)
        if costs.tabular:
            fits = self._rows([costs.fits_matrix(c, s, self._pause) for c, s in pairs])
            every = range(costs.classes)
            compute = self._rows([costs.compute_matrix(c, self._pause) for c in every])
        else:
            reach = self._reach(pairs)
        self._pause()
        chain: Chain = kernels.Chain(
            order.source,
            order.target,
            order.device_class,
            window.astype(np.int64),
            order.arrivals,
            order.accepting,
            *order.fewest_stages,
            costs.tabular,
            reach,
            costs.prefix,
            fits,
            compute,
            extra,
            costs.recv,
            costs.send,
            costs.host,
            costs.allowed,
            getattr(kernels, costs.instance.objective.name, kernels.BOTTLENECK),
            UNLIMITED,
        )
        return chain

    def _rows(self, matrices: list[Array]) -> Array:
        """Return matrices as one array, without a copy where there is only one."""
        if len(matrices) == 1:
            return matrices[0][None]
        found = np.empty((len(matrices), *matrices[0].shape), dtype=matrices[0].dtype)
        for copy, matrix in zip(found, matrices, strict=True):
            for rows in blocks(self.costs.n, self._pause):
                copy[rows] = matrix[rows]
        return found

    def _reach(self, pairs: list[tuple[int, int]]) -> Array:
        """Return how far stages reach from each layer, a row for each device class and stashes."""
        n = self.costs.n
        if 4 * len(pairs) * n > self._tuning.window_limit:
            raise InputError(
                f"{len(pairs):,} numbers of stashed microbatches for {n:,} layers take more "
                f"than {self._tuning.window_limit / 2**30:.0f} GiB of windows",
                field="microbatches",
                remedy="use fewer devices or microbatches, or join layers",
            )
        reach = np.empty((len(pairs), n), dtype=np.int32)
        for row, pair in zip(reach, pairs, strict=True):
            row[:] = self.costs.reach(*pair, self._pause)
            self._spend(n)
        return reach

    def probe(
        self, compute_limit: int = UNLIMITED, transfer_limit: int = UNLIMITED
    ) -> tuple[int, int] | None:
        """Return what a partition with all stages within the limits needs of them, or None.

        Limits and needs are in ticks.  For the objectives with a single limit that is the
        compute limit, and what is needed of it is the partition's objective value.
        """
        kernels, reading = self._kernels, self._scratch.reading
        state = kernels.probe_state(kernels.ONE_PROBE, compute_limit, transfer_limit)
        chain, self._cuts = self._affordable(compute_limit, transfer_limit)
        while state[kernels.PHASE] < kernels.DONE:
            steps = self._search(state, chain)
            self._require_cells(int(state[kernels.CELLS]))
            self._spend(steps)
        return None if reading[0] < 0 else (int(reading[3]), int(reading[4]))

    def cells(self, compute_limit: int, transfer_limit: int) -> int:
        """Return at how many layers, of all stages, such a probe would look."""
        kernels = self._kernels
        state = kernels.probe_state(kernels.MEASURE, compute_limit, transfer_limit)
        chain, _ = self._affordable(compute_limit, transfer_limit)
        self._search(state, chain)
        return int(state[kernels.CELLS])

    def _search(self, state: Array, chain: Chain) -> int:
        """Go on for a fraction of a second, the first moment by itself; return the steps taken."""
        steps, chunk = 0, self._tuning.steps_at_once
        for most in (min(SHORT, chunk), chunk):
            left = self._kernels.search(state, most - steps, chain, self._scratch)
            steps = most - left
            if left > 0:
                break
        return steps

    def looks_at_more(self, cells: int, compute_limit: int, transfer_limit: int) -> bool:
        """Return whether such a probe would look at more than so many; sooner known than told.

        The probe allows `compute_limit` and `transfer_limit` ticks; `cells` is how many.
        """
        chain, _ = self._affordable(compute_limit, transfer_limit)
        known = cells, len(chain.allowed)
        every = len(chain.allowed) * self.costs.order.states
        if every <= cells or compute_limit <= self._modest.get(known, -1):
            return False
        more = self.cells(compute_limit, transfer_limit) > cells
        if not more:
            self._modest[known] = compute_limit
        return more

    @property
    def next_compute(self) -> int:
        """Below this limit on compute, nothing more could have been placed by the last probe."""
        return int(self._scratch.next_limits[0])

    def partition(self) -> PipelineSolution:
        """Return the partition that the last probe found."""
        stages = int(self._scratch.reading[2])
        ends = self._cuts[self._scratch.ends[:stages]].tolist()
        return self.costs.partition([0, *ends], self._scratch.classes[:stages].tolist())

    def _affordable(self, compute_limit: int, transfer_limit: int) -> tuple[Chain, Array]:
        """Return the chain without cuts that exceed the limits, and what cuts it has.

        Of the chains kept, the shortest that will do serves where it is not much too long; else
        it is shortened and kept, too.  O(classes * n) then.
        """
        kernels = self._kernels
        host = 0 if self._mode == kernels.OVERLAP else self.costs.host
        if self._mode == kernels.BOTTLENECK:
            limit = UNLIMITED
        else:
            limit = transfer_limit if self._mode == kernels.TRANSFER_BOUNDED else compute_limit
        most = min(known for known in self._chains if known >= limit)
        chain, cuts = self._chains[most]
        if 2 * limit > most or len(cuts) < self._tuning.fewest_cuts:
            return chain, cuts
        self._chains[limit] = chain, cuts
        few = slice(None, None, 1 + len(cuts) // self._tuning.cuts_sampled)
        affordable = chain.allowed[few] & (self._needed(chain, few) + host <= limit)
        if affordable.mean() >= self._tuning.useful_share:
            return chain, cuts  # which costs little to see
        needed = self._needed(chain, slice(None)) + host
        dear = needed > limit
        dear[[0, -1]] = False
        useful = chain.allowed & ~dear
        if useful.mean() < self._tuning.useful_share:
            if self._mode != kernels.TRANSFER_BOUNDED:
                omitted = needed[chain.allowed & dear].min(initial=chain.omitted)
                chain = chain._replace(omitted=int(omitted))
            self._chains[limit] = self._shortened(chain, useful), cuts[useful]
        return self._chains[limit]

    def _needed(self, chain: Chain, cuts: slice) -> Array:
        """Return what some of the cuts take of a limit at least, on any device."""
        return np.maximum(self._least(chain.recv[:, cuts]), self._least(chain.send[:, cuts]))

    def _least(self, rows: Array) -> Array:
        """Return the least entry of each column."""
        least: Array = rows[0].copy()
        for row in rows[1:]:
            np.minimum(least, row, out=least)
            self._spend(len(row))
        return least

    def _shortened(self, chain: Chain, useful: Array) -> Chain:
        """Return the chain with some of its cuts: the layers between two of them become one."""
        kept = np.flatnonzero(useful)
        self._spend(4 * len(useful))
        last = np.cumsum(useful, dtype=np.int32) - 1
        reach = np.empty((len(chain.reach), len(kept) - 1), dtype=np.int32)
        for row, whole in zip(reach, chain.reach, strict=True):
            row[:] = last[whole[kept[:-1]]]
            self._spend(2 * len(kept))
        return chain._replace(
            reach=reach,
            prefix=chain.prefix.take(kept, axis=1),
            recv=chain.recv.take(kept, axis=1),
            send=chain.send.take(kept, axis=1),
            allowed=np.ones(len(kept), dtype=np.bool_),
        )

    def _spend(self, steps: int) -> None:
        """Count steps of work, and ask whether to go on."""
        spend(steps * self._tuning.step_seconds)
        if self._progress is not None:
            self._progress.require_time()

    def _pause(self) -> None:
        self._spend(0)

    def _require_cells(self, cells: int) -> None:
        """Make room for so many cells."""
        if cells > self._tuning.cell_limit:
            raise InputError(
                f"{self.costs.n:,} layers on {self.costs.k:,} devices need {cells:,} cells, more "
                f"than {self._tuning.cell_limit:,}",
                field="method dp",
                remedy="use fewer devices, join layers, or use bisect where it applies",
            )
        if cells > len(self._scratch.cells):
            # A little more, so that the next probes need no room again.
            room = np.empty(min(self._tuning.cell_limit, cells + cells // 4), dtype=np.bool_)
            self._scratch = self._scratch._replace(cells=room)


class LeastLimit(Prober):
    """Finds the least limit on compute, or that there is none, in steps of a fraction of a second.

    No partition needs less of the limit than `floor`, some partition needs `known`; only partitions
    at `cuts`, bool of shape (n + 1,), of those allowed, are looked at.

    `best` is what the best partition met needs, and `bound` what all need at least, in ticks.
    `done`: `best` is proved to be the least; `infeasible`: there is no partition.
    """

    def __init__(
        self,
        costs: RangeCosts,
        floor: int,
        progress: Progress[PipelineSolution] | None = None,
        known: int | None = None,
        cuts: Array | None = None,
        tuning: ProbeTuning = TUNING.probes,
    ) -> None:
        super().__init__(costs, progress, tuning)
        if cuts is not None:
            whole, _ = self._chains[UNLIMITED]
            self._cuts = np.flatnonzero(cuts).astype(np.int32)
            self._chains = {UNLIMITED: (self._shortened(whole, cuts), self._cuts)}
        self._state = self._kernels.first_state(floor, UNLIMITED if known is None else known)
        self._lower_aims = 3
        self._best_cuts = self._cuts
        self.done = self.infeasible = False
        self.best: int | None = None
        self.bound = floor

    def begins_with_more(self, cells: int) -> bool:
        """Return whether the first probe looks at more than so many layers, of all stages."""
        first_limit = int(self._state[self._kernels.COMPUTE])
        return self.looks_at_more(cells, first_limit, UNLIMITED)

    def go_on(self) -> None:
        """Search for another fraction of a second."""
        kernels, own = self._kernels, self._state
        chain, self._cuts = self._affordable(int(own[kernels.COMPUTE]), UNLIMITED)
        if own[kernels.PROBES] == 0:
            shorter = self._mode in (kernels.SUM, kernels.OVERLAP)
            shorter = shorter and self.costs.n >= self._tuning.fewest_cuts
            own[kernels.PROBES] = 1 if shorter else UNLIMITED
        steps = self._search(own, chain)
        state = own.tolist()
        if state[kernels.CELLS] > len(self._scratch.cells):
            self._make_room(state)
        self.done = state[kernels.PHASE] == kernels.DONE
        self.infeasible = state[kernels.PHASE] == kernels.INFEASIBLE
        self.bound = state[kernels.FLOOR]
        if state[kernels.STAGES] and state[kernels.BEST] != self.best:
            self.best, self._best_cuts = state[kernels.BEST], self._cuts
        # Callers take what was found before they ask for time.
        spend(steps * self._tuning.step_seconds)

    def _make_room(self, state: list[int]) -> None:
        """Provide cells, or let the first probe, which only looks for a start, aim lower."""
        kernels = self._kernels
        spare = state[kernels.COMPUTE] - state[kernels.FLOOR]
        first = state[kernels.PHASE] == kernels.FIRST
        aim = 8 if self._lower_aims > 0 else 2
        limits, aims = self._tuning, self._lower_aims
        most = limits.first_cell_limit if aims > 0 else limits.cell_limit
        if state[kernels.CELLS] > most and first and spare > 0 and aims > -limits.lower_aims:
            self._lower_aims -= 1
            self._state[kernels.COMPUTE] -= spare - spare // aim
        else:
            self._require_cells(state[kernels.CELLS])

    def best_partition(self) -> PipelineSolution:
        """Return the partition that needs `best`."""
        stages = int(self._state[self._kernels.STAGES])
        ends = self._best_cuts[self._scratch.best_ends[:stages]].tolist()
        classes = self._scratch.best_classes[:stages].tolist()
        return self.costs.partition([0, *ends], classes)
