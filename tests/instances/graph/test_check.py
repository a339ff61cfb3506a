"""Loads of a graph worked out by hand, and every rule of partitions broken by itself."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.graph.check import SHOWN, loads

# a writes 6 for b and c, b writes 2 and c writes 4 for d.
DIAMOND: dict[str, Any] = {
    "time": [10, 20, 30, 40],
    "producer": [0, 1, 2],
    "consumers": [[1, 2], [3], [3]],
    "traffic": [6, 2, 4],
    "ids": ["a", "b", "c", "d"],
}


def diamond(**changes: Any) -> sp.GraphPartition:
    return sp.GraphPartition.from_arrays(**{**DIAMOND, "accelerators": 3, **changes})


def on(instance: sp.GraphPartition, *devices: int, **given: Any) -> sp.GraphSolution:
    return sp.GraphSolution.of(instance, devices, **given)


def split(instance: sp.GraphPartition, *devices: int, **given: Any) -> list[tuple[Any, ...]]:
    found = loads(instance, on(instance, *devices, **given))
    return [(load.device, load.time, load.received, load.sent) for load in found]


def test_a_net_is_paid_once_by_every_device_it_crosses() -> None:
    instance = diamond()
    # a's tensor goes to both other devices: sent once, received twice.
    assert split(instance, 0, 1, 2, 2) == [(0, 10, 0, 6), (1, 20, 6, 2), (2, 70, 8, 0)]
    assert instance.evaluate(on(instance, 0, 1, 2, 2)) == 78
    assert split(instance, 0, 0, 1, 1) == [(0, 30, 0, 8), (1, 70, 8, 0)]
    assert instance.evaluate(on(instance, 0, 0, 0, 0)) == 100
    overlap = instance.replace(objective="overlap", traffic=[6, 2, 400])
    assert overlap.evaluate(on(overlap, 0, 0, 0, 1)) == 402
    assert overlap.evaluate(on(overlap, 0, 0, 1, 1)) == 70


def test_speeds_and_bandwidths_divide_without_rounding() -> None:
    instance = diamond(speeds=[1, 3, 0.5], bandwidth=7)
    assert split(instance, 0, 1, 2, 2) == [
        (0, 10, 0, Fraction(6, 7)),
        (1, Fraction(20, 3), Fraction(6, 7), Fraction(2, 7)),
        (2, 140, Fraction(8, 7), 0),
    ]
    assert instance.evaluate(on(instance, 1, 1, 1, 1)) == 100 / 3


def test_links_that_differ_are_paid_from_device_to_device() -> None:
    bandwidth = [[0, 2, 1], [9, 0, 4], [9, 9, 0]]
    instance = diamond(bandwidth=bandwidth)
    # a sends at the pace of the slower link, to device 2.
    assert split(instance, 0, 1, 2, 2) == [
        (0, 10, 0, 6),
        (1, 20, 3, Fraction(1, 2)),
        (2, 70, Fraction(13, 2), 0),
    ]
    levels = diamond(accelerators=4, levels=[(2, 10), (2, 1)])
    assert isinstance(levels.bandwidth, np.ndarray)
    assert levels.bandwidth.tolist() == [
        [0, 10, 1, 1], [10, 0, 1, 1], [1, 1, 0, 10], [1, 1, 10, 0]
    ]  # fmt: skip


def test_a_cpu_computes_alone() -> None:
    instance = diamond(cpus=1, cpu_time=[1, 2, 3, 4], capacity=5, memory=[9, 9, 9, 0])
    solution = on(instance, 3, 3, 3, 0)
    assert split(instance, 3, 3, 3, 0) == [(3, 6, 0, 0), (0, 40, 6, 0)]
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == 46


def test_stages_keep_stashes_by_their_position() -> None:
    instance = diamond(memory=[1] * 4, stash=[10] * 4, microbatches=2)
    found = loads(instance, on(instance, 2, 0, 0, 1))
    assert [(load.device, load.memory) for load in found] == [(2, 21), (0, 42), (1, 11)]
    memory = instance.replace(objective="memory")
    assert memory.evaluate(on(memory, 2, 0, 0, 1)) == 42


def test_stages_on_several_devices_share_time_and_exchange_parameters() -> None:
    instance = diamond(objective="replicated", accelerators=5, parameters=[1, 2, 3, 4])
    solution = on(instance, 0, 0, 1, 1, replicas=(2, 3))
    # (30 + 4 * 1 * 3 / 2) / 2 and (70 + 4 * 2 * 7 / 3) / 3
    first, second = (load.time for load in loads(instance, solution))
    assert (first, second) == (18, (70 + Fraction(56, 3)) / 3)
    assert instance.check(solution) == ()
    assert instance.evaluate(solution) == pytest.approx(29.5555555)
    sending = instance.replace(traffic=[600, 2, 4])
    assert sending.evaluate(on(sending, 0, 0, 1, 1, replicas=(2, 3))) == 301


def test_passes_are_added_up() -> None:
    instance = sp.GraphPartition.from_edges(
        4, [(0, 1), (1, 2), (2, 3)], time=[5, 7, 11, 13], traffic=[1, 2, 4, 0],
        colour=[0, 1, 1, 0], backward=[False, False, True, True], accelerators=2,
        objective="forward+backward",
    )  # fmt: skip
    solution = on(instance, 0, 1, 1, 0)
    # Forward max(5 + 1, 7 + 1), backward max(13 + 4, 11 + 4).
    assert instance.evaluate(solution) == 25
    assert instance.check(solution) == ()


def test_backward_nodes_of_no_forward_colour_are_turned_round() -> None:
    given: dict[str, Any] = {"time": [1] * 4, "traffic": [0] * 4, "accelerators": 2}
    edges = [(0, 1), (1, 2), (2, 3)]
    backward: dict[str, Any] = {"backward": [False, False, True, True], "colour": [0, 1, 1, -1]}
    instance = sp.GraphPartition.from_edges(4, edges, **given, **backward)
    assert instance.check(on(instance, 0, 1, 1, 0)) == ()
    assert instance.check(on(instance, 0, 1, 1, 1)) == ()
    early = on(instance, 0, 0, 0, 1, order=(0, 1))
    assert [violation.rule for violation in instance.check(early)] == ["contiguity"]
    paired = instance.replace(colour=[0, 1, 1, 0])
    assert paired.check(on(paired, 0, 1, 1, 0)) == ()


WRONG: list[tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any], str]] = [
    ("assignment", (0, 1, 2), {}, {}, "3 devices for 4 nodes"),
    ("assignment", (0, 1, 2, 3), {}, {}, "node d on device 3, of 0..2"),
    ("assignment", (0, 1, -1, 2), {}, {}, "node c on device -1"),
    ("order", (0, 1, 1, 1), {"order": (0, 2)}, {}, "does not name each device"),
    ("replicas", (0, 1, 1, 1), {"replicas": (1,)}, {}, "1 numbers for 2 stages"),
    ("replicas", (0, 1, 1, 1), {"replicas": (1, 0)}, {}, "at least one device"),
    ("device", (0, 3, 0, 0), {}, {"cpu": [1, 0, 1, 1]}, "node b may run on no CPU"),
    ("device", (0, 1, 1, 1), {}, {"accelerator": [1, 1, 1, 0]}, "node d may run on no acc"),
    ("colour", (0, 0, 1, 1), {}, {"colour": [-1, 5, 5, -1]}, "nodes b and c, of colour 5"),
    ("contiguity", (0, 1, 1, 0), {}, {}, "wait for one another: device 0 -> device 1 -> device 0"),
    ("contiguity", (0, 0, 1, 1), {"order": (1, 0)}, {}, "a is before c, but its device 0"),
    ("contiguity", (1, 1, 0, 0), {}, {"device_order": "fixed"}, "a is before c, but its"),
    ("order", (1, 1, 0, 0), {"order": (1, 0)}, {"device_order": "fixed"}, "not the order"),
    ("empty", (0, 0, 1, 1), {}, {"empty_devices": False}, "device 2 has no nodes"),
    ("replicas", (0, 0, 1, 1), {"replicas": (1, 2)}, {}, "the objective is sum"),
    ("capacity", (0, 0, 1, 1), {}, {"capacity": 9, "memory": [4, 5, 6, 7]}, "13 bytes of 9: 4 too"),
]


@pytest.mark.parametrize(("rule", "devices", "said", "changes", "words"), WRONG)
def test_each_rule_is_broken_by_itself(
    rule: str, devices: tuple[int, ...], said: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    cpu = {"cpus": 1, "cpu_time": [1] * 4} if "cpu" in changes or rule == "device" else {}
    instance = diamond(**cpu, **changes)
    found = instance.check(on(instance, *devices, **said))
    assert {violation.rule for violation in found} >= {rule}
    text = next(violation.detail for violation in found if violation.rule == rule)
    assert words in text


def test_more_devices_than_there_are_cannot_share() -> None:
    instance = diamond(objective="replicated", empty_devices=False)
    assert "4 devices, of 3" in str(instance.check(on(instance, 0, 0, 1, 1, replicas=(2, 2)))[0])
    assert "2 of 3 devices used" in str(instance.check(on(instance, 0, 0, 1, 1))[0])
    assert instance.check(on(instance, 0, 0, 1, 1, replicas=(2, 1))) == ()


def test_many_violations_of_one_rule_are_counted() -> None:
    n = 100
    instance = sp.GraphPartition.from_arrays(
        [1] * n, accelerators=1, cpus=1, cpu_time=[1] * n, accelerator=[False] * n
    )
    found = instance.check(on(instance, *[0] * n))
    assert len(found) == SHOWN + 1
    assert f"and {n - SHOWN} more" in str(found[-1])


def test_nodes_anywhere_need_no_order() -> None:
    instance = diamond(contiguous=False)
    assert instance.check(on(instance, 0, 1, 1, 0)) == ()
    assert instance.evaluate(on(instance, 0, 1, 1, 0)) == 62


def test_solutions_as_json() -> None:
    instance = diamond()
    solution = on(instance, 0, 0, 1, 1, order=(0, 1))
    data = solution.to_dict()
    assert data == {"assignment": {"a": 0, "b": 0, "c": 1, "d": 1}, "order": [0, 1]}
    assert sp.GraphSolution.from_dict(data, instance) == solution
    assert hash(sp.GraphSolution.from_dict(data, instance)) == hash(solution)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"assignment": [0, 0, 1, 1]}, "assignment", "no object"),
        ({"assignment": {"a": 0, "b": 0, "c": 1}}, "assignment.d", "is missing"),
        ({"assignment": dict.fromkeys("abcde", 0)}, "assignment.e", "is no node of graph"),
        ({"assignment": dict.fromkeys("abce", 0)}, "assignment.e", "is no node of graph"),
        ({"assignment": {**dict.fromkeys("abc", 0), "d": 0.5}}, "assignment.d", "0.5 is no device"),
        ({"assignment": {**dict.fromkeys("abc", 0), "d": True}}, "assignment.d", "True is no"),
        ({"assignment": {**dict.fromkeys("abc", 0), "d": 2**70}}, "assignment.d", "is no device"),
        ({"order": [0, "1"]}, "order", "no list of integers"),
        ({"replicas": 3}, "replicas", "no list of integers"),
        ({"stages": 3}, "stages", "unknown field"),
    ],
)
def test_solutions_that_are_none(changes: dict[str, Any], field: str, words: str) -> None:
    instance = diamond()
    data = {"assignment": dict.fromkeys("abcd", 0), **changes}
    with pytest.raises(InputError, match=words) as caught:
        sp.GraphSolution.from_dict(data, instance)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"assignment": [0, 0, 1, 1]}, "assignment"),
        ({"assignment": np.zeros(4)}, "assignment"),
        ({"assignment": np.zeros((4, 1), dtype=int)}, "assignment"),
        ({"assignment": np.array(0)}, "assignment"),
        ({"order": [0]}, "order"),
        ({"order": ("first",)}, "order"),
        ({"replicas": (1.5,)}, "replicas"),
    ],
)
def test_solutions_of_other_types(changes: dict[str, Any], field: str) -> None:
    instance = diamond()
    solution = replace(on(instance, 0, 0, 0, 0), **changes)
    with pytest.raises(InputError) as caught:
        instance.check(solution)
    assert caught.value.field == f"solution.{field}"
