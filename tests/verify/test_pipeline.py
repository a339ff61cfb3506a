"""Proofs of chains: what is proved verifies, and nothing untrue does."""

from __future__ import annotations

import dataclasses
import functools
import math
import random
from fractions import Fraction
from typing import Any

import pytest

import stagepack as sp
from stagepack.contracts import Number
from stagepack.instances.pipeline import Objective, PipelinePartition
from stagepack.instances.pipeline.check import host_cycles, recv_cycles, send_cycles
from stagepack.instances.pipeline.data import PartitionData
from stagepack.verify import verify
from tests.random_pipelines import OBJECTIVES, optimum, random_instance, solutions
from tests.verify.mutations import mutated

KNOWN = """alternatives backward backward_transfers carry cluster compute_table exclusive
fewer_stages fixed_cuts forbidden_cuts forward free_order host_transfer in_bytes kv_bytes
memory_table microbatches objective out_bytes placement recv_cycles send_cycles shared
stages_per_device stash temporary tokens training variables"""
HARMLESS = "alternatives_per layer_names name order own_alternative received source tensors"
COSTLIER = "tied"
"""Reductions only cost more: what is refuted without them is refuted with them."""
OF_MOVES = "limit limited previous"
"""Of an objective that is refused."""


def _above(instance: PipelinePartition, value: Number) -> list[Number]:
    """Return bounds that a value refutes, from the least on."""
    if instance.tolerance:
        return [value + 1e-7 * abs(value) + 1e-9, 2 * value + 1]
    next_ = value + 1 if isinstance(value, int) else math.nextafter(value, math.inf)
    return [next_, value + 1, 2 * value + 1]


def test_transfers_that_are_tiny_beside_compute_are_told_apart_in_spite_of_rounding() -> None:
    instance = random_instance(5985, largest_n=7, largest_k=4, wide=True)
    result = sp.solve(instance)
    assert verify(instance, result.bound, result.proof, result.evidence).shown


@functools.cache
def _cases() -> tuple[tuple[PipelinePartition, Any, Any], ...]:
    """Return small instances, the result of each, and its optimum by enumeration."""
    instances = [random_instance(seed, largest_k=4) for seed in range(160)]
    return tuple((one, sp.solve(one), optimum(one)) for one in instances)


def test_all_that_is_proved_of_small_chains_verifies() -> None:
    for instance, result, best in _cases():
        assert result.termination == "PROVED"
        assert result.proof == "witness", instance.name
        bound = None if best is None else result.bound
        found = verify(instance, bound, result.proof, result.evidence)
        assert found.shown, (instance.name, found)


def test_mutated_evidence_shows_nothing_untrue() -> None:
    draw, tried = random.Random(1), 0
    for (instance, result, best), (_, other, _) in zip(_cases(), _cases()[1:], strict=False):
        for _ in range(5):
            evidence = mutated(result.evidence, draw)
            evidence = draw.choice([evidence, mutated(evidence, draw), other.evidence])
            claims: list[Number | None] = [None, -1]
            if best is not None:
                claims = [None, best[0], *_above(instance, best[0])]
            for bound in claims:
                tried += 1
                if verify(instance, bound, "witness", evidence).shown and best is not None:
                    assert bound is not None, instance.name
                    assert bound <= best[0] + instance.tolerance * abs(bound), instance.name
    assert tried >= 3000


@pytest.mark.parametrize("method", ["dp-reference", "milp-interval", "cp-sat", "greedy-repair"])
def test_what_other_methods_prove_verifies_too(method: str) -> None:
    for seed in range(40):
        instance = random_instance(seed, largest_n=7)
        info = next(one for one in sp.methods(instance) if one.name == method)
        if not info.available:
            continue
        result = sp.solve(instance, method)
        if result.bound is not None or result.status == "INFEASIBLE":
            bound = None if result.status == "INFEASIBLE" else result.bound
            assert result.proof == "witness", (instance.name, result.proof)
            assert verify(instance, bound, result.proof, result.evidence).shown, instance.name


def _transfers(instance: PipelinePartition) -> list[Fraction]:
    """Return the largest transfers of all partitions."""
    host, found = host_cycles(instance), set()
    for solution in solutions(instance):
        moved = [
            (recv_cycles(instance, d, a) if a > 0 else 0)
            + (send_cycles(instance, d, b) if b < instance.n else 0)
            for a, b, d in solution.stages
        ]
        found.add(Fraction(max(moved)) + Fraction(host))
    return sorted(found)


def test_bounds_of_any_origin_are_shown_where_every_transfer_is_a_threshold() -> None:
    for seed in range(1, 240, 4):  # transfer-bounded
        instance = random_instance(seed, largest_k=4)
        best = optimum(instance)
        if best is not None and instance.tolerance == 0:
            steps = [float(t) for t in _transfers(instance)]
            evidence = {"rule": "fill", "transfers": steps}
            assert verify(instance, best[0], "witness", evidence).shown, instance.name
            for bound in _above(instance, best[0]):
                assert not verify(instance, bound, "witness", evidence).shown, instance.name


STRUCTURED: dict[str, dict[str, Any]] = {
    "one layer": {"forward": [5], "devices": 1},
    "as many devices as layers": {"forward": [3, 1, 4, 1, 5], "devices": 5},
    "equal layers": {"forward": [7] * 60, "devices": 7},
    "nothing to do": {"forward": [0] * 9, "devices": 3},
    "one that is long": {"forward": [1] * 30 + [1000] + [1] * 30, "devices": 8},
    "more devices than layers": {"forward": [4, 4], "devices": 9, "fewer_stages": True},
    "unlike, some left out": {
        "forward": [9, 2, 8, 3, 7, 4, 6],
        "devices": 4,
        "speed": [1, 0.1, 3, 2],
        "fewer_stages": True,
    },
    "a third of a cycle": {"forward": [5, 5, 5, 5, 5, 5], "devices": 2, "speed": [3, 1]},
    "any order": {"forward": list(range(1, 30)), "devices": 5, "speed": [1, 2, 2, 3, 3]}
    | {"free_order": True},
    "stashes": {"forward": [3] * 24, "backward": [5] * 24, "stash": [4] * 24, "devices": 4}
    | {"training": True, "capacity": 80},
    "too many stashes": {"forward": [3] * 24, "stash": [4] * 24, "devices": 4}
    | {"training": True, "capacity": 55},
    "shared keys": {"forward": [2] * 40, "devices": 4, "capacity": 100}
    | {"exclusive": [9] * 40, "shared": {"a": (10, range(0, 40, 2)), "b": (7, range(1, 40, 3))}},
    "peaks": {"forward": [2] * 40, "devices": 4, "capacity": 100}
    | {"exclusive": [8] * 40, "temporary": [i % 11 for i in range(40)]},
    "fractions": {"forward": [0.1 * (i % 7 + 1) for i in range(50)], "devices": 6},
    "tiny and huge": {"forward": [1e-9, 1e9, 3e-9, 2.5e9] * 5, "devices": 4},
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_chains(name: str, objective: Objective) -> None:
    n = len(STRUCTURED[name]["forward"])
    crossing = [(i * 7919) % 23 for i in range(n + 1)]
    instance = sp.PipelinePartition.from_arrays(
        **STRUCTURED[name],
        in_bytes=crossing,
        out_bytes=crossing,
        bandwidth=1.0 if "unlike" not in name else None,
        clock=2.0**30,
        objective=objective,
    )
    result = sp.solve(instance)
    assert result.termination == "PROVED"
    if result.status == "INFEASIBLE":
        assert verify(instance, None, result.proof, result.evidence).shown
        return
    assert verify(instance, result.bound, result.proof, result.evidence).shown
    assert not verify(instance, None, result.proof, result.evidence).shown
    assert result.objective is not None
    for bound in _above(instance, result.objective):
        assert not verify(instance, bound, result.proof, result.evidence).shown


LARGE: dict[str, dict[str, Any]] = {
    "alike": {},
    "memory": {"exclusive": [3] * 20_000, "temporary": [5] * 20_000, "capacity": 7600},
    "some left out": {"speed": [1, 2, 3, 1, 1, 2, 3, 4], "fewer_stages": True},
    "any order": {"speed": [1, 2, 3, 1, 1, 2, 3, 4], "fewer_stages": True, "free_order": True},
    "all unlike": {"speed": [1, 2, 3, 1, 1, 2, 3, 4]},
    "stashes": {"stash": [1] * 20_000, "training": True, "microbatches": 8, "capacity": 20_000},
    "sum": {"objective": "sum", "in_bytes": [(i * 7919) % 997 for i in range(20_001)]},
    "both": {"objective": "transfer-bounded", "in_bytes": [i % 997 for i in range(20_001)]},
}


@pytest.mark.parametrize("name", LARGE)
def test_large_chains_are_witnessed_where_it_can_be_shown(name: str) -> None:
    forward = [(i * 104_729) % 1009 for i in range(20_000)]
    links = {"bandwidth": 1.0, "clock": 2.0**30}
    instance = sp.PipelinePartition.from_arrays(forward, devices=8, **LARGE[name] | links)
    result = sp.solve(instance)
    assert result.termination == "PROVED"
    if name in ("alike", "memory", "some left out", "any order"):
        assert result.proof == "witness"
    if result.proof == "witness":
        assert verify(instance, result.bound, result.proof, result.evidence).shown
        assert result.bound is not None
        assert not verify(
            instance, result.bound + 1, result.proof, result.evidence, time_limit=0.1
        ).shown


@pytest.mark.parametrize("objective", ["sum", "overlap", "transfer-bounded"])
def test_chains_whose_transfers_cost_as_much_as_layers_are_witnessed(objective: str) -> None:
    """Of ends that send no less than one before, few stages are tried."""
    forward = [(i * 104_729) % 1009 for i in range(1_200)]
    dear = [(i * 7919) % 9973 for i in range(1_201)]
    instance = sp.PipelinePartition.from_arrays(
        forward, devices=6, in_bytes=dear, out_bytes=dear, bandwidth=1.0, clock=2.0**30,
        objective=objective,
    )  # fmt: skip
    result = sp.solve(instance)
    assert result.proof == "witness"
    assert verify(instance, result.bound, result.proof, result.evidence).shown
    assert result.bound is not None
    assert not verify(instance, result.bound + 1, result.proof, result.evidence).shown


def test_every_field_of_a_chain_is_used_or_says_nothing_of_its_partitions() -> None:
    known = {*f"{KNOWN} {HARMLESS} {COSTLIER} {OF_MOVES}".split()}
    assert {field.name for field in dataclasses.fields(PartitionData)} == known
