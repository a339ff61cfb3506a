"""How far stages reach: never less than they do, and with traffic less than by work alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack.heuristics.graph.baselines import work_bound
from stagepack.heuristics.graph.frontier.model import Model, unsupported
from stagepack.heuristics.graph.frontier.reach import Reach
from stagepack.heuristics.graph.frontier.sweeps import Sweeps
from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.instances.profile import Array
from tests.random_graphs import brute_force, random_instance


def searched(instance: GraphPartition) -> tuple[Compact, Sweeps]:
    compact = Compact.of(instance)
    return compact, Sweeps(Model.all_of(compact), lambda: None, 0)


def cells(count: int, accelerators: int, traffic: int) -> GraphPartition:
    """Return a chain of cells, three branches each, that are cheap to cut only in between."""
    edges, last = [], 0
    for _ in range(count):
        edges += [(last, last + b) for b in (1, 2, 3)] + [(last + b, last + 4) for b in (1, 2, 3)]
        last += 4
    return GraphPartition.from_edges(
        last + 1,
        edges,
        time=np.full(last + 1, 10),
        traffic=np.full(last + 1, traffic),
        accelerators=accelerators,
        bandwidth=1,
    )


def places(order: Array, classes: Array) -> Array | None:
    """Return the stages of an order that devices of given classes take, None if there are none."""
    found = [-1]
    for c in classes.tolist():
        rest = np.flatnonzero(order[found[-1] + 1 :] == c)
        if not len(rest):
            return None
        found.append(found[-1] + 1 + int(rest[0]))
    return np.array(found[1:])


@pytest.mark.parametrize("block", range(2))
def test_stages_of_the_best_partition_are_reached(block: int) -> None:
    asked, orders = 0, set[int]()
    for seed in range(30 * block, 30 * block + 30):
        rng = np.random.default_rng([seed, 7])
        objective = ("sum", "overlap", "forward+backward")[seed % 3]
        unlike = seed % 5 < 3  # speeds, memories and CPUs, in one order or in any
        more: dict[str, Any] = {"objective": objective, "contiguous": True}
        more |= {"accelerators": 3 - unlike}
        more |= {"cpus": int(unlike)}
        instance = random_instance(rng, 4 + seed % 3 // 2, **more)
        if unsupported(instance):
            continue
        compact, sweeps = searched(instance)
        best = brute_force(instance) if Reach.applies(sweeps) else None
        if best is None:
            continue
        asked += 1
        devices = np.array(list(best[1]["assignment"].values()))
        found = GraphSolution.of(instance, devices, best[1]["order"])
        stages, classes = compact.stages(found)
        limit = int(compact.loads(stages, classes).max(axis=1).sum())
        reach = Reach(sweeps)  # what it knows of one limit it uses for others
        assert reach.go_on(2 * limit, whole=True)
        assert reach.go_on(limit, whole=True)
        orders.add(len(sweeps.models))
        low, high = sweeps.windows(limit)
        # Devices without blocks may come anywhere.
        placed = next(p for m in sweeps.models if (p := places(m.classes, classes)) is not None)
        assert (low <= placed[stages]).all(), seed
        assert (placed[stages] <= high).all(), seed
    assert asked > 10
    assert {1, 3} <= orders


def test_traffic_keeps_stages_from_reaching_as_far_as_work_would() -> None:
    compact, sweeps = searched(cells(12, 6, traffic=8))
    work = work_bound(compact)
    assert Reach(sweeps).go_on(work + 10) is False
    reach = Reach(sweeps)
    assert reach.go_on(work + 10, work=0.0) is None  # and goes on where it was left
    assert reach.go_on(work + 10) is False
    before = sweeps.windows(3 * work)
    assert reach.go_on(3 * work, whole=True)
    low, high = sweeps.windows(3 * work)
    assert (low >= before[0]).all()
    assert (high <= before[1]).all()
    assert (low > before[0]).any()
