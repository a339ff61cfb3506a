"""Proofs of graph partitions: those of solves hold, and no claim above an optimum is shown."""

from __future__ import annotations

import dataclasses
import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.instances.graph import GraphPartition
from stagepack.methods.graph import evidence
from stagepack.progress import Progress
from stagepack.result import Status
from stagepack.solvers import Limits
from stagepack.verify import verify
from stagepack.verify.graph import OBJECTIVES, RULES
from tests.random_graphs import brute_force, random_instance
from tests.verify.mutations import mutated


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
        seed, most, objective=OBJECTIVES[seed % 5], device_order="any", empty_devices=True,
        bandwidth=2, microbatches=1,
    )  # fmt: skip


def beyond(instance: GraphPartition, value: float | int) -> float:
    """Return the least claim that is false."""
    if instance.tolerance:
        return float(value) * (1 + 3e-9) + 1e-12
    return math.nextafter(value, math.inf)


def shows(instance: GraphPartition, bound: Any, rule: str, **given: Any) -> bool:
    return verify(instance, bound, RULES[rule][0], {"rule": rule, **given}).shown


def rests(instance: GraphPartition, bound: Any, rule: str, **given: Any) -> bool:
    """Whether a bound is shown by what is given, and not by rules that need nothing."""
    return verify(instance, bound, RULES[rule][0], {"rule": rule, **given}).detail == rule


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


def placed(seed: int, passes: bool = False) -> tuple[GraphPartition, float | int] | None:
    """Return a graph and its optimum where linear rows, or a flow, may show a bound.

    `passes`: with nodes of a backward pass, each of the colour of a forward node.
    """
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(3, 7))
    after = [(u, v) for v in range(1, nodes) for u in range(v) if rng.random() < 0.4]
    two: dict[str, Any] = {"objective": "overlap" if seed % 5 == 0 else "sum"}
    if passes:
        back = np.arange(nodes) >= nodes - int(rng.integers(1, 1 + nodes // 2))
        colour = np.where(back, nodes - 1 - np.arange(nodes), np.arange(nodes))
        two = {"objective": "forward+backward", "backward": back, "colour": colour}
    instance = GraphPartition.from_edges(
        nodes, after, time=rng.integers(1, 12, nodes).tolist(),
        edge_traffic=rng.integers(0, 9, len(after)).tolist(),
        accelerators=2 if nodes > 4 else int(rng.integers(2, 4)), **two,
        speeds=[1, 2] if seed % 7 == 0 and nodes > 4 else 1,
        device_order="fixed" if seed % 2 else "any",
        capacity=int(rng.integers(9, 30)) if seed % 3 == 0 else None,
        memory=rng.integers(0, 9, nodes).tolist(),
    )  # fmt: skip
    value = optimum(instance)
    return None if value is None else (instance, value)


def relaxed(instance: GraphPartition, bound: float | int) -> dict[str, Any]:
    """Return multipliers of linear rows that may show a bound."""
    rows = evidence.Relaxed.of(instance, bound)
    solved = None if rows is None else rows.solved()
    shown = None if solved is None else solved.evidence()
    return {} if shown is None else shown.data


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("rule", ["cut", "dual"])
def test_mutated_flows_and_multipliers_show_nothing_untrue(rule: str, passes: bool) -> None:
    """Evidence of true bounds, changed, for claims that are barely false."""
    draw, shown, tried, kept = random.Random(0), 0, 0, dict[str, Any]()
    for seed in range(140):
        known = placed(seed, passes)
        if known is None:
            continue
        instance, value = known
        for bound in (value, math.floor(value * 0.9)):
            flow = evidence.around(instance, bound) if rule == "cut" else None
            given = {"rule": rule, "flow": flow} if flow else {}
            given = relaxed(instance, bound) if rule == "dual" else given
            if given:
                assert verify(instance, bound, RULES[rule][0], given).proof is RULES[rule][0]
                shown, kept = shown + 1, given
        for _ in range(10 if kept else 0):
            changed = mutated(kept, draw)
            claim = draw.choice([beyond(instance, value), value + 1, 2 * value, None])
            tried += 1
            assert not verify(instance, claim, RULES[rule][0], changed).shown, (seed, changed)
    assert shown >= 40
    assert tried >= 1_000


def test_multipliers_of_another_claim_or_kind_are_refused() -> None:
    """A line of four: each of two devices holds two, and pays for the tensor between these."""
    line = GraphPartition.from_edges(
        4, [(0, 1), (1, 2), (2, 3)], time=[4] * 4, edge_traffic=[3] * 3, accelerators=2
    )
    assert optimum(line) == 11
    given = relaxed(line, 11)
    assert rests(line, 11, **given)
    times = given["times"]
    odd: tuple[Any, ...] = (
        [[at, -count] for at, count in times],
        [[at, float(count)] for at, count in times],
        [[at, math.nan] for at, _ in times],
        [[str(at), count] for at, count in times],
        times[1:],
        [],
        None,
        {},
    )
    for wrong in odd:
        assert not rests(line, 11, "dual", times=wrong), wrong
    assert not shows(line, 12, **given)


def test_a_tensor_hands_out_no_more_than_it_costs() -> None:
    """Node 1 is busy for 4, and for 3 with either neighbour or the tensor between."""
    line = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[3, 4, 3], edge_traffic=[3, 3], accelerators=3
    )
    assert optimum(line) == 10 == shown_around(line, 10)
    for wrong in ([[-3, 4], [3, -3]], [[-4, 4], [3, -3]], [[-3, 3, 0], [3, -3]], [[-3, 3.5]]):
        assert not rests(line, 10, "cut", flow=wrong), wrong


def shown_around(instance: GraphPartition, bound: int) -> int | None:
    """Return a bound if a flow shows it."""
    flow = evidence.around(instance, bound)
    return bound if flow and rests(instance, bound, "cut", flow=flow) else None


@pytest.mark.parametrize("part", range(3))
def test_blocks_without_time_follow_neighbours_and_nothing_changes(part: int) -> None:
    """Half of the nodes take no time, and some no bytes."""
    for seed in range(100 * part, 100 * part + 60):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(2, 7))
        idle = rng.random(nodes) < 0.6
        instance = drawn(
            seed, objective=OBJECTIVES[seed % 5], device_order="any", empty_devices=True,
            bandwidth=2, microbatches=1,
        )  # fmt: skip
        idle = np.resize(idle, instance.n)
        instance = dataclasses.replace(
            instance,
            time=np.where(idle, 0, instance.time),
            cpu_time=np.where(idle, 0, instance.cpu_time),
            memory=np.where(idle & (rng.random(instance.n) < 0.7), 0, instance.memory),
        )
        value = optimum(instance)
        for light in (0, 5, 10**9):
            if value is not None:
                assert not shows(instance, beyond(instance, value), "ideals", light=light), seed
        assert shows(instance, value, "ideals"), seed


def test_bounds_of_large_graphs_are_raised_by_linear_rows() -> None:
    """More ideals than can be listed in a moment, and devices that are far from equal shares."""
    instance = sp.load("graph/random/layered", operators=120, devices=8)
    result = sp.solve(instance, "equal-work")
    progress: Progress[Any] = Progress(instance.evaluate, instance.check)
    progress.offer(result.solution, "known")
    evidence.raise_by_rows(instance, progress, 2, Limits)
    assert progress.bound is not None
    assert progress.bound > 1.03 * float(instance.time.sum()) / instance.devices
    assert progress.evidence is not None
    assert progress.evidence.proof is Proof.DUAL
    found = verify(instance, progress.bound, "dual", progress.evidence.data)
    assert found.shown
    assert found.detail == "dual"


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
            for rule, given in mutations(rng).items():
                assert not shows(instance, claim, rule, **given), (seed, rule, given)


@pytest.mark.parametrize("objective", ["forward+backward", "replicated"])
def test_two_passes_and_shared_stages_show_no_more_than_is_true(objective: str) -> None:
    """A thousand claims that are barely false, each by every rule; what is true, ideals show."""
    rng, tried = np.random.default_rng(7), 0
    for seed in range(2_000, 2_340):
        instance = drawn(
            seed, objective=objective, device_order="any", empty_devices=True, microbatches=1
        )
        if not instance.uniform:
            continue
        value = optimum(instance)
        assert shows(instance, value, "ideals"), seed
        for claim in (
            [] if value is None else [beyond(instance, value), value + 1, None, 2 * value + 1]
        ):
            tried += 1
            for rule, given in mutations(rng).items():
                assert not shows(instance, claim, rule, **given), (seed, rule, given)
    assert tried >= 1_000


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
    assert {kind for kind, _ in RULES.values()} == {Proof.WITNESS, Proof.DUAL, Proof.LOG}


@pytest.mark.parametrize("seed", [0, 1, 2, 7, 8, 11])
def test_a_witness_of_decimals_is_one(seed: int) -> None:
    """Times in tenths were rounded up to ticks that the rule does not know."""
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 40, 40) * 0.1
    instance = GraphPartition.from_arrays(times, accelerators=2, empty_devices=True)
    result = sp.solve(instance)
    assert result.proof not in ("witness", "dual", "log") or shown(instance, result)


def test_limits_beyond_floats_have_flows() -> None:
    """In ticks of 1e-300 the limit is larger than any float."""
    instance = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[1e-300, 5e9, 7e9], traffic=[1] * 3, accelerators=2
    )
    assert evidence.around(instance, 12_000_000_001) is None
    assert sp.solve(instance).status is Status.OPTIMAL


def shown(instance: GraphPartition, result: Any) -> bool:
    """Return whether a bound is verified by its evidence."""
    return verify(instance, result.bound, result.proof, result.evidence).shown
