"""Merges blocks at a capacity that leaves no free space.

Consider two consecutive sections whose load equals the capacity.  The blocks that end between them
leave exactly the addresses that the beginning blocks take.  Each contiguous run of these addresses
is filled by some of the ending and by some of the beginning blocks, with equal total size.  If no
proper subset of the ending blocks has the size of a subset of the beginning blocks, there is only
one run: the beginning blocks lie directly on one another, and so do the ending ones.  If all
beginning blocks also end together, their order does not matter, and they are merged into one block;
likewise the ending blocks, if they began together; if both hold, all are merged into one.  Merging
may allow further merges.

The merged blocks can be packed within the capacity if and only if the original ones can.  Cost: the
subset sums of each boundary as bits, one a unit of the capacity.  Source: own work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.effort import Pause
from stagepack.heuristics.packing.exact_search.address_ranges import Places
from stagepack.heuristics.packing.exact_search.components import Component, Group
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.profile import Array


@dataclass
class _Block:
    """A block, or several that were merged, alive in the sections [first, end)."""

    first: int
    end: int
    size: int
    duration: int
    layers: tuple[tuple[int, ...], ...] = ()
    """Of a merged block: what lies on one another in it, of each stretch of time."""


class Merged:
    """A component whose blocks are merged for a capacity that is its largest load.

    Parameters
    ----------
    component : Component
        For which :func:`applies` holds.
    capacity : int
        In its units.
    pause : callable
        Called now and then; may raise.

    Attributes
    ----------
    component : Component or None
        What is to be packed within ``component.capacity(capacity)``; None: nothing was merged.
    """

    def __init__(
        self,
        component: Component,
        capacity: int,
        pause: Pause = lambda: None,
        *,
        tuning: PackingTuning = TUNING,
    ) -> None:
        self.tuning = tuning
        group = component.group
        load = component.sections["total"]
        self._full = (load[1:] == capacity) & (load[:-1] == capacity)
        last = component.section_of[component.section_ptr[1:] - 1]
        columns = component.section_of[component.section_ptr[:-1]], last + 1
        rows = (*columns, component.blocks["size"], group.duration)
        each = zip(*(row.tolist() for row in rows), strict=True)
        self._blocks = [_Block(*block) for block in each]
        self._count = len(self._blocks)
        self._alive = set(range(self._count))
        self._begins: list[set[int]] = [set() for _ in range(len(load) + 1)]
        self._ends: list[set[int]] = [set() for _ in range(len(load) + 1)]
        for i, block in enumerate(self._blocks):
            self._begins[block.first].add(i)
            self._ends[block.end].add(i)
        waiting = (np.flatnonzero(self._full) + 1).tolist()
        while waiting:
            pause()
            waiting += self._merge(waiting.pop())
        self._kept = sorted(self._alive, key=lambda i: self._blocks[i].first)
        merged = len(self._blocks) > self._count
        self.component = self._component(pause) if merged and len(self._kept) > 1 else None

    def offsets(self, found: Array) -> Array:
        """Return offsets of the blocks in units, shape (b,), from those of what was merged."""
        offsets = np.zeros(len(self._blocks), dtype=np.int64)
        offsets[self._kept] = found
        for i in range(len(self._blocks) - 1, -1, -1):
            for layer in self._blocks[i].layers:
                at = offsets[i]
                for part in layer:
                    offsets[part] = at
                    at += self._blocks[part].size
        return offsets[: self._count]

    def _merge(self, boundary: int) -> list[int]:
        """Merge what ends and begins at a boundary, if it can be; return where to look again."""
        before, after = sorted(self._ends[boundary]), sorted(self._begins[boundary])
        effort.spend(self.tuning.prices.row * (len(before) + len(after)))
        if not before:  # they met another merged block
            return []
        first = {self._blocks[i].first for i in before}
        end = {self._blocks[i].end for i in after}
        layers: tuple[list[int], ...] = ()
        if len(first) == len(end) == 1:
            layers = (before, after)
        elif len(end) == 1 and len(after) > 1:
            layers = (after,)
        elif len(first) == 1 and len(before) > 1:
            layers = (before,)
        if not layers or self._splits(before, after):
            return []
        begin = min(self._blocks[i].first for i in layers[0])
        stop = max(self._blocks[i].end for i in layers[-1])
        new = _Block(
            begin,
            stop,
            sum(self._blocks[i].size for i in layers[0]),
            sum(max(self._blocks[i].duration for i in layer) for layer in layers),
            tuple(tuple(layer) for layer in layers),
        )
        for i in (i for layer in layers for i in layer):
            self._alive.discard(i)
            self._begins[self._blocks[i].first].discard(i)
            self._ends[self._blocks[i].end].discard(i)
        self._alive.add(len(self._blocks))
        self._begins[begin].add(len(self._blocks))
        self._ends[stop].add(len(self._blocks))
        self._blocks.append(new)
        return [
            t for t in (begin, boundary, stop) if 0 < t <= len(self._full) and self._full[t - 1]
        ]

    def _splits(self, before: list[int], after: list[int]) -> bool:
        """Return whether a part of the one may be as large as a part of the other."""
        sums = []
        for group in (before, after):
            bits = 1
            for i in group:
                bits |= bits << self._blocks[i].size
            sums.append(bits)
        whole = sum(self._blocks[i].size for i in before)
        effort.spend(self.tuning.prices.row * (len(before) + len(after)) * (1 + whole / 2**14))
        return sums[0] & sums[1] != 1 | 1 << whole

    def _component(self, pause: Pause) -> Component:
        """Return what is left after merging as a component."""
        kept = [self._blocks[i] for i in self._kept]
        first, end = (np.array([getattr(b, at) for b in kept]) for at in ("first", "end"))
        ptr = np.concatenate([[0], np.cumsum(end - first)])
        group = Group(
            index=np.arange(len(kept)),
            size=np.array([block.size for block in kept]),
            alignment=np.ones(len(kept), dtype=np.int64),
            duration=np.array([block.duration for block in kept]),
            section_ptr=ptr,
            section_of=np.arange(ptr[-1]) + np.repeat(first - ptr[:-1], end - first),
            places=Places(np.zeros(len(kept) + 1, dtype=np.int64), *np.empty((2, 0), np.int64)),
            linear=True,
        )
        return Component(group.compressed(), 0, [], pause, tuning=self.tuning)


def applies(component: Component, capacity: int, *, tuning: PackingTuning = TUNING) -> bool:
    """Return whether the blocks of `component` may be merged.

    They lie in a line, each may lie anywhere, and some moment fills `capacity`, which is at most
    ``tuning.exact.merged_capacity``.
    """
    return (
        component.linear
        and capacity <= tuning.exact.merged_capacity
        and capacity == component.sections["total"].max()
        and not len(component.spans)
        and bool((component.blocks["step"] == 1).all())
    )
