"""Merging where there is no room: it changes no answer, and what is merged can be taken apart."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.catalog.packing.random import constant_load
from stagepack.heuristics.packing.exact_search import (
    exact,
    exact_state,
    portfolio,
    zero_slack,
)
from stagepack.heuristics.packing.exact_search.components import Component, Packing
from stagepack.heuristics.packing.exact_search.zero_slack import Merged
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.result import Status
from tests.heuristics.packing.oracle import ABOVE_LOAD, above_load, least_peak, planted


def only(rows: list[tuple[int, int, int]]) -> Component:
    """Return the one component of buffers given as start, end and size."""
    start, end, size = np.array(rows).T
    (component,) = Packing(Blocks.of(LmemPacking.from_arrays(size, start, end))).components
    return component


def test_a_gap_that_is_filled_at_once_is_one_block() -> None:
    # 3 + 2 end when 4 + 1 begin, beside two of 2 that are not alive all the time.
    component = only([(0, 2, 3), (0, 2, 2), (2, 4, 4), (2, 4, 1), (0, 3, 2), (3, 4, 2)])
    assert zero_slack.applies(component, 7)
    merged = Merged(component, 7)
    assert merged.component is not None
    assert sorted(merged.component.group.size.tolist()) == [2, 5]  # alive all the time
    component = only([(0, 2, 3), (0, 2, 2), (2, 3, 4), (2, 4, 1), (0, 3, 2), (3, 4, 6)])
    merged = Merged(component, 7)
    assert merged.component is not None
    assert sorted(merged.component.group.size.tolist()) == [1, 2, 4, 5, 6]


def test_a_gap_that_may_fall_apart_is_left() -> None:
    component = only([(0, 2, 3), (0, 2, 2), (2, 4, 3), (2, 4, 2), (1, 3, 2), (0, 1, 2), (3, 4, 2)])
    merged = Merged(component, 7)
    sizes = [] if merged.component is None else merged.component.group.size.tolist()
    assert 5 not in sizes


def test_merging_asks_whether_to_go_on() -> None:
    component = only([(0, 2, 3), (0, 2, 2), (2, 3, 4), (2, 4, 1), (0, 3, 2), (3, 4, 6)])
    search = portfolio.CanonicalPortfolio(component)
    assert search.round(7, 0, lambda: False) == exact_state.RUNNING
    assert search.searched == 0
    assert search.round(7, 0, lambda: True) == exact_state.FOUND


def _decided(instance: LmemPacking, *, merging: bool, monkeypatch: pytest.MonkeyPatch) -> Status:
    with monkeypatch.context() as patch:
        if not merging:
            patch.setattr(zero_slack, "applies", lambda *_, **__: False)
        blocks = Blocks.of(instance)
        decision = exact.decide(blocks, int(blocks.load.max()))
    if decision.offsets is not None:
        offsets = blocks.expand(decision.offsets)
        assert not instance.check(PackingSolution.of(instance, offsets))
        assert (offsets + instance.size).max() == blocks.load.max()
    return decision.status


@pytest.mark.parametrize("seed", range(60))
def test_merging_changes_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is merged is searched alone, to the end.
    monkeypatch.setattr(portfolio.CanonicalPortfolio, "_limit", lambda *_, **__: 10**6)
    instance = constant_load(int(np.random.default_rng(seed).integers(8, 30)), seed)
    both = [_decided(instance, merging=on, monkeypatch=monkeypatch) for on in (True, False)]
    assert both[0] is both[1]


@pytest.mark.parametrize("rows", ABOVE_LOAD)
def test_what_exceeds_its_load_still_does(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = above_load(rows)
    assert _decided(instance, merging=True, monkeypatch=monkeypatch) is Status.INFEASIBLE
    if instance.n < 12:  # one of twelve takes fifteen seconds
        assert least_peak(instance, 40) == Blocks.of(instance).load.max() + 1


@pytest.mark.parametrize("seed", range(40))
def test_perfect_packings_are_never_called_infeasible(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = planted(np.random.default_rng(seed), 20, 40, 10 + seed)
    assert _decided(instance, merging=True, monkeypatch=monkeypatch) is Status.FEASIBLE
