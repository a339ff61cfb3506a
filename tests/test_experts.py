"""The example that places experts: against every placement, EPLB's rules, and its own example."""

from __future__ import annotations

import runpy
from fractions import Fraction
from itertools import combinations_with_replacement, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.imports import ROOT


@pytest.fixture(scope="module")
def experts() -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "experts.py")))


def optimum(loads: list[int], devices: int, slots: int) -> Fraction:
    """Return the least largest load of all placements, by trying what each device may hold."""
    every = [
        held
        for size in range(slots + 1)
        for held in combinations_with_replacement(range(len(loads)), size)
    ]
    best = None
    for placement in product(every, repeat=devices):
        counts = [sum(device.count(e) for device in placement) for e in range(len(loads))]
        if min(counts) == 0 or list(placement) != sorted(placement):
            continue
        value = max(sum((Fraction(loads[e], counts[e]) for e in d), Fraction(0)) for d in placement)
        best = value if best is None or value < best else best
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(5))
def test_small_placements_are_those_of_trying_everything(seed: int, experts: Any) -> None:
    rng = np.random.default_rng(seed)
    for at in range(100):
        devices, slots = ((1, 3), (2, 2), (2, 3), (3, 1), (3, 2))[at % 5]
        count = int(rng.integers(1, min(5, devices * slots) + 1))
        high = int(rng.choice([2, 10, 100, 10**9]))
        loads = rng.integers(0, high, count).tolist() if at % 7 else [high] * count
        greedy = experts.largest(loads, slots, experts.eplb(loads, devices, slots))
        found = experts.place(loads, devices, slots, seconds=60)
        assert found.value == experts.largest(loads, slots, found.placement)
        best = optimum(loads, devices, slots)
        assert experts.bound(loads, devices, slots) <= found.bound <= best
        assert best == found.value <= greedy
        assert found.proved


def test_the_baseline_follows_the_rules_of_eplb(experts: Any) -> None:
    assert experts.copies_of_eplb([8, 3, 2], 6) == [3, 2, 1]
    assert experts.eplb([8, 3, 2], 3, 2) == [[0, 2], [0, 1], [0, 1]]


def test_a_placement_that_breaks_a_rule_is_refused(experts: Any) -> None:
    for wrong in ([[0], [0]], [[0, 1, 0], [1]]):
        with pytest.raises(ValueError, match=r"expert|slots"):
            experts.largest([1, 1], 2, wrong)
    with pytest.raises(ValueError, match="more experts"):
        experts.place([1, 1, 1], 1, 2)


def test_the_example_of_eplb_is_no_worse_than_by_eplb(experts: Any) -> None:
    for loads in experts.LAYERS:
        greedy = experts.largest(loads, 2, experts.eplb(loads, 8, 2))
        found = experts.place(loads, 8, 2, seconds=1)
        assert found.bound <= found.value <= greedy
