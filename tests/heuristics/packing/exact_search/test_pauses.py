"""Exact searches that pause after any work, or whose arrays are short, find what others find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.packing.exact_search import (
    exact,
    exact_state,
)
from stagepack.heuristics.packing.exact_search.canonical import CanonicalSearch, PausedSearch
from stagepack.heuristics.packing.exact_search.components import Component
from stagepack.heuristics.packing.exact_search.exact_general import GeneralSearch, ShapedPacking
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form import meetings
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.oracle import ABOVE_LOAD, KINDS, above_load, random_instance
from tests.heuristics.packing.structured import structured
from tests.packing_cases import random_packing

FOCUSES = (exact_state.LOWEST_BLOCK, exact_state.LOWEST_SECTION)
Found = tuple[int, int, list[int], int]


def rigid() -> Iterator[LmemPacking]:
    """Yield instances of rectangular blocks."""
    yield from structured().values()
    yield from map(above_load, ABOVE_LOAD[::3])
    for seed, kind in enumerate(KINDS * 2):
        yield random_instance(np.random.default_rng(seed), kind)


def shaped() -> Iterator[LmemPacking]:
    """Yield instances of blocks of any shape."""
    yield from structured().values()
    for seed in range(12):
        features = ["gaps", ("in-place", "colocated", "circular", "fixed")[seed % 4]]
        yield random_packing(np.random.default_rng(seed), features=features, n=6)


def canonical_searches(shorten: bool) -> Iterator[tuple[CanonicalSearch, Callable[[], None]]]:
    """Yield searches and what begins them, at capacities around the bound."""
    for instance in rigid():
        packing = exact.prepared(Blocks.of(instance))
        for component in packing.components:
            if not isinstance(component, Component) or component.bound >= exact_state.NOWHERE:
                continue
            least, rank = component.capacity(component.bound), np.arange(component.b)
            for capacity in (least, least + 1):
                for focus in FOCUSES:
                    search = CanonicalSearch(component)
                    if shorten:
                        size = component.b + len(component.sections)
                        now = search._state
                        names = ("trail", "parts", "reasons", "agenda")
                        short: dict[str, Any] = {name: getattr(now, name)[:1] for name in names}
                        search._state = now._replace(lists=now.lists[:size], **short)
                    yield search, partial(begin_anew, search, capacity, rank, focus)


def begin_anew(search: CanonicalSearch, capacity: int, rank: Array, focus: int) -> None:
    """Begin a search, with loads before ranks where the focus is on sections."""
    search.start(capacity, rank, np.full(len(rank), float(focus)), focus)


def general_searches(shorten: bool) -> Iterator[tuple[GeneralSearch, Callable[[], None]]]:
    """Yield searches and what begins them, at capacities around the bound."""
    for instance in shaped():
        for component in ShapedPacking(Blocks.of(instance)).components:
            if component.bound >= exact_state.NOWHERE:
                continue
            least, rank = component.capacity(component.bound), np.arange(len(component.area))
            for capacity in (least, least + 1):
                for focus in FOCUSES[:2]:
                    search = GeneralSearch(component)
                    if shorten:
                        search._trail, search._parts = search._trail[:1], search._parts[:1]
                        search._lists = search._lists[: len(rank)]
                    yield search, partial(search.start, capacity, rank, focus)


def ended(search: PausedSearch, limit: int) -> Found:
    """Return how a search ends, and how often it paused."""
    outcome, turns = exact_state.RUNNING, 0
    while outcome == exact_state.RUNNING:
        outcome, turns = search.run(limit), turns + 1
        assert turns < 1_000_000
    units = search.units.tolist() if outcome == exact_state.FOUND else []
    return outcome, search.nodes, units, turns


SEARCHES = {
    "canonical": ("exact", canonical_searches),
    "general": ("general", general_searches),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_pauses_change_nothing(name: str) -> None:
    part, searches = SEARCHES[name]
    paused = 0
    for search, begin in searches(False):
        begin()
        expected = ended(search, 40)
        for work in (*range(1, 24), 50, 100, 250):
            search.tuning = TUNING.changed({part: {"budget": work}})
            begin()
            found = ended(search, 40)
            assert found[:3] == expected[:3], work
            paused += found[3] > 1
    assert paused > 500


@pytest.mark.parametrize("name", SEARCHES)
def test_limits_of_nodes_count_none_twice(name: str) -> None:
    _, searches = SEARCHES[name]
    stopped = 0
    for search, begin in searches(False):
        begin()
        expected = ended(search, 40)
        begin()
        for limit in range(41):
            found = ended(search, limit)
            if found[0] != exact_state.LIMIT:
                break
            assert search.nodes == limit
            stopped += 1
        assert found[:3] == expected[:3]
    assert stopped > 100


@pytest.mark.parametrize("name", SEARCHES)
def test_arrays_grow_to_what_a_search_needs(name: str) -> None:
    _, searches = SEARCHES[name]
    expected = [(begin(), ended(search, 40)[:3]) for search, begin in searches(False)]
    found = [(begin(), ended(search, 40)[:3]) for search, begin in searches(True)]
    assert found == expected


def test_ranges_are_found_in_any_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(instance: LmemPacking, tuning: PackingTuning = TUNING) -> list[list[Any]]:
        packing = exact.prepared(Blocks.of(instance), tuning=tuning)
        columns = ("spans", "holes", "neighbours", "neighbour_ptr")
        return [
            [getattr(component, column).tolist() for column in columns]
            for component in packing.components
            if isinstance(component, Component)
        ]

    for instance in rigid():
        expected = parts(instance)
        for at_once in range(1, 8):
            with monkeypatch.context() as patch:
                patch.setattr(meetings, "AT_ONCE", at_once)
                tuning = TUNING.changed({"places": {"budget": at_once}})
                assert parts(instance, tuning) == expected
