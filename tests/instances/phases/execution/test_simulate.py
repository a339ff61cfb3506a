"""Whole plans, three ways: formulas, the two-engine simulator, the program executed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.claims.every.phases import plans
from stagepack.instances.phases import PhaseSchedule, PhaseSolution
from stagepack.instances.phases.execution.execute import execute
from stagepack.instances.phases.execution.program import program
from stagepack.instances.phases.execution.simulate import simulate
from stagepack.instances.phases.plan import plan
from tests.instances.phases.examples import two_groups, two_layers
from tests.random_phases import random_phases, random_plan

SPACE = ("memory", "io-memory")  # plans may be too large here


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_three_ways_to_time_and_measure_a_plan(seed: int) -> None:
    instance = random_phases(seed, layers=(1, 6), recomputations=(1, 2))
    compare(instance, random_plan(instance, np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", [1, 3, 4, 5, 8])
def test_plans_that_compute_again_in_any_order(seed: int) -> None:
    instance = random_phases(
        seed, layers=(3, 3), training=True, skips=True, recomputations=(2,), policies=["recompute"]
    )
    rng = np.random.default_rng(seed)
    every = [p for p in plans(instance) if rng.integers(0, 20) == 0][:150]
    checked = [p for p in every if not {v.rule for v in instance.check(p)} - set(SPACE)]
    for solution in checked[:20]:
        compare(instance, solution)
    wrong = [p for p in every if any("not there" in v.detail for v in instance.check(p))]
    for solution in wrong[:20]:
        assert execute(instance, program(instance, solution)).errors
    assert checked or wrong


def compare(instance: PhaseSchedule, solution: PhaseSolution) -> None:
    value = instance.evaluate(solution)
    found = {violation.rule for violation in instance.check(solution)}
    assert value == max((event.end for event in simulate(instance, solution)), default=0)
    result = execute(instance, program(instance, solution))
    drawn = plan(instance, solution)
    assert result.cycles == value == drawn.time
    assert result.peaks == [part.peak for part in drawn.phases]
    assert any("in use" in error for error in result.errors) == ("memory" in found)
    assert any("of buffers on" in error for error in result.errors) == ("io-memory" in found)
    rest = [e for e in result.errors if "in use" not in e and "of buffers on" not in e]
    assert rest == []


def test_engines_do_one_thing_at_a_time() -> None:
    instance = two_layers(
        prefetch=True, tiles=10, io_tiles=(0, 2), modes=["io_overlapped"], memory=1000, steps=4
    )
    solution = two_groups(mode=("io_overlapped",) * 3, io_tiles=1, prefetch=(True, True, False))
    events = simulate(instance, solution)
    assert {"prefetch", "epilogue", "startup", "variables"} <= {event.what for event in events}
    for engine in ("io", "compute"):
        own = sorted((e.start, e.end) for e in events if e.engine == engine)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(own))
    hidden = sum(part.cycles.hidden for part in plan(instance, solution).phases)
    ahead = sum(e.end - e.start for e in events if e.what == "prefetch")
    assert hidden == ahead > 0


def test_many_steps_are_represented_by_three() -> None:
    instance = two_layers(steps=10_000)
    result = execute(instance, program(instance, two_groups()))
    assert result.errors == []
    assert result.cycles == instance.evaluate(two_groups())
