"""The search for latency: what places are worth, cuts of orders, bounds of paths."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np

from stagepack.heuristics.graph.latency.path_bound import path_bound
from stagepack.heuristics.graph.latency.sample import Sample
from stagepack.heuristics.graph.latency.search import PlaceSearch
from stagepack.heuristics.graph.latency.search_kernels import FAR
from stagepack.heuristics.graph.tuning import TUNING
from tests.latency_graphs import brute_force, makespan, random_instance


def no_pause() -> None:
    """Go on."""


def test_places_are_worth_what_the_definition_says() -> None:
    rng = np.random.default_rng(4)
    for _ in range(25):
        instance = random_instance(rng, int(rng.integers(1, 6)), most=1)
        sample = Sample.of(instance)
        for places in product(range(-1, instance.accelerators), repeat=sample.blocks):
            search = PlaceSearch(sample, 0, no_pause)
            solution = sample.solution(np.array(places))
            value = None
            if instance.cpus or min(places) >= 0:
                value = makespan(instance, tuple(solution.assignment.tolist()))
            assert search.take(np.array(places)) == (value is not None)
            if value is None:
                assert search.value == FAR
            else:
                off = abs(search.value - value * sample.scale)
                assert off <= sample.rounding + 1e-12 * search.value  # 0.1 is taken as written
                assert sample.places(solution).tolist() == list(places)


def test_parts_of_a_cut_are_as_good_as_the_whole() -> None:
    rng = np.random.default_rng(9)
    small = dataclasses.replace(TUNING.latency, chunk=1)
    for _ in range(40):
        instance = random_instance(rng, int(rng.integers(2, 30)))
        found = []
        for tuning in (TUNING.latency, small):
            search = PlaceSearch(Sample.of(instance), 3, no_pause, tuning)
            found.append((list(search.cuts()), search.value))
        assert found[0] == found[1]


def test_no_path_promises_more_than_there_is() -> None:
    rng = np.random.default_rng(6)
    tight = 0
    for _ in range(120):
        instance = random_instance(rng, int(rng.integers(1, 7)), most=1)
        sample, best = Sample.of(instance), brute_force(instance)
        for weight in (sample.least(), rng.integers(0, 9, instance.n)):
            bound = path_bound(sample, weight, 100, no_pause)
            if best is None:
                continue
            assert bound - sample.rounding <= best[0] * sample.scale + 1e-6
            tight += bool(bound + sample.rounding + 1e-6 >= best[0] * sample.scale)
    assert tight > 100
