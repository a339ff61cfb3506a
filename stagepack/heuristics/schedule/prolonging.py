"""Extends short schedules to more microbatches by repeating their middle, or shortens long ones.

With fewer microbatches a search evaluates more schedules in the same time, and the ramps are the
same.  On each device, a part of its order is sought that has the same number of operations of each
row.  Repeating this part gives an order for more microbatches that uses no more memory.  The parts
of different devices begin at about the same time; of all such times, the one that yields the
shortest schedule is used.

Cost: O(n + arcs) for each time tried.  Source: own work; loops of software pipelining (Lam 1988).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule

ROUNDS, LONGER = 2, 3
"""Microbatches for each device of a short schedule, and at least of one that is prolonged."""

MOMENTS = 80
"""Moments at which parts begin."""


def fewer(instance: PipelineSchedule) -> PipelineSchedule | None:
    """Return `instance` with two microbatches for each device, None where it has too few itself."""
    m = instance.microbatches
    if len(set(m.tolist())) > 1 or not instance.training or m[0] < LONGER * instance.d:
        return None
    return instance.replace(microbatches=ROUNDS * instance.d)


def more(instance: PipelineSchedule) -> PipelineSchedule | None:
    """Return `instance` with a microbatch more for each device, None where nothing speaks for it.

    Two to three microbatches for each of several devices of several stages each are hardest: both
    ramps touch.  What is found for more of them has a middle, and a part of that can be cut out.
    """
    m, d = instance.microbatches, instance.d
    if len(set(m.tolist())) > 1 or not instance.training or d in (1, instance.p):
        return None
    if not ROUNDS * d <= m[0] < LONGER * d:
        return None
    return instance.replace(microbatches=int(m[0]) + d)


class Parts(NamedTuple):
    """Parts of what a device does that can be repeated.

    Attributes
    ----------
    rows : ndarray of int64
        The rows of what it does, in order.
    begins : ndarray of int64
        Where parts begin.
    length : int
    """

    rows: Array
    begins: Array
    length: int

    def repeated(self, begin: int, times: int) -> Array:
        """Return the rows with the part from `begin` on repeated so often; -1: without it."""
        end = begin + self.length
        part = np.tile(self.rows[begin:end], times + 1)
        return np.concatenate([self.rows[:begin], part, self.rows[end:]])


def prolonged(known: Timing, order: Array, other: Timing) -> tuple[int, Array] | None:
    """Return the best orders, flat, that repeat a part of `order`, and what they are worth.

    None when there are none.  At most half of the microbatches are repeated: it is ramps that
    are not.  Where the other instance has fewer microbatches, a part is cut out.

    Parameters
    ----------
    known, other : Timing
        Of an instance, and of one with another number of microbatches.
    order : ndarray of int64, shape (n,)
        Orders of the one that is known.
    """
    start = known.earliest(order)
    if start is None:
        return None
    start = start[order]
    have, want = (int(timing.instance.microbatches[0]) for timing in (known, other))
    best = None
    for period in range(1, have // 2 + 1):
        apart = (want - have) % period or want + period < have
        parts = [] if apart else _parts(known, order, period)
        tried: set[tuple[int, ...]] = set()
        for moment in np.linspace(0, start.max(), MOMENTS) if parts else ():
            begins = tuple(
                int(part.begins[np.abs(start[low + part.begins] - moment).argmin()])
                for low, part in zip(known.ptr.tolist(), parts, strict=False)
            )
            if begins in tried:
                continue
            tried.add(begins)
            times = (want - have) // period
            found = _numbered(
                other, [part.repeated(at, times) for part, at in zip(parts, begins, strict=True)]
            )
            value = other.value(found)
            better = value is not None and (best is None or value < best[0])
            if value is not None and better and other.fits(found):
                best = value, found
    return best


def _parts(timing: Timing, order: Array, period: int) -> list[Parts]:
    """Return the parts of every device with `period` operations of each row; []: one has none."""
    rows = timing.graph.row[order]
    found = []
    for low, high in zip(timing.ptr[:-1].tolist(), timing.ptr[1:].tolist(), strict=True):
        own = rows[low:high]
        kinds, place = np.unique(own, return_inverse=True)
        done = np.zeros((high - low + 1, len(kinds)), dtype=np.int64)
        done[np.arange(1, high - low + 1), place] = 1
        done = done.cumsum(axis=0)
        length = period * len(kinds)
        within = done[length:] - done[: len(done) - length]
        begins = np.flatnonzero((within == period).all(axis=1))
        if not len(begins):
            return []
        found.append(Parts(own, begins, length))
    return found


def _numbered(timing: Timing, rows: list[Array]) -> Array:
    """Return the operations of rows, whose microbatches come in turn; flat."""
    row = np.concatenate(rows)
    by = np.argsort(row, kind="stable")
    order = np.empty_like(by)
    order[by] = np.arange(timing.n)  # operations go by row, then microbatch
    return order
