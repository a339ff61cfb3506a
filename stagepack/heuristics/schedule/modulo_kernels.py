"""Compiled placement of one microbatch on devices that repeat it with a fixed period.

Operations are placed one by one, next to others or as early as possible.  Cost: for m operations
of a microbatch on a device O(m^3) at worst.  Source: see :mod:`.modulo`.
"""

from __future__ import annotations

from stagepack.heuristics.random_kernels import draw
from stagepack.heuristics.schedule.greedy_kernels import B, F, Shop, W
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

LEAST, FREE = 15, 16
"""Looks as which an operation counts beside one at each of those on its device; so many pairs of
these are one more look, for where there may be room is looked at for all."""


@step
def _free(shop: Shop, period: int, time: Array, d: int, at: int, length: int) -> bool:
    """Whether [at, at + length) meets nothing placed on device d, modulo `period`."""
    for row in range(shop.own_first[d], shop.own_first[d + 1]):
        s = shop.own_stage[row]
        for k in range(shop.kinds):
            if time[s, k] < 0:
                continue
            gap = (time[s, k] - at) % period
            if gap < length or period - gap < shop.duration[s, k]:
                return False
    return True


@step
def _place(shop: Shop, period: int, time: Array, s: int, k: int, ready: int, close: bool) -> bool:
    """Set time[s, k] to the earliest time from `ready` on at which it fits; False: there is none.

    With `close`, only beside something placed before.
    """
    d, length = shop.device[s], shop.duration[s, k]
    best, empty = FAR, True
    for row in range(shop.own_first[d], shop.own_first[d + 1]):
        a = shop.own_stage[row]
        for kind in range(shop.kinds):
            if time[a, kind] < 0:
                continue
            empty = False
            for side in range(2):
                edge = time[a, kind] + shop.duration[a, kind] if side == 0 else time[a, kind]
                edge -= length if side == 1 else 0
                at = ready + (edge - ready) % period
                if at < best and _free(shop, period, time, d, at, length):
                    best = at
    if (empty or not close) and _free(shop, period, time, d, ready, length):
        best = ready
    if best == FAR:
        return False
    time[s, k] = best
    return True


@step
def _overfull(shop: Shop, period: int, time: Array, d: int) -> bool:
    """Whether device d exceeds its memory once the period repeats."""
    latest = 0
    own = shop.own_stage[shop.own_first[d] : shop.own_first[d + 1]]
    for s in own:
        for k in range(shop.kinds):
            latest = max(latest, time[s, k] + shop.duration[s, k])
    for s in own:
        for k in range(shop.kinds):
            if shop.delta[s, k] <= 0:
                continue
            now = latest + (time[s, k] - latest) % period
            held = 0
            for a in own:
                for kind in range(shop.kinds):
                    event = time[a, kind]
                    if shop.delta[a, kind] < 0:
                        event += shop.duration[a, kind]
                    held += shop.delta[a, kind] * ((now - event) // period + 1)
            if held > shop.limit[d]:
                return True
    return False


@step
def _step(
    shop: Shop,
    period: int,
    close: int,
    early: int,
    random: Array,
    time: Array,
    s: int,
    turn: int,
) -> bool:
    """Place F, B or W of stage s, unless it is; False where there is no room.

    Parameters
    ----------
    shop : Shop
    period : int
        Cycles.
    close : int
        Of 100 operations so many are put beside another.
    early : int
        Of 100 W's so many are placed right after their B, the others last.
    random : ndarray of uint64, shape (1,)
        State of the generator.
    time : ndarray of int64, shape (p, 3)
        Starts of F, B, W; -1: none.
    s, turn : int
        All F's have their turn before the B's, and those before the W's.
    """
    if time[s, turn] >= 0:
        return True
    ready = 0
    if turn == F:
        for edge in range(shop.in_first[s], shop.in_first[s + 1]):
            a = shop.in_stage[edge]
            ready = max(ready, time[a, F] + shop.duration[a, F] + shop.in_lag[edge])
    else:
        ready = time[s, turn - 1] + shop.duration[s, turn - 1]
    if turn == B:
        for edge in range(shop.out_first[s], shop.out_first[s + 1]):
            b = shop.out_stage[edge]
            ready = max(ready, time[b, B] + shop.duration[b, B] + shop.out_lag[edge])
    if not _place(shop, period, time, s, turn, ready, draw(random, 100) < close):
        return False
    if turn == B and shop.kinds == 3 and draw(random, 100) < early:
        ready = time[s, B] + shop.duration[s, B]
        return _place(shop, period, time, s, W, ready, draw(random, 100) < close)
    return True


@compiled
def place_best(
    shop: Shop,
    order: Array,
    period: int,
    tries: int,
    random: Array,
    state: Array,
    most: int,
    time: Array,
    best: Array,
) -> int:
    """Look for placings of one microbatch that all may repeat with `period`; keep the shortest.

    The shortest is that of least passage: from the first start to the last end, W aside.  Returns
    how many operations on a device, or at an edge, were looked at; a call goes on where the last
    ended.

    Parameters
    ----------
    shop, period, random
        As for :func:`_step`.
    order : ndarray of int64, shape (p,)
        The stages, producers first: F's and W's are placed along it, B's against it.
    tries : int
        Random placings in all; their number says how often operations are put beside others.
    state : ndarray of int64, shape (3,)
        The placing, the step in it, and the passage of `best`; 0, 0, FAR at first.
    most : int
        Looks after which to return, about.
    time, best : ndarray of int64, shape (p, 3)
        The placing at hand and the best one: starts of F, B, W.
    """
    p = len(order)
    operations, devices = shop.kinds * p, len(shop.limit)
    trial, step, shortest = state[0], state[1], state[2]
    looked = 0
    while trial < tries and looked < most:
        if step == 0:
            for s in order:
                for k in range(3):
                    time[s, k] = -1
        if step < operations:
            turn = step // p
            s = order[p - 1 - (step - p)] if turn == B else order[step - turn * p]
            d = shop.device[s]
            close, early = 25 * (trial % 5), 50 * (trial // 5 % 3)
            fits = _step(shop, period, close, early, random, time, s, turn)
            own = shop.kinds * (shop.own_first[d + 1] - shop.own_first[d])
            looked += LEAST + own + own**2 // FREE
            if turn < W:
                edges = shop.in_first if turn == F else shop.out_first
                looked += 2 * (edges[s + 1] - edges[s]) // 3
        else:
            d = step - operations
            fits = not _overfull(shop, period, time, d)
            looked += (shop.kinds * (shop.own_first[d + 1] - shop.own_first[d])) ** 2
        step += 1
        if fits and step < operations + devices:
            continue
        trial, step = trial + 1, 0
        if not fits:
            continue
        last = 0
        for s in order:
            for k in range(min(2, shop.kinds)):
                last = max(last, time[s, k] + shop.duration[s, k])
        if last < shortest:
            shortest = last
            for s in order:  # a slice takes two seconds to compile
                for k in range(3):
                    best[s, k] = time[s, k]
    state[0], state[1], state[2] = trial, step, shortest
    return looked
