"""Compiled squeezing of repeated patterns of a V.

Cost: O(operations) and, for every operation that moves, the slots until its device holds what it
held before.  Source: see :mod:`.squeezing`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, step, tiered

F, B, W = range(3)

IDLE = -1


class Slots(NamedTuple):
    """A V of d devices and 2 d stages in slots of one operation each; int64 arrays."""

    moment: Array  # (2 d, 3, m): the slot of each operation
    # (d, slots): in each slot of a device the kind that runs, or IDLE; F's less W's after it; B's
    # after it that wait for a W.  Every operation has a slot at first, and moves forward only.
    kind: Array
    held: Array
    owed: Array
    # (d, 2): W's of each device that were looked at, and the slot behind the last of them.
    weights: Array
    most: int  # units that a device may hold
    # 1: W's are not there; a slot that is idle runs one that waits.
    implicit: int
    pairs: int  # 1: every W is the slot behind its B, and other stages wait for it


@step
def _device(slots: Slots, stage: int) -> int:
    """Return the device of a stage of the V."""
    devices: int = len(slots.kind)
    return stage if stage < devices else 2 * devices - 1 - stage


@step
def _ready(slots: Slots, stage: int, kind: int, i: int) -> int:
    """Return the first slot in which what this operation waits for has run."""
    moment, last = slots.moment, len(slots.moment) - 1
    found = 0
    if i > 0:
        found = moment[stage, kind, i - 1] + 1
    if kind == F:
        if stage > 0:
            found = max(found, moment[stage - 1, F, i] + 1)
    elif kind == B:
        if stage < last:
            found = max(found, moment[stage + 1, W if slots.pairs == 1 else B, i] + 1)
        found = max(found, moment[stage, F, i] + 1)
    else:
        found = max(found, moment[stage, B, i] + 1)
    return found


@step
def _due(slots: Slots, d: int) -> int:
    """Return the first slot for the next W of device d: so many B's have run, any of them."""
    left, t = slots.weights[d, 0] + 1, 0
    while left > 0:
        left -= slots.kind[d, t] == B
        t += 1
    last: int = slots.weights[d, 1]
    return max(t, last)


@step
def _replay(slots: Slots, d: int, begin: int, until: int) -> bool:
    """Count again what device d holds from slot `begin` on; whether that is never too much.

    Behind `until` it ends where all is as it was.
    """
    kinds, held, owed = slots.kind[d], 0, 0
    if begin > 0:
        held, owed = slots.held[d, begin - 1], slots.owed[d, begin - 1]
    fine = True
    for t in range(begin, len(kinds)):
        if kinds[t] == F:
            held += 1
        elif kinds[t] == B:
            owed += slots.implicit
        elif kinds[t] == W:
            held -= 1
        elif owed > 0:
            owed -= 1
            held -= 1
        if t > until and held == slots.held[d, t] and owed == slots.owed[d, t]:
            break
        slots.held[d, t], slots.owed[d, t] = held, owed
        fine = fine and held <= slots.most
    return fine


@tiered(entries)
def fill(slots: Slots) -> int:
    """Count what every device holds after each slot; return the most of it."""
    for d in range(len(slots.kind)):
        _replay(slots, d, 0, slots.kind.shape[1])
    return int(slots.held.max())


def _steps(slots: Slots, *rest: object) -> int:
    """Return about how many steps :func:`squeeze` takes."""
    del rest
    return 10 * entries(slots.moment)


@tiered(_steps)
def squeeze(slots: Slots, visit: Array, fixed: Array, state: Array, most: int) -> bool:
    """Move operations into idle slots before them; whether all of `visit` were looked at.

    `visit`, int64 (k,), are places in `slots.moment`, flat, by their slots; those where `fixed`,
    int64 (k,), is 1 stay.  Each goes to the first slot after which its device never holds more than
    it may.  `state`, (2,), counts operations and steps, of which a call takes about `most`.
    """
    m, until = slots.moment.shape[2], state[1] + most
    while state[0] < len(visit) and state[1] < until:
        at = state[0]
        state[0] += 1
        state[1] += 10
        stage, kind, i = visit[at] // (3 * m), visit[at] // m % 3, visit[at] % m
        d, old = _device(slots, stage), slots.moment[stage, kind, i]
        ready = old
        if fixed[at] == 0:
            alike = kind == W and slots.pairs == 0
            ready = _due(slots, d) if alike else _ready(slots, stage, kind, i)
            state[1] += alike * old
        for new in range(ready, old):
            state[1] += 1
            free = slots.kind[d, new] == IDLE
            if kind == B and slots.pairs == 1:  # its W comes along
                free = free and slots.kind[d, new + 1] == IDLE
            if not free:
                continue
            slots.kind[d, old], slots.kind[d, new] = IDLE, kind
            state[1] += 2 * (old - new)
            if _replay(slots, d, new, old):
                slots.moment[stage, kind, i] = new
                break
            slots.kind[d, old], slots.kind[d, new] = kind, IDLE
            _replay(slots, d, new, old)
        if kind == W:
            slots.weights[d] = slots.weights[d, 0] + 1, slots.moment[stage, kind, i] + 1
    return bool(state[0] == len(visit))


@tiered(entries)
def settle(slots: Slots, visit: Array, free: Array) -> None:
    """Let all operations run as early as they can in the order of `visit`, all of them.

    `free`, int64 (d,), is when each device is free, 0 at first.
    """
    m = slots.moment.shape[2]
    for v in visit:
        stage, kind, i = v // (3 * m), v // m % 3, v % m
        d, soonest = _device(slots, stage), 0
        if kind != W:  # as many B's as W's come before it, if not its own
            soonest = _ready(slots, stage, kind, i)
        slots.moment[stage, kind, i] = max(free[d], soonest)
        free[d] = slots.moment[stage, kind, i] + 1


@tiered(entries)
def owe(slots: Slots, done: Array) -> None:
    """Run W's in slots where a device has nothing else, those of the later stage first.

    `slots.kind` has F's and B's; there are as many slots behind them as there are W's.  `done`,
    int64 (2 d,), counts W's of stages, 0 at first.
    """
    moment, devices = slots.moment, len(slots.kind)
    m = moment.shape[2]
    for d in range(devices):
        for t in range(slots.kind.shape[1]):
            if slots.kind[d, t] != IDLE:
                continue
            for stage in (2 * devices - 1 - d, d):
                i = done[stage]
                if i < m and moment[stage, B, i] < t:
                    moment[stage, W, i] = t
                    slots.kind[d, t] = W
                    done[stage] += 1
                    break
