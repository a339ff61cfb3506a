"""Small random packings of every kind, and their least peak by trying everything."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.packing import LmemPacking
from stagepack.instances.profile import Array

KINDS = (
    "plain",
    "twins",
    "aligned",
    "multiples",
    "fixed",
    "ranges",
    "reserved",
    "dead",
    "circular",
    "graph",
    "colocated",
    "mixed",
)

ABOVE_LOAD = (
    "0,2,4 0,1,6 0,3,5 1,2,4 1,4,2 2,5,7 3,4,7 4,5,8",
    "0,1,6 0,2,4 0,3,5 1,2,4 1,4,1 2,6,7 3,4,7 4,5,8",
    "0,1,7 0,2,5 0,3,4 1,2,4 1,4,3 2,5,8 3,4,7 4,5,8",
    "0,1,6 0,2,4 0,3,5 1,2,4 1,4,3 2,5,7 3,4,7 4,5,8 4,7,1",
    "0,1,6 0,2,5 0,3,5 1,2,4 1,4,3 2,5,7 3,4,7 4,5,8 6,7,3",
    "0,1,6 0,2,5 0,3,4 1,2,3 1,3,1 1,4,2 2,5,7 3,4,6 4,5,8 5,7,4",
    "0,1,7 0,2,4 0,3,5 1,2,4 1,4,3 2,6,7 3,4,7 4,5,8 5,8,4 6,7,3",
    "0,1,6 0,2,4 0,3,5 1,2,5 1,4,3 2,5,7 3,4,6 4,5,2 4,6,8 5,7,1 5,7,2",
    "0,1,5 0,2,5 0,3,5 1,2,4 1,4,4 2,6,7 3,4,7 4,5,8 4,6,1 5,7,4 5,8,1",
    "0,1,6 0,2,5 0,3,4 1,2,4 1,4,2 2,5,7 3,4,7 4,5,8 5,6,1 5,6,4 5,6,4 6,8,3",
    "0,1,1 0,1,6 0,2,4 0,3,5 1,2,4 1,4,2 2,5,7 3,4,7 4,6,1 4,6,8 5,6,2 5,6,3",
)
"""Lifetimes and sizes (start,end,size) of which the least peak is one more than the load."""


def above_load(rows: str) -> LmemPacking:
    """Return one of the instances of ABOVE_LOAD."""
    start, end, size = np.array([row.split(",") for row in rows.split()], dtype=np.int64).T
    return LmemPacking.from_arrays(size, start, end)


def random_instance(rng: np.random.Generator, kind: str) -> LmemPacking:
    """Return two to six buffers of moderate size."""
    n, span = int(rng.integers(2, 7)), int(rng.integers(2, 8))
    start = rng.integers(0, span, n)
    end = start + 1 + rng.integers(0, span // 2 + 1, n)
    size = rng.integers(1, 5, n)
    more: dict[str, Any] = {}
    mixed = kind == "mixed"
    if kind == "graph":
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.6]
        conflicts = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return LmemPacking.from_arrays(size, None, None, conflicts=conflicts)
    if kind == "twins":
        like = rng.integers(0, n, n)
        start, end, size = start[like], end[like], size[rng.permutation(like)]
    if kind == "aligned" or mixed:
        more["alignment"] = rng.choice([1, 1, 2, 3], n)
    if kind == "multiples":
        more["alignment"], size = rng.choice([1, 2, 4], n), 2 * size
    if kind == "fixed" or mixed:
        fixed = np.full(n, -1)
        at = int(rng.integers(n))
        fixed[at] = 6 * int(rng.integers(0, 2))
        more["fixed"] = fixed
    if kind == "ranges" or mixed:
        at, low = int(rng.integers(n)), int(rng.integers(0, 8))
        more["allowed"] = [(at, low, low + int(size[at]) + int(rng.integers(0, 6)))]
    if kind == "reserved" or (mixed and rng.random() < 0.5):
        low = int(rng.integers(1, 6))
        more["reserved"] = [(low, low + 2)]
    if kind in ("dead", "mixed"):
        gaps = []
        for i in np.flatnonzero(end - start >= 3).tolist():
            low = int(rng.integers(start[i] + 1, end[i] - 1))
            gaps.append((i, low, low + 1))
        more["gaps"] = gaps
    if kind == "circular":
        more["period"], end = span, np.minimum(end, start + span)
    if kind == "colocated":
        one, other = rng.choice(n, 2, replace=False).tolist()
        more["colocated"], size[other] = [(one, other)], size[one]
    return LmemPacking.from_arrays(size, start, end, **more)


def least_peak(instance: LmemPacking, ceiling: int) -> int | None:
    """Return the least peak up to `ceiling`, or None: by trying every offset of every buffer."""
    conflicts, legal = _conflicts(instance), _legal(instance, ceiling)
    size = instance.size.tolist()
    group = {i: members for members in instance.colocated for i in members}
    order = sorted(range(instance.n), key=lambda i: -size[i])
    offsets: dict[int, int] = {}

    def fits(depth: int, capacity: int) -> bool:
        if depth == len(order):
            return True
        i = order[depth]
        for offset in legal[i]:
            if offset + size[i] > capacity:
                break
            if all(
                offset == offsets[j]
                if j in group.get(i, ())
                else not conflicts[i][j]
                or offset + size[i] <= offsets[j]
                or offsets[j] + size[j] <= offset
                for j in offsets
            ):
                offsets[i] = offset
                found = fits(depth + 1, capacity)
                del offsets[i]
                if found:
                    return True
        return False

    return next((capacity for capacity in range(ceiling + 1) if fits(0, capacity)), None)


def _conflicts(instance: LmemPacking) -> list[list[bool]]:
    n = instance.n
    if instance.conflicts is not None:
        pairs = {frozenset(pair) for pair in instance.conflicts.tolist()}
        return [[{i, j} in pairs for j in range(n)] for i in range(n)]
    alive = []
    for i in range(n):
        moments = set(range(int(instance.start[i]), int(instance.end[i])))
        for gap in instance.gaps:
            if gap.buffer == i:
                moments -= set(range(gap.start, gap.end))
        alive.append({t % instance.period for t in moments} if instance.period else moments)
    return [[not alive[i].isdisjoint(alive[j]) for j in range(n)] for i in range(n)]


def _legal(instance: LmemPacking, ceiling: int) -> list[list[int]]:
    found = []
    for i in range(instance.n):
        nbytes, at = int(instance.size[i]), int(instance.fixed[i])
        allowed = [item for item in instance.allowed if item.buffer == i]
        found.append(
            [
                offset
                for offset in range(0, ceiling + 1, int(instance.alignment[i]))
                if at in (-1, offset)
                and (not allowed or any(r.low <= offset <= r.high - nbytes for r in allowed))
                and all(offset + nbytes <= low or high <= offset for low, high in instance.reserved)
            ]
        )
    return found


def planted(rng: np.random.Generator, width: int, height: int, pieces: int) -> LmemPacking:
    """Cut the rectangle time x address into pieces by guillotine and pinwheel cuts."""
    whole = [(0, width, 0, height)]
    while len(whole) < pieces:
        at = int(rng.integers(len(whole)))
        a, b, low, high = whole[at]
        if b - a >= 3 and high - low >= 3 and rng.random() < 0.5:
            s, t = np.sort(rng.choice(np.arange(a + 1, b), 2, replace=False)).tolist()
            u, v = np.sort(rng.choice(np.arange(low + 1, high), 2, replace=False)).tolist()
            whole[at : at + 1] = [
                (a, t, low, u),
                (t, b, low, v),
                (s, b, v, high),
                (a, s, u, high),
                (s, t, u, v),
            ]
        elif b - a >= 2 and (high - low < 2 or rng.random() < 0.5):
            s = int(rng.integers(a + 1, b))
            whole[at : at + 1] = [(a, s, low, high), (s, b, low, high)]
        elif high - low >= 2:
            u = int(rng.integers(low + 1, high))
            whole[at : at + 1] = [(a, b, low, u), (a, b, u, high)]
    rows: Array = np.array(whole)[rng.permutation(len(whole))]
    return LmemPacking.from_arrays(rows[:, 3] - rows[:, 2], rows[:, 0], rows[:, 1])
