"""A lower bound above the load, without search, from sections that are completely full.

A section whose load equals the capacity has no free space.  What one full section implies for the
next one is only the offsets of the blocks alive in both: its *frontier*.  All possible frontiers
are propagated from full section to full section in order of time.  The blocks that begin in between
must fill the gaps between the remaining ones exactly; each gap is filled from the bottom up.  Of
equal frontiers, and of frontiers that mirror each other, one is kept, since they have the same
continuations.  When no frontier is left, nothing fits within the capacity.

What happens between full sections is ignored, so the bound may not be tight; if all sections are
full it is exact.  Cost: O(frontiers * ways to fill gaps), at most `laid_limit` in all.  Source: own
work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagepack.heuristics.packing import effort
from stagepack.heuristics.packing.exact_search import zero_slack
from stagepack.heuristics.packing.exact_search.components import Component, Packing
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing.blocks import Blocks
from stagepack.progress import Stopped

Frontier = tuple[tuple[int, int], ...]
"""Blocks alive in this full section and the next, ascending, each with its offset."""


def bound(
    blocks: Blocks,
    capacity: int,
    keep_going: Callable[[], bool] | None = None,
    *,
    tuning: PackingTuning = TUNING,
) -> int:
    """Return a lower bound on the peak: above `capacity` where full sections leave no packing.

    Parameters
    ----------
    blocks : Blocks
        Rigid ones, with lifetimes on a line.
    capacity : int
        Bytes; a lower bound on the peak.
    keep_going : callable, optional
        Asked now and then; once it says no, what is known by then is returned.
    """
    found, pause = capacity, effort.pausing(keep_going)
    with contextlib.suppress(Stopped):
        for component in Packing(blocks, keep_going=keep_going, tuning=tuning).components:
            pause()
            units = component.capacity(capacity)
            if (
                zero_slack.applies(component, units, tuning=tuning)
                and _Sections(component, units, pause, tuning=tuning).refuted()
            ):
                found = max(found, component.next_peak(capacity))
    return found


@dataclass(frozen=True)
class _Step:
    """A full section after the one before: who stays, who is new, who will be in the next."""

    stays: tuple[int, ...]
    new: tuple[int, ...]
    alike: tuple[tuple[int, int], ...]  # new blocks of equal entries leave equal frontiers
    leaves: frozenset[int]  # those whose offsets the next full section does not see


class _Sections:
    """The full sections of a component, in order of time.

    Parameters
    ----------
    component : Component
        To which :func:`.zero_slack.applies`.
    capacity : int
        In units.
    pause : callable
        Called now and then; raises where the search should end.
    """

    def __init__(
        self, component: Component, capacity: int, pause: effort.Pause, *, tuning: PackingTuning
    ) -> None:
        self.tuning = tuning
        self._capacity, self._pause = capacity, pause
        self._size: list[int] = component.blocks["size"].tolist()
        first = component.section_of[component.section_ptr[:-1]]
        last = component.section_of[component.section_ptr[1:] - 1]
        full = np.flatnonzero(component.sections["total"] == capacity)
        before = np.concatenate([[-1], full[:-1]])
        after = np.concatenate([full[1:], [len(component.sections)]])
        self._plan = []
        for now, was, then in zip(full.tolist(), before.tolist(), after.tolist(), strict=True):
            alive = np.flatnonzero((first <= now) & (last >= now))
            new = alive[first[alive] > was].tolist()
            new.sort(key=lambda i: (self._size[i], min(int(last[i]), then - 1), i))
            leaves = frozenset(alive[last[alive] < then].tolist())
            alike = tuple((self._size[i], -1 if i in leaves else int(last[i])) for i in new)
            stays = tuple(alive[first[alive] <= was].tolist())
            self._plan.append(_Step(stays, tuple(new), alike, leaves))
        self._steps = tuning.windows.laid_limit

    def refuted(self) -> bool:
        """Return whether no frontier is left at some section; False, too, if there are too many."""
        frontiers: set[Frontier] = {()}
        for step in self._plan:
            following: set[Frontier] = set()
            for frontier in frontiers:
                following |= self._filled(step, frontier)
                if self._steps < 0:
                    return False
            frontiers = following
            if not frontiers:
                return True
        return False

    def _filled(self, step: _Step, frontier: Frontier) -> set[Frontier]:
        """Return the frontiers that ways to fill a section leave."""
        at = dict(frontier)
        seen = {(i, offset) for i, offset in frontier if i not in step.leaves}
        ways: set[tuple[int, Frontier]] = {(0, tuple(sorted(seen)))}  # who is laid, as bits
        bottom = 0
        for top, end in (*sorted((at[i], at[i] + self._size[i]) for i in step.stays),
                         (self._capacity, self._capacity)):  # fmt: skip
            if bottom < top:
                ways = self._laid(step, bottom, top, ways)
            bottom = end
        effort.spend(self.tuning.prices.row * (len(step.new) + len(ways)))
        return {self._least(found) for _, found in ways}

    def _laid(
        self, step: _Step, bottom: int, top: int, ways: set[tuple[int, Frontier]]
    ) -> set[tuple[int, Frontier]]:
        """Return the ways to go on by filling one gap with new blocks, from the bottom up."""
        waiting = [(bottom, laid, found) for laid, found in ways]
        known, filled = set(waiting), set()
        while waiting and self._steps >= 0:
            low, laid, found = waiting.pop()
            if low == top:
                filled.add((laid, found))
                continue
            tried = set()
            for place, i in enumerate(step.new):
                high = low + self._size[i]
                if high > top:
                    break  # and so are those after it
                if laid >> place & 1 or step.alike[place] in tried:
                    continue
                tried.add(step.alike[place])
                left = found if i in step.leaves else tuple(sorted((*found, (i, low))))
                way = high, laid | 1 << place, left
                self._steps -= 1
                effort.spend(
                    self.tuning.windows.laid * (self.tuning.windows.laid_alone + len(left))
                )
                if self._steps % self.tuning.windows.laid_looks == 0:
                    self._pause()
                if way not in known:
                    known.add(way)
                    waiting.append(way)
        return filled

    def _least(self, found: Frontier) -> Frontier:
        """Return the lesser of a frontier and its mirror image."""
        mirrored = tuple((i, self._capacity - low - self._size[i]) for i, low in found)
        return min(found, mirrored)
