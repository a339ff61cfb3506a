"""Where blocks may lie, and what no block of a section may use, against trying every address."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.exact_search.components import Component, movable
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form import meetings
from stagepack.instances.packing.normal_form.blocks import Blocks

HIGHEST = 60
"""Addresses that are tried."""


def drawn(seed: int, **more: Any) -> LmemPacking:
    """Return a few buffers with alignments, ranges, reserved addresses and fixed offsets."""
    random = np.random.default_rng(seed)
    n = 7
    start = random.integers(0, 6, n)
    alignment = random.integers(1, 4, n)
    fixed = np.where(random.random(n) < 0.3, random.integers(0, 10, n) * alignment, -1)
    allowed = [
        (i, low, low + int(random.integers(5, 15)))
        for i in range(n)
        for low in random.integers(0, 45, 2).tolist()
        if fixed[i] < 0 and i % 2
    ]
    low = np.cumsum(random.integers(3, 9, 4))
    return LmemPacking.from_arrays(
        random.integers(1, 5, n),
        start,
        start + random.integers(1, 5, n),
        alignment=alignment,
        fixed=fixed,
        allowed=allowed,
        reserved=[(int(at), int(at) + 1) for at in low],
        **more,
    )


def may_lie(instance: LmemPacking, i: int, at: int) -> bool:
    """Tell whether no rule and no fixed buffer keeps a buffer from an offset."""
    top = at + int(instance.size[i])
    ranges = [(item.low, item.high) for item in instance.allowed if item.buffer == i]
    return (
        at % int(instance.alignment[i]) == 0
        and (not ranges or any(low <= at and top <= high for low, high in ranges))
        and not any(low < top and at < high for low, high in instance.reserved)
        and not any(
            instance.fixed[j] >= 0
            and instance.start[i] < instance.end[j]
            and instance.start[j] < instance.end[i]
            and instance.fixed[j] < top
            and at < instance.fixed[j] + instance.size[j]
            for j in range(instance.n)
        )
    )


@pytest.mark.parametrize("seed", range(25))
def test_places_are_the_offsets_that_nothing_forbids(seed: int) -> None:
    instance = drawn(seed)
    group = movable(Blocks.of(instance))
    for at, i in enumerate(group.index.tolist()):
        row = slice(group.places.ptr[at], group.places.ptr[at + 1])
        spans = list(zip(group.places.low[row].tolist(), group.places.high[row], strict=True))
        step = int(instance.alignment[i])
        told = {x for a, b in spans for x in range(a, min(b, HIGHEST) + 1, step)}
        assert told == {x for x in range(HIGHEST + 1) if may_lie(instance, i, x)}
        assert all(b < c for (_, b), (c, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("most", [0, 10**6])
@pytest.mark.parametrize("seed", range(15))
def test_holes_are_addresses_that_no_member_of_a_section_can_use(seed: int, most: int) -> None:
    instance = drawn(seed)
    tuning = TUNING.changed({"places": {"span_limit": most}})
    packing = exact.prepared(Blocks.of(instance), tuning=tuning)
    for component in packing.components:
        assert isinstance(component, Component)
        places = component.group.places
        ends = places.high + np.repeat(component.group.size, np.diff(places.ptr))
        used = [
            {
                x
                for a, b in zip(places.low[i:j], ends[i:j], strict=True)
                for x in range(a, min(b, 99))
            }
            for i, j in itertools.pairwise(places.ptr.tolist())
        ]
        everything = set(range(HIGHEST + 1))
        for s, section in enumerate(component.sections):
            row = slice(component.member_ptr[s], component.member_ptr[s + 1])
            members = component.members[row] if most else np.arange(component.b)
            free = everything.difference(*(used[i] for i in members.tolist()))
            if not places.limited[members].all():
                free = set()
            told = {
                x
                for low, high in component.holes[section["hole"] : section["hole_end"]].tolist()
                for x in range(low * component.unit, min(high * component.unit, HIGHEST + 1))
            }
            assert told == free


def test_the_clock_is_asked_again_and_again_whatever_there_is_to_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meetings, "AT_ONCE", 500)
    tuning = TUNING.changed({"places": {"budget": 500}})
    n = 100
    reserved = LmemPacking.from_arrays(
        np.arange(n) % 7 + 1, [0] * n, [1] * n, reserved=[(9 * g, 9 * g + 1) for g in range(n)]
    )
    turns = LmemPacking.from_arrays([3] * n, np.arange(n), np.arange(n) + n, period=n + 9)
    for instance, work in ((reserved, 2 * n * n), (turns, n * n // 2)):
        asked = Mock(return_value=True)
        exact.prepared(Blocks.of(instance), keep_going=asked, tuning=tuning)
        assert asked.call_count >= work // 600
