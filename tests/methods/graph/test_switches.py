"""Steps of auto that are switched off: answers stay right, and the step is not taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph.tuning import TUNING
from tests.random_graphs import brute_force, random_instance


def switches() -> Iterator[tuple[str, str]]:
    """Yield the parts of what steers auto that are true or false, and their fields."""
    for part in dataclasses.fields(TUNING):
        value = getattr(TUNING, part.name)
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                if isinstance(getattr(value, field.name), bool):
                    yield part.name, field.name


def off(part: str, *names: str) -> dict[str, Any]:
    """Return options with steps switched off."""
    return {"deterministic": True, "tuning": {part: dict.fromkeys(names, False)}}


@pytest.mark.parametrize(("part", "name"), [*switches()])
def test_answers_stay_right(part: str, name: str) -> None:
    for seed in range(6):
        instance = random_instance(np.random.default_rng([seed, 11]), 5)
        optimum = brute_force(instance)
        result = sp.solve(instance, time_limit=0.3, options=off(part, name))
        if optimum is None:
            assert result.solution is None
            continue
        best = float(optimum[0])
        if result.solution is not None:
            assert instance.check(result.solution) == ()
            assert result.objective is not None
            assert result.objective >= best * (1 - 1e-9)
        assert result.bound is None or result.bound <= best * (1 + 1e-9)


def test_every_step_is_a_switch() -> None:
    assert len([*switches()]) >= 10


@pytest.mark.parametrize(
    ("part", "names", "source"),
    [
        ("auto", ["ideals", "labels", "cp_sat"], "dp"),
        ("auto", ["local_search"], "local-search"),
        ("auto", ["many_orders", "metis"], "metis"),
    ],
)
def test_what_is_off_finds_nothing(part: str, names: list[str], source: str) -> None:
    instance = sp.load("graph/random/branchy", operators=24, devices=4, seed=3)
    result = sp.solve(instance, time_limit=0.5, options=off(part, *names))
    assert source not in {event.source for event in result.trace.events}
    assert instance.check(result.solution) == ()
    if source == "dp":
        assert result.status is sp.Status.FEASIBLE
