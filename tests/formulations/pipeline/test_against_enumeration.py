"""Every formulation against the enumeration of all solutions of tiny instances."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.contracts import Number
from stagepack.formulations.pipeline import CpSat, MilpAssignment, MilpInterval
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from tests.formulations.engines import solve
from tests.random_pipelines import optimum, random_instance, solutions

Formulation = CpSat | MilpAssignment | MilpInterval
MODELS: dict[str, type[Formulation]] = {
    "interval": MilpInterval,
    "assignment": MilpAssignment,
    "cp-sat": CpSat,
}
BATCHES = [range(start, start + 40) for start in range(0, 120, 40)]


def same(first: Number, second: Number) -> bool:
    return abs(first - second) <= 1e-9 * max(1.0, abs(second))


def value_of(costs: RangeCosts, solution: PipelineSolution) -> int:
    """Return the ticks of a solution, with the rounding of the range costs."""
    classes = [int(costs.device_class[device]) for device in solution.devices]
    stages = [
        (costs.compute(a, b, c), int(costs.recv[c, a]), int(costs.send[c, b]))
        for (a, b, _), c in zip(solution.stages, classes, strict=True)
    ]
    match costs.instance.objective.value:
        case "bottleneck":
            return max(compute for compute, _, _ in stages)
        case "transfer-bounded":
            transfer = max(recv + send for _, recv, send in stages)
            return max(compute for compute, _, _ in stages) + transfer + costs.host
        case "sum":
            return max(map(sum, stages)) + costs.host
        case _:
            return max(map(max, stages))


def decoded(formulation: Formulation, values: object) -> PipelineSolution:
    solution = formulation.decode(np.asarray(values))
    assert not formulation.costs.instance.check(solution)
    return solution


def agree(instance: PipelinePartition, formulation: Formulation, best: Number) -> None:
    """Assert that a model's optimum is `best`, and its bound safe."""
    assert not formulation.infeasible
    answer = solve(formulation)
    assert answer.values is not None
    assert same(instance.evaluate(decoded(formulation, answer.values)), best)
    costs = formulation.costs
    bound = costs.value(formulation.lower_bound(answer.bound))
    assert bound <= best + 1e-9 * max(1.0, abs(best))
    # Not only safe but tight, up to the tolerance it was lowered by.
    assert bound >= best - 1e-4 * max(1.0, abs(best))


def like(costs: RangeCosts, one: PipelineSolution, other: PipelineSolution) -> bool:
    """Whether two solutions differ in nothing but the choice among devices of a class."""
    classes = [[int(costs.device_class[d]) for d in s.devices] for s in (one, other)]
    return one.boundaries == other.boundaries and classes[0] == classes[1]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_optimum_and_warm_start(name: str, seeds: range) -> None:
    for seed in seeds:
        instance = random_instance(seed)
        if MODELS[name].unsupported(instance):
            continue
        costs, best = RangeCosts(instance), optimum(instance)
        formulation = MODELS[name](costs)
        if best is None:
            assert formulation.infeasible or solve(formulation).values is None, instance.name
            continue
        agree(instance, formulation, best[0])
        # With the optimum as `upper` it remains, below it nothing does.
        ticks = costs.objective(best[1])
        capped = MODELS[name](costs, upper=ticks)
        agree(instance, capped, best[0])
        point = capped.hint(best[1])
        assert like(costs, capped.decode(point), best[1])
        assert solve(capped, fixed=point).values is not None, instance.name
        assert costs.value(capped.lower_bound(-np.inf)) <= best[0] + 1e-9 * max(1.0, abs(best[0]))
        if instance.whole:
            below = MODELS[name](costs, upper=ticks - 1)
            found = None if below.infeasible else solve(below).values
            # What an `upper` may leave in the model is never wrong, only useless.
            assert found is None or same(instance.evaluate(decoded(below, found)), best[0])
            assert found is None or below.lower_bound(np.inf) <= ticks


@pytest.mark.parametrize("name", MODELS)
def test_every_solution_is_in_the_model(name: str) -> None:
    for seed in range(1000, 1030):
        instance = random_instance(seed)
        if MODELS[name].unsupported(instance):
            continue
        costs = RangeCosts(instance)
        formulation = MODELS[name](costs)
        for solution in list(solutions(instance))[::5]:
            point = formulation.hint(solution)
            assert like(costs, decoded(formulation, point), solution)
            answer = solve(formulation, fixed=point)
            assert answer.values is not None
            if instance.whole:
                assert formulation.lower_bound(answer.objective) == value_of(costs, solution)
