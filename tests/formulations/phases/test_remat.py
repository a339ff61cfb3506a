"""Both models of recomputation against all plans of small random instances."""

from __future__ import annotations

import pytest

from stagepack.formulations.phases import RematCpSat, RematMilp
from tests.formulations.engines import solve
from tests.formulations.phases.cases import best, random_remat

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
