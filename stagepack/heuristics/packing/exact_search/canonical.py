"""The interface of the exact search kernel: one search, which can be paused and continued.

It begins with no block placed, or with a partial packing; then the remaining blocks are searched
part by part.  Cost: that of its nodes (:mod:`.exact_kernels`).  Source: see :mod:`.exact`.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.effort import SHORT
from stagepack.heuristics.packing.exact_search import exact_kernels as kernels
from stagepack.heuristics.packing.exact_search import exact_state as state
from stagepack.heuristics.packing.exact_search.components import Component
from stagepack.heuristics.packing.exact_search.exact_state import (
    CHANGE,
    FRAME,
    NOWHERE,
    SearchState,
)
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.profile import Array


class Partial(NamedTuple):
    """A partial packing of a component from the bottom up."""

    # int64, shape (b,): the lowest place of every block above all that are placed; NOWHERE: it is
    # placed.
    base: Array
    effective: Array  # int64, shape (b,): what is proved about offsets of blocks without a place
    # `floor`, `left`: int64, shape (sections,): the least effective offset of what is left in each
    # section, and what that holds in all.
    floor: Array
    left: Array


class PausedSearch(abc.ABC):
    """A search of one component for packings within a capacity, which can be paused."""

    def __init__(self, *, tuning: PackingTuning = TUNING) -> None:
        self.tuning = tuning

    @property
    @abc.abstractmethod
    def nodes(self) -> int:
        """Nodes since the start."""

    @property
    @abc.abstractmethod
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""

    @property
    @abc.abstractmethod
    def step(self) -> float:
        """Seconds of a step."""

    @abc.abstractmethod
    def _proceed(self, node_limit: int) -> tuple[int, int]:
        """Call the kernel; return why it came back, and how many steps it took."""

    @abc.abstractmethod
    def _lengthen(self) -> None:
        """Double the arrays that were too short."""

    def run(self, node_limit: int) -> int:
        """Go on for about 0.1 s; return RUNNING, FOUND, EXHAUSTED or LIMIT."""
        outcome, steps = self._proceed(node_limit)
        effort.spend(self.tuning.prices.call + self.step * steps)
        if outcome == state.FULL:
            self._lengthen()
            return state.RUNNING  # pages of memory take their time, too
        return int(outcome)


class CanonicalSearch(PausedSearch):
    """A search of one component for packings within a capacity, which can be paused."""

    def __init__(self, component: Component, *, tuning: PackingTuning = TUNING) -> None:
        super().__init__(tuning=tuning)
        self.component = component
        b, sections = component.b, len(component.sections)
        self._state = SearchState(
            linear=component.linear,
            section_of=component.section_of,
            neighbours=component.neighbours,
            members=component.members,
            spans=component.spans,
            holes=component.holes,
            blocks=component.blocks.copy(),
            sections=component.sections.copy(),
            # From the trail on more than a turn takes: after FULL, twice as much has room for one.
            frames=np.zeros(b + 2, dtype=FRAME),
            trail=np.zeros(64 * (b + sections) + 256, dtype=CHANGE),
            lists=np.zeros(64 * (b + sections), dtype=np.int64),
            parts=np.zeros((16 * b, 4), dtype=np.int64),
            queue=np.zeros(b + 1, dtype=np.int64),
            latest=np.full(b, -1, dtype=np.int64),
            row=np.full(b, -1, dtype=np.int64),
            depth=np.zeros(b, dtype=np.int64),
            blamed=np.zeros(b + 3, dtype=np.bool_),
            reasons=np.zeros(64 * b + 64, dtype=np.int64),
            agenda=np.zeros(64 * (b + sections) + 256, dtype=np.int64),
            control=np.zeros(state.ENTRIES, dtype=np.int64),
        )
        ptr, section_of = component.section_ptr, component.section_of
        self._first, self._last = section_of[ptr[:-1]], section_of[ptr[1:] - 1]
        self._capacity = 0

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.tuning.exact.step

    @property
    def nodes(self) -> int:
        """Nodes since the start."""
        return int(self._state.control[state.NODES])

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        return np.asarray(self._state.blocks["offset"].copy())

    def start(self, capacity: int, rank: Array, weight: Array, focus: int) -> None:
        """Begin anew, with a `capacity` in units, above the lift.

        Blocks of lower `rank`, a permutation, are preferred.  Loads times `weight`, float64 of
        shape (b,), may outrank it; 0: they do not.  `focus` is LOWEST_BLOCK or LOWEST_SECTION.
        """
        component, now = self.component, self._state
        b, sections = component.b, len(component.sections)
        effort.spend(self.tuning.exact.start + self.tuning.prices.item * (b + sections))
        now.blocks[:] = component.blocks
        now.sections[:] = component.sections
        scaled = weight * min(1.0, 2.0**40 / max(1, capacity))
        loads = (scaled * component.load()).astype(np.int64)
        now.blocks["weight"], now.blocks["rank"] = scaled, rank - b * loads
        self._enter(np.arange(b), np.arange(sections), focus)
        self._capacity = capacity

    def complete(
        self, capacity: int, partial: Partial, rank: Array, focus: int, nodes: int
    ) -> bool:
        """Pack what is left where some blocks are placed, part by part; return whether all are.

        The component of `partial` is in a line; `capacity`, `rank` and `focus` are as :meth:`start`
        takes them.  A part is searched for `nodes` at most for each of its blocks, and no longer
        than a call.
        """
        component, now = self.component, self._state
        b, sections = component.b, len(component.sections)
        effort.spend(self.tuning.exact.start + self.tuning.prices.item * (b + sections))
        left = partial.base != NOWHERE
        now.blocks[:] = component.blocks
        now.blocks["offset"] = np.where(left, -1, 0)
        now.blocks["base"], now.blocks["effective"] = partial.base, partial.effective
        now.blocks["rank"] = rank
        which = np.flatnonzero(left)
        first, last = self._first[which], self._last[which]
        change = np.bincount(first, minlength=sections) - np.bincount(last, minlength=sections)
        now.sections[:] = component.sections
        now.sections["total"], now.sections["crossing"] = partial.left, np.cumsum(change)
        now.sections["floor"] = np.where(partial.left > 0, partial.floor, 0)
        self._capacity = capacity
        order = np.argsort(first, kind="stable")
        reached = np.maximum.accumulate(last[order])
        apart = np.flatnonzero(first[order][1:] > reached[:-1]) + 1
        for part in sorted(np.split(order, apart), key=len):
            effort.spend(self.tuning.exact.start_part)
            within = np.arange(first[part].min(), last[part].max() + 1)
            self._enter(which[part], within, focus)
            if self.run(nodes * len(part)) != state.FOUND:
                return False
        return True

    def _enter(self, blocks: Array, sections: Array, focus: int) -> None:
        """Begin with a part: some blocks without a place and all sections of theirs."""
        now, b, end = self._state, len(blocks), len(blocks) + len(sections)
        now.lists[:b], now.lists[b:end] = blocks, sections
        stamp = now.control[state.STAMP]
        now.control[:] = 0
        now.control[state.STAMP] = stamp
        now.control[state.EXPLAINED] = self.tuning.exact.explained_steps
        now.control[state.NOTED] = self.tuning.exact.explained_placements
        now.latest[:] = -1
        now.row[:] = -1
        now.control[state.LISTS], now.control[state.FOCUS] = end, focus
        frame = now.frames[:1]
        frame["state"] = state.SELECT
        frame["begin"], frame["count"] = 0, b
        frame["section"], frame["section_end"] = b, end
        frame["level"] = 0

    def _proceed(self, node_limit: int) -> tuple[int, int]:
        """Call the kernel: a few steps first, as small searches end within these."""
        now = self._state
        outcome = kernels.search(
            self._capacity, node_limit, min(SHORT, self.tuning.exact.budget), now
        )
        spent = int(now.control[state.SPENT])
        if outcome == state.RUNNING:
            outcome = kernels.search(
                self._capacity, node_limit, self.tuning.exact.budget - spent, now
            )
            spent += int(now.control[state.SPENT])
        return outcome, spent

    def _lengthen(self) -> None:
        """Double the arrays that were too short."""
        now = self._state
        self._state = now._replace(
            trail=longer(now.trail, tuning=self.tuning),
            lists=longer(now.lists, tuning=self.tuning),
            parts=longer(now.parts, tuning=self.tuning),
            reasons=longer(now.reasons, tuning=self.tuning),
            agenda=longer(now.agenda, tuning=self.tuning),
        )


def longer(array: Array, *, tuning: PackingTuning = TUNING) -> Array:
    """Return an array with as many rows again, all zero: pages that memory gives when needed."""
    grown = np.zeros((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    effort.spend(tuning.exact.byte * grown.nbytes)
    return grown


def ranks(keys: list[Array]) -> Array:
    """Return the rank of each item by ascending keys, the last one first."""
    rank = np.empty(len(keys[0]), dtype=np.int64)
    rank[np.lexsort(keys)] = np.arange(len(rank))
    return rank
