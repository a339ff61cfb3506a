"""The exact search against trying everything, on instances of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.packing import components, exact
from stagepack.heuristics.packing.exact import Search
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.blocks import Blocks
from stagepack.result import Status
from tests.heuristics.packing.oracle import (
    ABOVE_LOAD,
    KINDS,
    above_load,
    least_peak,
    planted,
    random_instance,
)

CEILING = 40
SOME_ORDERS = [0, 1, 3, 8]  # either focus, ranks computed anew or not


def peak_of(instance: LmemPacking, blocks: Blocks, offsets: Any) -> int:
    """Return the peak of an allocation after checking it."""
    solution = PackingSolution.of(instance, blocks.expand(offsets))
    assert not instance.check(solution)
    return int((blocks.expand(offsets) + instance.size).max())


@pytest.mark.parametrize("order", [None, *SOME_ORDERS])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_trying_everything(
    kind: str, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if order is not None:
        monkeypatch.setattr(exact, "ORDERS", exact.ORDERS[order : order + 1])
        monkeypatch.setattr(exact, "WORK", 1)  # pause after every node
    rng = np.random.default_rng([KINDS.index(kind), len(exact.ORDERS) if order is None else order])
    for _ in range(5):
        instance = random_instance(rng, kind)
        blocks = Blocks.of(instance)
        assert not exact.unsupported(blocks)
        best = least_peak(instance, CEILING)
        found: list[Any] = []
        bounds: list[int] = []
        status = exact.minimise(blocks, on_solution=found.append, on_bound=bounds.append)
        if best is None:
            assert exact.decide(blocks, CEILING).status is Status.INFEASIBLE
            assert status is Status.INFEASIBLE or bounds[-1] > CEILING
            continue
        assert status is Status.OPTIMAL
        assert peak_of(instance, blocks, found[-1]) == best == bounds[-1]
        assert bounds == sorted(set(bounds))
        for capacity in (best - 1, best, best + 3):
            decision = exact.decide(blocks, capacity)
            assert (decision.status is Status.FEASIBLE) == (capacity >= best)
            assert decision.bound <= best
            if decision.offsets is not None:
                assert peak_of(instance, blocks, decision.offsets) <= capacity
            else:
                assert decision.bound > capacity


@pytest.mark.parametrize("rows", ABOVE_LOAD)
@pytest.mark.parametrize("order", SOME_ORDERS)
def test_proves_optima_above_the_load(
    rows: str, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "ORDERS", exact.ORDERS[order : order + 1])
    blocks = Blocks.of(above_load(rows))
    load = int(blocks.load.max())
    assert exact.decide(blocks, load).status is Status.INFEASIBLE
    assert exact.decide(blocks, load).bound == load + 1
    assert exact.decide(blocks, load + 1).status is Status.FEASIBLE


@pytest.mark.parametrize("seed", range(30))
def test_planted_packings_are_never_infeasible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = planted(rng, 12, 20, int(rng.integers(8, 40)))
    blocks = Blocks.of(instance)
    decision = exact.decide(blocks, 20, node_limit=50_000)
    assert decision.status is not Status.INFEASIBLE
    if decision.offsets is not None:
        assert peak_of(instance, blocks, decision.offsets) <= 20


def test_arrays_grow_when_they_are_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = planted(np.random.default_rng(3), 12, 20, 30)
    blocks = Blocks.of(instance)
    expected = exact.decide(blocks, 20, node_limit=50_000)
    whole = Search.__init__

    def short(self: Search, component: components.Component) -> None:
        whole(self, component)
        self._trail = self._trail[:1]
        self._parts = self._parts[:1]

    monkeypatch.setattr(Search, "__init__", short)
    decision = exact.decide(blocks, 20, node_limit=50_000)
    assert (decision.status, decision.nodes) == (expected.status, expected.nodes)


def test_stops_when_told_and_keeps_what_it_found() -> None:
    instance = above_load(ABOVE_LOAD[-1])
    blocks = Blocks.of(instance)
    assert exact.decide(blocks, 17, keep_going=lambda: False).status in (
        Status.UNKNOWN,
        Status.FEASIBLE,
    )
    upper = np.cumsum(np.append(0, blocks.size[:-1]))
    bounds: list[int] = []
    status = exact.minimise(
        blocks, upper=upper, on_bound=bounds.append, keep_going=lambda: False, node_limit=0
    )
    assert status is Status.FEASIBLE
    assert bounds == [int(blocks.load.max())]


def test_a_packing_that_is_low_enough_is_taken() -> None:
    blocks = Blocks.of(above_load(ABOVE_LOAD[0]))
    low = exact.decide(blocks, 17).offsets
    assert low is not None
    decision = exact.decide(blocks, 17, warm=low)
    assert decision.nodes == 0
    assert decision.offsets is not None
    assert (decision.offsets == low).all()


def test_blocks_that_conflict_with_all_others_are_taken_out() -> None:
    instance = LmemPacking.from_arrays([5, 2, 2, 3], [0, 0, 2, 1], [4, 2, 4, 3])
    packing = components.Packing(Blocks.of(instance))
    assert not packing.components
    assert packing.peak == 10


def test_what_is_not_supported_is_named() -> None:
    high = LmemPacking.from_arrays([4, 4], [0, 0], [9, 3], fixed=[2**60, -1])
    assert "2**60" in exact.unsupported(Blocks.of(high))


@pytest.mark.parametrize("name", ["A", "C", "E", "G", "I", "K"])
def test_challenging_instances_of_minimalloc(name: str, data_dir: Path) -> None:
    rows = np.loadtxt(
        data_dir / "minimalloc" / f"{name}.1048576.csv", delimiter=",", skiprows=1, dtype=np.int64
    )
    instance = LmemPacking.from_arrays(rows[:, 3], rows[:, 1], rows[:, 2], capacity=1048576)
    blocks = Blocks.of(instance)
    decision = exact.decide(blocks, 1048576, node_limit=500_000)
    assert decision.offsets is not None
    assert peak_of(instance, blocks, decision.offsets) <= 1048576
    if name == "C":
        found: list[Any] = []
        status = exact.minimise(blocks, on_solution=found.append, node_limit=500_000)
        assert status is Status.OPTIMAL
        assert peak_of(instance, blocks, found[-1]) == 1039360
