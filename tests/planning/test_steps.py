"""Steps of plans: never called longer than the shortest that enumeration finds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

import stagepack as sp
from stagepack.planning import steps
from stagepack.planning.step_labels import Whole
from stagepack.verify import verify
from tests import random_graphs, random_pipelines


def chain(seed: int) -> Whole:
    """Return a few layers on devices that may be unlike, in an order that may be free."""
    rng = random.Random(seed)
    n, k = rng.randint(1, 5), rng.randint(1, 3)
    nbytes = [rng.randint(0, 40) for _ in range(n + 1)]
    links = [sp.Link(GBps=2**-30 * 10e9, idle=rng.randint(0, 3)) for _ in range(2)]
    devices = [
        sp.Device(
            memory=rng.choice([None, rng.randint(20, 60)]),
            speed=rng.choice([1, 1, 2, 0.7]),
            recv=rng.choice([None, *links]),
            send=rng.choice([None, *links]),
        )
        for _ in range(k)
    ]
    model = sp.PipelinePartition.from_arrays(
        [rng.randint(0, 9) for _ in range(n)],
        backward=[rng.randint(0, 9) for _ in range(n)],
        cluster=sp.Cluster(devices=tuple(devices[:1] * k if rng.random() < 0.6 else devices)),
        training=rng.random() < 0.7,
        exclusive=[rng.randint(0, 5) for _ in range(n)],
        stash=[rng.randint(0, 6) for _ in range(n)],
        in_bytes=nbytes,
        out_bytes=nbytes,
        host_transfer=rng.random() < 0.3,
        free_order=rng.random() < 0.3,
        fewer_stages=k > n or rng.random() < 0.5,
        microbatches=1,
    )
    if rng.random() < 0.3:
        host = sp.Link(GBps=2**-30 * 10e9, idle=2)
        cluster = msgspec.structs.replace(model.cluster, host_recv=host, host_send=host)
        model = model.replace(cluster=cluster)
    split = model.training and rng.random() < 0.5
    microbatches = rng.randint(1, 3)
    if rng.random() < 0.3:  # devices alike but for their tables of links
        recv, send = ([[rng.randint(0, 9) for _ in range(n + 1)] for _ in range(k)] for _ in "rs")
        model = model.replace(recv_cycles=recv, send_cycles=send)
    return Whole(model, microbatches, split=split)


def graph(seed: int) -> Whole:
    rng = np.random.default_rng(seed)
    model = random_graphs.random_instance(
        rng, int(rng.integers(1, 5)), objective=str(rng.choice(["sum", "overlap"]))
    ).replace(microbatches=1)
    split = bool(model.backward.any()) and bool(rng.integers(2))
    return Whole(model, int(rng.integers(1, 4)), split=split)


def solutions(model: Any) -> Iterator[Any]:
    """Yield all partitions, by code of the tests."""
    if isinstance(model, sp.PipelinePartition):
        yield from random_pipelines.solutions(model)
        return
    for place in itertools.product(range(model.devices), repeat=model.n):
        for order in itertools.permutations(sorted({*place})):
            solution = sp.GraphSolution.of(model, np.array(place), order)
            if not model.check(solution):
                yield solution


def shortest(whole: Whole) -> int | None:
    """Return the least step of all stages, each with its best schedule; None: nothing fits."""
    model, given = whole.model, {"microbatches": whole.microbatches, "split": whole.split}
    make: Any = sp.PipelineSchedule.from_partition
    if isinstance(model, sp.GraphPartition):
        given["cycles"], make = 1 if model.whole else 1000, sp.PipelineSchedule.from_graph
    found = []
    for solution in solutions(model):
        try:
            schedule = make(model, solution, **given)
        except sp.InputError:  # no room for what stages hold, or no work
            continue
        result = sp.solve(schedule, time_limit=20)
        assert result.status in ("OPTIMAL", "INFEASIBLE")
        found += [] if result.objective is None else [int(result.objective)]
    return min(found, default=None)


def longest(whole: Whole, least: int | None, rule: str, **evidence: object) -> float:
    """Return which part of the least step a rule shows, in tenths; of nothing that fits, whether.

    What is false it does not show.
    """

    def shows(bound: int | None) -> bool:
        found = verify(whole, bound, "log", {"rule": rule, **evidence}, rules=steps)
        return found.detail == rule

    if least is None:
        return int(shows(None))
    assert not shows(None)
    assert not shows(least + 1)
    assert not shows(2 * least + 2)
    tenths = (at / 10 for at in range(10, 0, -1))
    return next((part for part in tenths if shows(math.floor(part * least))), 0)


def test_no_step_of_a_chain_is_called_longer_than_it_is() -> None:
    labelled, scheduled, wholes = [], [], 24
    for seed in range(wholes):
        whole = chain(seed)
        least = shortest(whole)
        labelled.append(longest(whole, least, "labels"))
        part = longest(whole, least, "schedules")
        if least is not None:  # else a stage that fits may have no schedule
            scheduled.append(part)
    assert sum(labelled) >= 0.8 * wholes
    assert scheduled == [1] * len(scheduled)
    assert len(scheduled) >= wholes / 2


def test_no_step_of_a_graph_is_called_longer_than_it_is() -> None:
    scheduled, wholes = [], 16
    for seed in range(wholes):
        whole = graph(seed)
        least = shortest(whole)
        rng = random.Random(seed)
        nodes = range(whole.model.n)
        path = sorted(rng.sample(nodes, rng.randint(1, len(nodes))))
        longest(whole, least, "path", path=path)
        longest(whole, least, "work")
        part = longest(whole, least, "schedules")
        if whole.model.contiguous and least is not None:
            scheduled.append(part)
        elif not whole.model.contiguous:  # names of devices that are alike matter there
            assert part == 0
    assert scheduled == [1] * len(scheduled)
    assert len(scheduled) >= wholes / 4


def test_devices_in_too_many_ways_are_refused_before_they_are_listed() -> None:
    unlike = sp.Cluster(devices=tuple(sp.Device(memory=1000 + at) for at in range(20)))
    free = sp.PipelinePartition.from_arrays([3] * 24, cluster=unlike, free_order=True)
    long = sp.PipelinePartition.from_arrays([3] * 600_000, cluster=sp.Cluster.uniform(4))
    for model in (free, long):
        found = verify(Whole(model, 4), 100, "log", {"rule": "labels"}, rules=steps)
        assert found.detail == "labels: the devices can be used in too many ways"


def test_counts_end_what_plans_look_for_as_they_are_made() -> None:
    n, k = 500, 8
    graph = sp.GraphPartition.from_arrays(
        [3] * n, accelerators=k, contiguous=True,
        producer=range(n - 1), consumers=[[v] for v in range(1, n)], traffic=[1] * (n - 1),
    )  # fmt: skip
    row = {"rule": "path", "path": [*range(n)]}
    found = verify(Whole(graph, 4), 10**6, "log", row, rules=steps.QUICK)
    assert found.detail == "path: there are too many stages"
    assert set(steps.UNAIDED) <= set(steps.QUICK.RULES)
