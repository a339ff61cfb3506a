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

from stagepack.heuristics.effort import SHORT
from stagepack.heuristics.schedule.anneal_kernels import Walk, anneal
from stagepack.heuristics.schedule.paths_kernels import Paths
from stagepack.heuristics.schedule.timing import Timing, entering
from stagepack.heuristics.schedule.tuning import TUNING, AnnealingTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective


class Cooling(NamedTuple):
    """One descent of the temperature."""

    heat: float  # first temperature, as a part of the mean duration; the last is `cooled` of it
    weight: float  # what mean excess counts beside the objective
    moves: int  # moves from the first temperature to the last


def cooling(number: int, timing: Timing, tuning: AnnealingTuning = TUNING.annealing) -> Cooling:
    """Return the settings of a cooling by its `number`, how many came before it.

    Some percent of all operations are looked at in a move, which takes about as many steps as there
    are: large instances have fewer moves.
    """
    turn, kind = divmod(number, len(tuning.heats))
    most = max(tuning.moves, tuning.each * timing.n)
    most = min(most, tuning.calls * tuning.steps // timing.n)
    weight = tuning.weights[kind] * max(1.0, timing.n / tuning.mean)
    return Cooling(tuning.heats[kind], weight, max(1, int(most * tuning.longer ** min(turn, 12))))


def affordable(timing: Timing, tuning: AnnealingTuning = TUNING.annealing) -> bool:
    """Return whether a move takes less than a kernel call may."""
    return timing.n + timing.graph.arcs <= tuning.steps


def improve(
    timing: Timing,
    order: Array,
    *,
    seed: int = 0,
    settings: Cooling | None = None,
    least: int = 0,
    keep_going: Callable[[int], bool] | None = None,
    on_order: Callable[[Array], None] | None = None,
    tuning: AnnealingTuning = TUNING.annealing,
) -> Array:
    """Return orders at least as good as `order`, a flat array of shape (n,), after one cooling.

    The kernel may take spans for longer than they are; what is returned, and given to `on_order`,
    at most once a kernel call, has the least objective value of what it called its best, call after
    call.  `order` is within memory; `ValueError` is raised when its orders contradict one another.
    The moves follow from `seed`; `settings` are the first of :func:`cooling` when absent.  It ends
    at `least`, a bound on the objective.  `keep_going` is asked several times a second, with the
    steps since.
    """
    value = timing.value(order)
    if value is None:
        raise ValueError("the orders contradict one another")
    best = order.copy()
    settings = settings or cooling(0, timing, tuning)
    graph, walk = timing.graph, _walk(timing, order, seed, least, settings.weight, tuning)
    heat = settings.heat * float(graph.duration[graph.row].mean())
    ratio = tuning.cooled ** (1 / settings.moves)
    known, done, steps = int(walk.value[1]), 0, min(SHORT, tuning.steps)
    while done < settings.moves and value > least and (keep_going is None or keep_going(0)):
        before = int(walk.paths.work[0])
        left, now = settings.moves - done, heat * ratio**done
        done += anneal(graph, walk, now, ratio, settings.weight, least, left, steps)
        steps = tuning.steps
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


def _walk(
    timing: Timing,
    order: Array,
    seed: int,
    least: int,
    weight: float,
    tuning: AnnealingTuning = TUNING.annealing,
) -> Walk:
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
        patience=tuning.patience * n,
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
        drawn=tuning.drawn,
        tried=tuning.tried,
        slack=tuning.slack,
        energy=value[:1] + weight * total / n,
        random=np.random.default_rng(seed).integers(1, 1 << 63, size=1, dtype=np.uint64),
    )
