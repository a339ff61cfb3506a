"""Bounds on how much a set of devices can hold: of the blocks placed, and of those left to place.

Choose a price y_c per unit of time for each class c of devices, and let the weight of block v be
the minimum over c of y_c times its time there.  The blocks on a device then weigh at most y_c times
the load of the device.  So all blocks together weigh at most the limit times the sum of y_c over
the devices, for any prices.  Two choices of prices are used: one under which no block weighs less
than its time on the first class, and one under which the classes are equally good on the whole.  If
all devices in question pay for traffic, traffic across the cut between two sets of stages is paid
on both sides, and is added.

Cost: O(classes * blocks), and O(states * classes) for shares.  Source: ours; prices as in surrogate
relaxations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stagepack.heuristics.graph import stage_kernels as kernels
from stagepack.heuristics.graph.stage_kernels import Blocks, Rooms
from stagepack.instances.graph.compact import FORBIDDEN, UNLIMITED
from stagepack.instances.profile import Array

WHOLE_BITS = 52
"""Bits of whole numbers of which float64 holds every sum."""
ROUNDED = 1 - 2.0**-50
ROOMIER = 1 + 2.0**-48
"""Covers what prices that differ, and their products and sums, may be rounded by."""


@dataclass(frozen=True)
class _Room:
    """One way to weigh blocks; see :class:`.stage_kernels.Rooms`."""

    limit: int
    weight: Array
    prices: Array
    kind: int = -1


def rooms(blocks: Blocks, used: Array, count: Array) -> Rooms:
    """Return the rooms of blocks on devices.

    `used`, int64 (states, classes), are the devices in use, or passed, in each state of the
    automaton; `count`, int64 (classes,), all of them.
    """
    found = [_whole(room) for room in _rooms(blocks)]
    shape = len(found), -1
    return Rooms(
        limit=np.array([room.limit for room in found], dtype=np.int64),
        weight=np.array([room.weight for room in found]).reshape(shape),
        kind=np.array([room.kind for room in found], dtype=np.int64),
        scale=np.array([room.prices.min() for room in found]),
        used=np.array([_share(used, room.prices) for room in found]).reshape(shape),
        left=np.array([_share(count - used, room.prices) for room in found]).reshape(shape),
    )


def _whole(room: _Room) -> _Room:
    """Return a room with weights in whole numbers, rounded down."""
    total = float(room.weight.sum()) + len(room.weight)
    scale = 2.0 ** (WHOLE_BITS - math.ceil(math.log2(max(total, 1.0))) - 1)
    weight = np.floor(room.weight * (scale * ROUNDED))
    whole = np.array_equal(room.weight, np.floor(room.weight)) and total < 2.0**WHOLE_BITS
    if whole:  # nothing to round
        weight = room.weight * scale
    return _Room(room.limit, weight, room.prices * scale, room.kind)


def _share(devices: Array, prices: Array) -> Array:
    """Return the sum of the prices of devices, of which an infinite one counts if it is there.

    At least: where devices are alike there is nothing to round.
    """
    shares = np.where(devices > 0, devices, 1) * prices
    total: Array = np.where(devices > 0, shares, 0.0).sum(axis=1)
    return total if (prices == prices[0]).all() else total * ROOMIER


def _rooms(blocks: Blocks) -> Iterator[_Room]:
    """Yield all rooms."""
    passes, classes, n = blocks.work.shape
    held = (blocks.size + blocks.stash).astype(np.float64)
    memory = np.where(blocks.memory < UNLIMITED, blocks.memory, np.inf)
    if np.isfinite(memory).any() and held.any():
        yield _Room(kernels.BYTES, held, memory)
    if blocks.mode == kernels.MEMORY:
        yield _Room(kernels.VALUE, held, np.ones(classes))
        return
    pays = blocks.pays
    for p in range(passes):
        last = p == passes - 1
        limit = kernels.VALUE if last else kernels.FIRST
        kind = p if blocks.mode in (kernels.SUM, kernels.FORWARD_BACKWARD) else -1
        time = np.where(blocks.work[p] < FORBIDDEN, blocks.work[p], np.inf)
        first, second = prices_of(time)
        if pays.all():
            yield _Room(limit, _weights(time, first), first, kind)
        else:
            yield _Room(limit, _weights(time, first), first)
            alone = np.where(pays, first, np.inf)
            yield _Room(limit, _weights(time, alone), alone, kind)
        if not np.allclose(first, second, rtol=1e-3):
            yield _Room(limit, _weights(time, second), second)
    if blocks.mode in (kernels.OVERLAP, kernels.REPLICATED) and pays.any():
        for kind in (0, 1):
            yield _Room(kernels.VALUE, np.zeros(n), np.where(pays, 1.0, np.inf), kind)


def prices_of(time: Array) -> tuple[Array, Array]:
    """Return the two choices of prices of the classes.

    `time`, shape (classes, n), is that of each block on a device of each class; infinite:
    forbidden.
    """
    classes = len(time)
    first, second = np.ones(classes), np.ones(classes)
    for c in range(1, classes):
        both = np.isfinite(time[0]) & np.isfinite(time[c]) & (time[c] > 0)
        if both.any():
            first[c] = max((time[0][both] / time[c][both]).max(), 2.0**-40)
            second[c] = max(time[0][both].sum() / time[c][both].sum(), 2.0**-40)
    return first, second


def _weights(time: Array, prices: Array) -> Array:
    """Return what each block weighs; 0 where only classes that have no price take it."""
    priced = np.isfinite(prices)
    if not priced.any():
        return np.zeros(time.shape[1])
    least = (time[priced] * prices[priced, None]).min(axis=0)
    return np.where(np.isfinite(least), least, 0.0)


def least_limit(found: Rooms, limit: int) -> int:
    """Return the least limit that the rooms of all devices leave, of `VALUE`, `FIRST` or `BYTES`.

    Exact arithmetic on shares that are rounded up: a partition that just fits has this value.
    """
    least = 0
    for r in np.flatnonzero(found.limit == limit).tolist():
        share, weight = float(found.left[r, 0]), float(found.weight[r].sum())
        if math.isfinite(share) and weight:
            least = max(least, _quotient(weight, share))
    return least


def _quotient(weight: float, share: float) -> int:
    """Return how often a share has to be taken to hold a weight, exactly."""
    return UNLIMITED if share == 0 else math.ceil(Fraction(weight) / Fraction(share))
