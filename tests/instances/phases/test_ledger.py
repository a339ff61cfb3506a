"""Plans accounted for at once, against the definitions that take one phase after the other."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

from stagepack.instances.phases import PhaseSchedule, PhaseSolution, liveness, traffic
from stagepack.instances.phases.ledger import Ledger
from tests.random_phases import random_phases, random_plan


def by_definition(
    instance: PhaseSchedule, solution: PhaseSolution
) -> tuple[list[int], list[bool], list[tuple[int, int, int, int]]]:
    """Return what phases need, whether something is absent, and what they move."""
    phases, figures = solution.phases(instance), instance.at(solution.microbatch)
    needs, absent, moved = [], [], []
    for phase, base in zip(phases, liveness.base_bytes(instance, figures, phases), strict=True):
        live, missing = liveness.spans(instance, figures, phase)
        needs.append(max(b for _, b in liveness.profile(instance, figures, phase, base, live)))
        absent.append(bool(missing))
        step = traffic.moves(instance, figures, phase)
        moved.append((step.load_bytes, step.store_bytes, step.host_load, step.host_store))
    return needs, absent, moved


def plans(seed: int) -> list[tuple[PhaseSchedule, PhaseSolution]]:
    """Return random plans of a random instance, some computing layers again in odd orders."""
    rng = np.random.default_rng(seed)
    instance = random_phases(seed, layers=(1, 9))
    found = []
    for _ in range(3):
        plan = random_plan(instance, rng)
        found.append((instance, plan))
        if instance.training and "recompute" in plan.policy:
            runs = list(plan.recomputed(instance))
            for layer in range(instance.n):
                first = max(cut for cut in plan.boundaries if cut <= layer)
                some = range(first, layer + 1)
                if rng.integers(0, 2):
                    dropped = [at for at in some if plan.policy[at] == "recompute"]
                    runs[layer] = tuple(at for at in dropped if rng.integers(0, 2))
            found.append((instance, dataclasses.replace(plan, recompute=tuple(runs))))
    return found


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_as_by_definition(seed: int) -> None:
    for some in range(seed, seed + 50):
        for instance, plan in plans(some):
            found = Ledger(instance, plan)
            needs, absent = found._needs()
            moved = zip(found.load, found.store, found.host_load, found.host_store, strict=True)
            told = needs.tolist(), absent.tolist(), [tuple(map(int, row)) for row in moved]
            assert told == by_definition(instance, plan)
            assert found.cycles() == instance.evaluate(plan)


@pytest.mark.parametrize("seed", range(300, 400, 50))
def test_the_same_violations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = sys.modules[
        "stagepack.instances.phases.check"
    ]  # the package has a function of the name
    for some in range(seed, seed + 50):
        for instance, plan in plans(some):
            told = instance.check(plan), instance.evaluate(plan)
            with monkeypatch.context() as patched:
                patched.setattr(rules, "LARGE", 0)
                assert (instance.check(plan), instance.evaluate(plan)) == told
