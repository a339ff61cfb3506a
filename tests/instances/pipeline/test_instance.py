"""Building instances: what is derived, and what is refused by name."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution, Variable
from stagepack.instances.pipeline.estimate import estimate
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Cluster, LayerProfile, Link, ModelProfile


def test_from_profile_derives_crossings_carries_and_spans() -> None:
    # x -> 0 -> h -> 1 -> g -> 2 -> y; h skips to layer 2, a mask from the host feeds layers 1, 2.
    profile = ModelProfile(
        name="skip",
        layers=(
            LayerProfile(forward=1, inputs=("x",), outputs=("h",), variables=("w",)),
            LayerProfile(forward=2, inputs=("h", "mask"), outputs=("g",), shared={"fc": 7}),
            LayerProfile(
                forward=3,
                inputs=("g", "h", "mask"),
                outputs=("y",),
                variables=("w",),
                shared={"fc": 7},
            ),
        ),
        tensors={"x": 1, "h": 10, "g": 100, "y": 1000, "mask": 10_000},
    )
    instance = PipelinePartition.from_profile(profile, Cluster.uniform(2))
    crossing = [10_001, 10_010, 10_110, 1000]
    assert instance.in_bytes.tolist() == crossing
    assert instance.out_bytes.tolist() == crossing
    # Layer 0 carries the mask, layer 1 works on h and the mask that layer 2 still needs.
    assert instance.carry.tolist() == [10_000, 10_010, 0]
    assert instance.variables == (Variable("w", 0, 2),)
    assert instance.allowed_cuts.tolist() == [True, False, False, True]
    assert instance.shared.layer.tolist() == [1, 2]
    assert instance.name == "skip"
    assert instance.tensors is not None
    assert instance.tensors.passing.names == ("h", "mask")
    uncounted = PipelinePartition.from_profile(profile, instance.cluster, memory="stash")
    assert not uncounted.carry.any()
    assert uncounted.tensors is not None
    assert instance.replace(carry=[1, 2, 3]).tensors is None  # of others


@pytest.mark.parametrize(
    ("layers", "tensors", "field"),
    [
        ([{"inputs": ("x",)}], {}, "tensors"),
        ([{"outputs": ("x",)}, {"outputs": ("x",)}], {"x": 1}, "layers[1].outputs"),
        ([{"inputs": ("x",)}, {"outputs": ("x",)}], {"x": 1}, "layers[0].inputs"),
        ([{"outputs": ("x", "y")}, {"inputs": ("x", "y")}], {"x": 2**62, "y": 1}, "tensors"),
        ([{"shared": {"k": 1}}, {"shared": {"k": 2}}], {}, "layers[1].shared"),
    ],
)
def test_profiles_that_make_no_sense(
    layers: list[dict[str, Any]], tensors: dict[str, int], field: str
) -> None:
    profile = ModelProfile(layers=tuple(LayerProfile(**x) for x in layers), tensors=tensors)
    with pytest.raises(InputError) as caught:
        PipelinePartition.from_profile(profile, Cluster.uniform(1))
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"forward": []}, "layers"),
        ({"forward": [1, -1]}, "forward"),
        ({"forward": [1, float("nan")]}, "forward"),
        ({"forward": [[1, 2]]}, "forward"),
        ({"forward": ["a", "b"]}, "forward"),
        ({"forward": [1, 2], "devices": 0}, "devices"),
        ({"forward": [1, 2], "devices": None}, "devices"),
        ({"forward": [1, 2], "exclusive": [1]}, "exclusive.memory"),
        ({"forward": [1, 2], "exclusive": [1, -1]}, "exclusive.memory"),
        ({"forward": [1, 2], "exclusive": [1, 0.5]}, "exclusive.memory"),
        ({"forward": [1, 2], "capacity": -1}, "capacity"),
        ({"forward": [1, 2], "speed": 0}, "speed"),
        ({"forward": [1, 2], "bandwidth": 0}, "bandwidth"),
        ({"forward": [1, 2], "objective": "fast"}, "objective"),
        ({"forward": [1, 2], "microbatches": 0}, "microbatches"),
        ({"forward": [1, 2], "fixed_cuts": [2]}, "fixed_cuts"),
        ({"forward": [1, 2], "forbidden_cuts": [0]}, "forbidden_cuts"),
        ({"forward": [1, 2], "variables": [("w", 1, 2)]}, "variables"),
        ({"forward": [1, 2], "shared": {"k": (1, [2])}}, "shared"),
        ({"forward": [1, 2], "shared": {"k": (-1, [0])}}, "shared"),
        ({"forward": [1, 2], "layer_names": ["a"]}, "layer_names"),
        ({"forward": [2**63 - 1, 1]}, "forward"),
        ({"forward": [1, 2], "microbatches": 10**400}, "microbatches"),
        ({"forward": [1], "compute_table": [[1, 2], [3]]}, "compute_table"),
        ({"forward": [1], "recv_cycles": [[1, 2]]}, "recv_cycles"),
        ({"forward": [1, 2], "bandwidth": 1e-320}, "cluster"),
        ({"forward": [1, 2], "bandwidth": 1, "clock": 1e308}, "cluster"),
    ],
)
def test_arrays_that_make_no_sense(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        PipelinePartition.from_arrays(**{"devices": 2, **arguments})
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        ("4 boxes", "'4 boxes' is no number of bytes; write 1e9 or 16GiB"),
        (
            [1, 2, 3],
            "cannot be read: [1, 2, 3]; give whole bytes: one number, or one for each of 2 devices",
        ),
    ],
)
def test_a_capacity_that_cannot_be_read_is_shown(capacity: Any, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        PipelinePartition.from_arrays([1, 2], devices=2, capacity=capacity)


def test_digest_tells_instances_apart_and_ignores_names() -> None:
    one = PipelinePartition.from_arrays([1, 2, 3], devices=2, name="one", layer_names="abc")
    same = PipelinePartition.from_arrays([1, 2, 3], devices=2, name="two")
    assert one.digest == same.digest
    others = [
        one.replace(objective=Objective.SUM),
        one.replace(training=True),
        PipelinePartition.from_arrays([1, 2, 4], devices=2),
        PipelinePartition.from_arrays([1.0, 2.0, 3.0], devices=2),
        PipelinePartition.from_arrays([1, 2, 3], devices=2, capacity=9),
        PipelinePartition.from_arrays([1, 2, 3], devices=2, shared={"k": (1, [0])}),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == len(others) + 1


def test_instances_and_solutions_pickle_and_arrays_are_read_only() -> None:
    instance = PipelinePartition.from_arrays([1, 2, 3], devices=2, exclusive=[1, 1, 1])
    again = pickle.loads(pickle.dumps(instance))
    assert again.digest == instance.digest
    solution = PipelineSolution.in_order((0, 1, 3))
    assert pickle.loads(pickle.dumps(solution)) == solution
    with pytest.raises(ValueError, match="read-only"):
        instance.forward[0] = 9


def test_the_caller_keeps_its_arrays() -> None:
    mine = np.array([1, 2, 3])
    instance = PipelinePartition.from_arrays(mine, devices=2)
    mine[0] = 100
    assert instance.forward[0] == 1


@pytest.mark.parametrize(
    "data",
    [[], {}, {"boundaries": 3}, {"boundaries": [0, True]}, {"boundaries": [0], "devices": "x"}],
)
def test_solutions_that_make_no_sense(data: Any) -> None:
    with pytest.raises(InputError):
        PipelineSolution.from_dict(data)


def test_replace_refuses_what_it_does_not_know() -> None:
    instance = PipelinePartition.from_arrays([1, 2], devices=1)
    with pytest.raises(InputError, match="objective"):
        instance.replace(objective="nonsense")
    tables = PipelinePartition.from_arrays([1, 2], devices=2, recv_cycles=[[1, 2, 3]] * 2)
    with pytest.raises(InputError, match="recv_cycles"):
        tables.replace(cluster=Cluster.uniform(3))
    with pytest.raises(InputError, match="colour"):
        instance.replace(colour="red")


def test_training_holds_as_many_microbatches_as_stages_unless_told_another_number() -> None:
    columns: dict[str, Any] = {
        "devices": 3,
        "stash": [5, 5, 5, 5],
        "backward": [2] * 4,
        "capacity": 100,
    }
    usual = PipelinePartition.from_arrays([1] * 4, training=True, **columns)
    assert usual.microbatches == 3
    assert usual.check(PipelineSolution.in_order((0, 2, 3, 4))) == ()
    tight = PipelinePartition.from_arrays([1] * 4, training=True, **{**columns, "capacity": 29})
    assert [v.rule for v in tight.check(PipelineSolution.in_order((0, 2, 3, 4)))] == ["capacity"]
    assert "microbatch" not in usual.proviso
    few = PipelinePartition.from_arrays([1] * 4, training=True, microbatches=1, **columns)
    assert few.proviso == "memory counts 1 of the 3 microbatches that fill the pipeline"
    assert PipelinePartition.from_arrays([1] * 4, **columns).microbatches == 1


def test_gradients_come_back_over_the_links_in_training() -> None:
    # Cut 1: 4 bytes at one byte a cycle, there and back; the host's exchange has no way back.
    columns: dict[str, Any] = {
        "cluster": Cluster.uniform(2, link=Link(GBps=1), host=Link(GBps=1), clock=2**30),
        "in_bytes": [3, 4, 5],
        "out_bytes": [3, 4, 5],
        "objective": "sum",
        "host_transfer": True,
    }
    solution = PipelineSolution.in_order((0, 1, 2))
    there = PipelinePartition.from_arrays([10, 10], **columns)
    assert there.evaluate(solution) == 10 + 4 + 3 + 5
    back = PipelinePartition.from_arrays([10, 10], training=True, **columns)
    assert back.backward_transfers
    assert back.evaluate(solution) == 10 + 8 + 3 + 5
    assert [stage.transfer for stage in estimate(back, solution).stages] == [16, 16]
    assert RangeCosts(back).objective(solution) == 26
    alone = back.replace(backward_transfers=False)
    assert alone.evaluate(solution) == there.evaluate(solution)
    assert alone.digest != back.digest
    tables = back.replace(recv_cycles=[[0, 4, 0]] * 2, send_cycles=[[0, 4, 0]] * 2)
    assert tables.evaluate(solution) == 10 + 4  # they say all


def test_digests_are_what_they_were_before_gradients_came_back() -> None:
    given: dict[str, Any] = {
        "devices": 2,
        "training": True,
        "microbatches": 1,
        "backward_transfers": False,
    }
    assert PipelinePartition.from_arrays([1, 2, 3], **given).digest == "3d53dd29a0a4d952"


def test_terms_of_memory_can_be_left_out() -> None:
    columns: dict[str, Any] = {
        "devices": 1,
        "exclusive": {"parameters": [1, 2], "state": [10, 20]},
        "shared": {"code": (100, [0, 1])},
        "temporary": [1000, 0],
        "carry": [0, 500],
        "stash": [10_000, 10_000],
        "training": True,
    }
    whole = PipelineSolution.in_order((0, 2))

    def held(memory: str | list[str] | None) -> int:
        instance = PipelinePartition.from_arrays([1, 1], memory=memory, **columns)
        return estimate(instance, whole).stages[0].memory

    assert held(None) == 21_133
    assert held("exclusive,stash") == 20_033
    assert held("parameters, stash") == 20_003
    assert held(["shared", "temporary"]) == 1_100
    assert held(["carry"]) == 500
    counting = PipelinePartition.from_arrays([1, 1], in_bytes=[7, 7, 7], **columns)
    assert counting.kept_bytes.tolist() == [7, 7, 7]
    alone = PipelinePartition.from_arrays(
        [1, 1], in_bytes=[7, 7, 7], memory="exclusive,stash", **columns
    )
    assert not alone.kept_bytes.any()
    with pytest.raises(InputError, match="'code' is no term of it; choose among exclusive, shared"):
        held("exclusive,code")
    with pytest.raises(InputError, match="a table, which has no terms"):
        PipelinePartition.from_arrays(
            [1, 1], devices=1, memory="stash", memory_table=np.zeros((3, 3), dtype=np.int64)
        )
