"""Both models of recomputation against all plans of small random instances."""

from __future__ import annotations

import pytest

from stagepack.formulations.phases import RematCpSat, RematMilp
from stagepack.formulations.phases.remat import Step
from stagepack.instances.phases import liveness, traffic
from tests.formulations.engines import solve
from tests.formulations.phases.cases import best, random_remat
from tests.random_phases import random_phases

MODELS = {"milp": RematMilp, "cp-sat": RematCpSat}


def agree(seed: int, model: type[RematMilp] | type[RematCpSat]) -> bool:
    instance = random_remat(seed)
    io_tiles = instance.io_tile_choices[0]
    mode = str(instance.modes[seed % len(instance.modes)])
    expected = best(instance, io_tiles, mode)
    formulation = model(instance, io_tiles=io_tiles, microbatch=1, mode=mode)
    answer = None if formulation.infeasible else solve(formulation)
    if expected is None:
        assert answer is None or answer.values is None
        return False
    assert answer is not None
    assert answer.values is not None, (seed, expected)
    found = formulation.decode(answer.values)
    value = instance.evaluate(expected)
    assert instance.check(found) == ()
    assert instance.evaluate(found) == value, (seed, expected, found)
    assert formulation.lower_bound(answer.bound, 1e-9) == value
    # What is known of the best plan cuts off nothing of its worth.
    sharp = model(instance, io_tiles=io_tiles, microbatch=1, mode=mode, upper=value)
    fixed = solve(sharp, fixed=sharp.hint(expected))
    assert fixed.values is not None
    assert sharp.lower_bound(fixed.objective, 1e-9) == value
    return True


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("seeds", [range(start, start + 12) for start in range(0, 48, 12)])
def test_all_plans(model: type[RematMilp] | type[RematCpSat], seeds: range) -> None:
    assert sum(agree(seed, model) for seed in seeds) > 2


@pytest.mark.parametrize("seed", range(30))
def test_a_step_has_the_figures_of_the_checker(seed: int) -> None:
    instance = random_phases(seed, training=True)
    instance = instance.replace(fixed_boundaries=(0, instance.n))
    for io_tiles, microbatch, mode in RematMilp.choices(instance):
        step = Step(instance, io_tiles, microbatch, mode)
        figures = instance.at(microbatch)
        plan = step.plan([instance.policies[0]] * instance.n, [()] * instance.n)
        phase = plan.phases(instance)[0]
        took = traffic.cycles(instance, figures, phase, io_tiles)
        assert step.v == took.variables + took.gather
        assert step.fixed == instance.chip.startup + took.epilogue
        paged = sum(tensor.nbytes for tensor in traffic.moves(instance, figures, phase).paged)
        assert step.time(0, paged) == took.time
        for layer in range(instance.n):
            products = traffic.products(instance, figures, layer, 0, instance.n)
            assert step.products[layer] == sum(tensor.nbytes for tensor in products)
        compute, _ = liveness.capacities(instance, io_tiles)
        (base,) = liveness.base_bytes(instance, figures, [phase])
        if compute is not None and step.room >= 0:
            assert step.room == compute - base - step.x[0]
