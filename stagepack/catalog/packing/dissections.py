"""Perfect packings, cut from a rectangle of time and addresses; the optimum is its height.

The load equals the height at all times, so no packing is lower.  Without the offsets, this is an
instance in which not a single byte may be wasted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from stagepack.instances.packing.instance import LmemPacking

Rectangle = tuple[int, int, int, int]
"""[left, right) in time, [low, high) in grains of the address space."""
Cut = Callable[[Rectangle, np.random.Generator], list[Rectangle]]

GRAINS = 1024


def planted(buffers: int, seed: int, peak: int) -> LmemPacking:
    """Cut into `buffers` by straight cuts, drawn by `seed`; the optimum is `peak`."""
    return _dissected("planted", buffers, seed, peak, _guillotine)


def pinwheel(buffers: int, seed: int, peak: int) -> LmemPacking:
    """Cut the rectangle into pinwheels, which no straight cut divides.

    Four pieces turn around a fifth; every pinwheel adds four `buffers`, straight cuts the rest.
    They are drawn by `seed`; the optimum is `peak`.
    """
    return _dissected("pinwheel", buffers, seed, peak, _pinwheel)


def _dissected(name: str, buffers: int, seed: int, peak: int, cut: Cut) -> LmemPacking:
    rng = np.random.default_rng(seed)
    grain = peak // GRAINS if peak % GRAINS == 0 else 1
    whole = (0, 8 * buffers, 0, peak // grain)  # time enough, however low it is
    # The largest pieces are cut first, more or less.
    heap: list[tuple[float, Rectangle]] = [(0.0, whole)]
    done: list[Rectangle] = []
    while len(heap) + len(done) < buffers:
        _, piece = heapq.heappop(heap)
        room = buffers - len(heap) - len(done)
        parts = cut(piece, rng)
        if len(parts) > room:
            parts = _guillotine(piece, rng)
        if len(parts) == 1:
            done += parts
            continue
        for left, right, low, high in parts:
            area = (right - left) * (high - low) * rng.uniform(0.3, 1)
            heapq.heappush(heap, (-area, (left, right, low, high)))
    done += [piece for _, piece in heap]
    rows = np.array(done, dtype=np.int64)
    left, right, low, high = rows[rng.permutation(len(rows))].T
    return LmemPacking.from_arrays((high - low) * grain, left, right, name=f"{name}-{buffers}")


def _guillotine(piece: Rectangle, rng: np.random.Generator) -> list[Rectangle]:
    left, right, low, high = piece
    ways = [way for way, length in (("time", right - left), ("address", high - low)) if length > 1]
    if not ways:
        return [piece]
    if ways[int(rng.integers(len(ways)))] == "time":
        at = _between(left, right, rng)
        return [(left, at, low, high), (at, right, low, high)]
    at = _between(low, high, rng)
    return [(left, right, low, at), (left, right, at, high)]


def _pinwheel(piece: Rectangle, rng: np.random.Generator) -> list[Rectangle]:
    left, right, low, high = piece
    if right - left < 3 or high - low < 3:
        return _guillotine(piece, rng)
    one = _between(left, right - 1, rng)
    two = _between(one, right, rng)
    bottom = _between(low, high - 1, rng)
    top = _between(bottom, high, rng)
    if rng.integers(2):
        around = [
            (left, two, low, bottom),
            (two, right, low, top),
            (one, right, top, high),
            (left, one, bottom, high),
        ]
    else:
        around = [
            (one, right, low, bottom),
            (two, right, bottom, high),
            (left, two, top, high),
            (left, one, low, top),
        ]
    return [*around, (one, two, bottom, top)]


def _between(low: int, high: int, rng: np.random.Generator) -> int:
    """Return a place strictly between two, rather in the middle than at the ends."""
    room = high - low
    if room == 2:
        return low + 1
    share = 0.5 * (rng.uniform(0, 1) + rng.uniform(0, 1))
    return low + 1 + min(int(share * (room - 1)), room - 2)
