"""Packings on which greedy allocators do badly, with known optima.

Each is composed of gadgets; the optimum of a gadget is its load, as proved beside it.
"""

from __future__ import annotations

import numpy as np

from stagepack.instances.packing.instance import LmemPacking

Row = tuple[int, int, int]
"""Size, start, end."""


def against_size(copies: int) -> LmemPacking:
    """Make first fit by size, and TFLite's greedies by size and by breadth, need twice the load.

    A chain of four buffers w, u, v, x, each of which overlaps the next, and for each a leaf that
    overlaps only it; all sizes nearly equal, leaves the largest, then w and x, u, v.  The leaves
    take the lowest place, w and x the second, u the third, v the fourth.  Two places suffice:
    w, v and the leaves of u, x at the bottom, the others hanging from the top.
    """
    return _packing(f"against-size-{copies}", _chains(copies, 2**20))


def against_start(levels: int) -> LmemPacking:
    """Make first fit by start need 1 + levels / 2 times the load: fragmentation (Robson, 1974).

    Buffers of size 1 fill the memory, then level after level of doubled size replaces what ended.
    Of what first fit has placed, just so much stays that no hole takes the next size.  Knowing
    who stays, one packs them together.
    """
    return _packing(f"against-start-{levels}", _levels(levels, equal_lives=False))


def against_lifetime(levels: int) -> LmemPacking:
    """Make first fit by lifetime, or by area, need 1 + levels / 2 times the load.

    The levels of `against_start`, but all buffers of one level live equally long and each level
    less than a quarter as long as the one before: who ends late begins late.
    """
    return _packing(f"against-lifetime-{levels}", _levels(levels, equal_lives=True))


def against_all(levels: int) -> LmemPacking:
    """Set all three gadgets one after the other at one load, against portfolios of greedies."""
    unit = 2**20
    load = 2 ** (levels + 2)
    rows: list[Row] = []
    # A chain's load is 2 * size + 5 bytes: with `load` units a multiple of it, all loads are equal.
    chain = 2 * unit + 5
    for part, factor in (
        (_chains(1, unit), load),
        (_levels(levels, equal_lives=False), chain),
        (_levels(levels, equal_lives=True), chain),
    ):
        begin = max((end for _, _, end in rows), default=0)
        rows += [(size * factor, start + begin, end + begin) for size, start, end in part]
    return _packing(f"against-all-{levels}", rows)


def _chains(copies: int, size: int) -> list[Row]:
    """Return chains one after the other; the load is 2 * size + 5."""
    spine = ((size + 2, 0, 4), (size + 1, 3, 7), (size, 6, 10), (size + 2, 9, 13))
    leaves = tuple((size + 3, start + 1, start + 2) for _, start, _ in spine)
    return [
        (nbytes, start + 13 * copy, end + 13 * copy)
        for copy in range(copies)
        for nbytes, start, end in (*leaves, *spine)
    ]


def _levels(levels: int, *, equal_lives: bool) -> list[Row]:
    """Return the buffers of levels 0 .. levels; the load is 2 ** (levels + 2).

    Level k has buffers of 2**k that first fit puts at the addresses where it begins, in order.
    One whose end is a multiple of 2**(j + 1) outlives the end of level j.
    """
    load = 2 ** (levels + 2)
    if equal_lives:
        gaps = [8 * load * 4 ** (levels - k) for k in range(levels + 1)]
    else:
        gaps = [load + 1] * (levels + 1)
    closing = np.cumsum(gaps).tolist()
    rows: list[Row] = []
    for level in range(levels + 1):
        low = 0 if level == 0 else load + (level - 1) * load // 2
        high = load + level * load // 2
        for order, top in enumerate(range(low + 2**level, high + 1, 2**level)):
            last = level
            while last < levels and top % 2 ** (last + 1) == 0:
                last += 1
            # In the order of addresses: born one by one, or ever so little shorter.
            begin = closing[level] - gaps[level] + order
            if equal_lives:
                begin = closing[last] - gaps[level] + order
            rows.append((2**level, begin, closing[last]))
    return rows


def _packing(name: str, rows: list[Row]) -> LmemPacking:
    size, start, end = np.array(rows, dtype=np.int64).T
    return LmemPacking.from_arrays(size, start, end, name=name)
