"""Annealing over the orders of devices: coolings that differ in heat, weight and start.

A state is an order for every device within its memory; its value comes from longest paths.  Most
moves leave the value as it is, so that the energy also counts how much is critical: by how much
longest paths through operations exceed a bound, in the mean.  That leads across plateaus, where
the mean end barely changes.  A move takes one operation of a long path to another place on its
device.

Cost: O(n + arcs) a move.  Source: own work; annealing over the orders of machines is usual for job
shops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.anneal_kernels import Walk, anneal
from stagepack.heuristics.schedule.timing import Timing, entering
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule

BUDGET = 2_000_000
"""Operations and arcs looked at in a kernel call: less than a tenth of a second."""


class Cooling(NamedTuple):
    """One descent of the temperature.

    Attributes
    ----------
    heat : float
        First temperature, as a part of the mean duration; the last is `COOLED` of it.
    weight : float
        What mean excess counts beside the objective.
    moves : int
    """

    heat: float = 0.2
    weight: float = 4.0
    moves: int = 10_000


COOLED = 1 / 30

KINDS = ((0.2, 4.0), (1.2, 2.0), (0.6, 1.0), (1.2, 1.0), (0.06, 4.0), (0.6, 4.0))
"""Heats and weights of coolings in turn."""

CALLS = 50
"""Kernel calls that a cooling of the first turn takes at most."""

LONGER = 1.7
"""How many times as many moves as those of one turn the coolings of the next have."""


def cooling(number: int, timing: Timing) -> Cooling:
    """Return the settings of a cooling by its number; moves get dear in large instances."""
    turn, kind = divmod(number, len(KINDS))
    heat, weight = KINDS[kind]
    most = min(Cooling().moves, CALLS * BUDGET // (2 * (timing.n + timing.graph.arcs)))
    return Cooling(heat, weight, int(max(1, most) * LONGER ** min(turn, 12)))


def affordable(timing: Timing) -> bool:
    """Return whether a move takes less than a kernel call may."""
    return timing.n + timing.graph.arcs <= BUDGET


def improve(
    timing: Timing,
    order: Array,
    *,
    seed: int = 0,
    settings: Cooling | None = None,
    least: int = 0,
    keep_going: Callable[[int], bool] | None = None,
    on_order: Callable[[Array], None] | None = None,
) -> Array:
    """Return orders at least as good as `order`, a flat array of shape (n,), after one cooling.

    The kernel may take spans for longer than they are; what is returned, and given to `on_order`,
    has the least objective value of what it called its best, call after call.

    Parameters
    ----------
    timing : Timing
    order : ndarray of int64, shape (n,)
        Orders that are within memory.
    seed : int
    settings : Cooling, optional
    least : int
        A bound on the objective, at which it ends.
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
    settings = settings or Cooling()
    heat = settings.heat * float(graph.duration[graph.row].mean())
    ratio = COOLED ** (1 / settings.moves)
    together = max(1, BUDGET // (2 * (timing.n + graph.arcs)))
    known = value
    for done in range(0, settings.moves, together):
        if value <= least or (keep_going is not None and not keep_going(0)):
            break
        before = int(walk.work[0])
        moves = min(together, settings.moves - done)
        anneal(graph, walk, heat * ratio**done, ratio, settings.weight, least, moves)
        if keep_going is not None:
            keep_going(int(walk.work[0]) - before)
        if walk.value[1] < known:
            known = int(walk.value[1])
            found = timing.value(walk.best)
            if found is not None and found < value:
                value, best = found, walk.best.copy()
                if on_order is not None:
                    on_order(best)
    return best


def _walk(timing: Timing, order: Array, seed: int) -> Walk:
    """Return a walk that begins at some orders."""
    operations = timing.instance.operations
    into_first, into_row, into_lag = entering(timing.instance)
    follower, visit, waits = np.zeros((3, timing.n), dtype=np.int32)
    return Walk(
        order=order.copy(),
        ptr=timing.ptr,
        position=np.argsort(order),
        stage=np.array(operations.stage),
        kind=np.array(operations.kind),
        microbatch=np.array(operations.microbatch),
        into_first=into_first,
        into_row=into_row,
        into_lag=into_lag,
        follower=follower,
        visit=visit,
        waits=waits,
        early=np.zeros((2, timing.n), dtype=np.int64),
        late=np.zeros((2, timing.n), dtype=np.int64),
        ends=np.zeros(timing.d, dtype=np.int64),
        span=np.zeros((2, timing.d), dtype=np.int64),
        side=np.zeros(1, dtype=np.int64),
        best=order.copy(),
        value=np.full(2, -1, dtype=np.int64),
        energy=np.zeros(1),
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
        spans=int(timing.instance.objective is Objective.SPAN),
        work=np.zeros(1, dtype=np.int64),
    )


@cache
def warm_up() -> None:
    """Run every kernel once, so that all are compiled."""
    timing = Timing(PipelineSchedule.from_arrays([1], microbatches=1))
    improve(timing, timing.flat([[0]]), settings=Cooling(moves=1), least=-1)
