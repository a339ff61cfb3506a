"""Proofs of phases: shortest paths and labels show the optimum, and never more."""

from __future__ import annotations

import random
from typing import Any

import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE
from stagepack.instances.phases import PhaseSchedule
from stagepack.verify import UnprovedError, phases, verify
from tests.random_phases import random_phases
from tests.verify.mutations import attacked, claim

CHAINS = {"skips": False, "prefetch": False, "budgets": False, "recomputations": (1,)}
"""Options of instances whose optimum labels along the layers show."""

Case = tuple[PhaseSchedule, int | None]


def solved(start: int, count: int, **given: Any) -> list[Case]:
    """Return random instances and their optima."""
    found: list[Case] = []
    for seed in range(start, start + count):
        instance = random_phases(seed, **given)
        result = sp.solve(instance, "enumerate", time_limit=5)
        if result.status in ("OPTIMAL", "INFEASIBLE"):
            found.append((instance, result.objective))
    return found


def shown(instance: PhaseSchedule, bound: int | None, rule: str = "path") -> bool:
    try:
        phases.RULES[rule][1](instance, {}, claim(bound))
    except UnprovedError:
        return False
    return True


@pytest.mark.parametrize(
    "given",
    [
        CHAINS | {"layers": (1, 5)},
        CHAINS | {"layers": (4, 8), "one_group": True},
        CHAINS | {"layers": (1, 5), "training": False},
        CHAINS | {"skips": True, "training": False},
        CHAINS | {"skips": True, "training": True, "policies": ["stash"]},
    ],
    ids=["chain", "one group", "inference", "skips", "stashed"],
)
def test_paths_show_the_optimum_and_no_more(given: dict[str, Any]) -> None:
    known = solved(0, 120, **given)
    assert len(known) > 90
    for instance, best in known:
        assert shown(instance, best), instance.name
        if best is not None:
            assert not shown(instance, best + 1), instance.name
            assert not shown(instance, None), instance.name


def test_nothing_false_is_shown_whatever_the_options() -> None:
    rng = random.Random(2)
    known = solved(1000, 250)
    refused = 0
    for instance, best in known:
        for rule in ("path", "budget"):
            proof = str(phases.RULES[rule][0])
            refused += attacked(instance, best, proof, {"rule": rule, "more": [1]}, rng, 4)
    assert refused > 1000


def test_budgets_that_hold_nothing() -> None:
    instance = PhaseSchedule.from_arrays(
        [4, 5], [1, 1], [1, 1, 1], state=[3, 0], sharding=[2, 1], training=True, remote_memory=8
    )
    assert shown(instance, None, "budget")  # 2 + 2 and 5
    assert not shown(instance.replace(remote_memory=9), None, "budget")
    assert not shown(instance.replace(remote_memory=None), None, "budget")
    assert shown(instance.replace(remote_memory=None, graphs=0), None, "budget")


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
