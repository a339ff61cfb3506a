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
from stagepack.verify.graph import RULES
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
        instance = drawn(seed, most=7)
        result = sp.solve(instance, time_limit=10)
        bound = None if result.status is Status.INFEASIBLE else result.bound
        found = verify(instance, bound, result.proof, result.evidence)
        assert found.shown == (result.proof in VERIFIABLE), (seed, found)
        proofs.append(result.proof)
    assert sum(proof in VERIFIABLE for proof in proofs) >= 27


def mutations(rng: np.random.Generator, instance: GraphPartition) -> dict[str, dict[str, Any]]:
    """Return some evidence for each rule, most of it wrong."""
    odd: list[Any] = [None, -1, "x", math.nan, [], {}, 10**30, instance.n, True]
    prices: Any = rng.choice([0, 1, 2, 0.5, 1e-9, 1e9], (2, instance.devices)).tolist()
    if rng.random() < 0.3:
        prices[int(rng.integers(2))] = odd[int(rng.integers(len(odd)))]
    if rng.random() < 0.3:
        prices = prices[: int(rng.integers(3))]
    return {
        "work": {"prices": prices} if rng.random() < 0.5 else {},
        "prices": {"prices": prices},
        "anchor": {"node": odd[int(rng.integers(len(odd)))] if rng.random() < 0.2 else
                   int(rng.integers(instance.n))},
        "ideals": {"light": odd[int(rng.integers(len(odd)))] if rng.random() < 0.2 else
                   int(rng.integers(40))},
        "few-ideals": {},
    }  # fmt: skip


@pytest.mark.parametrize("part", range(5))
def test_no_claim_above_the_optimum_is_shown(part: int) -> None:
    """A thousand mutations of evidence in all for each rule, about claims that are barely false."""
    rng = np.random.default_rng(part)
    for seed in range(50):
        instance = drawn(1_000 * part + seed)
        value = optimum(instance)
        if value is None:
            continue
        for times in range(5):
            claim = [beyond(instance, value), value + 1, None][times % 3]
            for rule, evidence in mutations(rng, instance).items():
                assert not shows(instance, claim, rule, **evidence), (seed, rule, evidence)


@pytest.mark.parametrize("part", range(3))
def test_what_is_true_is_shown_by_ideals(part: int) -> None:
    for seed in range(1_000 * part, 1_000 * part + 40):
        instance = drawn(seed)
        if instance.uniform:
            assert shows(instance, optimum(instance), "ideals"), seed


def test_bytes_of_idle_nodes_may_be_left_out() -> None:
    """Without their bytes more fits; what is shown then is shown."""
    for seed in range(60):
        instance = drawn(seed, objective="sum", contiguous=True)
        idle = np.arange(instance.n) % 2 == 1
        instance = instance.replace(time=np.where(idle, 0, instance.time), colour=None)
        value = optimum(instance)
        for light in (0, 5, 1_000):
            if value is not None:
                assert not shows(instance, beyond(instance, value), "ideals", light=light)
        if instance.uniform:
            assert shows(instance, value, "ideals", light=0)


def test_a_cut_around_a_node_is_a_bound() -> None:
    star = GraphPartition.from_edges(
        5, [(0, v) for v in range(1, 5)], time=[10, 3, 3, 3, 3], edge_traffic=[5] * 4,
        accelerators=4, contiguous=False,
    )  # fmt: skip
    assert optimum(star) == 22
    assert shows(star, 22, "anchor", node=0)
    assert not shows(star, 23, "anchor", node=0)


def test_prices_share_work_among_unlike_devices() -> None:
    """Alike nodes on an accelerator twice as fast: prices show what equal ones do not."""
    nodes = GraphPartition.from_arrays([6] * 9, accelerators=2, speeds=[1, 2], contiguous=False)
    assert shows(nodes, 18, "prices", prices=[[1, 2]])
    assert verify(nodes, 18, Proof.WITNESS, {"rule": "work"}).detail == "few-ideals"
    assert not shows(nodes, 19, "prices", prices=[[1, 2]])


def test_unknown_objectives_are_refused() -> None:
    instance = drawn(0, objective="sum")
    unknown: Any = SimpleNamespace(value="energy")
    other = dataclasses.replace(instance, objective=unknown)
    for rule in RULES:
        assert not shows(other, 0, rule, node=0, prices=[[1] * other.devices])


def test_kinds_of_proof_are_what_their_rules_are() -> None:
    assert {kind for kind, _ in RULES.values()} == {Proof.WITNESS, Proof.DUAL, Proof.LOG}
