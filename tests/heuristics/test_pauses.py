"""Searches in compiled code that pause go on where they ended, whatever the limit of steps."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from stagepack.heuristics.groups import free, free_kernels, group_kernels, oracle
from stagepack.heuristics.groups.dag import steps
from stagepack.heuristics.groups.tuning import TUNING as GROUPING
from stagepack.heuristics.phases import (
    baselines,
    liveness_kernels,
    options,
    policies,
    policies_kernels,
    ranges,
    remat,
    remat_kernels,
)
from stagepack.heuristics.phases.tuning import TUNING as PHASING
from stagepack.heuristics.phases.tuning import PhasesTuning
from stagepack.heuristics.pipeline import kernels as pipeline_kernels
from stagepack.heuristics.pipeline import prober
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.heuristics.schedule import (
    annealing,
    effort,
    greedy,
    rules,
    sequences,
    squeezing,
    timing,
    timing_kernels,
    trips,
    trips_kernels,
)
from stagepack.heuristics.schedule.lower_bounds import bounds, bounds_kernels, ramps
from stagepack.heuristics.schedule.policies import policies as list_policies
from stagepack.heuristics.schedule.tuning import TUNING as SCHEDULED
from stagepack.instances.phases import PhaseSchedule
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline import kernels as range_kernels
from stagepack.instances.pipeline import ranges as pipeline_ranges
from stagepack.instances.schedule import Objective, PipelineSchedule
from stagepack.progress import Progress
from tests.heuristics.phases.test_remat import MANY, step_of
from tests.heuristics.schedule.cases import looped, vee
from tests.heuristics.schedule.test_trips import chain
from tests.instances.groups.networks import block
from tests.random_phases import random_phases
from tests.random_pipelines import random_instance

Place = tuple[Any, str]
"""A module and the name of something in it."""

EVERY, ON = 120, 1.15
"""Limits that are tried one by one; from there on each is so many times the one before."""


class Given:
    """Limits that searches are handed."""

    probes = TUNING.probes.steps_at_once
    annealing = SCHEDULED.annealing.steps
    grouping = GROUPING.oracle.steps_at_once
    labels = PHASING.policies.comparisons_at_once
    policy_layers = PHASING.policies.layers_at_once
    rows = PHASING.options.comparisons_at_once
    range_groups = PHASING.options.groups_at_once
    completed = PHASING.remat.entries_at_once
    layers = PHASING.rules.layers_at_once

    @classmethod
    def phases(cls) -> PhasesTuning:
        """Return what steers phase schedules, with these limits."""
        policies = {"comparisons_at_once": cls.labels, "layers_at_once": cls.policy_layers}
        options = {"comparisons_at_once": cls.rows, "groups_at_once": cls.range_groups}
        return PHASING.changed(
            {
                "policies": policies,
                "options": options,
                "remat": {"entries_at_once": cls.completed},
                "rules": {"layers_at_once": cls.layers},
            }
        )


class Search(NamedTuple):
    """What pauses: the limits, in `unit` steps; the kernels that are called again; what to run."""

    limits: tuple[Place, ...]
    kernels: tuple[Place, ...]
    run: Callable[[], object]
    unit: int = 1


def places(module: Any, *names: str) -> tuple[Place, ...]:
    return tuple((module, name) for name in names)


# ---------------------------------------------------------------------- schedules


def pipeline(**other: Any) -> PipelineSchedule:
    """Three stages on two devices, of unlike microbatches, with memory for some of them."""
    given = {"devices": [0, 1, 0], "edges": [(0, 1), (1, 2)], "latency": 1, "microbatches": 3}
    memory = {"memory_forward": 2, "memory_backward": -1, "memory_weight": -1, "limit": 8}
    return PipelineSchedule.from_arrays(
        [2, 3, 1], [3, 1, 2], [1, 1, 2], **{**given, **memory, **other}
    )


def ruled() -> object:
    orders = [
        [order.tolist() for order in rules.RULES[name].orders(vee(3, 5), int)]
        for name in ("v-half", "v-1f1b")
    ]
    assert all(orders)
    return orders


def listed() -> object:
    instance = pipeline()
    chosen = itertools.islice(list_policies(instance, 1), 4)
    found = [greedy.Lists(instance).order(policy) for policy in chosen]
    assert any(order is not None for order in found)
    return [None if order is None else order.tolist() for order in found]


def timed() -> object:
    found = []
    for objective in Objective:
        one = timing.Timing(pipeline(objective=objective))
        order = rules.one_by_one(one.instance, int)
        best = one.best(order)
        assert best is not None
        found.append((best.tolist(), one.peaks(order).tolist()))
    return found


def annealed() -> object:
    one = timing.Timing(pipeline(limit=None))
    cooling = annealing.Cooling(heat=0.2, weight=4.0, moves=12)
    tuning = dataclasses.replace(SCHEDULED.annealing, steps=Given.annealing)
    order = rules.one_by_one(one.instance, int)
    return annealing.improve(one, order, settings=cooling, tuning=tuning).tolist()


def merged() -> object:
    found = sequences.lists(timing.Timing(looped(2, 2, 3)), lambda _: True)
    assert found
    return [order.tolist() for order in found]


def bounded() -> object:
    return [
        (bounds.window_bound(one), bounds.Network.of(one, effort.Looks()).after.tolist())
        for one in (pipeline(), pipeline(objective="span"), pipeline(devices=[0, 1, 2], limit=5))
    ]


def ramped() -> object:
    found = ramps.ramp_bound(pipeline(devices=[0, 1, 2], limit=5))
    assert found
    return found


def labelled() -> object:
    """With room for few labels, so that some are merged, and sweeps given up."""
    instance = chain(0)
    progress: Any = Progress(instance.evaluate, instance.check)
    few = {"widths": [4, 4, 9, 5_000], "ways": ["best", "merged", "near", "all"], "room": 300}
    trips.Trips(instance, progress, SCHEDULED.labels.changed(few)).find(60.0)
    assert progress.objective == progress.bound
    return [(one.kind, one.value, one.source) for one in progress.trace.events]


SCHEDULES = {
    "rules": Search(places(squeezing, "PART"), places(squeezing, "squeeze"), ruled, 10),
    "lists": Search(places(greedy, "PART"), places(greedy, "list_schedule"), listed),
    "timing": Search(
        places(timing, "PART"),
        places(timing_kernels, "begin", "advance", "peaks", "heads_in_turn", "backward"),
        timed,
    ),
    "annealing": Search(places(Given, "annealing"), places(annealing, "anneal"), annealed),
    "sequences": Search(
        places(sequences, "PART"),
        places(sequences, "merge"),
        merged,
        2 * SCHEDULED.lists.choice_price,
    ),
    "bounds": Search(
        (*places(effort, "PART"), *places(bounds, "PART")),
        (
            *places(bounds_kernels, "machines", "tails", "count_by_source", "by_source"),
            *places(bounds, "heads"),
        ),
        bounded,
    ),
    "ramps": Search(places(ramps, "PART"), places(ramps, "ramp"), ramped),
    "labels": Search(
        places(trips, "PART"), places(trips_kernels, "expand", "undominated", "nearest"), labelled
    ),
}

# ---------------------------------------------------------------------- phases


def plain(found: object) -> object:
    """Return arrays as lists, to compare."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(found).items()
        if isinstance(value, np.ndarray | int | str | list)
    }


def chosen() -> object:
    found = []
    for seed, skips in ((0, False), (1, True)):
        instance = random_phases(seed, layers=(4, 4), training=True, skips=skips, prefetch=False)
        microbatch = instance.microbatches[0]
        costs = ranges.RangeCosts(instance, microbatch, tuning=Given.phases())
        rows = [policies.find_policies(costs, bounding=bounding) for bounding in (False, True)]
        table = options.group_options(instance, microbatch, 0, tuning=Given.phases())
        found += [
            *map(plain, rows),
            table.time.tolist(),
            table.kept.tolist(),
            costs.loaded.tolist(),
        ]
    return found


def completed() -> object:
    found = []
    for seed in range(2):
        instance = random_phases(
            seed, layers=(3, 3), one_group=True, skips=False, recomputations=(1,)
        )
        step = step_of(instance)
        if not step.infeasible:
            labels = remat.Labels(step, retaining=False, tuning=Given.phases())
            found.append((labels.bound, labels.search(remat.NONE, MANY)))
    assert found
    return found


def from_the_head() -> object:
    instance = PhaseSchedule.from_arrays([5, 9, 2, 4, 7, 1], [3] * 6, [2, 8, 1, 6, 4, 3, 2])
    found = [
        baselines.heads(
            instance.replace(memory=memory, tiles=1), 1, 0, None, lambda: True, Given.phases()
        )
        for memory in (30, 60)
    ]
    assert all(found)
    return found


PHASES = {
    "policies": Search(
        (*places(Given, "labels", "policy_layers", "rows", "range_groups"),),
        (
            *places(policies_kernels, "unbeaten"),
            *places(liveness_kernels, "examine_all"),
            *places(options, "undominated"),
            *places(ranges, "traffic"),
        ),
        chosen,
    ),
    "completions": Search(places(Given, "completed"), places(remat_kernels, "complete"), completed),
    "heads": Search(places(Given, "layers"), places(liveness_kernels, "heads"), from_the_head),
}

# ---------------------------------------------------------------------- chains


def probed() -> Iterator[object]:
    """Yield what probes find for every objective, with tables and without."""
    for seed in range(8):
        costs = pipeline_ranges.RangeCosts(random_instance(seed, largest_n=4, largest_k=2))
        tuning = dataclasses.replace(TUNING.probes, steps_at_once=Given.probes)
        search = prober.LeastLimit(costs, 0, tuning=tuning)
        while not (search.done or search.infeasible):
            search.go_on()
        yield search.infeasible, search.best, search.bound
        if search.best is not None:
            yield search.best_partition(), search.probe(search.best), search.next_compute


def reached() -> object:
    shared = {"a": (40, [0, 2, 3]), "b": (25, [1, 2, 5]), "c": (30, [0, 5])}
    instance = PipelinePartition.from_arrays(
        [1] * 6, devices=3, capacity=100, temporary=[5, 9, 1, 30, 2, 2], shared=shared
    )
    return pipeline_ranges.RangeCosts(instance).reach(0, 0).tolist()


CHAINS = {
    "probes": Search(
        places(Given, "probes"), places(pipeline_kernels, "search"), lambda: [*probed()]
    ),
    "reach": Search(
        places(pipeline_ranges, "CHUNK"), places(range_kernels, "furthest_fit"), reached
    ),
}

# ---------------------------------------------------------------------- groups


def priced() -> object:
    """All groups of a small network in any order, grown and shrunk, and their floors."""
    instance = block(max_slices=3)
    way = steps(range(1, 1 << instance.n))
    nothing = [frozenset[int]()] * len(way)
    found = []
    some = {"numbers": 600, "steps_at_once": Given.grouping}  # some of the cuts at a time
    tuning = GROUPING.changed({"oracle": some})
    for eager in (False, True):
        known = oracle.Oracle(instance, branching=True, tuning=tuning)
        cycles, cuts = known.price(way, nothing, eager=eager)
        found += [cycles.tolist(), cuts.tolist()]
    below = np.full(len(way), oracle.NONE)
    floors = free.FreeOracle(instance, branching=True, tuning=tuning).floors(way, below)
    return [*found, *floors.tolist()]


GROUPS = {
    "groups": Search(
        places(Given, "grouping"),
        (*places(group_kernels, "sweep"), *places(free_kernels, "floors")),
        priced,
    )
}


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(one, id=name)
        for name, one in {**SCHEDULES, **PHASES, **CHAINS, **GROUPS}.items()
    ],
)
def test_the_answer_is_the_same_at_every_limit(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def counted(kernel: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any) -> object:
            nonlocal calls
            calls += 1
            return kernel(*args)

        return call

    for module, name in search.kernels:
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    whole = search.run()
    fewest, limit = calls, 0
    while calls > fewest or limit == 0:
        limit = limit + 1 if limit < EVERY else int(ON * limit)
        for module, name in search.limits:
            monkeypatch.setattr(module, name, limit * search.unit)
        calls = 0
        assert search.run() == whole, limit
        assert calls > fewest or limit > 1
