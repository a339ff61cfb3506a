"""The checker against trying everything, and the compact form against the checker."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.instances.graph import Compact, GraphPartition, GraphSolution
from stagepack.instances.graph.compact import FORBIDDEN
from tests.random_graphs import brute_force, random_instance


def blocks_and_stages(
    compact: Compact, solution: GraphSolution
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the stage of each block, the class of each stage, and the stages in use."""
    devices = solution.assignment
    used = np.array(solution.order)
    place = np.zeros(compact.devices, dtype=np.int64)
    place[used] = used if compact.sequence is not None else np.arange(len(used))
    stages = np.zeros(compact.blocks, dtype=np.int64)
    stages[compact.block_of] = place[devices]
    assert (stages[compact.block_of] == place[devices]).all()
    classes = compact.device_class if compact.sequence is not None else compact.device_class[used]
    return stages, classes, place[used]


@pytest.mark.parametrize("seed", range(100))
def test_agrees_with_trying_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, int(rng.integers(1, 6)))
    best = brute_force(instance)
    compact = Compact.of(instance)
    if best is None:
        return
    solution = GraphSolution.from_dict(best[1], instance)
    assert instance.check(solution) == ()
    value = instance.evaluate(solution)
    assert value == pytest.approx(float(best[0]), rel=1e-12)
    stages, classes, used = blocks_and_stages(compact, solution)
    for stage, block in zip(stages, range(compact.blocks), strict=True):
        assert (compact.time[:, classes[stage], block] < FORBIDDEN).all()
    loads = compact.loads(stages, classes, solution.replicas)[:, used]
    ticks = int(loads.max(axis=1).sum())
    assert compact.value(ticks) == pytest.approx(value, rel=1e-12)
    assert compact.bound(ticks) <= value * (1 + 1e-12)
    if instance.tolerance == 0:
        assert compact.value(ticks) == value
    again = compact.assignment(stages, classes, solution.replicas)
    assert instance.check(again) == ()
    assert instance.evaluate(again) == pytest.approx(value, rel=1e-12)


def test_colours_and_their_circles_are_blocks() -> None:
    instance = GraphPartition.from_edges(
        6,
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)],
        time=[1, 2, 4, 8, 16, 32],
        traffic=[1] * 6,
        colour=[-1, 7, -1, 7, -1, -1],
        accelerators=3,
    )
    compact = Compact.of(instance)
    assert compact.block_of.tolist() == [0, 1, 1, 1, 2, 3]
    assert compact.time.tolist() == [[[1, 14, 16, 32]]]
    assert compact.before.tolist() == [0, 1, 2]
    assert compact.after.tolist() == [1, 2, 3]
    apart = Compact.of(instance.replace(contiguous=False))
    assert apart.block_of.tolist() == [0, 1, 2, 1, 3, 4]
    assert apart.before.tolist() == []


def test_nets_that_always_cost_together_are_one() -> None:
    instance = GraphPartition.from_arrays(
        [1] * 4,
        accelerators=2,
        producer=[0, 0, 1, 1, 2],
        consumers=[[1, 2], [2, 1], [2], [], [3]],
        traffic=[3, 4, 5, 6, 0],
    )
    compact = Compact.of(instance)
    assert compact.net.tolist() == [0, 1, 2, 1, 2]
    assert compact.net_cost.tolist() == [7, 5]
    assert compact.of_net.tolist() == [0, 0, 1, 0, 1]


def test_who_writes_counts_where_directions_do() -> None:
    instance = GraphPartition.from_arrays(
        [1] * 3,
        accelerators=2,
        producer=[0, 1],
        consumers=[[2], [2]],
        traffic=[3, 4],
        colour=[0, 0, 1],
        contiguous=False,
    )
    assert Compact.of(instance).net_cost.tolist() == [7]
    answered = instance.replace(producer=[0, 2], consumers=[2, 1])
    for objective, costs in (("sum", [7]), ("overlap", [3, 4])):
        compact = Compact.of(answered.replace(objective=objective))
        assert sorted(compact.net_cost.tolist()) == costs


def test_ticks_are_exact_where_there_is_a_common_unit() -> None:
    instance = GraphPartition.from_arrays(
        [0.001, 2.5], accelerators=2, producer=[0], consumers=[[1]], traffic=[7], bandwidth=3
    )
    compact = Compact.of(instance)
    assert compact.rounding == 0
    assert compact.scale == 3000
    assert compact.time.tolist() == [[[3, 7500]]]
    assert compact.net_cost.tolist() == [7000]
    odd = Compact.of(instance.replace(time=[1 / 7, 1 / 3]))
    assert odd.rounding > 0
    assert 2**56 < odd.time.sum() + odd.net_cost.sum() < 2**59


def test_a_million_nodes_in_a_chain() -> None:
    n = 2**20
    order = np.arange(n)[::-1]
    instance = GraphPartition.from_edges(
        n, np.column_stack((order[:-1], order[1:])), time=np.ones(n), traffic=np.ones(n),
        accelerators=4,
    )  # fmt: skip
    compact = Compact.of(instance)
    assert (np.diff(compact.block_of) == -1).all()
    solution = compact.assignment(np.arange(n) // (n // 4), [0] * 4)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == n // 4 + 2
