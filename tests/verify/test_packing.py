"""Proofs of packings: all that are found hold, and nothing false is ever shown."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.catalog.packing import evolved
from stagepack.contracts import JsonObject
from stagepack.evidence import VERIFIABLE
from stagepack.instances.packing import Gap, LmemPacking, Objective, PackingSolution
from stagepack.verify import UnprovedError, packing, verify
from tests.packing_cases import FEATURES, brute_force, random_packing, tight
from tests.verify.mutations import attacked, claim

Case = tuple[LmemPacking, int | None]


def cases() -> list[Case]:
    """Return small instances with every option, and their optima."""
    rng = np.random.default_rng(7)
    found: list[Case] = [(tight(), 17)]
    for core in evolved.CORES[:3]:
        start, end, size = np.array(core.rows).T
        found.append((LmemPacking.from_arrays(size, start, end), core.optimum))
    for number in range(140):
        one, other = FEATURES[number % 10], FEATURES[number // 10 % 10]
        peak = number % 4 != 3
        objective = Objective.PEAK if peak else list(Objective)[1 + number // 4 % 4]
        instance = random_packing(rng, features={one, other}, objective=objective, n=4)
        best = brute_force(instance)
        found.append((instance, None if best is None else int(instance.evaluate(best))))
    return found


@functools.cache
def solved() -> list[tuple[LmemPacking, int | None, sp.Result[PackingSolution]]]:
    """Return the instances, their optima, and what solving them with proofs comes to."""
    return [
        (instance, best, sp.solve(instance, options={"proof": True}, time_limit=2))
        for instance, best in cases()
    ]


def test_what_is_called_verifiable_is_verified() -> None:
    kinds: Counter[str] = Counter()
    for instance, best, result in solved():
        assert (result.status == "INFEASIBLE") == (best is None)
        assert best is None or (result.bound is not None and result.bound <= best)
        found = verify(instance, result.bound, result.proof, result.evidence)
        assert found.shown == (result.proof in VERIFIABLE), (instance, result, found)
        assert not found.shown or found.detail == result.evidence["rule"]
        kinds[str(result.proof)] += 1
    assert kinds["witness"] > 70
    assert kinds["log"] > 0


def test_nothing_false_is_shown() -> None:
    rng = random.Random(1)
    forms: list[JsonObject] = [{"rule": "floor"}, {"rule": "place"}]
    logs = []
    for instance, best, result in solved():
        if result.proof == "log":
            logs.append(result.evidence)
        moments = range(int(instance.start.min()) - 1, int(instance.end.max()) + 1)
        own: list[JsonObject] = [
            {"rule": "load", "moment": rng.choice(moments)},
            {"rule": "clique", "members": rng.sample(range(instance.n), 3)},
            result.evidence,
            *forms,
        ]
        for evidence in own:
            attacked(instance, best, "witness", evidence, rng, 4)
    assert logs
    refused = 0
    for instance, best, _ in solved():
        for log in (*logs, FREE):
            refused += attacked(instance, best, "log", log, rng, 5)
    assert refused > 1000


FREE: JsonObject = {
    "rule": "misfit",
    "capacity": 1,
    "buffers": [0, 1, 2],
    "moments": [0],
    "steps": [3],
}


def shown(instance: LmemPacking, bound: int | None, rule: str, **data: object) -> bool:
    try:
        packing.RULES[rule][1](instance, data, claim(bound))
    except UnprovedError:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "least"),
    [
        ({}, 12),
        ({"in_place": [(0, 1)]}, 9),
        ({"in_place": [(0, 1), (1, 2)]}, 8),
        ({"exempt": [(0, 1)]}, 9),
        ({"views": [(0, 2, 1)]}, 9),
        ({"colocated": [(0, 1)]}, 9),
        ({"colocated": [(0, 1, 2)]}, 5),
        ({"alignment": [4, 4, 4]}, 13),
        ({"alignment": [2, 4, 6]}, 13),
        ({"reserved": [(2, 4), (20, 30)]}, 14),
        ({"reserved": [(0, 100)]}, 112),
        ({"gaps": [Gap(0, 0, 1, 1, 3)]}, 11),
        ({"gaps": [Gap(0, 0, 1)], "colocated": [(0, 1)]}, 9),
        ({"gaps": [Gap(0, 0, 1, 0, 1), Gap(1, 0, 1, 2, 4)], "colocated": [(0, 1)]}, 7),
    ],
)
def test_what_a_moment_shows(given: dict[str, Any], least: int) -> None:
    instance = LmemPacking.from_arrays([3, 4, 5], [0, 0, 0], [1, 2, 3], **given)
    assert shown(instance, least, "load", moment=0)
    assert not shown(instance, least + 1, "load", moment=0)
    assert not shown(instance, least, "load", moment=0, members=[])
    assert shown(instance, least, "load")
    fit = instance.replace(capacity=least - 1, objective="fit")
    assert shown(fit, None, "load", moment=0)
    assert not shown(fit.replace(capacity=least), None, "load", moment=0)


def test_moments_of_a_period_are_those_of_any_turn() -> None:
    instance = LmemPacking.from_arrays(
        [3, 4, 5], [4, 1, 3], [7, 4, 4], period=5, gaps=[Gap(0, 5, 6, 0, 1)]
    )
    loads = {0: 1, 1: 7, 2: 4, 3: 9, 4: 3}
    for moment in range(-5, 10):
        load = loads[moment % 5]
        assert shown(instance, load, "load", moment=moment)
        assert not shown(instance, load + 1, "load", moment=moment)
    assert shown(instance, 9, "load")


def test_moments_are_whole() -> None:
    """A float plus a long period is another moment."""
    period = 2**60
    instance = LmemPacking.from_arrays([3, 4], [2, period - 9], [5, period + 2], period=period)
    assert shown(instance, 3, "load", moment=3)
    assert shown(instance, 4, "load", moment=1)
    for moment in (3, 3.0, 1.0, 0.5):
        assert not shown(instance, 7, "load", moment=moment)
    log = {"capacity": 6, "buffers": [0, 1], "moments": [3.0], "steps": []}
    assert not shown(instance, 7, "misfit", **log)


def test_several_memories_are_too_small_together() -> None:
    instance = LmemPacking.from_arrays(
        [3, 4, 5], [0, 0, 0], [1, 2, 3], memories=[("near", 6, 1), ("far", 5, 2)], reserved=[(0, 1)]
    )
    assert shown(instance, None, "load", moment=0)
    assert not shown(instance, None, "load", moment=1)
    assert not shown(instance, 13, "load", moment=0)  # of costs, not of places
    assert shown(instance, 12, "floor")
    assert not shown(instance, 13, "floor")
    endless = instance.replace(memories=[("near", 6, 1), ("far", None, 2)])
    assert not shown(endless, None, "load", moment=0)


def test_places_are_where_a_buffer_may_lie() -> None:
    instance = LmemPacking.from_arrays(
        [2, 3, 1], [0, 0, 0], [1, 1, 1], alignment=[2, 3, 1],
        allowed=[(0, 7, 9), (0, 11, 20)], reserved=[(7, 8)],
    )  # fmt: skip
    # Multiples of 2: 8 is too high for the first range, 12 is the next.
    assert shown(instance, 14, "place")
    assert not shown(instance, 15, "place")
    assert shown(instance.replace(allowed=[(0, 7, 9)]), None, "place")
    assert not shown(instance.replace(allowed=[(0, 7, 10)]), None, "place")
    assert shown(instance.replace(allowed=[], fixed=[-1, 18, -1]), 21, "place")
    assert not shown(instance.replace(allowed=[], fixed=[-1, 18, -1]), 22, "place")


def test_results_of_large_graphs_carry_cliques() -> None:
    rng = np.random.default_rng(3)
    n = 25_000
    pairs = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    more = rng.integers(0, n, (200, 2))
    pairs = np.concatenate([pairs, more[more[:, 0] != more[:, 1]]])
    instance = LmemPacking.from_arrays(rng.integers(1, 99, n), conflicts=pairs)
    result = sp.solve(instance, time_limit=3)
    assert result.proof == "witness"
    assert result.objective is not None
    assert verify(instance, result.bound, "witness", result.evidence).shown
    assert not verify(instance, result.objective + 1, "witness", result.evidence).shown
