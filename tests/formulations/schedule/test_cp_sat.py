"""The interval model against every order of operations, and what is known of hard cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack import catalog
from stagepack.errors import InputError
from stagepack.formulations.schedule import CpSat
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from tests.random_schedules import best, random_schedule

TIMES = ("forward", "backward", "weight", "latency", "optimizer")


def solve(formulation: CpSat, *, fixed: Array | None = None) -> tuple[Array | None, float, float]:
    """Return values, objective and bound of the best solution, or of the point `fixed`."""
    from ortools.sat.python import cp_model

    model = formulation.model.clone()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False  # it would keep SIGINT for good
    for name, value in formulation.parameters.items():
        setattr(solver.parameters, name, value)
    if fixed is not None:
        assert len(fixed) == len(model.proto.variables)
        model.proto.solution_hint.vars.extend(range(len(fixed)))
        model.proto.solution_hint.values.extend(fixed.tolist())
        solver.parameters.fix_variables_to_their_hinted_value = True
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None, 0.0, 0.0
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    values = np.array(solver.response_proto.solution)
    return values, solver.objective_value, solver.best_objective_bound


def optimum(formulation: CpSat) -> int | None:
    """Return the least value, of a checked schedule with a confirmed bound; None without one."""
    if formulation.infeasible:
        return None
    values, _, bound = solve(formulation)
    if values is None:
        return None
    solution = formulation.decode(values)
    assert formulation.instance.check(solution) == ()
    value = formulation.instance.evaluate(solution)
    assert formulation.lower_bound(bound) == value
    return int(value)


def multiplied(instance: PipelineSchedule, factor: int) -> PipelineSchedule:
    """Return the instance with all its times multiplied."""
    times = {name: getattr(instance, name) for name in TIMES}
    return instance.replace(**{k: v * factor for k, v in times.items() if v is not None})


def agree(instance: PipelineSchedule) -> None:
    found = best(instance)
    if found is None:
        assert optimum(CpSat(instance)) is None
        return
    value, solution = found
    assert optimum(CpSat(instance)) == value
    # What is known of the best schedule cuts off nothing of its worth, and takes it as a start.
    sharp = CpSat(instance, upper=value, lower=value)
    values, objective, _ = solve(sharp, fixed=sharp.hint(solution))
    assert values is not None
    assert objective * sharp.frame.unit == value
    assert optimum(sharp) == value
    assert optimum(CpSat(instance, upper=value - 1)) is None


@pytest.mark.parametrize("seeds", [range(start, start + 8) for start in range(0, 80, 8)])
def test_every_order(seeds: range) -> None:
    for seed in seeds:
        agree(random_schedule(seed))


@pytest.mark.parametrize("seeds", [range(start, start + 8) for start in range(500, 532, 8)])
def test_every_order_in_coarse_units(seeds: range) -> None:
    for seed in seeds:
        agree(multiplied(random_schedule(seed), (2, 3, 12, 1000)[seed % 4]))


def test_a_span_may_be_a_fraction_of_all_times() -> None:
    """Two chains in opposite directions share their wait: the half of two unequal lags."""
    instance = PipelineSchedule.from_arrays(
        [2, 2, 2, 2],
        devices=[0, 1, 1, 0],
        edges=[(0, 1), (2, 3)],
        latency=[2, 4],
        microbatches=1,
        objective="span",
    )
    found = best(instance)
    assert found is not None
    assert found[0] == 7
    assert optimum(CpSat(instance)) == 7
    assert optimum(CpSat(multiplied(instance, 10))) == 70
    assert optimum(CpSat(instance.replace(latency=4))) == 8


def hard(limit: int, objective: str = "span", **changes: Any) -> PipelineSchedule:
    """Return the instance of p = 4, m = 12, f = 5, b = 6, w = 4 of Qi et al. 2024."""
    instance: PipelineSchedule = catalog.load("schedule/zero-bubble/small", capacity=limit)
    return instance.replace(objective=objective, **changes)


@pytest.mark.parametrize(("limit", "value"), [(10, 193), (14, 183)])
def test_hard_cases_of_zero_bubble(limit: int, value: int) -> None:
    assert optimum(CpSat(hard(limit))) == value


def test_units_are_the_greatest_that_lose_nothing() -> None:
    instance = multiplied(hard(10), 36)
    assert CpSat(instance).frame.unit == 3  # a longest span may be a 12th of 36 cycles
    assert CpSat(instance.replace(objective="makespan")).frame.unit == 36
    assert CpSat(hard(10)).frame.unit == 1


def test_memory_below_a_microbatch_needs_no_engine() -> None:
    formulation = CpSat(hard(1))
    assert formulation.infeasible
    assert formulation.model is None


def test_an_upper_bound_below_the_work_needs_no_engine() -> None:
    assert CpSat(hard(10), upper=179).infeasible
    assert not CpSat(hard(10), upper=193).infeasible


def test_a_worse_schedule_is_no_hint() -> None:
    instance = hard(10)
    values, _, _ = solve(CpSat(instance))
    assert values is not None
    solution = CpSat(instance).decode(values)
    late = ScheduleSolution.of(instance, solution.start * 2)
    with pytest.raises(InputError, match="is worth"):
        CpSat(instance, upper=200).hint(late)


def test_bounds_are_rounded_to_units() -> None:
    instance = multiplied(hard(10, "makespan"), 10)
    formulation = CpSat(instance, lower=1805)
    assert formulation.lower_bound(-np.inf) == 1810
    assert formulation.lower_bound(181.2) == 1820
    assert formulation.lower_bound(190.0000001) == 1900


def test_numbers_beyond_the_engine_are_refused() -> None:
    with pytest.raises(InputError, match="beyond what it computes exactly"):
        CpSat(hard(10, forward=[2**45] * 3 + [2**45 + 1]))


def windows(formulation: CpSat) -> list[tuple[int, int]]:
    """Return the first and last start that each operation may have."""
    proto = formulation.model.proto
    domains = [list(proto.variables[t.index].domain) for t in formulation.t]
    return [(domain[0], domain[-1]) for domain in domains]


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # F 0, 2, 4 on the first device, then 1 + 2 to the other one, which takes 3 for each.
        ("makespan", [(0, 0), (2, 3), (4, 6), (3, 3), (6, 6), (9, 9)]),
        # Times are those of their own device, which begins with its first F.
        ("span", [(0, 0), (2, 8), (4, 10), (0, 0), (3, 6), (6, 9)]),
    ],
)
def test_starts_lie_between_longest_paths(objective: str, expected: list[tuple[int, int]]) -> None:
    """Presolve would find these windows a step at a time, in a number of steps that is squared."""
    instance = PipelineSchedule.from_arrays([2, 3], microbatches=3, latency=1, objective=objective)
    assert windows(CpSat(instance, upper=12)) == expected


def test_windows_hold_every_best_schedule() -> None:
    for seed in range(40):
        instance = random_schedule(seed)
        found = best(instance)
        if found is None:
            continue
        formulation = CpSat(instance, upper=found[0])
        hint = formulation.hint(found[1])
        for t, (low, high) in zip(formulation.t, windows(formulation), strict=True):
            assert low <= hint[t.index] <= high
