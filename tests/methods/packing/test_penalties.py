"""Penalties of pairs that share addresses: the methods agree with trying every offset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.packing import LmemPacking
from stagepack.methods.packing import METHODS

Given = dict[str, Any]


def given(seed: int) -> Given:
    """Return the arrays of a small packing with penalties, sometimes with structure and rules."""
    rng = np.random.default_rng(seed)
    n, style = int(rng.integers(2, 6)), seed % 5
    size = [3] * n if style == 1 else rng.integers(seed % 7 > 0, 5, n).tolist()
    start, end = rng.integers(0, 6, n), rng.integers(1, 4, n)
    end += start
    if style == 2:  # a chain
        start, end = np.arange(n), np.arange(n) + 2
    if style == 3:  # nested
        start, end = np.arange(n), 9 - np.arange(n)
    every = [(i, j) for j in range(n) for i in range(j)]
    hard = [(i, j) for i, j in every if start[i] < end[j] and start[j] < end[i]]
    rules: Given = {"start": start.tolist(), "end": end.tolist()}
    if style == 4:
        hard = [pair for pair in every if rng.random() < 0.4]
        rules = {"conflicts": hard}
    load = max([*size, *(size[i] + size[j] for i, j in hard)])
    capacity = min(9, load + int(rng.integers(0, 4)))
    if rng.random() < 0.3:
        rules["alignment"] = rng.choice([1, 2], n).tolist()
    if rng.random() < 0.3:
        at = int(rng.integers(capacity))
        rules["reserved"] = [(at, at + 1)]
    if rng.random() < 0.3 and n > 2:
        rules["colocated"] = [(0, 2)]
    elif rng.random() < 0.3 and hard:
        rules["in_place"] = hard[:1]
    priced = [(*pair, int(rng.integers(0, 5))) for pair in every if rng.random() < 0.7]
    return {"size": size, "capacity": capacity, "penalties": priced, "hard": hard, **rules}


def least(case: Given, capacity: int) -> int | None:
    """Return the least penalties below a capacity by trying every offset; None: nothing fits."""
    size, hard, n = case["size"], set(case["hard"]), len(case["size"])
    step = case.get("alignment", [1] * n)
    price = {(i, j): cost for i, j, cost in case["penalties"]}
    same, shared = set(case.get("colocated", ())), set(case.get("in_place", ()))
    at, best = [0] * n, None

    def meet(i: int, j: int) -> bool:
        return bool(max(at[i], at[j]) < min(at[i] + size[i], at[j] + size[j]))

    def allowed(i: int, j: int) -> bool:
        if (i, j) in same:
            return at[i] == at[j]
        return not (meet(i, j) and (i, j) in hard) or ((i, j) in shared and at[i] == at[j])

    def place(j: int, paid: int) -> None:
        nonlocal best
        if best is not None and paid >= best:
            return
        if j == n:
            best = paid
            return
        for offset in range(0, capacity - size[j] + 1, step[j]):
            at[j], top = offset, offset + size[j]
            legal = all(low >= top or high <= offset for low, high in case.get("reserved", ()))
            if legal and all(allowed(i, j) for i in range(j)):
                place(j + 1, paid + sum(price.get((i, j), 0) * meet(i, j) for i in range(j)))

    place(0, 0)
    return best


def instance_of(case: Given, **changes: Any) -> LmemPacking:
    fields = {key: value for key, value in case.items() if key != "hard"}
    return LmemPacking.from_arrays(**{**fields, "objective": "penalties", **changes})


def seeds(count: int) -> list[int]:
    """Return seeds of cases whose rules do not contradict each other."""
    found = []
    for seed in range(10 * count):
        try:
            instance_of(given(seed))
        except sp.InputError:
            continue
        found.append(seed)
    return found[:count]


@pytest.mark.parametrize(("method", "count"), [("auto", 40), ("cp-sat", 10)])
def test_agrees_with_trying_everything(method: str, count: int) -> None:
    for seed in seeds(count):
        case = given(seed)
        best = least(case, case["capacity"])
        result = sp.solve(instance_of(case), method=method, time_limit=20)
        assert result.status is (sp.Status.INFEASIBLE if best is None else sp.Status.OPTIMAL), seed
        assert result.objective == best, seed


def test_the_heuristic_stays_above_the_least_cost_and_says_no_bound_above_it() -> None:
    for seed in seeds(10):
        case = given(seed)
        best = least(case, case["capacity"])
        result = sp.solve(
            instance_of(case),
            method="reuse-aware",
            time_limit=0.1,
            options={"deterministic": True},
        )
        assert (result.objective is None) == (best is None), seed
        if best is not None and result.objective is not None:
            assert (result.bound or 0) <= best <= result.objective


def test_among_placements_of_the_least_peak_penalties_are_least() -> None:
    for seed in seeds(8):
        case = given(seed)
        if not case["penalties"]:
            continue
        result = sp.solve(instance_of(case, objective="peak", capacity=None), time_limit=20)
        assert result.status is sp.Status.OPTIMAL
        assert isinstance(result.objective, int)
        paid = sp.measure(instance_of(case, objective="peak", capacity=None), result).penalties
        assert paid == least(case, result.objective), seed
        assert f"penalties of {paid} at this peak, the least" in result.reason


def test_the_peak_comes_second() -> None:
    priced = [(0, 1, 3), (1, 2, 3)]
    instance = LmemPacking.from_arrays(
        [4, 4, 4], [0, 2, 4], [2, 4, 6], penalties=priced, capacity=20
    )
    result = sp.solve(instance, time_limit=5)
    assert (result.objective, result.status) == (0, sp.Status.OPTIMAL)
    assert sp.measure(instance, result).peak == 8


def test_the_same_run_gives_the_same_answer_and_work_ends_it() -> None:
    rng = np.random.default_rng(5)
    start = rng.integers(0, 60, 40)
    instance = LmemPacking.from_arrays(
        rng.integers(1, 30, 40),
        start,
        start + rng.integers(1, 12, 40),
        capacity=110,
        penalties=[(i, j, 1) for i in range(40) for j in range(i) if rng.random() < 0.3],
    )
    results = [
        sp.solve(instance, method="reuse-aware", time_limit=0.2, options={"deterministic": True})
        for _ in range(2)
    ]
    one, other = results
    assert one.solution is not None
    assert one.solution == other.solution
    assert one.objective == other.objective


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_others_refuse_penalties_by_name(method: str) -> None:
    instance = LmemPacking.from_arrays(
        [2, 2], [0, 1], [1, 2], capacity=3, penalties=[(0, 1, 1)], objective="penalties"
    )
    if method in ("auto", "cp-sat", "reuse-aware"):
        assert sp.solve(instance, method=method, time_limit=1).objective == 1
        return
    with pytest.raises(sp.InputError, match=r"penalties|moves|memories|banks"):
        sp.solve(instance, method=method, time_limit=1)


def test_what_views_share_at_any_place_is_paid_without_a_false_witness() -> None:
    instance = LmemPacking.from_arrays(
        [2, 4, 3],
        [0, 0, 1],
        [2, 2, 2],
        capacity=8,
        views=[(0, 1, 1)],
        penalties=[(0, 1, 5), (1, 2, 3)],
        objective="penalties",
    )
    result: sp.Result[Any] = sp.solve(instance)
    assert (result.status, result.objective) == ("OPTIMAL", 5)
    assert not sp.check_result(instance, result).false
