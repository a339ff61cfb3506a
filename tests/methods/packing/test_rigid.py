"""Rules that only ever allow more never make the answer worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack.heuristics import effort
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import Gap, LmemPacking
from stagepack.methods.models import PACE
from stagepack.methods.packing import modelled, steps
from stagepack.result import Status, Termination
from stagepack.solve import solve


def cut(pieces: int, seed: int) -> LmemPacking:
    """Return a square cut into so many buffers that fill it, most of them with a gap."""
    rng = np.random.default_rng(seed)
    parts = [(0, 64, 0, 64)]
    while len(parts) < pieces:
        parts.sort(key=lambda p: (p[1] - p[0]) * (p[3] - p[2]))
        a, b, low, high = parts.pop()
        if b - a > 4 and (rng.random() < 0.5 or high - low < 3):
            at = int(rng.integers(a + 2, b - 1))
            parts += [(a, at, low, high), (at, b, low, high)]
        else:
            at = int(rng.integers(low + 1, high))
            parts += [(a, b, low, at), (a, b, at, high)]
    start, end, low, high = np.array(parts).T
    size = high - low
    gaps = [Gap(i, int(start[i]) + 1, int(end[i]) - 1, 0, 1) for i in range(pieces) if i % 9 == 0]
    gaps = [gap for gap in gaps if gap.start < gap.end]
    return LmemPacking.from_arrays(size, start, end, gaps=gaps, capacity=64)


@pytest.mark.parametrize("method", ["exact", "auto"])
@pytest.mark.parametrize("objective", ["peak", "fit"])
def test_gaps_do_no_harm(method: str, objective: str, monkeypatch: Any) -> None:
    # Without the search for blocks of any shape: those made rigid do.
    monkeypatch.setattr(steps, "search_exactly", lambda *_, **__: None)
    monkeypatch.setattr(modelled, "solve", lambda *_, **__: None)
    instance = cut(40, 1).replace(objective=objective)
    limited: dict[str, Any] = {"time_limit": 2, "options": {"deterministic": True}}
    result = solve(instance, method, **limited)
    assert result.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert result.objective == (64 if objective == "peak" else result.objective)
    assert result.solution is not None
    assert not instance.check(result.solution)
    assert int((result.solution.offsets + instance.size).max()) <= 64


def test_turns_of_auto_keep_within_the_work_given(monkeypatch: Any) -> None:
    given: dict[str, float] = {"exact": 0.0, "model": 0.0}

    def exact(_attempt: Any, _low: Any, seconds: float) -> None:
        given["exact"] += seconds
        effort.spend(seconds)

    def model(*_: Any, work: float) -> None:
        given["model"] += work / PACE
        effort.spend(work / PACE)

    monkeypatch.setattr(steps, "search_exactly", exact)
    monkeypatch.setattr(modelled, "solve", model)
    monkeypatch.setattr(steps, "search_rigid", lambda _attempt, low, _seconds=None: low)
    instance = cut(60, 2).replace(objective="peak", capacity=None)
    result = solve(instance, "auto", time_limit=2, options={"deterministic": True})
    assert result.termination is Termination.TIME_LIMIT
    assert 1 < sum(given.values()) <= 2 + TUNING.auto.shortest
