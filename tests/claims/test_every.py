"""Trying every solution: it meets the optimum, and refuses what it cannot try as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.claims.every import Tried, tried
from stagepack.contracts import Instance, Number
from stagepack.instances.packing import Gap, Objective
from tests import random_graphs, random_phases, random_pipelines
from tests.chosen_pipelines import chosen_instance
from tests.packing_cases import FEATURES, brute_force, random_packing
from tests.relations import groups


def graph(seed: int) -> sp.GraphPartition:
    rng = np.random.default_rng(seed)
    return random_graphs.random_instance(rng, int(rng.integers(2, 6)))


def grouping(seed: int) -> sp.LayerGrouping:
    order = "free" if seed % 3 == 0 else "given"
    return groups.instance(seed).replace(timesteps="nearest", order=order)


def phases(seed: int) -> sp.PhaseSchedule:
    return random_phases.random_phases(seed)


def pipeline(seed: int) -> sp.PipelinePartition:
    return random_pipelines.random_instance(seed) if seed % 3 else chosen_instance(seed)


KINDS: dict[str, tuple[Callable[[int], Any], int]] = {
    "graph": (graph, 20),
    "phases": (phases, 16),
    "groups": (grouping, 10),
    "pipeline": (pipeline, 40),
}


def agrees(instance: Instance, optimum: Number | None) -> Tried | None:
    """Require that enumeration finds nothing below the optimum, and what is below more."""
    found = tried(instance, optimum, 20)
    assert found is None or found.best is None
    if found is not None and optimum is not None:
        more = optimum + 1 if isinstance(optimum, int) else optimum * 1.01 + 1e-3
        (above, any_) = (tried(instance, bound, 20) for bound in (more, None))
        assert above is not None
        assert above.best is not None
        assert not isinstance(optimum, int) or above.best == optimum
        assert any_ is None or any_.best is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_better_than_the_optimum(kind: str) -> None:
    make, count = KINDS[kind]
    results = [agrees(instance, value) for instance, value in proved(make, count)]
    assert sum(found is not None for found in results) >= 0.8 * len(results) >= 0.6 * count


def proved(make: Callable[[int], Any], count: int) -> Iterator[tuple[Instance, Number | None]]:
    for seed in range(count):
        instance = make(seed)
        result: sp.Result[Any] = sp.solve(instance, time_limit=10)
        if result.status in ("OPTIMAL", "INFEASIBLE"):
            yield instance, result.objective


def test_packings_in_which_nothing_can_move_down_hold_an_optimum() -> None:
    rng = np.random.default_rng(41)
    refused = 0
    for _ in range(200):
        features = [feature for feature in FEATURES if rng.random() < 0.25]
        features = [f for f in features if f != "circular" or "conflicts" not in features]
        objective = rng.choice(["peak", "fit", "moves", "spill"])
        instance = random_packing(rng, features=features, objective=objective, n=5)
        best = brute_force(instance)
        found = agrees(instance, None if best is None else instance.evaluate(best))
        refused += found is None
        partial = bool(instance.views or instance.segment) or any(
            0 < gap.high - gap.low < instance.size[gap.buffer] for gap in instance.gaps
        )
        assert (found is None) <= partial
    assert 0 < refused < 150


def test_what_cannot_be_tried_as_a_whole_is_refused() -> None:
    sizes, starts, ends = [4, 4, 4], [0, 3, 0], [3, 9, 9]
    plain = sp.LmemPacking.from_arrays(sizes, starts, ends)
    found = tried(plain, 8, 10)
    assert found is not None
    assert (found.count > 0, found.best) == (True, None)
    assert tried(plain.replace(gaps=[Gap(2, 1, 2, 0, 3)]), 8, 10) is None
    banks = sp.Banks(9, 2, np.array([(0, 1)]), None)
    assert tried(plain.replace(banks=banks, objective=Objective.BANK_CONFLICTS), 8, 10) is None
    many = sp.LmemPacking.from_arrays([4] * 30, [0] * 30, [1] * 30)
    assert tried(many, 120, 10) is None
    assert tried(groups.instance(1).replace(timesteps="free"), 1, 10) is None
    assert tried(sp.PipelinePartition.from_arrays([1] * 99, devices=9), 1, 10) is None


@pytest.mark.parametrize(("make", "seed"), [(phases, 6), (phases, 13), (grouping, 6)])
def test_claims_without_evidence_are_confirmed_by_enumeration(
    make: Callable[[int], Any], seed: int
) -> None:
    instance = make(seed)
    said = {**sp.solve(instance, time_limit=10).to_dict(), "proof": "search", "evidence": {}}
    alone = sp.check_result(instance, said)
    assert not alone.verified
    found = sp.check_result(instance, said, prove=True)
    assert found.verified
    name = "status" if found.solution is None else "bound"
    (claim,) = (claim for claim in found.claims if claim.name == name)
    assert claim.detail == f"by enumeration of {found.candidates:,} candidates"
    assert found.to_dict()["candidates"] == found.candidates > 0
    assert f"enumeration: {found.candidates:,} candidates tried" in str(found)
