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
from stagepack.contracts import JsonObject
from stagepack.heuristics.packing import bounds
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.packing.catalog import evolved
from stagepack.instances.packing.proof import DROP, FULL, LIFT, PLACE, QUEUE, SWAP, Replay
from stagepack.instances.profile import Array
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
            assert (replayed.valid, replayed.bound) == (True, bound), replayed.violations


@pytest.mark.parametrize("seed", range(6))
def test_bounds_above_the_load_have_proofs(seed: int) -> None:
    instance = sp.load("packing/random/evolved", buffers=12 + 8 * seed, seed=seed)
    best = evolved.optimum(12 + 8 * seed, seed)
    proof = proof_of(instance, best)
    assert sp.check_proof(instance, proof).valid
    assert len(proof["steps"]) > 0
    assert sp.prove(instance, best + 1) is None


CHANGES = ("capacity", "alter", "delete", "exchange", "insert", "cut", "rename", "forget")


def altered(proof: JsonObject, change: str, draw: Any) -> JsonObject:
    """Return a proof in which one thing is changed."""
    changed = copy.deepcopy(proof)
    steps = changed["steps"]
    at, other = draw(st.integers(0, len(steps) - 1)), draw(st.integers(0, len(steps) - 1))
    if change == "capacity":
        changed["capacity"] += draw(st.integers(1, 3))
    elif change == "alter":
        steps[at] = draw(st.integers(0, 6 * len(proof["buffers"]) - 1))
    elif change == "delete":
        del steps[at]
    elif change == "exchange":
        steps[at], steps[other] = steps[other], steps[at]
    elif change == "insert":
        steps.insert(at, draw(st.integers(0, 6 * len(proof["buffers"]) - 1)))
    elif change == "cut":
        del steps[at:]
    elif change == "rename":
        names = changed["buffers"]
        at, other = draw(st.integers(0, len(names) - 1)), draw(st.integers(0, len(names) - 1))
        names[at], names[other] = names[other], names[at]
    else:
        del changed["moments"][draw(st.integers(0, len(changed["moments"]) - 1))]
    return changed


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
    assert not replayed.valid or replayed.bound <= core.optimum


PROOFS: dict[int, JsonObject] = {}


def test_buffers_that_live_at_no_moment_named_do_not_queue() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 5], [2, 7])
    queue, drop = 6 * 1 + QUEUE, 6 * 1 + DROP
    proof = proof_of(instance, 4) | {"capacity": 8, "buffers": ["0", "1"], "moments": [100]}
    (wrong,) = sp.check_proof(instance, {**proof, "steps": [queue, drop]}).violations
    assert "no identical buffer" in wrong.detail


def play(size: list[int], alive: Array, capacity: int, rng: random.Random) -> bool:
    """Take what steps are let through, those first that end a case: do they prove a misfit?"""
    replay = Replay(size, alive, capacity)
    buffers, moments = alive.shape
    for _ in range(60):
        steps = [6 * t + FULL for t in range(moments)]
        steps += [6 * i + rule for i in range(buffers) for rule in (DROP, SWAP)]
        more = [6 * i + rule for i in range(buffers) for rule in (LIFT, QUEUE, PLACE)]
        rng.shuffle(steps)
        rng.shuffle(more)
        if all(replay.take(step) for step in steps + more) or replay.done:
            break
    return replay.done


def test_no_play_proves_what_is_false() -> None:
    rng = random.Random(0)
    proved = 0
    for _ in range(300):
        buffers, moments = rng.randint(2, 5), rng.randint(1, 4)
        size = [rng.randint(1, 4) for _ in range(buffers)]
        alive = np.array([[rng.random() < 0.5 for _ in range(moments)] for _ in range(buffers)])
        pairs = [(i, j) for i in range(buffers) for j in range(i) if (alive[i] & alive[j]).any()]
        best = optimum(LmemPacking.from_arrays(size, conflicts=pairs))
        assert not play(size, alive, best, rng)
        proved += play(size, alive, best - 1, rng)
    assert proved > 100


def test_a_clique_of_conflicts_is_a_proof() -> None:
    instance = LmemPacking.from_arrays([3, 4, 5, 9], conflicts=[(0, 1), (0, 2), (1, 2), (2, 3)])
    proof = proof_of(instance, 14)
    assert sp.check_proof(instance, proof).valid
    proof["cliques"] = [[0, 1, 2, 3]]
    proof["buffers"] = ["0", "1", "2", "3"]
    assert sp.check_proof(instance, proof).violations[0].rule == "cliques"


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
        assert proof["steps"] == []
    assert above > 0


def test_a_proof_speaks_of_thousands_of_buffers_at_one_moment() -> None:
    size = np.arange(1, 5001)
    instance = LmemPacking.from_arrays(size, np.zeros(5000, int), np.ones(5000, int))
    load = int(size.sum())
    assert sp.check_proof(instance, proof_of(instance, load)).valid
    assert sp.check_proof(instance, {**proof_of(instance, load), "capacity": load}).violations


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 2}, "version: is 2, not 1"),
        ({"proof": "fit"}, "proof: is 'fit'"),
        ({"buffers": ["nobody"]}, "no buffer is called nobody"),
        ({"buffers": ["0", "0"]}, "names a buffer twice"),
        ({"moments": [0] * 5000}, "moments: 5,000 where 4,096 may be"),
        ({"cliques": [[0]]}, "cliques: 1 where 0 may be"),
        ({"steps": [-1]}, "steps"),
        ({"steps": ["place"]}, "steps"),
        ({"steps": [2**70]}, "steps[0]"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_no_proof_is_one_clear_error(changes: JsonObject, told: str) -> None:
    proof = {**proof_of(tight(), 17), **changes}
    with pytest.raises(sp.InputError) as error:
        sp.check_proof(tight(), proof)
    assert told in str(error.value)


def test_steps_must_follow_and_end_where_all_is_proved() -> None:
    proof = proof_of(tight(), 17)
    for steps, told in (
        ([*proof["steps"], 0], "all was proved before"),
        (proof["steps"][:-1], "left open"),
        ([1], "it may lie at its base"),
        ([2], "no identical buffer"),
        ([3], "may fit"),
        ([5], "smaller"),
        ([0, 0], "it is placed"),
        ([600], "none of this number"),
    ):
        (violation,) = sp.check_proof(tight(), {**proof, "steps": steps}).violations
        assert told in violation.detail


def test_replaying_asks_the_clock() -> None:
    with pytest.raises(sp.InputError, match="longer to replay"):
        sp.check_proof(tight(), proof_of(tight(), 17), time_limit=0)


def test_what_has_no_proofs_says_so() -> None:
    with pytest.raises(sp.InputError, match="pipeline-partition has no proofs"):
        sp.prove(sp.PipelinePartition.from_arrays([1, 2], devices=2), 2)
    spilling = LmemPacking.from_arrays([1], [0], [1], memories=[("a", 1, 1), ("b", None, 2)],
                                       accesses=[1], objective="spill")  # fmt: skip
    with pytest.raises(sp.InputError, match="several memories"):
        sp.check_proof(spilling, {})


def test_the_shell_writes_and_replays(tmp_path: Path) -> None:
    proof, result = tmp_path / "proof.json", tmp_path / "result.json"
    assert run("solve", "packing/above-load", "--proof", proof, "-o", result).returncode == 0
    both = run("check", "packing/above-load", result, "--proof", proof)
    assert both.returncode == 0
    assert "optimal: the proof leaves nothing better" in both.stdout
    alone = run("check", "packing/above-load", "--proof", proof, "--json")
    assert json.loads(alone.stdout)["bound"] == 17
    document = json.loads(proof.read_text())
    proof.write_text(json.dumps({**document, "capacity": 17}))
    wrong = run("check", "packing/above-load", "--proof", proof)
    assert wrong.returncode == 4
    assert "not proved: no packing within 17 bytes" in wrong.stdout
    assert run("solve", "pipeline/alexnet", "--proof", proof).returncode == 2
    fit = run("solve", "packing/above-load", "--set", "capacity=16", "--proof", proof)
    assert fit.returncode == 3
    assert "no packing within 16" in run("check", "packing/above-load", "--proof", proof).stdout
