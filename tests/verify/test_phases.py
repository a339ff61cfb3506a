"""Proofs of phases: shortest paths and labels show the optimum, and never more."""

from __future__ import annotations

import random
from typing import Any

import pytest

import stagepack as sp
from stagepack.contracts import Number
from stagepack.evidence import VERIFIABLE
from stagepack.instances.phases import PhaseSchedule
from stagepack.verify import UnprovedError, phases, verify
from tests.random_phases import random_phases
from tests.verify.mutations import attacked, claim

CHAINS = {"skips": False, "prefetch": False, "budgets": False, "recomputations": (1,)}
"""Options of instances whose optimum labels along the layers nearly always show."""

Case = tuple[PhaseSchedule, Number | None]


def solved(start: int, count: int, **given: Any) -> list[Case]:
    """Return random instances and their optima."""
    found: list[Case] = []
    for seed in range(start, start + count):
        instance = random_phases(seed, **given)
        result = sp.solve(instance, "enumerate", time_limit=5)
        if result.status in ("OPTIMAL", "INFEASIBLE"):
            found.append((instance, result.objective))
    return found


def shown(instance: PhaseSchedule, bound: Number | None) -> bool:
    try:
        phases.RULES["path"][1](instance, {}, claim(bound))
    except UnprovedError:
        return False
    return True


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (CHAINS | {"layers": (1, 5)}, 0.9),
        (CHAINS | {"layers": (4, 8), "one_group": True}, 0.95),
        (CHAINS | {"layers": (1, 5), "training": False}, 1.0),
        (CHAINS | {"skips": True, "training": False}, 1.0),
        (CHAINS | {"skips": True, "training": True, "policies": ["stash"]}, 1.0),
    ],
    ids=["chain", "one group", "inference", "skips", "stashed"],
)
def test_paths_show_the_optimum_and_no_more(given: dict[str, Any], part: float) -> None:
    known = solved(0, 120, **given)
    assert len(known) > 90
    assert sum(shown(instance, best) for instance, best in known) >= part * len(known)
    for instance, best in known:
        if best is not None:
            assert not shown(instance, best + 1), instance.name
            assert not shown(instance, None), instance.name


def test_nothing_false_is_shown_whatever_the_options() -> None:
    rng = random.Random(2)
    known = solved(1000, 250)
    refused = 0
    for instance, best in known:
        refused += attacked(instance, best, "dual", {"rule": "path", "more": [1]}, rng, 8)
    assert refused > 1000


def test_results_carry_what_shows_them() -> None:
    for name in ("phases/six-layers", "phases/mnist", "phases/random/heterogeneous"):
        instance = sp.load(name)
        result = sp.solve(instance, options={"proof": True})
        assert (result.status, result.proof) == ("OPTIMAL", "dual")
        assert verify(instance, result.bound, result.proof, result.evidence).shown
    none = sp.solve(sp.load("phases/six-layers").replace(memory=3))
    assert none.status == "INFEASIBLE"
    assert none.proof in VERIFIABLE


def test_large_instances_are_left_to_others() -> None:
    n = 3_000
    instance = PhaseSchedule.from_arrays([1] * n, [1] * n, [1] * (n + 1), memory=n)
    found = verify(instance, 10, time_limit=0.2)
    assert not found.shown
