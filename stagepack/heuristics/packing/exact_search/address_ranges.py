"""Where a block may lie: addresses as spans, ascending and disjoint.

What ranges and fixed blocks leave is cut to multiples of the block's alignment.  O(k log k) for a
block with k ranges and fixed neighbours.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing.effort import Pause
from stagepack.heuristics.packing.exact_search.csr import rows, transposed
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array

Spans = tuple[tuple[int, int], ...]
"""Offsets [lowest, highest] where a block may lie, ascending and disjoint."""


def places(blocks: Blocks, section_ptr: Array, section_of: Array, pause: Pause) -> dict[int, Spans]:
    """Return where blocks may lie that have ranges or conflict with a fixed block.

    Parameters
    ----------
    blocks : Blocks
    section_ptr, section_of : ndarray of int64
        Block i is alive in the sections section_of[section_ptr[i] : section_ptr[i + 1]].
    pause : callable
        Called for every block that is looked at; it may raise.
    """
    places = {i: ranges_of(blocks, i) for i in np.flatnonzero(np.diff(blocks.range_ptr)).tolist()}
    fixed = np.flatnonzero(blocks.fixed >= 0)
    if len(fixed):
        held = np.zeros(blocks.b, dtype=bool)
        held[fixed] = True
        ptr, members = transposed(section_ptr, section_of, blocks.sections)
        counted = np.concatenate([[0], np.cumsum(held[members])])
        beside = members[held[members]]
        ptr = counted[ptr]  # the fixed ones of each section
        for i in np.flatnonzero(~held & (np.diff(section_ptr) > 0)).tolist():
            pause()
            at, _ = rows(ptr, section_of[section_ptr[i] : section_ptr[i + 1]])
            near = np.unique(beside[at])
            if len(near):
                nbytes = int(blocks.size[i])
                low, high = blocks.fixed[near], blocks.fixed[near] + blocks.size[near]
                places[i] = _outside(places.get(i, [(0, NOWHERE)]), low - nbytes, high)
    return {i: aligned(spans, int(blocks.alignment[i])) for i, spans in places.items()}


def ranges_of(blocks: Blocks, i: int) -> list[tuple[int, int]]:
    """Return the offsets that the ranges of a block allow, alignment apart."""
    ranges = slice(blocks.range_ptr[i], blocks.range_ptr[i + 1])
    highest = (blocks.range_high[ranges] - blocks.size[i]).tolist()
    spans = zip(blocks.range_low[ranges].tolist(), highest, strict=True)
    return _disjoint([(low, high) for low, high in spans if low <= high])


def spans_of(blocks: Blocks, i: int) -> Spans | None:
    """Return the multiples of its alignment that the ranges of a block allow; None: all."""
    if blocks.range_ptr[i] == blocks.range_ptr[i + 1]:
        return None
    return aligned(ranges_of(blocks, i), int(blocks.alignment[i]))


def _outside(spans: list[tuple[int, int]], low: Array, high: Array) -> list[tuple[int, int]]:
    """Return inclusive spans of offsets without those strictly between `low` and `high`."""
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    free = np.append(low[1:] >= high[:-1], True)  # there is a free offset behind this one
    begins = np.concatenate([[-NOWHERE], high[free]]).tolist()
    ends = np.concatenate([low[:1], low[1:][free[:-1]], [NOWHERE]]).tolist()
    found, at = [], 0
    for a, b in sorted(spans):
        while at and begins[at] > a:
            at -= 1
        while ends[at] < a:
            at += 1
        while at < len(begins) and begins[at] <= b:
            found.append((max(a, begins[at]), min(b, ends[at])))
            at += 1
        at = min(at, len(begins) - 1)
    return found


def _disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of inclusive spans."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def aligned(spans: list[tuple[int, int]], step: int) -> Spans:
    """Return the spans from multiple to multiple of `step`; none left: one out of reach."""
    inner = [(-(-low // step) * step, high // step * step) for low, high in spans]
    return tuple((low, high) for low, high in inner if low <= high) or ((NOWHERE, NOWHERE),)
