"""What is particular to the interval model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.pipeline import MilpInterval
from stagepack.formulations.pipeline import milp_interval as module
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from tests.formulations.engines import lowered, solve, solve_lp
from tests.random_pipelines import optimum, random_instance


def relaxed_value(formulation: MilpInterval) -> float:
    """Return the value of the relaxation in ticks."""
    answer = solve_lp(lowered(formulation), relaxed=True)
    return answer.objective * formulation.unit + sum(formulation.least)


def test_three_unit_layers_on_two_devices() -> None:
    # Two half paths, (1 | 2) and (2 | 1), would pay 1.5; raised to the bound 2 they pay 2.
    formulation = MilpInterval(RangeCosts(PipelinePartition.from_arrays([1, 1, 1], devices=2)))
    assert formulation.least[0] == 2
    assert relaxed_value(formulation) == pytest.approx(2)
    formulation.arcs.compute[:] = formulation.arcs.end - formulation.arcs.begin
    formulation.least = (0, 0)
    formulation._set_units()
    formulation._build_model()
    assert relaxed_value(formulation) == pytest.approx(1.5)
    assert solve(formulation).objective == pytest.approx(2)


def test_the_min_max_relaxation_is_not_tight() -> None:
    instance = PipelinePartition.from_arrays([19, 15, 8, 9, 2, 3, 1, 6], devices=3)
    formulation = MilpInterval(RangeCosts(instance))
    best = optimum(instance)
    assert best is not None
    assert relaxed_value(formulation) < best[0] - 0.01
    assert formulation.lower_bound(solve(formulation).bound) == best[0]


def test_with_thresholds_fixed_the_path_polytope_is_integral() -> None:
    draw = np.random.default_rng(3)
    tried = 0
    for seed in range(60):
        instance = random_instance(seed, largest_n=7)
        best = optimum(instance)
        if best is None or not instance.whole:
            continue
        costs = RangeCosts(instance)
        formulation = MilpInterval(costs, upper=2 * costs.objective(best[1]))
        program, arcs = lowered(formulation), len(formulation.arcs.begin)
        # Any costs of the arcs, C and T at their tops: the rows of C and T bind nobody.
        chosen = np.arange(program.columns) < arcs
        priced = dataclasses.replace(
            program,
            cost=np.append(draw.normal(size=arcs), np.zeros(program.columns - arcs)),
            lower=np.where(chosen, program.lower, program.upper),
            high=np.where(program.low == -np.inf, np.inf, program.high),
        )
        values = solve_lp(priced, relaxed=True).values
        assert values is not None
        assert np.abs(values[:arcs] - np.rint(values[:arcs])).max() < 1e-9
        tried += 1
    assert tried > 20


def test_nothing_below_the_optimum() -> None:
    instance = PipelinePartition.from_arrays([5, 1, 1, 5], devices=2)
    costs = RangeCosts(instance)
    assert MilpInterval(costs, upper=5).infeasible
    assert MilpInterval(costs, upper=6).arcs.begin.tolist() == [2, 0]
    with pytest.raises(ValueError, match="not in the model"):
        MilpInterval(costs, upper=6).hint(PipelineSolution.in_order([0, 1, 4]))


def test_too_many_arcs_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_MODEL", 50)
    chain = PipelinePartition.from_arrays(np.arange(1, 31), devices=4)
    with pytest.raises(InputError, match=r"more than 50 arcs.*good solution"):
        MilpInterval(RangeCosts(chain))
    best = 120 + 15
    assert len(MilpInterval(RangeCosts(chain), upper=best).arcs.begin) <= 50
    table = chain.replace(compute_table=RangeCosts(chain).compute_matrix(0).clip(0))
    with pytest.raises(InputError, match="more than 50 arcs"):
        MilpInterval(RangeCosts(table))


@pytest.mark.parametrize("unit", [1, 10**6, 10**9])
def test_bounds_of_large_costs_are_safe(unit: int) -> None:
    draw = np.random.default_rng(5)
    cycles = draw.integers(10**5, 10**6, 10) * unit + draw.integers(0, 7)
    instance = PipelinePartition.from_arrays(cycles, devices=3)
    costs, best = RangeCosts(instance), optimum(instance)
    assert best is not None
    formulation = MilpInterval(costs)
    answer = solve(formulation)
    assert answer.values is not None
    bound = formulation.lower_bound(answer.bound)
    assert best[0] * (1 - 2e-6) <= bound <= best[0]
    assert formulation.lower_bound(-np.inf) == formulation.least[0]
