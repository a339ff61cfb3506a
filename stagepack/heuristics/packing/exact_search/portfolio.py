"""A portfolio of searches of one component: the kernel is run with many branching orders.

Some orders get doubling node limits, and many random orders get lower limits.  A proof does not
depend on the order, so restarts are allowed, and the first search that finishes decides.

Cost: up to b * 2^r nodes a search, for b blocks in round r.  Source: see :mod:`.exact`; equal
work for limits of many lengths, Luby, Sinclair and Zuckerman 1993.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing import beam_search
from stagepack.heuristics.packing.exact_search import exact_state as state
from stagepack.heuristics.packing.exact_search.canonical import (
    CanonicalSearch,
    PausedSearch,
    ranks,
)
from stagepack.heuristics.packing.exact_search.components import Component
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.profile import Array

Beside = Callable[[], int]
"""Called after each search: what else finds packings; returns FOUND, LIMIT, or RUNNING when told to
stop."""

ORDERS = (
    (state.LOWEST_BLOCK, "TWA"),
    (state.LOWEST_SECTION, "TAW"),
    (state.LOWEST_BLOCK, "TAW"),
    (state.LOWEST_SECTION, "AWT"),
    (state.LOWEST_BLOCK, "WAT"),
    (state.LOWEST_SECTION, "TSA"),
    (state.LOWEST_BLOCK, "AWT"),
    (state.LOWEST_SECTION, "TZA"),
    (state.LOWEST_BLOCK, "TDA"),
    (state.LOWEST_SECTION, "WAT"),
    (state.LOWEST_BLOCK, "TZA"),
    (state.LOWEST_SECTION, "TDA"),
    (state.LOWEST_BLOCK, "TSA"),
    (state.LOWEST_SECTION, "TWA"),
)
"""Where to branch, and which block is preferred there among equal bases.

By descending largest load in a section (T), duration (W), number of sections (S), area (A), size
(Z), number of conflicts (D).  Where the load comes first, ranks are computed anew whenever a
component falls apart.
"""


class Searchable(Protocol):
    """What every component knows of itself: which blocks it has, and what units are in bytes."""

    index: Array

    def capacity(self, nbytes: int) -> int:
        """Return a capacity in bytes in units."""
        ...

    def offsets(self, units: Array) -> Array:
        """Return offsets in bytes, shape (b,), from those in units."""
        ...


@dataclass(eq=False)
class _Round:
    """A round that has begun: its number, its searches to come, and the limit of the one begun."""

    number: int
    starts: Iterator[int]
    limit: int = 0


class Portfolio(abc.ABC):
    """Searches of one component in many orders.

    Blocks may be ordered by `keys`, shape (b,).  The order of `warm`, int64 of shape (b,), offsets
    of some packing of them, is tried, too.  The same number of blocks `b`, the same random orders.
    """

    component: Searchable
    search: PausedSearch

    def __init__(self, keys: Mapping[str, Array], warm: Array | None, b: int) -> None:
        self._nodes = 0
        self.rounds: dict[int, int] = {}  # by capacity in units: those that are over
        self.seconds = 0.0  # of work of all rounds
        self._begun: dict[int, _Round] = {}  # by capacity: rounds that were stopped
        self._paused: _Round | None = None  # whose search is in `search`, and not over
        self._keys, self.warm = keys, warm
        self._b = b

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        return self.search.units

    @property
    def searched(self) -> int:
        """Nodes of all searches so far."""
        return self._nodes + self.search.nodes

    def _noise(self, number: int) -> np.random.Generator:
        """Return random numbers of a round: the same if it is begun again."""
        return np.random.default_rng([self._b, number])

    @abc.abstractmethod
    def next_peak(self, nbytes: int) -> int:
        """Return the least possible peak above a capacity that was proved too small, in bytes."""

    @abc.abstractmethod
    def _starts(self, capacity: int, number: int) -> Iterator[int]:
        """Start one search of a round after the other; yield the limit of nodes of each."""

    def beam(self, capacity: int, seconds: float, keep_going: Callable[[], bool]) -> int:
        """Search for a packing with beams, where they apply, for some `seconds` of work.

        The `capacity` is in units, above the lift; `keep_going` is asked between chunks of work.
        Return FOUND, LIMIT, or RUNNING when told to stop.
        """
        del capacity, seconds
        return state.LIMIT if keep_going() else state.RUNNING

    def round(
        self,
        capacity: int,
        number: int,
        keep_going: Callable[[], bool],
        beside: Beside | None = None,
    ) -> int:
        """Search in several orders, with limits of nodes that double from round to round.

        A round that was stopped goes on where it was.  The `capacity` is in units, above the lift;
        the `number` of the round counts from 0.  `keep_going` is asked between chunks of work,
        `beside` called after each search.  Return FOUND, EXHAUSTED, LIMIT, or RUNNING when told to
        stop.
        """
        begun = self._begun.get(capacity)
        if begun is None or begun.number != number:
            begun = self._begun[capacity] = _Round(number, self._starts(capacity, number))
        for limit in self._searches(begun):
            outcome = state.RUNNING
            while outcome == state.RUNNING:
                outcome = self.search.run(limit)
                if outcome == state.RUNNING and not keep_going():
                    return state.RUNNING
            self._paused = None
            if outcome != state.LIMIT:
                del self._begun[capacity]
                return outcome
            if not keep_going():
                return state.RUNNING
            if beside is not None and (outcome := beside()) != state.LIMIT:
                return outcome
        del self._begun[capacity]
        self.rounds[capacity] = number + 1
        return state.LIMIT

    def _searches(self, begun: _Round) -> Iterator[int]:
        """Go on with the search that was paused, if no other began since, and start those to come.

        Yield the limit of nodes of each.
        """
        if self._paused is begun:
            yield begun.limit
        before = self.searched
        for limit in begun.starts:
            begun.limit, self._nodes, self._paused = limit, before, begun
            yield limit
            before = self.searched


class CanonicalPortfolio(Portfolio):
    """Searches of one component; blocks of the same sections are alike.

    `warm` is as of :class:`Portfolio`.
    """

    def __init__(
        self, component: Component, warm: Array | None = None, *, tuning: PackingTuning = TUNING
    ) -> None:
        self.tuning = tuning
        self.component: Component = component
        self.search: CanonicalSearch = CanonicalSearch(component, tuning=tuning)
        group = component.group
        keys = {
            "T": component.load().astype(float),
            "W": group.duration.astype(float),
            "S": np.diff(group.section_ptr).astype(float),
            "A": group.duration * (group.size / component.unit),
            "Z": group.size.astype(float),
            "D": np.diff(component.neighbour_ptr).astype(float),
        }
        super().__init__(keys, warm, component.b)
        self._units: Array | None = None

    @property
    def units(self) -> Array:
        """Offsets in units, where a packing was found."""
        return self.search.units if self._units is None else self._units

    def beam(self, capacity: int, seconds: float, keep_going: Callable[[], bool]) -> int:
        """Search with beams; the next time it is gone on, where the `capacity` is the same.

        A draw is begun or gone on with until it took `seconds` of work.  Return FOUND, LIMIT when
        these are over, or RUNNING when `keep_going` said no.
        """
        until = effort.spent() + seconds
        outcome = self.beams.run(capacity, lambda: effort.spent() < until and keep_going())
        if outcome == beam_search.beam_state.FOUND:
            self._units = self.beams.search.units
            return state.FOUND
        return state.LIMIT if keep_going() else state.RUNNING

    @functools.cached_property
    def beams(self) -> beam_search.beam.Beams:
        """Beams of the component."""
        return beam_search.beam.Beams(self.component, tuning=self.tuning)

    def round(
        self,
        capacity: int,
        number: int,
        keep_going: Callable[[], bool],
        beside: Beside | None = None,
    ) -> int:
        """Search as any portfolio does, and forget what beams have found before."""
        self._units = None
        return super().round(capacity, number, keep_going, beside)

    def next_peak(self, nbytes: int) -> int:
        """Return the least possible peak above a capacity: what its blocks' steps allow."""
        return self.component.next_peak(nbytes)

    def _limit(self, level: int) -> int:
        """Return the node limit of a level."""
        b = self.component.b
        return b << level if level else b + b // 16  # first those that need hardly any search

    def _starts(self, capacity: int, number: int) -> Iterator[int]:
        """Start the searches of a round, one order after the other."""
        component, random = self.component, self._noise(number)
        for level, (focus, order), noise in self._plan(number, random):
            keys = [-self._keys[key] for key in order if key != order[0] or key != "T"]
            if noise:  # blocks of the same sections get the same: the larger of them lies below
                keys[0] = keys[0] * random.lognormal(0.0, noise, component.b)[component.life]
            weight = np.full(component.b, float(order[0] == "T"))
            self.search.start(capacity, ranks(keys[::-1]), weight, focus)
            yield self._limit(level)
        if self.warm is not None:
            weight = np.zeros(component.b)
            self.search.start(capacity, ranks([self.warm]), weight, state.LOWEST_BLOCK)
            yield self._limit(number)

    def _plan(
        self, number: int, random: np.random.Generator
    ) -> Iterator[tuple[int, tuple[int, str], float]]:
        """Yield level, focus with order, and noise of each search of a round."""
        tuning = self.tuning.exact
        if number < tuning.first_rounds:
            first = tuning.steady_orders + tuning.turning_orders * number
            noise = tuning.first_noise if number == tuning.first_rounds - 1 else 0.0
            turning = ORDERS[first : first + tuning.turning_orders]
            for order in (*ORDERS[: tuning.steady_orders], *turning):
                yield number, order, noise
            return
        for level in sorted({*tuning.short_levels, number}):
            long_enough = level < number and self.component.b << level >= tuning.shortest
            if level == number or long_enough:
                for _ in range(tuning.drawn << number - level):
                    at, drawn = random.integers(len(ORDERS)), random.integers(len(tuning.noise))
                    yield level, ORDERS[at], tuning.noise[drawn]
