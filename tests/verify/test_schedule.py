"""Proofs of schedules: those of solves hold, and no claim above an optimum is shown."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.evidence import VERIFIABLE
from stagepack.instances.schedule import PipelineSchedule
from stagepack.result import Status
from stagepack.verify import Claimed, UnprovedError, verify
from stagepack.verify.schedule import RULES
from tests.random_schedules import optimum, random_schedule


def shows(instance: PipelineSchedule, bound: Any, rule: str, **evidence: Any) -> bool:
    """Whether a rule itself shows a claim."""
    claimed = Claimed(None if bound is None else Fraction(bound), math.inf)
    try:
        RULES[rule][1](instance, evidence, claimed)
    except (UnprovedError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_proofs_of_solves_are_verified(first: int) -> None:
    proofs = []
    for seed in range(first, first + 30):
        instance = random_schedule(seed)
        result = sp.solve(instance, time_limit=10)
        bound = None if result.status is Status.INFEASIBLE else result.bound
        found = verify(instance, bound, result.proof, result.evidence)
        assert found.shown == (result.proof in VERIFIABLE), (seed, found)
        proofs.append(result.proof)
    assert sum(proof in VERIFIABLE for proof in proofs) >= 27


@pytest.mark.parametrize("part", range(5))
def test_no_claim_above_the_optimum_is_shown(part: int) -> None:
    """A thousand times in all for each rule, with evidence of all sorts."""
    rng = np.random.default_rng(part)
    odd: list[Any] = [None, -1, "x", math.nan, [], {}, 10**30, True, 0.5, -100]
    for seed in range(1_000 * part, 1_000 * part + 75):
        instance = random_schedule(seed, most_orders=200)
        value = optimum(instance)
        if value is None:
            continue
        for claim in (value + 1, value + 0.5, None):
            for rule in RULES:
                device = odd[int(rng.integers(len(odd)))]
                given = {"device": device} if rng.random() < 0.3 else {}
                assert not shows(instance, claim, rule, **given), (seed, rule, given)


def test_most_that_is_true_is_shown() -> None:
    shown = []
    for seed in range(60):
        instance = random_schedule(seed, most_orders=200)
        value = optimum(instance)
        shown.append(any(shows(instance, value, rule) for rule in RULES))
    assert sum(shown) >= 57


def test_orders_show_what_waiting_for_memory_costs() -> None:
    """Four stages that hold three microbatches; a proof of the solver's labels is replayed."""
    line = PipelineSchedule.from_arrays(
        [32, 40, 18, 58], [120, 54, 78, 96], microbatches=5, memory_forward=1, memory_backward=-1,
        limit=2,
    )  # fmt: skip
    result = sp.solve(line, time_limit=20, options={"proof": True})
    assert result.objective is not None
    assert result.objective == result.bound
    assert result.proof in ("witness", "log")
    assert shows(line, result.bound, "orders")
    assert not any(shows(line, result.objective + 1, rule) for rule in RULES)


def chain(seed: int, p: int, m: int, fit: int, *, split: bool, **more: Any) -> PipelineSchedule:
    """Return stages on a device each, which hold so many microbatches."""
    times: Any = np.random.default_rng(seed).integers(5, 61, (2 + split, p))
    given = dict(zip(("forward", "backward", "weight"), times, strict=False))
    memory: dict[str, Any] = {"memory_backward": split - 2, "memory_weight": -int(split)}
    memory |= {"memory_forward": 2, "limit": 2 * fit, "microbatches": m}
    return PipelineSchedule.from_arrays(**given, **memory, **more)


@pytest.mark.parametrize("objective", ["makespan", "span"])
def test_counting_shows_what_waits_for_memory_take(objective: str) -> None:
    """A stage holds three microbatches: every F waits for the B of the third one before it."""
    line = chain(0, 4, 10, 3, split=False, objective=objective)
    result = sp.solve(line, time_limit=20)
    assert result.objective is not None
    assert result.objective == result.bound
    assert result.evidence == {"rule": "counting"}
    assert not shows(line, result.bound, "machine")
    assert not shows(line, result.objective + 1, "counting")


def test_memory_is_short_where_a_w_takes_it() -> None:
    line = PipelineSchedule.from_arrays(
        [1], [1], [1], microbatches=3, memory_forward=1, memory_backward=0, memory_weight=1, limit=5
    )
    assert shows(line, None, "memory")
    assert not shows(line.replace(limit=6), None, "memory")
    assert not shows(line.replace(limit=6), 10, "counting")


def test_orders_show_spans_of_devices_with_several_stages() -> None:
    """Engines prove the optimum of two devices in the shape of a V; it is shown by all orders."""
    v = chain(0, 4, 3, 4, split=True, devices=[0, 1, 1, 0], objective="span")
    result = sp.solve(v, "cp-sat", time_limit=20)
    assert result.objective is not None
    assert result.objective == result.bound
    assert shows(v, result.bound, "few-orders")
    assert not shows(v, result.objective + 1, "orders")


def test_more_orders_are_followed_where_a_proof_is_asked_for() -> None:
    """The search is made anew: few orders do not reach, and evidence names the rule that does."""
    line = chain(7, 5, 6, 4, split=True)
    plain, asked = (sp.solve(line, time_limit=60, options={"proof": p}) for p in (False, True))
    assert asked.bound is not None
    assert plain.bound == asked.bound == plain.objective
    assert plain.proof == "search"
    assert (asked.proof, asked.evidence) == ("log", {"rule": "orders"})
    assert verify(line, asked.bound, asked.proof, asked.evidence).shown
    more = verify(line, asked.bound + 1, asked.proof, asked.evidence, time_limit=1)
    assert not more.shown


def test_what_needs_too_much_memory_is_named() -> None:
    line = PipelineSchedule.from_arrays(
        [3, 3], [3, 3], microbatches=3, memory_forward=4, memory_backward=-3, limit=11
    )
    assert shows(line.replace(limit=5), None, "memory")
    assert not shows(line, None, "memory")


def test_unknown_objectives_are_refused() -> None:
    unknown: Any = SimpleNamespace(value="energy")
    other = dataclasses.replace(random_schedule(0), objective=unknown)
    for rule in RULES:
        assert not shows(other, 0, rule)
