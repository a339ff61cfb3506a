"""The bound of closed queues against an oracle that knows no graph, no kernel and no order."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from ortools.sat.python import cp_model

from stagepack.heuristics.schedule.effort import Looks
from stagepack.heuristics.schedule.lower_bounds.bounds import bound
from stagepack.heuristics.schedule.lower_bounds.queues import queue_bound, round_trips
from stagepack.instances.schedule import PipelineSchedule, least_memory
from stagepack.progress import Stopped
from tests.heuristics.schedule.cases import vee
from tests.random_schedules import optimum, random_schedule

INSTANCES = 400
"""Drawn in groups of a hundred."""


def drawn(seed: int) -> PipelineSchedule:
    """Return a V, a loop or a chain of three or four stages with little memory."""
    draw = np.random.default_rng([7, seed])
    devices = [[0, 1, 1, 0], [0, 1, 0, 1], [0, 1, 2], [0, 0, 1]][int(draw.integers(4))]
    p, split = len(devices), bool(draw.random() < 0.5)
    f = draw.integers(1, 4, p)
    b = -draw.integers(0, f + 1) if split else -f
    keeps = draw.random() < 0.15  # a stage keeps some of what it took
    free = PipelineSchedule.from_arrays(
        draw.integers(1, 6, p),
        draw.integers(1, 6, p),
        draw.integers(1, 6, p) if split else None,
        microbatches=int(draw.integers(2, 4)) if split else int(draw.integers(2, 5)),
        devices=devices,
        latency=int(draw.integers(0, 3)),
        optimizer=int(draw.integers(0, 3)),
        memory_forward=f,
        memory_backward=b + (keeps and not split),
        memory_weight=-(f + b) + keeps if split else 0,
    )
    return free.replace(limit=least_memory(free) + draw.integers(0, 3, free.d))


def least_makespan(instance: PipelineSchedule) -> float:
    """Return the least makespan, from the rules alone: CP-SAT on starts and a tank of memory."""
    assert instance.limit is not None
    columns = (instance.forward, instance.backward, instance.weight)[: len(instance.kinds)]
    cycles = [column.tolist() for column in columns if column is not None]
    m, at = int(instance.microbatches[0]), instance.devices.tolist()
    model, most = cp_model.CpModel(), 4 * m * sum(map(sum, cycles))
    start = {
        (s, k, i): model.new_int_var(0, most, "")
        for s, k, i in product(range(instance.p), range(len(cycles)), range(m))
    }
    end = {op: start[op] + cycles[op[1]][op[0]] for op in start}
    for (s, k, i), begins in start.items():
        before = [(end[s, k, i - 1], 0)] if i else []
        before += [(end[s, k - 1, i], 0)] if k else []
        for a, b in instance.edges:
            lag = 0 if at[a] == at[b] else int(instance.latency[instance.edges.index((a, b))])
            before += [(end[a, 0, i], lag)] if (s, k) == (b, 0) else []
            before += [(end[b, 1, i], lag)] if (s, k) == (a, 1) else []
        for ends, lag in before:
            model.add(begins >= ends + lag)
    for device, limit in enumerate(instance.limit.tolist()):
        own = [op for op in start if at[op[0]] == device]
        model.add_no_overlap(
            [model.new_fixed_size_interval_var(start[op], cycles[op[1]][op[0]], "") for op in own]
        )
        changes = [instance.changes(s)[k] for s, k, _ in own]
        # It is taken at a start, and given back at an end.
        moments = [start[op] if by > 0 else end[op] for op, by in zip(own, changes, strict=True)]
        model.add_reservoir_constraint(moments, changes, 0, limit)
    makespan = model.new_int_var(0, most, "")
    model.add_max_equality(makespan, list(end.values()))
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 2.0
    known = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)  # no less than the least
    return solver.objective_value + int(instance.optimizer.max()) if known else math.inf


@pytest.mark.parametrize("first", range(0, INSTANCES, 100))
def test_no_bound_exceeds_the_least_makespan(first: int) -> None:
    met = 0
    for seed in range(first, first + 100):
        instance = drawn(seed)
        value = least_makespan(instance)
        assert queue_bound(instance) <= value, f"seed {seed}"
        assert bound(instance)[0] <= value, f"seed {seed}"
        met += queue_bound(instance) >= 0.8 * value
    assert met >= 5, "where memory is short, it says something"


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_it_never_exceeds_the_optimum(first: int) -> None:
    """Of every kind of instance: spans, keepers, takers, graphs; by every order of operations."""
    for seed in range(first, first + 20):
        instance = random_schedule(seed)
        value = optimum(instance)
        assert value is None or queue_bound(instance) <= value, f"seed {seed}"


def test_a_third_of_the_memory_keeps_devices_waiting() -> None:
    """Lifespans of the V of d devices: 2 d + 1 F's and B's of all that device 0 holds."""
    d, m = 6, 30
    instance = vee(d, m, limit=8)
    alone = bound(instance.replace(limit=None))[0]
    area = m * (2 * (2 * d + 1) * 2 + 2)  # F's hold two units, B's leave one for W
    assert bound(instance)[1] == "closed-queue bound"
    assert bound(instance)[0] >= area // 8 > alone


def test_stages_that_keep_some_are_left_out() -> None:
    instance = vee(3, 8, limit=6)
    assert queue_bound(instance) > 0
    assert queue_bound(instance.replace(limit=None)) == 0
    kept = instance.replace(memory_weight=0, limit=60)  # every microbatch leaves a unit
    assert queue_bound(kept) == 0


def test_round_trips_are_longest_paths_and_ask_the_clock() -> None:
    instance = PipelineSchedule.from_arrays([1, 2, 3], [4, 5, 6], microbatches=2, latency=7)
    assert round_trips(instance, Looks()).tolist() == [1 + 2 + 3 + 6 + 5 + 28, 2 + 3 + 6 + 14, 3]
    with pytest.raises(Stopped):
        round_trips(instance, Looks(lambda _: False))
