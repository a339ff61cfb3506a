"""Annealing over the orders of devices, with runs of different temperature, weight and start.

A state is an order for each device that respects its memory; its value follows from longest paths.
Since most moves do not change the value, the energy also includes a measure of criticality: the
mean excess, over a bound, of the longest paths through operations.  This guides the search across
plateaus.  A move takes one operation of a long path to another place on its device.

Cost: a move examines the operations that it changes, some percent of all; see
:mod:`.paths_kernels`.  Source: own work; annealing over the orders of machines is usual for job
shops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.anneal_kernels import Walk, anneal
from stagepack.heuristics.schedule.paths_kernels import Paths
from stagepack.heuristics.schedule.timing import Timing, entering
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective

BUDGET = 2_000_000
"""Steps of a kernel call, and operations and arcs of an instance: a hundredth of a second."""


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

CALLS = 100
"""Kernel calls that a cooling of the first turn takes at most."""

EACH = 10
"""Moves of it for each operation, at least `Cooling.moves`."""

MEAN = 1_000
"""Operations from which on mean excess counts more, for each, as a move changes less of it."""

LONGER = 1.7
"""How many times as many moves as those of one turn the coolings of the next have."""


def cooling(number: int, timing: Timing) -> Cooling:
    """Return the settings of a cooling by its number.

    Some percent of all operations are looked at in a move, which takes about as many steps as
    there are.
    """
    turn, kind = divmod(number, len(KINDS))
    heat, weight = KINDS[kind]
    most = min(max(Cooling().moves, EACH * timing.n), CALLS * BUDGET // timing.n)
    weight *= max(1.0, timing.n / MEAN)
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
    settings = settings or Cooling()
    graph, walk = timing.graph, _walk(timing, order, seed, least, settings.weight)
    heat = settings.heat * float(graph.duration[graph.row].mean())
    ratio = COOLED ** (1 / settings.moves)
    known, done = int(walk.value[1]), 0
    while done < settings.moves and value > least and (keep_going is None or keep_going(0)):
        before = int(walk.paths.work[0])
        left, now = settings.moves - done, heat * ratio**done
        done += anneal(graph, walk, now, ratio, settings.weight, least, left, BUDGET)
        if keep_going is not None:
            keep_going(int(walk.paths.work[0]) - before)
        if walk.value[1] < known:
            known = int(walk.value[1])
            found = timing.value(walk.best)
            if found is not None and found < value:
                value, best = found, walk.best.copy()
                if on_order is not None:
                    on_order(best)
        if walk.value[1] <= least:
            break
    return best


def _walk(timing: Timing, order: Array, seed: int, least: int, weight: float) -> Walk:
    """Return a walk that begins at some orders, which do not contradict one another."""
    operations, n = timing.instance.operations, timing.n
    graph, spans = timing.graph, timing.instance.objective is Objective.SPAN
    into_first, into_row, into_lag = entering(timing.instance)
    start = timing.earliest(order)
    assert start is not None
    early, device = start.copy(), graph.device[graph.row]
    first, last = order[timing.ptr[:-1]], order[timing.ptr[1:] - 1]
    ends = early[last] + graph.duration[graph.row[last]]
    values = ends + graph.rest
    if not spans:
        ends = -graph.rest
    late = timing.latest(ends).copy()
    values -= late[first] if spans else 0
    span = values.copy() if spans else np.zeros_like(ends)
    excess = np.maximum(0, span[device] + early - late - least)
    total, value = excess.sum(keepdims=True), np.full(2, values.max())
    # An operation is at most once in the heap, and noted at most once in a move.
    heap, key, swapped = np.zeros((3, n), dtype=np.int64)
    noted, before, stamp = np.zeros((3, 2, n), dtype=np.int64)
    paths = Paths(
        order=order.copy(),
        ptr=timing.ptr,
        position=np.argsort(order),
        into_first=into_first,
        into_row=into_row,
        into_lag=into_lag,
        early=early,
        late=late,
        ends=ends,
        span=span,
        excess=excess,
        total=total,
        noted=noted,
        before=before,
        stamp=stamp,
        heap=heap,
        key=key,
        inside=np.zeros(n, dtype=np.int8),
        counts=np.zeros(4, dtype=np.int64),
        spans=int(spans),
        work=np.zeros(1, dtype=np.int64),
    )
    return Walk(
        paths=paths,
        stage=np.array(operations.stage),
        kind=np.array(operations.kind),
        microbatch=np.array(operations.microbatch),
        swapped=swapped,
        best=order.copy(),
        value=value,
        energy=value[:1] + weight * total / n,
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
    )
