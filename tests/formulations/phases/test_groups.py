"""Both models of plans against the enumeration of all plans, and the relaxation against the DP."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.formulations.phases import CpSat, Milp
from stagepack.formulations.phases.groups import sharded_bytes, stashed_sizes
from stagepack.heuristics.phases.options import OptionTable, group_options
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.rows import buffers, remote_bytes
from stagepack.instances.phases.traffic import products
from tests.formulations.engines import solve
from tests.random_phases import brute_force, random_phases, random_plan

MODELS = {"milp": Milp, "cp-sat": CpSat}
MOST_PLANS = 1500


def tables(instance: PhaseSchedule) -> list[OptionTable]:
    wanted = {"remote"} if instance.remote_memory is not None else set()
    wanted |= {"graphs"} if instance.graphs is not None else set()
    return [
        group_options(instance, microbatch, t, distinguish=wanted)
        for microbatch in instance.microbatches
        for t in instance.io_tile_choices
    ]


@lru_cache
def best(seed: int) -> tuple[PhaseSchedule, PhaseSolution | None, bool]:
    """Return an instance, its best plan and whether all plans were looked at."""
    instance = random_phases(seed, layers=(2, 3), recomputations=(1,))
    free = instance.training and not instance.chain and "recompute" in instance.policies
    if free or Milp.unsupported(instance):
        return instance, None, False
    try:
        return instance, brute_force(instance, MOST_PLANS)[1], True
    except OverflowError:
        return instance, None, False


def agree(seed: int, model: type[Milp] | type[CpSat]) -> bool:
    instance, expected, whole = best(seed)
    if not whole:
        return False
    formulation = model(instance, tables(instance))
    answer = None if formulation.infeasible else solve(formulation)
    if expected is None:
        assert answer is None or answer.values is None
        return False
    assert answer is not None
    assert answer.values is not None
    found, value = formulation.decode(answer.values), instance.evaluate(expected)
    assert instance.check(found) == ()
    assert instance.evaluate(found) == value
    assert formulation.lower_bound(answer.bound, 1e-9) == value
    # What is known of the best plan cuts off nothing of its worth.
    sharp = model(instance, tables(instance), upper=value)
    fixed = solve(sharp, fixed=sharp.hint(found))
    assert fixed.values is not None
    assert sharp.lower_bound(fixed.objective, 1e-9) == value
    nothing = model(instance, tables(instance), upper=value - 1)
    assert nothing.infeasible or solve(nothing).values is None
    return True


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("seeds", [range(start, start + 12) for start in range(0, 48, 12)])
def test_all_plans(model: type[Milp] | type[CpSat], seeds: range) -> None:
    assert sum(agree(seed, model) for seed in seeds) > 1


@pytest.mark.parametrize("seed", range(8))
def test_without_budgets_the_relaxation_is_the_interval_dp(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 14
    training = seed % 2 == 0
    instance = PhaseSchedule.from_arrays(
        variables=rng.integers(0, 60, n),
        forward=rng.integers(1, 200, n),
        backward=rng.integers(1, 200, n),
        activations=rng.integers(1, 80, n + 1),
        temporary=rng.integers(0, 20, n),
        remote_bandwidth=3,
        tiles=8,
        io_tiles=(2, 2),
        steps=5,
        memory=700,
        startup=30,
        training=training,
        policies=("stash", "recompute") if training else ("stash",),
    )
    table = group_options(instance, 1, 2)
    # The shortest path over the boundaries.
    least = [0.0] + [np.inf] * n
    for option in sorted(table, key=lambda option: option.first):
        reached = least[option.first] + sum(option.times)
        least[option.end] = min(least[option.end], reached)
    assert np.isfinite(least[n])
    formulation = Milp(instance, table)
    answer = solve(formulation, relaxed=True)
    gain = formulation.groups.program.gain
    assert answer.objective * gain == pytest.approx(least[n], rel=1e-9)


def test_a_plan_of_other_options_is_no_hint() -> None:
    instance = random_phases(0)
    formulation = Milp(instance, tables(instance))
    n = instance.n
    plan = PhaseSolution((0, n), ("io",), io_tiles=3, policy=("stash",) * n * instance.training)
    assert np.isnan(formulation.hint(plan)).all()


def test_remote_budgets_with_skips_are_refused_by_name() -> None:
    instance = PhaseSchedule.from_arrays(
        [1, 1, 1], [1, 1, 1], [1, 1, 1, 1], skips=[(0, 2)], remote_memory=100
    )
    assert "remote memory" in Milp.unsupported(instance)
    assert CpSat.unsupported(instance.replace(remote_memory=None)) == ""


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_bytes_in_remote_memory_are_those_of_the_checker(seed: int) -> None:
    """The models count by themselves; the checker must come to the same."""
    rng = np.random.default_rng(seed)
    instance = random_phases(seed, layers=(1, 6), training=True)
    solution = random_plan(instance, rng)
    figures = instance.at(solution.microbatch)
    for first, end in pairwise(solution.boundaries):
        policy = solution.policy[first:end]
        assert sorted(stashed_sizes(instance, figures, first, policy)) == sorted(
            tensor.nbytes
            for layer, word in enumerate(policy, start=first)
            if word == "stash"
            for tensor in products(instance, figures, layer, first, end)
        )
    total = sum(buffer.total_bytes for buffer in buffers(instance, solution))
    assert sharded_bytes(instance) == remote_bytes(instance, solution) - total


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_cycles_by_the_trillion_are_proved(model: type[Milp] | type[CpSat]) -> None:
    # Bounds of CP-SAT are whole numbers: a tolerance relative to them would lose a thousand cycles.
    cycles = [10**12 + 1, 10**12 + 3, 10**12 + 7]
    instance = PhaseSchedule.from_arrays([0] * 3, cycles, [0] * 4)
    formulation = model(instance, tables(instance))
    answer = solve(formulation)
    assert answer.values is not None
    value = instance.evaluate(formulation.decode(answer.values))
    assert value >= sum(cycles)
    assert formulation.lower_bound(answer.bound, 0.0) <= value
    if model is CpSat:
        assert formulation.lower_bound(answer.bound, 0.0) == value
