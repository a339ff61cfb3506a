"""List schedules with fixed sequences of F's and B's; only their interleaving is free.

On each device, F's run in groups of several microbatches, stage after stage, as in interleaved
schedules, and B's likewise from the last stage on.  A list schedule merges the two sequences and
runs W's when nothing else is ready soon.  The lists differ in the size of the groups, in the number
of F's that may be ahead, in priorities, and in how long W's wait.

Cost: O(n (devices + edges of a stage)) a list, some hundred lists.  Source: own work; sequences of
Narayanan et al. 2021, Megatron-LM (arXiv 2104.04473).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from stagepack.heuristics.schedule.effort import PART
from stagepack.heuristics.schedule.rules import depths
from stagepack.heuristics.schedule.sequence_kernels import (
    AT_ONCE,
    MAKES_ROOM,
    WAITS,
    B,
    F,
    Merging,
    merge,
)
from stagepack.heuristics.schedule.timing import Timing, entering
from stagepack.heuristics.schedule.tuning import TUNING, ListsTuning, Pay
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule

PAYS = {Pay.WAITS: WAITS, Pay.MAKES_ROOM: MAKES_ROOM, Pay.AT_ONCE: AT_ONCE}
"""What each is for kernels."""


def unsupported(instance: PipelineSchedule, tuning: ListsTuning = TUNING.lists) -> str:
    """Return why sequences do not apply to `instance`, or ''."""
    if not instance.training:
        return "needs backward operations"
    if len(instance.operations) * instance.d > tuning.sequences_limit:
        return f"is for up to {tuning.sequences_limit:,} operations times devices"
    return ""


def lists(
    timing: Timing,
    keep_going: Callable[[int], bool],
    tuning: ListsTuning = TUNING.lists,
    enough: int = 0,
) -> list[Array]:
    """Return orders, flat, within memory, of all lists that come to an end, the shortest first.

    Of those that take as long only one.  The instance is not :func:`unsupported`.  `keep_going` is
    asked several times a second, with the steps since; once it says no, no more are tried, nor
    after a list that ends at `enough`, a last end that no list can be before.
    """
    found: dict[int, Array] = {}
    for state, ahead, patience, first, pay in _states(timing, tuning):
        if not keep_going(tuning.sequence_price):
            break
        go_on = partial(merge, timing.graph, state, ahead, patience, first, pay)
        if _completed(timing, go_on, keep_going, tuning.choice_price * timing.d):
            found.setdefault(int(state.end.max()), state.order)
            if min(found) <= enough:
                break
    return [found[length] for length in sorted(found)]


def _completed(
    timing: Timing, go_on: Callable[[int], int], keep_going: Callable[[int], bool], each: int
) -> bool:
    """Let a list go on, in parts of a kernel call; whether it ends.  `each`: steps of a choice."""
    left = timing.n
    while left:
        most = min(left, max(1, PART // each))
        done = go_on(most)
        left -= done
        going = keep_going(each * done)
        if done < most or (left and not going):
            return False
    return True


def _states(
    timing: Timing, tuning: ListsTuning
) -> Iterator[tuple[Merging, Array, float, int, int]]:
    """Yield what :func:`.sequence_kernels.merge` takes first, the most promising before others."""
    instance = timing.instance
    rounds = -(-instance.p // instance.d) - 1
    room, below = _room(timing), instance.d - 1 - _position(instance)
    aheads = list(zip(tuning.slopes, tuning.more, strict=True))
    payments = list(zip(tuning.patience, tuning.payments, strict=True))
    if not instance.split:
        payments = payments[:1]  # there are no W's that could wait
    for size in _sizes(instance) if rounds else (1,):
        least = rounds * size + 1
        if least > room:
            continue
        sequences = _sequence(timing, F, size), _sequence(timing, B, size)
        for (slope, more), first, (patience, pay) in itertools.product(aheads, (B, F), payments):
            ahead = least + slope * below + more
            yield _merging(timing, *sequences), ahead, patience, first, PAYS[pay]


def _sizes(instance: PipelineSchedule) -> list[int]:
    """Return sizes of groups, the number of devices first."""
    d, most = instance.d, int(instance.microbatches.max())
    sizes = {d, d - 1, d + 1, d // 2, 2 * d, most}
    return sorted((size for size in sizes if 1 <= size <= most), key=lambda size: abs(size - d))


def _room(timing: Timing) -> int:
    """Return the fewest F's that fit on a device, of the stage that takes least."""
    graph, kinds = timing.graph, timing.instance.operations.kinds
    taken, device = graph.delta[::kinds], graph.device[::kinds]
    fits = np.where(taken > 0, graph.limit[device] // np.maximum(taken, 1), timing.n)
    most = np.zeros(timing.d, dtype=np.int64)
    np.maximum.at(most, device, fits)
    return int(most.min())


def _position(instance: PipelineSchedule) -> Array:
    """Return how many stages come before the first of each device, at most d - 1; shape (d,)."""
    depth = depths(instance)
    position = np.full(instance.d, instance.d - 1)
    np.minimum.at(position, instance.devices, depth.max() - depth)
    return position


def _sequence(timing: Timing, kind: int, size: int) -> Array:
    """Return the operations of a kind on each device, in groups of `size` microbatches.

    In groups stages come one after the other, those of B from the last on; shape (d, longest).
    """
    operations = timing.instance.operations
    turn = np.empty(timing.instance.p, dtype=np.int64)
    turn[list(timing.instance.order)] = np.arange(timing.instance.p)
    own = np.flatnonzero(operations.kind == kind)
    stage, i, device = operations.stage[own], operations.microbatch[own], operations.device[own]
    by = np.lexsort((i, turn[stage] if kind == F else -turn[stage], i // size, device))
    count = np.bincount(device, minlength=timing.d)
    found = np.zeros((timing.d, int(count.max())), dtype=np.int64)
    found[np.arange(found.shape[1]) < count[:, None]] = own[by]
    return found


def _merging(timing: Timing, forward: Array, backward: Array) -> Merging:
    """Return sequences of which nothing has been run."""
    operations = timing.instance.operations
    count = np.bincount(operations.device[operations.kind == F], minlength=timing.d)
    first, row, lag = entering(timing.instance)
    return Merging(
        forward=forward,
        backward=backward,
        counts=count,
        into_first=first,
        into_row=row,
        into_lag=lag,
        split=int(timing.instance.split),
        done=np.zeros((timing.d, 3), dtype=np.int64),
        end=np.full(timing.n, -1),
        free=np.zeros(timing.d, dtype=np.int64),
        held=np.zeros(timing.d, dtype=np.int64),
        place=timing.ptr[:-1].copy(),
        order=np.zeros(timing.n, dtype=np.int64),  # from `place` on as many as a device has
    )
