"""Proofs of graph partitions: those of solves hold, and no claim above an optimum is shown."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.instances.graph import GraphPartition
from stagepack.result import Status
from stagepack.verify import verify
from stagepack.verify.graph import OBJECTIVES, RULES
from tests.random_graphs import brute_force, random_instance


def drawn(seed: int, most: int = 5, **options: Any) -> GraphPartition:
    rng = np.random.default_rng(seed)
    return random_instance(rng, int(rng.integers(1, most + 1)), **options)


def optimum(instance: GraphPartition) -> float | int | None:
    """Return what the best partition is worth as the package tells it, None: there is none."""
    best = brute_force(instance)
    if best is None:
        return None
    return instance.evaluate(type(instance).solution_type.from_dict(best[1], instance))


def usual(seed: int, most: int = 5) -> GraphPartition:
    """Return an instance without the options that rules leave out."""
    return drawn(
        seed, most, objective=OBJECTIVES[seed % 3], device_order="any", empty_devices=True,
        bandwidth=2, microbatches=1,
    )  # fmt: skip


def beyond(instance: GraphPartition, value: float | int) -> float:
    """Return the least claim that is false."""
    if instance.tolerance:
        return float(value) * (1 + 3e-9) + 1e-12
    return math.nextafter(value, math.inf)


def shows(instance: GraphPartition, bound: Any, rule: str, **evidence: Any) -> bool:
    return verify(instance, bound, RULES[rule][0], {"rule": rule, **evidence}).shown


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_proofs_of_solves_are_verified(first: int) -> None:
    proofs = []
    for seed in range(first, first + 30):
        instance = usual(seed, most=7) if seed % 2 else drawn(seed, most=7)
        result = sp.solve(instance, time_limit=10)
        bound = None if result.status is Status.INFEASIBLE else result.bound
        found = verify(instance, bound, result.proof, result.evidence)
        assert found.shown == (result.proof in VERIFIABLE), (seed, found)
        proofs += [result.proof] * (seed % 2)
    assert sum(proof in VERIFIABLE for proof in proofs) >= 14


def mutations(rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Return some evidence for each rule, which needs none."""
    odd: list[Any] = [None, -1, "x", math.nan, [], {}, 10**30, True]
    given = {"light": odd[int(rng.integers(len(odd)))]} if rng.random() < 0.5 else {}
    return dict.fromkeys(RULES, given)


@pytest.mark.parametrize("part", range(5))
def test_no_claim_above_the_optimum_is_shown(part: int) -> None:
    """A thousand mutations of evidence in all for each rule, about claims that are barely false."""
    rng = np.random.default_rng(part)
    for seed in range(60):
        instance = (usual if seed % 2 else drawn)(1_000 * part + seed)
        value = optimum(instance)
        if value is None:
            continue
        for times in range(5):
            claim = [beyond(instance, value), value + 1, None][times % 3]
            for rule, evidence in mutations(rng).items():
                assert not shows(instance, claim, rule, **evidence), (seed, rule, evidence)


@pytest.mark.parametrize("part", range(3))
def test_what_is_true_is_shown_by_ideals(part: int) -> None:
    for seed in range(1_000 * part, 1_000 * part + 40):
        instance = usual(seed)
        assert shows(instance, optimum(instance), "ideals"), seed


def test_unequal_accelerators_and_cpus_are_told_apart() -> None:
    """A block that fits on the slow device alone, and traffic that a CPU does not pay."""
    pair = GraphPartition.from_edges(
        2, [(0, 1)], time=[10, 10], edge_traffic=[5], accelerators=2, cpus=1, cpu_time=[12, 30],
        speeds=[1, 2], memory=[1, 9], capacity=[9, 1],
    )  # fmt: skip
    value = optimum(pair)
    assert value is not None
    assert shows(pair, value, "ideals")
    assert not shows(pair, beyond(pair, value), "ideals")


def test_colours_in_a_circle_share_a_stage() -> None:
    """Nodes 0 and 2 of one colour, node 1 between them."""
    line = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[4, 4, 4], colour=[0, -1, 0], accelerators=2
    )
    assert optimum(line) == 12
    assert shows(line, 12, "ideals")
    assert not shows(line, 13, "ideals")


def test_unknown_objectives_are_refused() -> None:
    instance = drawn(0, objective="sum")
    unknown: Any = SimpleNamespace(value="energy")
    other = dataclasses.replace(instance, objective=unknown)
    for rule in RULES:
        assert not shows(other, 0, rule)


def test_kinds_of_proof_are_what_their_rules_are() -> None:
    assert {kind for kind, _ in RULES.values()} == {Proof.WITNESS, Proof.LOG}
