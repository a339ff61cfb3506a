"""Every method on strange but legal instances: a checked answer that agrees, or a named refusal."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.phases.feasibility import fitting
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.phases.least import least_memory
from stagepack.result import Status

HUGE = 2**50


def chain(n: int, **more: Any) -> PhaseSchedule:
    """Return a chain of n layers with figures that repeat."""
    at = range(n)
    columns = [5 + i % 3 for i in at], [9 + i % 4 for i in at], [2 + i % 5 for i in range(n + 1)]
    limits = {"remote_bandwidth": 1, "host_bandwidth": 0.5, "tiles": 4, "io_tiles": (0, 2)}
    return PhaseSchedule.from_arrays(*columns, **{**limits, **more})


def training(n: int, **more: Any) -> PhaseSchedule:
    """Return a chain in training, every policy allowed."""
    options = {
        "training": True,
        "backward": [11 + i % 3 for i in range(n)],
        "tape": [1 + i % 2 for i in range(n)],
        "state": [3] * n,
        "policies": ["stash", "keep", "recompute"],
        "steps": 2,
    }
    return chain(n, **{**options, **more})


def with_least(instance: PhaseSchedule, less: int = 0) -> PhaseSchedule:
    """Return the instance in the least memory that any plan needs, or in less."""
    return instance.replace(memory=least_memory(instance).memory - less)


def huge(train: bool) -> PhaseSchedule:
    """Return an instance whose bytes are near 2**50."""
    columns = [HUGE - 1, HUGE, HUGE + 1], [7, 8, 9], [HUGE, 3, HUGE - 5, 1]
    options: dict[str, Any] = {"memory": 6 * HUGE, "remote_bandwidth": 0.7, "steps": 2}
    if train:
        options |= {"training": True, "backward": [9] * 3, "tape": [HUGE] * 3, "steps": 1}
        options |= {"memory": 9 * HUGE, "policies": ["stash", "keep", "recompute"]}
    return PhaseSchedule.from_arrays(*columns, **options)


STRANGE = {
    "one layer": chain(1, memory=40),
    "one layer in training": training(1, memory=200),
    "no figures at all": PhaseSchedule.from_arrays([0] * 4, [0] * 4, [0] * 5, memory=0, tiles=1),
    "no variables": PhaseSchedule.from_arrays([0] * 5, [3] * 5, [4] * 6, memory=9),
    "no compute": PhaseSchedule.from_arrays(
        [5] * 5, [0] * 5, [4] * 6, memory=20, remote_bandwidth=1, host_bandwidth=1
    ),
    "no figures in training": PhaseSchedule.from_arrays(
        [0] * 3, [0] * 3, [0] * 4, memory=0, training=True, policies=["keep", "recompute"]
    ),
    "no limit of memory": chain(6, memory=None),
    "weights that fill the chip": PhaseSchedule.from_arrays([8] * 4, [1] * 4, [0] * 5, memory=8),
    "just enough": with_least(chain(5)),
    "a byte short": with_least(chain(5), 1),
    "just enough in training": with_least(training(4)),
    "a byte short in training": with_least(training(4), 1),
    "a million tiles": chain(4, memory=10**7, tiles=10**6, io_tiles=(0, 10**6 - 1), steps=3),
    "a million tiles, all but one for I/O": chain(
        3, memory=10**8, tiles=10**6, io_tiles=(10**6 - 1, 10**6 - 1), modes=["io_overlapped"]
    ),
    "many divisors": chain(4, memory=400_000, global_batch=5_040, forward_fixed=[3] * 4),
    "many divisors in training": training(
        3, steps=None, memory=4_000, global_batch=720, temporary_fixed=[1] * 3
    ),
    "huge bytes": huge(False),
    "huge bytes in training": huge(True),
    "no graph": training(3, memory=200, graphs=0),
    "no remote memory": training(3, memory=200, remote_memory=0),
    "no remote memory, nothing to hold": PhaseSchedule.from_arrays(
        [0] * 3, [1] * 3, [2] * 4, memory=50, remote_memory=0, tiles=2
    ),
    "one graph": training(3, memory=300, graphs=1, layer_class=[0] * 3),
    "computed again never": training(3, memory=200, recomputations=0),
    "only dropped": training(3, memory=200, policies=["recompute"]),
    "every skip": training(
        4, memory=150, skips=[(u, v) for u in range(-1, 4) for v in range(u + 2, 4)]
    ),
    "one group given": training(3, memory=200, fixed_boundaries=[0, 3], recomputations=2),
    "loads ahead": training(3, memory=150, prefetch=True, modes=["io", "io_overlapped"]),
    "rates far apart": chain(4, memory=60, remote_bandwidth=1e-6, host_bandwidth=1e9),
}


@pytest.mark.parametrize("name", list(STRANGE))
def test_every_method(name: str) -> None:
    instance = STRANGE[name]
    values, optima, infeasible, bounds, refusals = [], set(), [], [], []
    for method in sp.methods(instance):
        if method.reason:
            continue
        options = {"deterministic": not method.engines}
        try:
            result = sp.solve(instance, method.name, time_limit=5, options=options)
        except InputError as error:
            refusals.append(error)
            continue
        if result.status is Status.INFEASIBLE:
            infeasible.append(method.name)
            assert result.reason
            continue
        if result.solution is None:
            assert result.reason or result.termination == "TIME_LIMIT", method.name
        else:
            assert instance.check(result.solution) == ()
            values.append(instance.evaluate(result.solution))
        if result.status is Status.OPTIMAL:
            optima.add(result.objective)
        if result.bound is not None:
            bounds.append(result.bound)
    assert all(error.field and error.remedy for error in refusals)
    assert not (infeasible and values)
    assert infeasible or values
    assert len(optima) <= 1
    if values:
        assert max(bounds) <= min(values)


def test_a_model_that_would_not_get_far_leaves_its_time_to_the_search() -> None:
    instance = training(4, memory=100)
    slow = {"tuning": {"models": {"highs_price": 1e6}}}
    result = sp.solve(instance, "milp", time_limit=60, options=slow)
    assert (result.engine, result.status) == ("", Status.OPTIMAL)
    assert result.objective == sp.solve(instance, "enumerate").objective


def test_a_layer_a_phase_is_the_start_where_other_rules_find_none() -> None:
    random, n = np.random.default_rng(0), 24
    unlike = {"state": random.integers(1, 99, n), "tape": random.integers(1, 20, n)}
    tight = {"layer_class": np.arange(n) % 3, "graphs": 8, "memory": 400}
    instance = training(n, prefetch=True, **unlike, **tight)
    options = {"deterministic": True}
    for name in ("greedy-head", "sqrt-checkpoint", "keep-all"):
        assert sp.solve(instance, name, time_limit=0.1, options=options).solution is None
    result = sp.solve(instance, time_limit=0.2, options=options)
    found = [event.source for event in result.trace.events if event.kind == "incumbent"]
    assert found[0] == "layer-per-phase"


def test_the_search_for_what_would_do_asks_at_every_pair() -> None:
    instance = chain(2, memory=1, global_batch=12)
    asked = Mock(return_value=True)
    assert fitting(instance, asked) is None
    assert asked.call_count >= len(instance.microbatches) * len(instance.io_tile_choices)
