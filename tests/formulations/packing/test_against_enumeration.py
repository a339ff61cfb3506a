"""Both models against the enumeration of all placements of small random packings."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.packing import CpSat, Milp
from stagepack.instances.packing import LmemPacking, Objective
from tests.formulations.packing.engines import Formulation, confirm, optimum
from tests.packing_cases import FEATURES, brute_force, random_packing, tight

MODELS: dict[str, type[Formulation]] = {"cp-sat": CpSat, "milp": Milp}


def random_case(seed: int) -> LmemPacking:
    """Return a random packing with the objectives in turn, and some of all options."""
    rng = np.random.default_rng(seed)
    known = [objective for objective in Objective if objective is not Objective.PENALTIES]
    objective = known[seed % len(known)]
    share = float(rng.choice([0.0, 0.2, 0.5]))
    while True:
        features = [name for name in FEATURES if rng.random() < share]
        try:
            return random_packing(rng, features=features, objective=objective)
        except InputError:  # options that contradict each other: others will not
            continue


def agree(instance: LmemPacking, model: type[Formulation]) -> None:
    if model.unsupported(instance):
        return
    best = brute_force(instance)
    found = optimum(model(instance))
    if best is None:
        assert found is None
        return
    assert found is not None
    value = instance.evaluate(best)
    assert instance.evaluate(found) == value
    # What is known of the best solution cuts off nothing of its worth.
    sharp = model(instance, upper=value, lower=value)
    confirm(sharp, best)
    assert optimum(sharp) is not None
    if value > 0:
        assert optimum(model(instance, upper=value - 1)) is None


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("seeds", [range(start, start + 15) for start in range(0, 90, 15)])
def test_random_packings(model: type[Formulation], seeds: range) -> None:
    for seed in seeds:
        agree(random_case(seed), model)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("feature", FEATURES)
def test_every_option_alone(model: type[Formulation], feature: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(1000 + seed)
        try:
            instance = random_packing(rng, features=[feature], n=5)
        except InputError:
            continue
        agree(instance, model)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_an_optimum_above_the_load(model: type[Formulation]) -> None:
    instance = tight()
    formulation = model(instance)
    assert formulation.frame.least == 16
    found = optimum(formulation)
    assert found is not None
    assert instance.evaluate(found) == 17
    assert optimum(model(instance.replace(capacity=16, objective="fit"))) is None


def test_the_enumeration_agrees_with_the_checker() -> None:
    """What the enumeration calls best is valid, and nothing one byte better is."""
    for seed in range(40):
        instance = random_case(seed)
        if instance.objective not in (Objective.PEAK, Objective.FIT):
            continue
        best = brute_force(instance)
        if best is not None:
            value = instance.evaluate(best)
            assert brute_force(instance, ceiling=value - 1) is None
