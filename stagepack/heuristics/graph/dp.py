"""Exact partitions: first along single orders, then over all ideals.

If memory is limited, every block without time but with a few bytes may double the number of ideals.
The program therefore first ignores the bytes of the lightest such blocks.  If the optimum of this
relaxation is no better than the best known partition, that partition is optimal.  Otherwise the
optimum is a bound, or even a partition that satisfies the limits; then fewer blocks are ignored.

Cost and source: see :mod:`.ideals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.graph import stage_kernels as kernels
from stagepack.heuristics.graph.ideals import Lattice, TooManyError
from stagepack.heuristics.graph.pairs import least_sum
from stagepack.heuristics.graph.reduction import idle, most_held
from stagepack.heuristics.graph.rooms import least_limit
from stagepack.heuristics.graph.stage_kernels import FAR
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING, GraphTuning
from stagepack.heuristics.graph.ways import states
from stagepack.instances.graph import Compact, Objective


def solve(
    compact: Compact,
    known: int,
    pause: Callable[[], object],
    found: Callable[[Staging, Found], bool],
    bound: Callable[[int], object],
    listed: Callable[[int], object] = lambda count: None,
    tuning: GraphTuning = TUNING,
) -> bool:
    """Find and prove the best partition; return False when there is none.

    `known` is what some partition is worth in ticks, `FAR` where none is known.  `pause` is called
    between chunks of work; what it raises ends the search.  `found` is told of a staging and a
    better partition, that may need too much memory, and returns whether it does not; `bound` that
    no partition is under so many ticks; `listed` how many ideals there are, before they are swept.
    Raises `TooManyError` when there are too many ideals, or kinds of devices.
    """
    count = states(compact)
    if count > tuning.ideals.most_states:
        kinds = len(compact.class_count)
        raise TooManyError(
            f"{count:,} ways to choose among devices of {kinds:,} kinds are too many"
        )
    floor = 0
    for light in _levels(compact):
        staging = Staging.of(compact, light=light, tuning=tuning)
        staging.prepare(pause)
        best = _best(staging, known, pause, listed)
        if best is None:
            bound(known)
            return known < FAR
        floor = max(floor, best.whole)
        bound(floor)
        if found(staging, best):
            return True
    raise AssertionError("without light blocks a partition keeps all limits")


def _best(
    staging: Staging,
    known: int,
    pause: Callable[[], object],
    listed: Callable[[int], object],
) -> Found | None:
    """Return the best partition if it is better than what is known."""
    lattice = Lattice(staging, pause)
    listed(lattice.count)
    if staging.mode != kernels.FORWARD_BACKWARD:
        return lattice.best(known)
    first, value = (least_limit(staging.rooms, limit) for limit in (kernels.FIRST, kernels.VALUE))
    return least_sum(lattice.best, first, value, known)


def _levels(compact: Compact) -> Iterator[int]:
    """Yield the bytes up to which blocks count as light: all sizes, fewer, at last none."""
    short = idle(compact, FAR) & ~idle(compact)
    if compact.objective != Objective.MEMORY and short.any():
        sizes = np.unique(most_held(compact)[short])
        yield from np.unique(sizes[[-1, len(sizes) // 2, 0]])[::-1].tolist()
    yield 0
