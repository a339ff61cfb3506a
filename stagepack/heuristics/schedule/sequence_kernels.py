"""Compiled merging of fixed sequences of F's and B's into the orders of devices.

Cost: O(n (devices + edges of a stage)).  Source: see :mod:`.sequences`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

F, B, W = range(3)

WAITS, MAKES_ROOM, AT_ONCE = range(3)
"""When W comes before what could start: never; where F lacks memory; always."""


class Merging(NamedTuple):
    """Sequences under way; int64 arrays."""

    # (d, longest): the F's and the B's of each device, in their order.
    forward: Array
    backward: Array
    counts: Array  # (d,): how many of each a device has
    # What operations wait for; see :class:`.paths_kernels.Paths`
    into_first: Array
    into_row: Array
    into_lag: Array
    split: int  # 1: there are W's
    done: Array  # (d, 3): F's, B's and W's that a device has run
    end: Array  # (n,): ends of operations; negative: not yet run
    # (d,): when each device is free, its memory, where its next operation goes in `order`.
    free: Array
    held: Array
    place: Array
    # (n,): a place for every operation of a device: F's and B's are taken while `counts` has more,
    # W's while fewer have run than B's.
    order: Array


@step
def _fits(graph: Graph, state: Merging, v: int, d: int) -> bool:
    """Whether device d has the memory to run operation v."""
    return bool(state.held[d] + max(graph.delta[graph.row[v]], 0) <= graph.limit[d])


@step
def _start(graph: Graph, state: Merging, v: int, d: int) -> int:
    """Return when operation v can start on device d; FAR: not yet known, or it does not fit."""
    if not _fits(graph, state, v, d):
        return FAR
    # What has not run yet may come at any time: v is asked about again after every operation.
    row = graph.row[v]
    found: int = state.free[d]
    for arc in range(state.into_first[row], state.into_first[row + 1]):
        before = state.into_row[arc]
        u = graph.origin[before] + v - graph.origin[row]
        if state.end[u] < 0:
            return FAR
        found = max(found, state.end[u] + state.into_lag[arc])
    return found


@step
def _choice(
    graph: Graph, state: Merging, d: int, ahead: int, patience: float, first: int, pay: int
) -> tuple[int, int, int]:
    """Return what device d does next: when, the operation and its kind; FAR: nothing yet."""
    f, b, w = state.done[d, F], state.done[d, B], state.done[d, W]
    forward = backward = FAR
    cramped = False
    if f < state.counts[d]:
        cramped = not _fits(graph, state, state.forward[d, f], d)
        if f - b < ahead:  # else it waits for a B, though it would fit
            forward = _start(graph, state, state.forward[d, f], d)
    if b < state.counts[d]:
        backward = _start(graph, state, state.backward[d, b], d)
    if state.split == 1 and w < b:
        before = state.backward[d, w]  # W's follow in the order of their B's
        row = graph.row[before] + 1
        weight = graph.origin[row] + before - graph.origin[row - 1]
        soonest = min(forward, backward)  # FAR where nothing else can run: W does at once
        if _fits(graph, state, weight, d) and (
            pay == AT_ONCE
            or (pay == MAKES_ROOM and cramped)
            or soonest > state.free[d] + patience * graph.duration[row]
        ):
            return state.free[d], weight, W
    # F and B that can start together: by the list's preference.
    if forward < backward or (forward == backward < FAR and first == F):
        return forward, state.forward[d, f], F
    if backward < FAR:
        return backward, state.backward[d, b], B
    return FAR, -1, F


def _steps(_: Graph, state: Merging, *rest: Any) -> int:
    """Return about how many steps :func:`merge` takes: all devices, for each operation."""
    return 5 * min(int(rest[-1]), len(state.order)) * len(state.counts)


@tiered(_steps)
def merge(
    graph: Graph, state: Merging, ahead: Array, patience: float, first: int, pay: int, most: int
) -> int:
    """Run whatever can start first, again and again; return how many operations that were.

    Where they are fewer than `most`, no other one can start; else it is to be called again, with
    what `state` says has run, until all have.  `ahead`, int64 (d,), are the F's of each device that
    may be ahead of its B's; a W waits for an F or a B for `patience` parts of its cycles.  `first`,
    F or B, is what comes first where both can start; `pay` is `WAITS`, `MAKES_ROOM` or `AT_ONCE`.
    """
    for count in range(most):
        soonest, v, kind, where = FAR, -1, F, -1
        # The device that can start first runs: what others start later cannot delay it.
        for d in range(len(state.counts)):
            start, candidate, its = _choice(graph, state, d, ahead[d], patience, first, pay)
            if start < soonest:
                soonest, v, kind, where = start, candidate, its, d
        if where < 0:  # all have run, or memory is stuck
            return count
        row = graph.row[v]
        state.end[v] = state.free[where] = soonest + graph.duration[row]
        state.held[where] += graph.delta[row]
        state.order[state.place[where]] = v
        state.place[where] += 1
        state.done[where, kind] += 1
    return most
