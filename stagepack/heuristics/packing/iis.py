"""Irreducible infeasible subsets: a small set of blocks that does not fit by itself.

If the load of a section exceeds the capacity, some of its largest blocks are the answer.
Otherwise the search that proved infeasibility is repeated without smaller and smaller groups of
blocks, as in deletion filters for irreducible infeasible subsets (Chinneck and Dravnieks 1991);
blocks without which the rest is still infeasible are dropped.
Cost: at most a given number of nodes for each of these searches.  Source: as named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.iis import reduce
from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.effort import Pause, pausing
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.progress import Stopped
from stagepack.result import Status


@dataclass(frozen=True)
class InfeasibleBlocks:
    """Blocks that cannot be packed together.

    Attributes
    ----------
    blocks : ndarray of int64
        Their indices, ascending.
    first, end : int
        They already clash within the sections [first, end).
    irreducible : bool
        Every one of them is needed: without it the others fit.  False: not proved.
    nodes : int
        Nodes searched.
    """

    blocks: Array
    first: int
    end: int
    irreducible: bool
    nodes: int


def find(
    blocks: Blocks,
    capacity: int,
    *,
    within: tuple[int, int] | None = None,
    keep_going: Callable[[], bool] | None = None,
    node_limit: int = 100_000,
    tuning: PackingTuning = TUNING,
) -> InfeasibleBlocks | None:
    """Return blocks that do not fit the capacity, as few as can be proved quickly.

    Parameters
    ----------
    blocks : Blocks
        Of the kind that the exact search supports.
    capacity : int
        Bytes.
    within : (int, int), optional
        Sections [first, end) that are known to be too full (a window).
    keep_going : callable, optional
        Asked at least every 0.2 s or so; what is found so far is returned once it says False.
    node_limit : int
        Nodes that one proof may cost.

    Returns
    -------
    InfeasibleBlocks or None
        None: nothing was proved infeasible within the limits.
    """
    try:
        pause = pausing(keep_going)
        simple = _misplaced(blocks, capacity, pause, tuning=tuning) or _overloaded(
            blocks, capacity, pause, tuning=tuning
        )
    except Stopped:
        return None
    if simple is not None:
        return simple
    return _Filter(blocks, capacity, keep_going, node_limit, tuning=tuning).run(within)


def _misplaced(
    blocks: Blocks, capacity: int, pause: Pause, *, tuning: PackingTuning
) -> InfeasibleBlocks | None:
    """Return a block that fits nowhere even alone, if any."""
    limited = (blocks.size > capacity) | (np.diff(blocks.range_ptr) > 0)
    for i in np.flatnonzero(limited).tolist():
        pause()
        packing = exact.prepared(blocks, np.array([i]), tuning=tuning)
        if packing.bound > capacity:
            pieces = slice(blocks.piece_ptr[i], blocks.piece_ptr[i + 1])
            first = int(blocks.first[pieces].min(initial=blocks.sections))
            end = int(blocks.end[pieces].max(initial=0))
            return InfeasibleBlocks(np.array([i]), min(first, end), end, True, 0)
    return None


def _overloaded(
    blocks: Blocks, capacity: int, pause: Pause, *, tuning: PackingTuning
) -> InfeasibleBlocks | None:
    """Return the fewest free blocks of one section that exceed the capacity together, if any."""
    if not blocks.rigid:
        return None  # in a section a block may hold less than its size, or share it
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    nbytes = np.where(np.diff(blocks.range_ptr) > 0, 0, blocks.size)
    nbytes[blocks.alignment > 1] = 0  # what else may stand in their way is left to the search
    best: tuple[Array, int] | None = None
    for s in np.flatnonzero(blocks.load > capacity).tolist():
        pause()
        effort.spend(tuning.prices.call + tuning.reasons.overloaded * len(blocks.first))
        members = owner[(blocks.first <= s) & (s < blocks.end)]
        members = members[np.argsort(-nbytes[members], kind="stable")]
        top = np.cumsum(nbytes[members])
        if top[-1] > capacity:
            fewest = members[: int(np.searchsorted(top, capacity, side="right")) + 1]
            if best is None or len(fewest) < len(best[0]):
                best = fewest, s
    if best is None:
        return None
    return InfeasibleBlocks(np.sort(best[0]), best[1], best[1] + 1, True, 0)


class _Filter:
    """Deletion with a limit of nodes for every proof."""

    def __init__(
        self,
        blocks: Blocks,
        capacity: int,
        keep_going: Callable[[], bool] | None,
        node_limit: int,
        *,
        tuning: PackingTuning,
    ) -> None:
        self.tuning = tuning
        self.blocks, self.capacity = blocks, capacity
        self.keep_going, self.node_limit = keep_going, node_limit
        self.nodes = 0

    def status(self, which: Array, first: int = 0, end: int = -1) -> Status:
        """Decide whether some of the blocks fit."""
        try:
            packing = exact.prepared(
                self.blocks, which, first, end, self.keep_going, tuning=self.tuning
            )
        except Stopped:
            return Status.UNKNOWN
        decision = exact.decide_packing(
            packing,
            self.capacity,
            keep_going=self.keep_going,
            node_limit=self.node_limit,
            tuning=self.tuning,
        )
        self.nodes += decision.nodes
        return decision.status

    def run(self, within: tuple[int, int] | None) -> InfeasibleBlocks | None:
        """Return what is left when nothing more can be dropped."""
        blocks = self.blocks
        first, end = within or (0, blocks.sections)
        which = np.arange(blocks.b)
        if self.status(which, first, end) is not Status.INFEASIBLE:
            return None
        if blocks.linear:
            first, end = self._narrowed(which, first, end)
        owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
        which = distinct(owner[(blocks.first < end) & (blocks.end > first)])
        # The largest blocks are tried last: they are hardly ever superfluous.
        which = which[np.argsort(blocks.size[which], kind="stable")]
        kept, proved = reduce(
            which.tolist(), lambda rest: self.status(np.array(rest)), self.keep_going
        )
        which = np.array(kept)
        if blocks.linear and (self.keep_going is None or self.keep_going()):
            first, end = self._narrowed(which, 0, blocks.sections)
        return InfeasibleBlocks(np.sort(which), first, end, proved, self.nodes)

    def _narrowed(self, which: Array, first: int, end: int) -> tuple[int, int]:
        """Return a shorter run of sections in which the blocks do not fit; bisects both ends."""
        low, high = first, end
        while low + 1 < high:
            middle = (low + high) // 2
            if self.status(which, first, middle) is Status.INFEASIBLE:
                high = middle
            else:
                low = middle
        end = high
        low, high = first, end
        while low + 1 < high:
            middle = (low + high) // 2
            if self.status(which, middle, end) is Status.INFEASIBLE:
                low = middle
            else:
                high = middle
        return low, end
