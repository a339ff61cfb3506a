"""What the trace of a run says about the start that its engine was given."""

from __future__ import annotations

import pytest

from stagepack import load, solve
from stagepack.solvers import engine


def ready(name: str) -> None:
    reason = engine(name).unavailable()
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize(
    ("method", "name", "words"),
    [
        ("cp-sat", "cp-sat", "is complete and is feasible"),
        ("milp-interval", "highs", "its first solution is the start"),
        ("milp-interval", "pyomo:cbc", "MIPStart provided solution with cost"),
        ("milp-assignment", "pyomo:highs", "start"),  # presolve may solve it: less is said then
        ("milp-assignment", "pyomo:cbc", "MIPStart provided solution with cost"),
    ],
)
def test_the_trace_repeats_how_an_engine_confirmed_its_start(
    method: str, name: str, words: str
) -> None:
    ready(name)
    instance = load("pipeline/random/heterogeneous", layers=24, devices=4, seed=2)
    start = solve(instance, "greedy").solution
    assert start is not None
    result = solve(instance, method, engine=name, warm_start=start, time_limit=60)
    (event,) = result.trace.warm_starts
    assert event.value == instance.evaluate(start)
    assert words in event.source


def test_the_trace_says_that_glpk_takes_no_start() -> None:
    ready("pyomo:glpk")
    instance = load("pipeline/random/heterogeneous", layers=24, devices=4, seed=2)
    result = solve(instance, "milp-interval", engine="pyomo:glpk", time_limit=60)
    assert not result.trace.warm_starts
    (event,) = [e for e in result.trace.events if e.kind == "warm-start-unused"]
    assert event.source == "pyomo:glpk (MilpInterval): takes no start"
    # It is an incumbent all the same, before the engine has begun.
    assert result.trace.incumbents[0].time <= event.time


@pytest.mark.parametrize("name", ["highs", "pyomo:glpk", "pyomo:cbc"])
def test_the_time_limit_of_a_run_on_a_large_model(name: str) -> None:
    ready(name)
    drawn = {"seed": 1, "host_transfer": True}
    small = load("pipeline/random/adversarial", layers=12, devices=3, **drawn)
    solve(small, "milp-interval", engine=name)  # imports, kernels
    # A million columns:
    instance = load("pipeline/random/adversarial", layers=1500, devices=24, **drawn)
    result = solve(instance, "milp-interval", engine=name, time_limit=2)
    assert result.runtime <= 2 * 1.1 + 1
    assert result.solution is not None
    assert result.bound is not None
