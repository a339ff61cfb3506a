"""What is said where only the packing of blocks fails: which rules, and what would do."""

from __future__ import annotations

import re

import numpy as np

from stagepack.instances.graph import Compact, GraphPartition
from stagepack.methods.graph import explain
from stagepack.solve import solve
from tests.random_graphs import brute_force, random_instance


def test_the_memory_that_would_do_is_told() -> None:
    """Three nodes of 6 bytes on two devices of 10: no device takes two."""
    instance = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[1] * 3, memory=[6] * 3, accelerators=2, capacity=10
    )
    for method in ("dp", "cp-sat", "auto"):
        result = solve(instance, method)
        assert result.status == "INFEASIBLE"
        assert result.reason == (
            "nodes of 18 bytes in all cannot be dealt out so as to keep to all of these: the "
            "memory of devices (10 bytes of the smallest); 12 bytes for each device (2 more) "
            "would do"
        )


def test_rules_are_told_that_need_not_hold() -> None:
    """Sizes fall and devices grow, in their order; on all three of them nothing fits."""
    instance = GraphPartition.from_edges(
        3, [(0, 1), (1, 2)], time=[1] * 3, memory=[9, 6, 3], accelerators=3,
        capacity=[3, 6, 9], device_order="fixed", empty_devices=False,
    )  # fmt: skip
    reason = solve(instance, "dp").reason
    assert "the memory of devices (3 bytes of the smallest), the use of every device" in reason
    assert "devices in any order (device_order) would do" in reason
    assert "9 bytes for each device (6 more)" in reason
    assert "empty_devices) would do" not in reason


def test_what_is_said_to_do_does() -> None:
    rng, seen = np.random.default_rng(3), 0
    while seen < 12:
        instance = random_instance(rng, int(rng.integers(2, 5)), capacity=int(rng.integers(15, 40)))
        compact = Compact.of(instance)
        if explain.impossible(compact) or brute_force(instance) is not None:
            continue
        seen += 1
        reason = explain.explain(compact)
        enough = re.search(r"; ([\d,]+) bytes for each device", reason)
        if enough and instance.capacity is not None:
            room = np.maximum(instance.capacity, int(enough[1].replace(",", "")))
            assert brute_force(instance.replace(capacity=room)) is not None
        if "empty_devices" in reason:
            assert brute_force(instance.replace(empty_devices=True)) is not None
        if "device_order" in reason:
            assert brute_force(instance.replace(device_order="any")) is not None
