"""Proofs that buffers do not fit: what is written replays, and nothing false ever does."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stagepack as sp
from stagepack.catalog.packing import evolved
from stagepack.contracts import JsonObject
from stagepack.heuristics.packing import bounds
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.verify import UnprovedError, verify
from stagepack.verify.packing_misfit import DROP, FULL, LIFT, PLACE, QUEUE, SWAP, Replay
from tests.cli.shell import run
from tests.packing_cases import brute_force, random_packing, tight

WITHIN = ("alignment", "fixed", "reserved", "circular", "in-place", "conflicts", "gaps")


def optimum(instance: LmemPacking) -> int:
    best = brute_force(instance)
    assert best is not None
    return int(instance.evaluate(best))


def proof_of(instance: LmemPacking, bound: int) -> JsonObject:
    found = sp.prove(instance, bound)
    assert found is not None
    return found


def with_evidence(proof: JsonObject, **changes: object) -> JsonObject:
    return {**proof, "evidence": {**proof["evidence"], **changes}}


@given(seed=st.integers(0, 10**6), feature=st.sampled_from(WITHIN))
@settings(max_examples=12, deadline=None)
def test_what_is_proved_is_true_and_replays(seed: int, feature: str) -> None:
    instance = random_packing(np.random.default_rng(seed), features=[feature], n=5)
    if brute_force(instance) is None:
        return
    best = optimum(instance)
    assert sp.prove(instance, best + 1, time_limit=None) is None
    for bound in (best, int(instance.size.max())):
        proof = sp.prove(instance, bound, time_limit=None)
        if proof is not None:
            replayed = sp.check_proof(instance, proof)
            assert (replayed.valid, replayed.bound) == (True, bound), replayed.fault


@pytest.mark.parametrize("seed", range(6))
def test_bounds_above_the_load_have_proofs(seed: int) -> None:
    instance = sp.load("packing/random/evolved", buffers=12 + 8 * seed, seed=seed)
    best = evolved.optimum(12 + 8 * seed, seed)
    proof = proof_of(instance, best)
    assert sp.check_proof(instance, proof).valid
    assert len(proof["evidence"]["steps"]) > 0
    assert sp.prove(instance, best + 1) is None


CHANGES = ("capacity", "alter", "delete", "exchange", "insert", "cut", "rename", "forget")


def altered(proof: JsonObject, change: str, draw: Any) -> JsonObject:
    """Return a proof in which one thing is changed."""
    whole = copy.deepcopy(proof)
    changed = whole["evidence"]
    steps = changed["steps"]
    at, other = draw(st.integers(0, len(steps) - 1)), draw(st.integers(0, len(steps) - 1))
    if change == "capacity":
        more = draw(st.integers(1, 3))
        changed["capacity"] += more
        whole["bound"] += draw(st.sampled_from([0, more]))
    elif change == "alter":
        steps[at] = draw(st.integers(0, 6 * len(changed["buffers"]) - 1))
    elif change == "delete":
        del steps[at]
    elif change == "exchange":
        steps[at], steps[other] = steps[other], steps[at]
    elif change == "insert":
        steps.insert(at, draw(st.integers(0, 6 * len(changed["buffers"]) - 1)))
    elif change == "cut":
        del steps[at:]
    elif change == "rename":
        names = changed["buffers"]
        at, other = draw(st.integers(0, len(names) - 1)), draw(st.integers(0, len(names) - 1))
        names[at], names[other] = names[other], names[at]
    else:
        del changed["moments"][draw(st.integers(0, len(changed["moments"]) - 1))]
    return whole


@given(data=st.data(), change=st.sampled_from(CHANGES), number=st.integers(0, 8))
@settings(max_examples=60, deadline=None)
def test_what_is_changed_is_refused_or_true(data: Any, change: str, number: int) -> None:
    core = evolved.CORES[number]
    start, end, size = np.array(core.rows).T
    instance = LmemPacking.from_arrays(size, start, end)
    changed = altered(
        PROOFS.setdefault(number, proof_of(instance, core.optimum)), change, data.draw
    )
    replayed = sp.check_proof(instance, changed)
    assert replayed.bound is not None
    assert not replayed.valid or replayed.bound <= core.optimum


PROOFS: dict[int, JsonObject] = {}


def test_buffers_that_live_at_no_moment_named_do_not_queue() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 5], [2, 7])
    queue, drop = 6 * 1 + QUEUE, 6 * 1 + DROP
    log = {"rule": "misfit", "capacity": 8, "buffers": [0, 1], "moments": [100]}
    found = verify(instance, 9, "log", {**log, "steps": [queue, drop]})
    assert found.false
    assert "no identical buffer" in found.detail


def play(size: list[int], alive: list[int], capacity: int, rng: random.Random) -> bool:
    """Take what steps are let through, those first that end a case: do they prove a misfit?"""
    replay = Replay(size, capacity, alive)

    def follows(step: int) -> bool:
        try:
            replay.take(step)
        except UnprovedError:
            return False
        return True

    for _ in range(60):
        steps = [6 * t + FULL for t in range(len(alive))]
        steps += [6 * i + rule for i in range(len(size)) for rule in (DROP, SWAP)]
        more = [6 * i + rule for i in range(len(size)) for rule in (LIFT, QUEUE, PLACE)]
        rng.shuffle(steps)
        rng.shuffle(more)
        if not any(follows(step) for step in steps + more) or replay.done:
            break
    return replay.done


def test_no_play_proves_what_is_false() -> None:
    rng = random.Random(0)
    proved = 0
    for _ in range(300):
        buffers, moments = rng.randint(2, 5), rng.randint(1, 4)
        size = [rng.randint(1, 4) for _ in range(buffers)]
        alive = [rng.randrange(2**buffers) for _ in range(moments)]
        pairs = [
            (i, j)
            for i in range(buffers)
            for j in range(i)
            if any(members >> i & members >> j & 1 for members in alive)
        ]
        best = optimum(LmemPacking.from_arrays(size, conflicts=pairs))
        assert not play(size, alive, best, rng)
        proved += play(size, alive, best - 1, rng)
    assert proved > 100


def test_a_clique_of_conflicts_is_a_proof() -> None:
    instance = LmemPacking.from_arrays([5, 4, 5, 10], conflicts=[(0, 1), (0, 2), (1, 2), (2, 3)])
    assert proof_of(instance, 15)["evidence"] == {"rule": "clique", "members": [2, 3]}
    instance = instance.replace(size=[5, 4, 5, 7])
    proof = proof_of(instance, 14)
    assert sp.check_proof(instance, proof).valid
    assert proof["evidence"] == {"rule": "clique", "members": [0, 1, 2]}
    wrong = with_evidence(proof, members=[0, 1, 2, 3])
    assert "do not conflict" in sp.check_proof(instance, wrong).fault


def test_a_clique_that_no_section_holds_is_a_proof() -> None:
    # Sections cover the conflicts; the five of the middle need not be in one of them.
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(30):
        pairs = [(i, j) for i in range(14) for j in range(i) if rng.random() < 0.6]
        instance = LmemPacking.from_arrays(rng.integers(1, 9, 14), conflicts=pairs)
        blocks = Blocks.of(instance)
        bound = bounds.heavy_clique(instance, blocks)[0]
        above += bound > blocks.load.max()
        proof = proof_of(instance, bound)
        assert sp.check_proof(instance, proof).valid
        assert proof["evidence"]["rule"] == "clique"
    assert above > 0


def test_a_proof_speaks_of_thousands_of_buffers_at_one_moment() -> None:
    size = np.arange(1, 5001)
    instance = LmemPacking.from_arrays(size, np.zeros(5000, int), np.ones(5000, int))
    load = int(size.sum())
    assert sp.check_proof(instance, proof_of(instance, load)).valid
    assert not sp.check_proof(instance, {**proof_of(instance, load), "bound": load + 1}).valid


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 3}, "version: is 3, not 2"),
        ({"problem": "graph-partition"}, "problem: is 'graph-partition'"),
        ({"digest": "another"}, "digest: is 'another'"),
        ({"bound": "17"}, "bound"),
        ({"evidence": []}, "evidence"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_no_proof_is_one_clear_error(changes: JsonObject, told: str) -> None:
    proof = {**proof_of(tight(), 17), **changes}
    with pytest.raises(sp.InputError) as error:
        sp.check_proof(tight(), proof)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"buffers": [100]},
        {"buffers": [0, 0]},
        {"buffers": ["0"]},
        {"moments": [0] * 5000},
        {"moments": None},
        {"capacity": 15},
        {"capacity": None},
        {"steps": [-1]},
        {"steps": ["place"]},
        {"steps": [2**70]},
    ],
)
def test_malformed_evidence_proves_nothing(changes: JsonObject) -> None:
    proof = proof_of(tight(), 17)
    assert sp.check_proof(tight(), proof).valid
    assert not sp.check_proof(tight(), with_evidence(proof, **changes)).valid


def test_steps_must_follow_and_end_where_all_is_proved() -> None:
    proof = proof_of(tight(), 17)
    log = proof["evidence"]["steps"]
    for steps, told in (
        ([*log, 0], "all was proved before"),
        (log[:-1], "left open"),
        ([1], "it may lie at its base"),
        ([2], "no identical buffer"),
        ([3], "may fit"),
        ([5], "smaller"),
        ([0, 0], "it is placed"),
        ([600], "none of this number"),
    ):
        assert told in sp.check_proof(tight(), with_evidence(proof, steps=steps)).fault


def test_replaying_asks_the_clock() -> None:
    with pytest.raises(sp.InputError, match="longer to verify"):
        sp.check_proof(tight(), proof_of(tight(), 17), time_limit=1e-9)


def test_a_log_of_one_memory_says_nothing_of_several() -> None:
    memories = [("a", 1, 1), ("b", 15, 2)]
    given = {"accesses": [1] * 8, "memories": memories, "objective": "spill"}
    spilling = tight().replace(**given)
    log = proof_of(tight(), 17)["evidence"]
    assert verify(spilling, None, "log", log).false
    assert not verify(spilling, None).shown


def test_a_result_carries_the_log() -> None:
    found = sp.solve(tight(), options={"proof": True})
    assert found.evidence is not None
    assert (found.proof, found.evidence["rule"]) == ("log", "misfit")
    assert proof_of(tight(), 17)["evidence"] == found.evidence
    small = tight().replace(capacity=16, objective="fit")
    none = sp.solve(small, options={"proof": True})
    assert (none.status, none.proof) == ("INFEASIBLE", "log")
    proof = sp.prove(small, none)
    assert proof is not None
    assert sp.check_proof(small, proof).valid


def test_the_shell_writes_and_replays(tmp_path: Path) -> None:
    proof, result = tmp_path / "proof.json", tmp_path / "result.json"
    assert run("solve", "packing/above-load", "--proof", proof, "-o", result).returncode == 0
    both = run("check", "packing/above-load", result, "--proof", proof)
    assert both.returncode == 0
    assert "optimal: the proof leaves nothing better" in both.stdout
    alone = run("check", "packing/above-load", "--proof", proof, "--json")
    assert json.loads(alone.stdout)["bound"] == 17
    document = json.loads(proof.read_text())
    proof.write_text(json.dumps({**document, "bound": 18}))
    wrong = run("check", "packing/above-load", "--proof", proof)
    assert wrong.returncode == 4
    assert "not proved: no solution below 18" in wrong.stdout
    fit = run("solve", "packing/above-load", "--set", "capacity=16", "--proof", proof)
    assert fit.returncode == 3
    none = run("check", "packing/above-load", "--set", "capacity=16", "--proof", proof)
    assert none.returncode == 0
    assert "proved: there is no solution" in none.stdout
    assert run("check", "packing/above-load", "--proof", proof).returncode == 2
