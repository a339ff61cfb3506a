"""Compiled placing of one microbatch on devices that repeat it with a period.

Operations are placed one by one, beside others or as early as they can be.  Cost: for m operations
of a microbatch on a device O(m^3) at worst.  Source: see :mod:`.modulo`.
"""

from __future__ import annotations

from stagepack.heuristics.schedule.greedy_kernels import B, F, Shop, W
from stagepack.heuristics.schedule.random_kernels import draw
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.compiled import compiled, inner
from stagepack.instances.profile import Array


@inner
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


@inner
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


@inner
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


@inner
def place(
    shop: Shop,
    order: Array,
    period: int,
    close: int,
    early: int,
    random: Array,
    time: Array,
) -> bool:
    """Place one microbatch so that all may repeat it with `period`; False where there is no room.

    F's are placed along `order`, B's against it.

    Parameters
    ----------
    shop : Shop
    order : ndarray of int64, shape (p,)
        The stages, producers first.
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
    """
    p = len(order)
    for s in range(p):
        for k in range(3):
            time[s, k] = -1
    for turn in range(2):
        if turn == shop.kinds:
            break
        for step in range(p):
            s = order[step] if turn == F else order[p - 1 - step]
            ready = 0
            if turn == F:
                for edge in range(shop.in_first[s], shop.in_first[s + 1]):
                    a = shop.in_stage[edge]
                    ready = max(ready, time[a, F] + shop.duration[a, F] + shop.in_lag[edge])
            else:
                ready = time[s, F] + shop.duration[s, F]
                for edge in range(shop.out_first[s], shop.out_first[s + 1]):
                    b = shop.out_stage[edge]
                    ready = max(ready, time[b, B] + shop.duration[b, B] + shop.out_lag[edge])
            if not _place(shop, period, time, s, turn, ready, draw(random, 100) < close):
                return False
            if turn == B and shop.kinds == 3 and draw(random, 100) < early:
                ready = time[s, B] + shop.duration[s, B]
                if not _place(shop, period, time, s, W, ready, draw(random, 100) < close):
                    return False
    if shop.kinds == 3:
        for s in order:
            if time[s, W] < 0:
                ready = time[s, B] + shop.duration[s, B]
                if not _place(shop, period, time, s, W, ready, draw(random, 100) < close):
                    return False
    over = False
    for d in range(len(shop.limit)):
        over = over or _overfull(shop, period, time, d)
    return not over


@compiled
def place_best(
    shop: Shop,
    order: Array,
    period: int,
    first: int,
    tries: int,
    random: Array,
    shortest: int,
    time: Array,
    best: Array,
) -> int:
    """Set `best` to a placing of shorter passage than `shortest`, and return its passage.

    The passage is from the first start to the last end of one microbatch, W aside.

    Parameters
    ----------
    shop, order, period, random
        As for :func:`place`.
    first, tries : int
        Number of the first random placing, and how many; a number says how often operations are put
        beside others.
    shortest : int
        Cycles; returned as it is where no placing is shorter.
    time, best : ndarray of int64, shape (p, 3)
        Scratch; starts of F, B, W.
    """
    for trial in range(first, first + tries):
        close = 25 * (trial % 5)
        early = 50 * (trial // 5 % 3)
        if not place(shop, order, period, close, early, random, time):
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
    return shortest
