"""Compiled annealing over the orders of devices; each move shifts one critical operation.

If an operation passes another one of its kind, the two may also be exchanged on the devices before
and behind: two microbatches that pass devices one after the other keep their order everywhere or
nowhere.

The energy is the objective plus a small weight on the number of critical operations.  Cost: see
:mod:`.paths_kernels`.  Source: see :mod:`.annealing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.random_kernels import draw
from stagepack.heuristics.schedule import paths_kernels as kernels
from stagepack.heuristics.schedule.paths_kernels import EARLY, LATE, Limits, Paths
from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.heuristics.schedule.timing_kernels import target as reached
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step, tiered

DRAW, MOVE = 2, 20
"""Steps of looking whether an operation can move, and of any move."""


class Walk(NamedTuple):
    """An annealing under way; int64 arrays unless stated otherwise."""

    paths: Paths  # the orders, and longest paths
    # (n,): of each operation.
    stage: Array
    kind: Array
    microbatch: Array
    # (n,): places in the order of operations that changed places with the next one, in turn: no
    # more do than there is room for.
    swapped: Array
    best: Array  # (n,): the orders of least value met
    value: Array  # (2,): objective value of the orders and of `best`
    energy: Array  # float64 (1,): of the orders at hand: value, and mean excess times its weight
    random: Array  # uint64 (1,): state of the generator
    # Operations drawn until one is critical, and critical ones tried until one can move.
    drawn: int
    tried: int
    # Part of all excess by which a move may exceed what is allowed, on its way to be within it.
    slack: float


@step
def _shift(order: Array, position: Array, source: int, target: int) -> None:
    """Move the operation at place `source` to place `target`; those between make room."""
    v = order[source]
    # Everything between makes one step towards the place that is left.
    step = 1 if target > source else -1
    at = source
    while at != target:
        order[at] = order[at + step]
        position[order[at]] = at
        at += step
    order[target] = v
    position[v] = target


@step
def _fits(graph: Graph, paths: Paths, d: int) -> bool:
    """Whether a device keeps within its memory."""
    held, limit = 0, graph.limit[d]
    low, high = paths.ptr[d], paths.ptr[d + 1]
    paths.work[0] += (high - low) // 6  # measured: a sum is far cheaper than a step
    for at in range(low, high):
        # What is given back is so at the end: nothing runs beside it, so the sum is enough.
        held += graph.delta[graph.row[paths.order[at]]]
        if held > limit:
            return False
    return True


@step
def _critical(graph: Graph, walk: Walk, threshold: int) -> int:
    """Return an operation on a path of at least `threshold`; -1 when none was drawn."""
    paths = walk.paths
    # Spans also shrink where devices start later, which no critical path shows: half at random.
    if paths.spans == 1 and draw(walk.random, 2) == 0:
        return draw(walk.random, len(paths.order))
    for _ in range(walk.drawn):
        v = draw(walk.random, len(paths.order))
        paths.work[0] += 1
        length = paths.span[graph.device[graph.row[v]]] + paths.early[v] - paths.late[v]
        if length >= threshold:
            return v
    return -1


@step
def _place(graph: Graph, walk: Walk, v: int) -> int:
    """Return the place that operation v may move to, its own when there is none.

    It does not pass one of its stage of the same kind or microbatch.  For makespans it moves only
    where no gap is, and does not pass what it could not start before, or what could not start
    before its end; for spans, whose devices may start later, times say less.
    """
    paths = walk.paths
    early, late = paths.early, paths.late
    source: int = paths.position[v]
    device = graph.device[graph.row[v]]
    low, high = paths.ptr[device], paths.ptr[device + 1]
    left = draw(walk.random, 2) == 1
    reach = 1 + draw(walk.random, 4)
    # Mostly a few places: far moves break more than they mend, but some must be possible.
    if draw(walk.random, 4) == 0:
        reach = 1 + draw(walk.random, high - low)
    step = -1 if left else 1
    if not low <= source + step < high:
        return source
    beside = paths.order[source + step]
    limit = -(1 << 62) if left else 1 << 62
    if paths.spans == 0:
        # Across a gap neither waits for the device: to exchange them helps nothing.
        first, second = (beside, v) if left else (v, beside)
        if early[first] + graph.duration[graph.row[first]] < early[second]:
            return source
        limit = kernels.arrival(graph, paths, v) if left else kernels.due(graph, paths, v)
    target = source
    while reach > 0 and low <= target + step < high:
        other = paths.order[target + step]
        # Microbatches of a stage keep their order, and F, B, W of one theirs.
        if walk.stage[other] == walk.stage[v] and (
            walk.kind[other] == walk.kind[v] or walk.microbatch[other] == walk.microbatch[v]
        ):
            break
        # Beyond an operation that ends before v can start, v would only wait; likewise behind.
        if left and limit >= early[other] + graph.duration[graph.row[other]]:
            break
        if not left and limit <= late[other]:
            break
        target += step
        reach -= 1
    return target


@step
def _move(graph: Graph, walk: Walk, threshold: int) -> tuple[int, int]:
    """Move a critical operation within memory; return from where to where, the same: none."""
    paths = walk.paths
    for _ in range(walk.tried):
        v = _critical(graph, walk, threshold)
        if v < 0:
            break
        source, target = paths.position[v], _place(graph, walk, v)
        paths.work[0] += DRAW
        if target == source:
            continue
        _shift(paths.order, paths.position, source, target)
        if _fits(graph, paths, graph.device[graph.row[v]]):
            return source, target
        # Memory is looked at before times: it costs a sum over one device.
        _shift(paths.order, paths.position, target, source)
    return 0, 0


@step
def _joined(graph: Graph, walk: Walk, v: int, onward: bool) -> int:
    """Return an operation of the kind of v that waits for it, or that it waits for; -1: none."""
    row, paths = graph.row[v], walk.paths
    if onward:
        for arc in range(graph.first[row], graph.first[row + 1]):
            u = reached(graph, v, row, arc)
            # The arc within the row leads to the next microbatch, not to another device.
            if graph.after[arc] != row and walk.kind[u] == walk.kind[v]:
                return u
        return -1
    for arc in range(paths.into_first[row], paths.into_first[row + 1]):
        other: int = graph.origin[paths.into_row[arc]] + v - graph.origin[row]
        if walk.kind[other] == walk.kind[v]:
            return other
    return -1


@step
def _along(graph: Graph, walk: Walk, place: int) -> tuple[int, int]:
    """Let operations change places on other devices as two have at a place.

    Return how many do on devices before, and in all; `walk.swapped` may be of any length, as no
    more than it holds do.
    """
    paths, count, before = walk.paths, 0, 0
    for onward in range(2):
        first, second = paths.order[place], paths.order[place + 1]
        if walk.kind[first] != walk.kind[second]:
            return 0, 0
        while count < len(walk.swapped):
            paths.work[0] += DRAW
            first = _joined(graph, walk, first, onward == 1)
            second = _joined(graph, walk, second, onward == 1)
            # Only neighbours change places; the chain of exchanges ends where they are none.
            if first < 0 or second < 0 or paths.position[first] != paths.position[second] + 1:
                break
            at, d = paths.position[second], graph.device[graph.row[first]]
            if graph.device[graph.row[second]] != d:
                break
            _shift(paths.order, paths.position, at, at + 1)
            # Operations that change memory alike leave all sums as they were.
            alike = graph.delta[graph.row[first]] == graph.delta[graph.row[second]]
            if not (alike or _fits(graph, paths, d)):
                _shift(paths.order, paths.position, at, at + 1)
                break
            walk.swapped[count] = at
            count += 1
        if onward == 0:
            before = count
    return before, count


@step
def _back(walk: Walk, source: int, place: int, together: int) -> None:
    """Undo a move, and what has changed places with it."""
    paths = walk.paths
    for other in range(together - 1, -1, -1):  # the last exchange first: places overlap
        at = walk.swapped[other]
        _shift(paths.order, paths.position, at, at + 1)
    _shift(paths.order, paths.position, place, source)


@step
def _there(
    graph: Graph, walk: Walk, low: int, high: int, before: int, together: int, side: int
) -> int:
    """Find starts where places have changed, device after device; return the longest path there.

    That is for latest starts, which come after the earliest.
    """
    paths, longest = walk.paths, 0
    for turn in range(-before, together - before + 1):
        place = turn if side == EARLY else together - 2 * before - turn
        first, last = low, high
        if place != 0:
            # Devices before this one are noted backward, then those behind.
            first = walk.swapped[-place - 1 if place < 0 else before + place - 1]
            last = first + 2
        longest = max(longest, kernels.there(graph, paths, side, first, last))
    return longest


@step
def _found(
    graph: Graph, walk: Walk, low: int, high: int, before: int, together: int, limits: Limits
) -> bool:
    """Find starts after a move of order[low:high]; whether they are within limits."""
    paths = walk.paths
    kernels.begin(paths)
    # The changed places alone often show that a move is no good: nothing else is looked at then.
    for side in range(2):
        if _there(graph, walk, low, high, before, together, side) > limits.longest:
            return False
    for side in range(2):
        for other in range(-1, together):
            at = low if other < 0 else walk.swapped[other]
            kernels.wake(paths, side, at, high if other < 0 else at + 2)
        if side == LATE:  # latest starts count from the ends that the earliest have just got
            kernels.finish(graph, paths)
        if not kernels.follow(graph, paths, side, limits):
            return False
    return True


def _steps(_: Graph, __: Walk, *rest: float) -> int:
    """Return the steps after which :func:`anneal` returns."""
    return int(rest[-1])


@tiered(_steps)
def anneal(
    graph: Graph,
    walk: Walk,
    heat: float,
    ratio: float,
    weight: float,
    least: int,
    moves: int,
    work: int,
) -> int:
    """Try random moves while it gets colder; return how many.

    It ends where no path exceeds `least`, a bound on the objective, after `moves`, whether made or
    refused, or after `work` steps.  The graph stays as it is; orders, values and generator of
    `walk` go on from call to call.  What is worse by `heat` cycles is accepted with probability 1 /
    e; heat is multiplied by `ratio` after every move.  Mean excess counts `weight` beside the
    objective.
    """
    paths = walk.paths
    n, stop = len(paths.order), paths.work[0] + work
    for done in range(moves):
        if walk.value[1] <= least or paths.work[0] >= stop:
            return done
        heat *= ratio
        paths.work[0] += MOVE
        # Paths between half of what is above the bound and the longest are all worth shortening.
        threshold = walk.value[0] - draw(walk.random, (walk.value[0] - least) // 2 + 1)
        source, place = _move(graph, walk, threshold)
        if place == source:
            continue
        low, high, before, together = min(source, place), max(source, place) + 1, 0, 0
        if high == low + 2 and draw(walk.random, 2) == 0:
            before, together = _along(graph, walk, low)
        # The chance is drawn before the move is tried, so that it says what may be given up early.
        chance = (1 + draw(walk.random, 1 << 30)) / float(1 << 30)
        allowed = walk.energy[0] - heat * np.log(chance)
        most = n * (allowed - walk.value[0]) / weight + walk.slack * paths.total[0]
        limits = Limits(least, int(allowed), int(most))
        if paths.spans == 1:  # which are not known before the end
            limits = Limits(least, FAR, FAR)
        good = _found(graph, walk, low, high, before, together, limits)
        while True:  # once; and once more to settle what was there before
            if not good:
                _back(walk, source, place, together)
                kernels.restore(graph, paths)
            value = kernels.settle(graph, paths, least)
            energy = value + weight * paths.total[0] / n
            if not good or energy <= allowed:
                break
            good = False
        if not good:
            continue
        walk.energy[0], walk.value[0] = energy, value
        if value < walk.value[1]:
            walk.value[1] = value
            paths.work[0] += n // 4
            for at in range(n):  # a slice takes two seconds to compile
                walk.best[at] = paths.order[at]
    return moves
