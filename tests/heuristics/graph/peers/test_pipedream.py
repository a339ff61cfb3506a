"""PipeDream's recurrence: cases worked by hand, and a plain one over chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.heuristics.graph.peers.pipedream import Recurrence
from stagepack.instances.graph import Compact, GraphPartition
from stagepack.instances.graph.levels import levels_of, table_of


def chain(time: Sequence[float], **options: Any) -> GraphPartition:
    edges = [(v, v + 1) for v in range(len(time) - 1)]
    return GraphPartition.from_edges(
        len(time), edges, time=time, **{"objective": "overlap", **options}
    )


MACHINES = [(2, 10), (2, 1)]
"""Two machines of two devices: 10 a unit of time within one, 1 between them."""


@pytest.mark.parametrize(
    ("changes", "value", "devices"),
    [
        # Each machine has two stages, so that the cut between machines is the middle one.
        ({"empty_devices": False}, 20, [0, 1, 2, 3]),
        # A machine may have one: it takes node 3, 2 is the time of the cut before it.
        ({}, 6, [0, 1, 1, 2]),
        # Were all links fast, there would be four stages of a node each.
        ({"levels": None, "bandwidth": 10, "empty_devices": False}, 6, [0, 1, 2, 3]),
    ],
)
def test_levels_by_hand(changes: dict[str, Any], value: float, devices: list[int]) -> None:
    given = {"traffic": [20, 20, 2, 0], "accelerators": 4, "levels": MACHINES, **changes}
    instance = chain([5, 3, 2, 6], **given)
    result = sp.solve(instance, "pipedream")
    assert result.objective == value
    assert result.solution is not None
    assert result.solution.assignment.tolist() == devices


@pytest.mark.parametrize(
    ("capacity", "weights", "replicated", "value"),
    [
        # Three stages keep the activations of 2, 1 and 0 microbatches, 10 bytes each.
        (20, 0, False, 1),
        (19, 0, False, None),
        # Weights count as often: 12 bytes, twice.
        (23, 2, False, None),
        (24, 2, False, 1),
        # One stage on three devices has nobody after it.
        (10, 0, True, 1),
    ],
)
def test_memory_by_hand(capacity: int, weights: int, replicated: bool, value: float | None) -> None:
    instance = chain(
        [1, 1, 1], accelerators=3, stash=[10] * 3, parameters=[weights] * 3, capacity=capacity,
        empty_devices=False,
    )  # fmt: skip
    compact = Compact.of(instance)
    plan = Recurrence(compact).best(replicated)
    assert (plan and plan.value / compact.scale) == value
    if plan is None:
        assert "no stages fit" in sp.solve(instance, "pipedream").reason


def test_replicas_by_hand() -> None:
    """Of 8 + 2 on four devices, 8 is on three: (8 + 4 * 2 / 3 * 3) / 3; all on four is dearer."""
    instance = chain([8, 2], accelerators=4, parameters=[3, 9], objective="replicated")
    plan = Recurrence(Compact.of(instance)).best(True)
    assert plan is not None
    assert plan.replicas == [3, 1]
    assert plan.first == [0, 3]
    result = sp.solve(instance, "pipedream")
    assert result.objective == pytest.approx((8 + 4 * 2 * 3 / 3) / 3)
    assert result.solution is not None
    assert result.solution.replicas == (3, 1)


def test_what_the_first_stage_sends_is_counted_here_and_told() -> None:
    """It sends 8 alone; the recurrence counts what each of three replicas receives of them."""
    instance = chain(
        [2, 6], accelerators=4, traffic=[8, 0], parameters=[9, 0], objective="replicated"
    )
    plan = Recurrence(Compact.of(instance)).best(True)
    assert plan is not None
    assert plan.replicas == [1, 3]
    result = sp.solve(instance, "pipedream")
    assert result.objective == 8
    assert "PipeDream itself counts 2.666666667 for these stages" in result.reason


def plain(
    time: Sequence[int], out: Sequence[int], stash: Sequence[int],
    levels: Sequence[tuple[int, int]], room: float, fewer: bool,
) -> float:  # fmt: skip
    """The recurrence over a chain without replicas, range by range."""
    n, far = len(time), math.inf
    ranges = [(a, b) for b in range(1, n + 1) for a in range(b)]
    whole = {(a, b): float(sum(time[a:b])) for a, b in ranges}
    for units, pace in levels:
        best: dict[tuple[int, int, int], float] = {}
        for a, b in ranges:
            for used in range(1, units + 1):
                spare = best.get((a, b, used - 1), far) if fewer else far
                found = [spare]
                for c in range(a, b):
                    if sum(stash[c:b]) * (units - used) > room:
                        continue
                    if c == a:
                        found += [whole[a, b]] * (used == 1)
                        continue
                    moved = max(out[c - 1], out[b - 1] if b < n else 0) / pace
                    before = best.get((a, c, used - 1), far)
                    found.append(max(before, whole[c, b], moved))
                best[a, b, used] = min(found)
        whole = {(a, b): best[a, b, units] for a, b in ranges}
    return whole[0, n]


def test_agrees_with_a_plain_recurrence_over_chains() -> None:
    rng = np.random.default_rng(5)
    fitting = 0
    for _ in range(60):
        n = int(rng.integers(2, 12))
        levels = [(int(rng.integers(1, 4)), int(rng.integers(1, 6))) for _ in range(3)]
        devices = math.prod(units for units, _ in levels)
        if devices == 1:
            continue
        time, out, stash = (rng.integers(0, 20, n).tolist() for _ in range(3))
        room, fewer = int(rng.integers(30, 200)), bool(rng.integers(2))
        instance = chain(
            time, accelerators=devices, traffic=out, stash=stash, levels=levels, capacity=room,
            empty_devices=fewer or devices > n,
        )  # fmt: skip
        known: Any = [(devices, instance.bandwidth)]
        if isinstance(instance.bandwidth, np.ndarray):
            known = levels_of(instance.bandwidth)
        compact = Compact.of(instance)
        plan = Recurrence(compact).best(False)
        value = math.inf if plan is None else plan.value / compact.scale
        expected = plain(time, out, stash, known, room, instance.empty_devices)
        assert value == pytest.approx(expected)
        fitting += plan is not None
    assert fitting > 20


def test_levels_are_read_from_links() -> None:
    for levels in ([(4, 8.0), (2, 2.0)], [(2, 9.0), (3, 4.0), (2, 1.0)], [(5, 3.0)]):
        devices = math.prod(units for units, _ in levels)
        assert list(levels_of(table_of(levels, devices))) == levels
    assert not levels_of(table_of([(4, 8.0), (2, 2.0)], 6))  # the second machine has two
    unlike = table_of([(2, 8.0), (2, 2.0)], 4)
    unlike[0, 3] = 5
    assert not levels_of(unlike)
    instance = chain([1] * 6, accelerators=6, levels=[(4, 8), (2, 2)])
    with pytest.raises(sp.InputError, match="in levels of groups as large as each other"):
        sp.solve(instance, "pipedream")


def test_replicas_on_unlike_links_are_refused_by_name() -> None:
    with pytest.raises(sp.InputError, match="differs from link to link") as caught:
        chain([1] * 4, accelerators=4, levels=MACHINES, objective="replicated")
    assert caught.value.field == "bandwidth"
    assert "that of the slowest links is safe" in str(caught.value.remedy)
