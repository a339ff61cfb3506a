"""Kernels give the same whether they are interpreted or compiled."""

from __future__ import annotations

import math
from typing import Any

import pytest

import stagepack as sp
from stagepack.catalog import tour
from stagepack.kernels import compiled

ENGINES = ("cp-sat", "milp")
STOPS = [
    pytest.param(instance, method, id=f"{instance.name}-{method}")
    for instance, methods in tour()
    for method in methods
    if not method.startswith(ENGINES)
]


@pytest.mark.parametrize(("instance", "method"), STOPS)
def test_the_tour_ends_alike_interpreted_and_compiled(
    instance: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for seconds in (math.inf, 0.0):
        monkeypatch.setattr(compiled, "WARM_UP", seconds)
        result = sp.solve(instance, method, time_limit=120)  # interpreted, beside others
        events = [(one.kind, one.value, one.source) for one in result.trace.events]
        found.append((result.objective, result.bound, result.status, result.solution, events))
    assert found[0] == found[1]
