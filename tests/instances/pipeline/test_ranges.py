"""Range costs agree with the checker, which shares no code with them, on every range."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from stagepack.errors import InputError
from stagepack.instances.pipeline import Objective, PipelinePartition, kernels
from stagepack.instances.pipeline.check import (
    host_cycles,
    recv_cycles,
    send_cycles,
    stage_compute,
    stage_memory,
)
from stagepack.instances.pipeline.costs import furthest_fit, smallest
from stagepack.instances.pipeline.order import UNREACHABLE
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from tests.random_pipelines import random_instance
from tests.strategies import pipelines


@given(pipelines(most_layers=6))
@settings(max_examples=150)
def test_every_range_costs_what_the_checker_says(instance: PipelinePartition) -> None:
    costs = RangeCosts(instance)
    rel = instance.tolerance
    n = instance.n
    for device, c in enumerate(costs.device_class.tolist()):
        capacity = instance.cluster.devices[device].memory
        compute = costs.compute_matrix(c)
        for stashes in (1, 2) if instance.training else (0,):
            memory, fits = costs.memory_matrix(c, stashes), costs.fits_matrix(c, stashes)
            reach = None if costs.tabular else costs.reach(c, stashes)
            for a in range(n):
                for b in range(a + 1, n + 1):
                    bytes_needed = stage_memory(instance, a, b, device, max(1, stashes))
                    if instance.training and instance.microbatches < stashes:
                        continue
                    assert memory[a, b] == bytes_needed
                    within = capacity is None or bytes_needed <= capacity
                    within &= not any(a < cut < b for cut in instance.fixed_cuts)
                    if reach is not None:
                        assert (b <= reach[a]) == within
                    within &= bool(costs.allowed[a]) and bool(costs.allowed[b])
                    assert fits[a, b] == within
                    ticks = Fraction(stage_compute(instance, a, b, device)) * costs.scale
                    assert compute[a, b] == costs.compute(a, b, c)
                    assert int(compute[a, b]) == pytest.approx(ticks, rel=rel, abs=1 if rel else 0)
        if instance.objective is Objective.BOTTLENECK:
            assert not costs.recv.any()  # not part of the objective
            continue
        for cut in range(n + 1):
            recv = recv_cycles(instance, device, cut) * costs.scale if cut else 0
            send = send_cycles(instance, device, cut) * costs.scale if cut < n else 0
            assert costs.recv[c, cut] == pytest.approx(recv, rel=rel, abs=1 if rel else 0)
            assert costs.send[c, cut] == pytest.approx(send, rel=rel, abs=1 if rel else 0)
    host = host_cycles(instance) * costs.scale
    if instance.objective is Objective.BOTTLENECK:
        host = 0
    assert costs.host == pytest.approx(host, rel=rel, abs=2 if rel else 0)


def furthest_fit_in_python(per_layer: Array, peak: Array, keys: list[set[int]], nbytes: Array,
                           capacity: int) -> list[int]:  # fmt: skip
    def need(a: int, b: int) -> int:
        shared = sum(int(nbytes[key]) for key in set().union(*keys[a:b]))
        return int(per_layer[a:b].sum()) + int(peak[a:b].max()) + shared

    n = len(per_layer)
    return [max([b for b in range(a + 1, n + 1) if need(a, b) <= capacity], default=a)
            for a in range(n)]  # fmt: skip


def test_furthest_fit_agrees_with_its_plain_twin() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 15))
        per_layer, peak = rng.integers(0, 10, n), rng.integers(0, 10, n)
        uses = [np.flatnonzero(rng.random(3) < 0.3) for _ in range(n)]
        nbytes, capacity = rng.integers(0, 20, 3), int(rng.integers(0, 70))
        start = np.cumsum([0, *map(len, uses)])
        key = np.concatenate(uses)
        layers = kernels.Layers(per_layer, peak, np.full(n, n), start, key, nbytes)
        window, found = kernels.Window.of(layers), np.empty(n, dtype=np.int64)
        budget, calls = int(rng.integers(1, 60)), 1  # of a call: more, the more layers and uses
        while not kernels.furthest_fit(budget, layers, capacity, window, found):
            calls += 1
        assert calls >= (n + len(key)) // (budget + 6)
        keys = [set(u.tolist()) for u in uses]
        assert found.tolist() == furthest_fit_in_python(per_layer, peak, keys, nbytes, capacity)
        plain = furthest_fit(per_layer, peak, capacity)
        none: list[set[int]] = [set()] * n
        assert plain.tolist() == furthest_fit_in_python(per_layer, peak, none, nbytes, capacity)


@pytest.mark.parametrize("count", [1, 2, 7, 50, 99, 100])
def test_the_smallest_values_are_found_among_few(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 60, 100)
    for some in (values, np.sort(values), np.sort(values)[::-1], np.zeros(100, dtype=np.int64)):
        assert np.sort(smallest(some, count)).tolist() == np.sort(some)[:count].tolist()


def test_ticks_of_fractions_with_few_digits_are_exact() -> None:
    costs = RangeCosts(PipelinePartition.from_arrays([0.1, 0.25, 3.019], devices=2))
    assert costs.scale == 1000
    assert costs.prefix[0].tolist() == [0, 100, 350, 3369]
    assert costs.value(3369) == 3.369


def test_tiny_fractions_keep_their_digits() -> None:
    costs = RangeCosts(PipelinePartition.from_arrays([3e-10, 1.7e-10, 2.2222222222e-10], devices=2))
    assert costs.value(int(costs.prefix[0, -1])) == pytest.approx(6.92222222222e-10, rel=1e-12)


def test_what_could_overflow_is_refused() -> None:
    with pytest.raises(InputError, match="forward"):
        RangeCosts(PipelinePartition.from_arrays([2**60, 2**60], devices=2))
    with pytest.raises(InputError, match="2\\*\\*62"):
        PipelinePartition.from_arrays([2**61, 2**61], devices=2)


def test_fewest_stages_of_every_automaton() -> None:
    for seed in range(60):
        order = RangeCosts(random_instance(seed)).order
        edges = list(zip(order.source.tolist(), order.target.tolist(), strict=True))
        assert edges == sorted(edges, key=lambda edge: edge[1])
        before, after = order.fewest_stages
        for state in range(order.states):
            first, last = order.arrivals[state : state + 2]
            assert {target for _, target in edges[first:last]} <= {state}
            lengths = [after[source] + 1 for source, target in edges if target == state]
            assert after[state] == min(lengths, default=0)
            lengths = [before[target] + 1 for source, target in edges if source == state]
            assert before[state] == (0 if order.accepting[state] else min([*lengths, UNREACHABLE]))
