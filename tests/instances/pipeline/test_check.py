"""The checker and the evaluator against figures worked out by hand from the definitions."""

from __future__ import annotations

from typing import Any

import pytest

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.profile import Cluster, Device, Link


def seed_cluster(devices: int) -> Cluster:
    """Peers at 1 byte a cycle after 2 idle cycles, the host at half that after 10."""
    peer, host = Link(GBps=1, idle=2), Link(GBps=0.5, idle=10)
    device = Device(recv=peer, send=peer, memory=100)
    return Cluster(devices=(device,) * devices, clock=2**30, host_recv=host, host_send=host)


def chain(**options: Any) -> PipelinePartition:
    return PipelinePartition.from_arrays(
        [10, 20, 30, 40],
        backward=[1, 2, 3, 4],
        cluster=seed_cluster(2),
        in_bytes=[8, 5, 6, 7, 0],
        out_bytes=[0, 15, 16, 17, 9],
        **options,
    )


@pytest.mark.parametrize(
    ("objective", "host_transfer", "value"),
    [
        ("bottleneck", False, 60),
        ("bottleneck", True, 60),
        # Stage 0 sends 17 bytes: 2 + 17; stage 1 receives 7: 2 + 7; host: 10 + 16 and 10 + 18.
        ("transfer-bounded", False, 60 + 19),
        ("transfer-bounded", True, 60 + 19 + 54),
        ("sum", False, 60 + 19),
        ("sum", True, 60 + 19 + 54),
        ("overlap", True, 60),
    ],
)
def test_objectives_of_the_same_partition(objective: str, host_transfer: bool, value: int) -> None:
    instance = chain(objective=objective, host_transfer=host_transfer)
    assert instance.evaluate(PipelineSolution.in_order((0, 3, 4))) == value


def test_sum_and_transfer_bounded_differ_when_the_maxima_are_apart() -> None:
    solution = PipelineSolution.in_order((0, 1, 4))
    # Stage 0: compute 10, sends 15 bytes in 17. Stage 1: compute 90, receives 5 bytes in 7.
    assert chain(objective="transfer-bounded").evaluate(solution) == 90 + 17
    assert chain(objective="sum").evaluate(solution) == 97


def test_overlap_can_be_bound_by_a_transfer() -> None:
    instance = chain(objective="overlap").replace(
        out_bytes=chain().out_bytes + 100,
    )
    assert instance.evaluate(PipelineSolution.in_order((0, 3, 4))) == 2 + 117


def test_training_adds_backward_cycles() -> None:
    trained = chain(training=True, objective="bottleneck")
    assert trained.evaluate(PipelineSolution.in_order((0, 2, 4))) == 77


def test_transfers_round_down_to_whole_cycles_unless_cycles_are_fractions() -> None:
    link = Link(GBps=3, idle=1)
    cluster = Cluster(devices=(Device(recv=link, send=link),) * 2, clock=2**30)
    arrays: dict[str, Any] = {
        "cluster": cluster,
        "in_bytes": [0, 10, 0],
        "out_bytes": [0, 10, 0],
        "objective": "sum",
    }
    solution = PipelineSolution.in_order((0, 1, 2))
    assert PipelinePartition.from_arrays([5, 5], **arrays).evaluate(solution) == 5 + 4
    assert PipelinePartition.from_arrays([5.5, 5.5], **arrays).evaluate(solution) == pytest.approx(
        5.5 + 1 + 10 / 3
    )


def test_speed_divides_without_rounding() -> None:
    instance = PipelinePartition.from_arrays([10, 10], devices=2, speed=[3, 1.5])
    assert instance.evaluate(PipelineSolution.in_order((0, 1, 2))) == pytest.approx(20 / 3)
    assert instance.replace(fewer_stages=True).evaluate(PipelineSolution((0, 2), (0,))) == 20 / 3
    whole = PipelinePartition.from_arrays([3, 3], devices=2, speed=[3, 1.5])
    value = whole.evaluate(PipelineSolution.in_order((0, 1, 2)))
    assert value == 2
    assert isinstance(value, int)


def test_memory_of_a_stage_by_category() -> None:
    instance = PipelinePartition.from_arrays(
        [1, 1, 1],
        devices=3,
        exclusive={"code": [1, 2, 4], "state": [10, 20, 40]},
        shared={"conv": (100, [0, 2]), "relu": (1000, [1])},
        temporary=[5, 50, 7],
        carry=[3, 0, 60],
        stash=[10_000, 20_000, 40_000],
        training=True,
        microbatches=2,
    )
    # Exclusive 77, conv once, relu once, the peak is 67 at layer 2, two microbatches in flight.
    assert stage_memory(instance, 0, 3, 0, 3) == 77 + 1100 + 67 + 2 * 70_000
    assert stage_memory(instance, 0, 3, 0, 1) == 77 + 1100 + 67 + 70_000
    assert stage_memory(instance, 1, 2, 0, 1) == 22 + 1000 + 50 + 20_000
    assert stage_memory(instance.replace(training=False), 0, 1, 0, 9) == 11 + 100 + 8


BASE: dict[str, Any] = {"devices": 3, "capacity": 10, "exclusive": [4, 4, 4, 4]}


@pytest.mark.parametrize(
    ("options", "solution", "rules"),
    [
        ({}, ((0, 2, 3, 4), (0, 1, 2)), []),
        ({}, ((0, 3, 3, 4), (0, 1, 2)), ["boundaries"]),
        ({}, ((0, 2, 3), (0, 1)), ["boundaries"]),
        ({}, ((0, 2, 3, 4), (0, 1)), ["devices"]),
        ({}, ((0, 2, 3, 4), (0, 1, 3)), ["devices"]),
        ({}, ((0, 2, 3, 4), (0, 1, 1)), ["devices"]),
        ({}, ((0, 2, 3, 4), (1, 0, 2)), ["devices"]),
        ({"free_order": True}, ((0, 2, 3, 4), (1, 0, 2)), []),
        ({}, ((0, 2, 4), (0, 1)), ["devices"]),
        ({"fewer_stages": True}, ((0, 2, 4), (0, 2)), []),
        ({}, ((0, 1, 4), (0, 1)), ["devices", "capacity"]),
        ({"variables": [("w", 1, 2)]}, ((0, 2, 3, 4), (0, 1, 2)), ["variable"]),
        ({"forbidden_cuts": [2]}, ((0, 2, 3, 4), (0, 1, 2)), ["forbidden-cut"]),
        ({"fixed_cuts": [1]}, ((0, 2, 3, 4), (0, 1, 2)), ["fixed-cut"]),
    ],
)
def test_check_names_what_is_broken(
    options: dict[str, Any], solution: tuple[Any, Any], rules: list[str]
) -> None:
    instance = PipelinePartition.from_arrays([1, 1, 1, 1], **{**BASE, **options})
    assert [v.rule for v in instance.check(PipelineSolution(*solution))] == rules


def test_capacity_violation_says_by_how_much() -> None:
    instance = PipelinePartition.from_arrays([1] * 4, **BASE)
    (violation,) = instance.replace(fewer_stages=True).check(PipelineSolution((0, 3, 4), (0, 1)))
    assert "needs 12 bytes" in violation.detail
    assert "2 too many" in violation.detail
