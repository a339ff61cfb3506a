"""Annealing over the orders of devices, from the best schedule known.

A state is an order for every device within its memory; its value comes from longest paths, and a
little of the mean over devices leads across the plateaus.  A move takes one operation to another
place on its device.

Cost: O(n + arcs) a move.  Source: own work; annealing over the orders of machines is usual for job
shops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from stagepack.heuristics.schedule.anneal_kernels import Walk, anneal
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule

BUDGET = 2_000_000
"""Operations and arcs looked at in a kernel call: less than a tenth of a second."""

HOT, COLD = 0.5, 0.02
"""First and last temperature of a cooling, as parts of the mean duration."""

LEGS = 20
"""Kernel calls of one cooling."""


def affordable(timing: Timing) -> bool:
    """Return whether a move takes less than a kernel call may."""
    return timing.n + timing.graph.arcs <= BUDGET


def improve(
    timing: Timing,
    order: Array,
    *,
    seed: int = 0,
    legs: int = LEGS,
    keep_going: Callable[[int], bool] | None = None,
    on_order: Callable[[Array], None] | None = None,
) -> Array:
    """Return orders at least as good as `order`, a flat array of shape (n,), after one cooling.

    The kernel minimises an energy, which is not quite the objective; what is returned, and given
    to `on_order`, has the least objective value of what it called its best, call after call.

    Parameters
    ----------
    timing : Timing
    order : ndarray of int64, shape (n,)
        Orders that are within memory.
    seed : int
    legs : int
        Kernel calls.
    keep_going : callable, optional
        Asked several times a second, with the steps since.
    on_order : callable, optional
        Called with better orders, at most once a kernel call.

    Raises
    ------
    ValueError
        When the orders contradict one another.
    """
    value = timing.value(order)
    if value is None:
        raise ValueError("the orders contradict one another")
    best = order.copy()
    graph, walk = timing.graph, _walk(timing, order, seed)
    moves = max(1, BUDGET // (timing.n + graph.arcs))
    scale = float(graph.duration[graph.row].mean())
    known = math.inf
    for leg in range(legs):
        if keep_going is not None and not keep_going(0):
            break
        before = int(walk.work[0])
        anneal(graph, walk, scale * HOT * math.pow(COLD / HOT, leg / max(1, legs - 1)), moves)
        if keep_going is not None:
            keep_going(int(walk.work[0]) - before)
        if walk.energy[1] < known:
            known = float(walk.energy[1])
            found = timing.value(walk.best)
            if found is not None and found < value:
                value, best = found, walk.best.copy()
                if on_order is not None:
                    on_order(best)
    return best


def _walk(timing: Timing, order: Array, seed: int) -> Walk:
    """Return a walk that begins at some orders."""
    operations = timing.instance.operations
    early, late = np.zeros((2, timing.n), dtype=np.int64)
    follower, visit, waits = np.zeros((3, timing.n), dtype=np.int32)
    return Walk(
        order=order.copy(),
        ptr=timing.ptr,
        position=np.argsort(order),
        stage=np.array(operations.stage),
        kind=np.array(operations.kind),
        microbatch=np.array(operations.microbatch),
        follower=follower,
        visit=visit,
        waits=waits,
        early=early,
        late=late,
        ends=np.zeros(timing.d, dtype=np.int64),
        best=order.copy(),
        energy=np.full(2, -1.0),
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
        spans=int(timing.instance.objective is Objective.SPAN),
        work=np.zeros(1, dtype=np.int64),
    )


@cache
def warm_up() -> None:
    """Run every kernel once, so that all are compiled."""
    timing = Timing(PipelineSchedule.from_arrays([1], microbatches=1))
    improve(timing, timing.flat([[0]]), legs=1)
