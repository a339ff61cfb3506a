"""Instances too dense for lists of pairs."""

from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.packing import frame
from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import modelled, searches, steps
from stagepack.result import Status, Termination
from stagepack.solve import solve
from tests.packing_cases import dense


@pytest.mark.parametrize("objective", ["peak", "fit"])
def test_dense_instances_need_no_lists_of_pairs(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(1500, 8, 60)
    blocks = Blocks.of(instance)
    instance = instance.replace(capacity=int(blocks.load.max()), objective=objective)
    monkeypatch.setattr(frame, "LARGEST_PAIRS", 1000)
    tuning = {"exact": {"pair_limit": 1000}}

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("pairs are listed")

    monkeypatch.setattr(Blocks, "neighbours", refused)
    monkeypatch.setattr(modelled, "solve", refused)
    monkeypatch.setattr(steps, "search_exactly", refused)
    for method in ("auto", "anneal"):
        result = solve(
            instance, method, time_limit=0.3, options={"deterministic": True, "tuning": tuning}
        )
        assert result.status is not Status.INFEASIBLE


def test_what_is_dense_goes_the_way_of_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = dense(1500, 8, 60)
    tuning = {"scale": {"pairs": Blocks.of(instance).pairs - 1}}
    monkeypatch.setattr(searches, "_search_all", lambda *_, **__: pytest.fail("lists pairs"))
    result = solve(
        instance, "auto", time_limit=0.5, options={"deterministic": True, "tuning": tuning}
    )
    assert result.solution is not None


def test_rows_of_movable_blocks_are_those_of_all() -> None:
    blocks = Blocks.of(dense(300, 4, 10))
    free = np.arange(blocks.b) % 3 > 0
    ptr, other = annealing._rows(blocks, free, tuning=TUNING)
    whole_ptr, whole = blocks.neighbours()
    for i in range(blocks.b):
        row = whole[whole_ptr[i] : whole_ptr[i + 1]].tolist() if free[i] else []
        assert sorted(other[ptr[i] : ptr[i + 1]].tolist()) == row


@pytest.mark.parametrize(
    ("method", "engine"), [("cp-sat", None), ("milp", None), ("auto", "cp-sat")]
)
def test_models_of_dense_instances_are_refused_by_name(
    method: str, engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(300, 4, 10)
    pairs = Blocks.of(instance).pairs
    monkeypatch.setattr(frame, "LARGEST_PAIRS", pairs - 1)
    with pytest.raises(InputError, match=f"{pairs:,} pairs of buffers are alive together"):
        solve(instance, method, engine=engine, objective="peak", time_limit=1)


@pytest.mark.parametrize("objective", ["moves", "fit", "peak"])
def test_old_placements_of_dense_instances_need_no_lists_of_pairs(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = dense(300, 4, 10)
    low = greedy.place(Blocks.of(instance), RULES["greedy-by-size"])
    assert low is not None
    old = low.copy()
    old[::3] = old[0]  # clashes, so that some are released
    capacity = 2 * int((low + instance.size).max())
    instance = instance.replace(previous=old, capacity=capacity, objective=objective)
    tuning = {"exact": {"pair_limit": 10}}
    monkeypatch.setattr(frame, "LARGEST_PAIRS", 10)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("pairs are listed")

    monkeypatch.setattr(Blocks, "neighbours", refused)
    method = "replan" if objective == "moves" else "auto"
    result = solve(
        instance, method, time_limit=0.5, options={"deterministic": True, "tuning": tuning}
    )
    assert result.solution is not None
    if objective != "peak":
        assert (result.solution.offsets == old).sum() > instance.n // 2


@pytest.mark.parametrize("period", [None, 40])
def test_what_no_search_holds_is_lowered_until_time_is_over(period: int | None) -> None:
    rng, n = np.random.default_rng(0), 120
    start = rng.integers(0, 40, n)
    size, end = rng.integers(1, 200, n), start + rng.integers(1, 20, n)
    instance = LmemPacking.from_arrays(size, start, end, in_place=[(0, 1)], period=period)
    tuning = {"exact": {"pair_limit": 10}}
    result = solve(
        instance, "exact", time_limit=0.3, options={"deterministic": True, "tuning": tuning}
    )
    assert result.termination in (Termination.TIME_LIMIT, Termination.PROVED)
