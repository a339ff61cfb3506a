"""Layouts of Megatron-LM as solutions of chains, and the schedule of such a cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.formats.solutions import written_for
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.estimate import estimate


def chain(**options: Any) -> PipelinePartition:
    names = ["embedding", *(f"layer {at}" for at in range(6)), "head"]
    return PipelinePartition.from_arrays(
        [3, *[10] * 6, 25],
        devices=2,
        layer_names=names,
        **{"stages_per_device": 2, **options},
    )


@pytest.mark.parametrize("text", ["Et|tt|tt|tL", "Et|(tt|)*2tL", "E,t|t*2|t*2|t,L\n"])
def test_a_layout_is_read_in_place_of_a_file(text: str) -> None:
    found = sp.read_solution(text, chain())
    assert found == PipelineSolution((0, 2, 4, 6, 8), (0, 1, 0, 1))


@pytest.mark.parametrize("fewer", [False, True])
def test_what_is_written_is_read(tmp_path: Path, fewer: bool) -> None:
    instance = chain(fewer_stages=fewer)
    result = sp.solve(instance, "equal-layers")
    sp.write_solution(instance, result, tmp_path / "chain.layout", format="megatron")
    assert sp.read_solution(tmp_path / "chain.layout", instance) == result.solution


def test_empty_stages_stand_in_their_place() -> None:
    instance = chain(fewer_stages=True)
    cut = PipelineSolution((0, 4, 8), (0, 1))
    assert written_for(instance, cut, "megatron", {}) == b"Et*3|||t*3L\n"
    assert sp.read_solution("Ettt|||tttL", instance) == cut
    later = PipelineSolution((0, 4, 8), (1, 1))
    assert sp.read_solution("|Ettt||tttL", instance) == later
    with pytest.raises(InputError, match="E is in stage 1"):
        written_for(instance, later, "megatron", {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Et|tt|tt|t|L", "5 stages for 4"),
        ("Et|tt|tt|L", "has 7 letters"),
        ("E(t|tt|tt|tL", "cannot be read"),
        ("Et|t*999999|(t*999999|)*9999tL", "too long"),
    ],
)
def test_other_layouts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sp.read_solution(text, chain())


def test_a_layout_is_no_instance(tmp_path: Path) -> None:
    path = tmp_path / "chain.layout"
    path.write_text("Et|tt|tt|tL")
    with pytest.raises(InputError, match="says nothing of what layers cost"):
        sp.read(path)
    with pytest.raises(InputError, match="only be read with"):
        sp.read_solution(path)


@pytest.mark.parametrize(
    ("placement", "tool", "message"),
    [
        ("v", "megatron", "round after round"),
        ("0,1,1,0,1", "torchtitan", "several stages"),
        ("loop", "vllm", "several stages"),
        ("loop", "deepspeed", "several stages"),
    ],
)
def test_tools_refuse_placements_that_they_do_not_know(
    placement: str, tool: str, message: str
) -> None:
    each = 1 if "," in placement else 2
    instance = chain(placement=placement, stages_per_device=each)
    found = sp.solve(instance).solution
    assert found is not None
    with pytest.raises(InputError, match=message):
        written_for(instance, found, tool, {})


def test_the_schedule_of_a_cut_has_its_placement() -> None:
    instance = chain(placement="v", exclusive=[1] * 8, capacity=20)
    cut = PipelineSolution((0, 2, 4, 6, 8), (0, 1, 1, 0))
    schedule = sp.PipelineSchedule.from_partition(instance, cut, microbatches=2)
    assert schedule.devices.tolist() == [0, 1, 1, 0]
    assert schedule.limit is not None
    assert schedule.limit.tolist() == [16, 16]


def test_an_estimate_tells_what_devices_hold() -> None:
    instance = chain(placement="v", exclusive=[1] * 8, temporary=[5, *[2] * 6, 7], capacity=20)
    found = estimate(instance, PipelineSolution((0, 2, 4, 6, 8), (0, 1, 1, 0)))
    assert [row["stages"] for row in found.device_rows()] == [[0, 3], [1, 2]]
    assert [device.compute for device in found.devices] == [48, 40]
    assert [device.memory for device in found.devices] == [4 + 7, 4 + 2]
    assert found.totals["largest_compute"] == 48
    assert all(stage.capacity is None for stage in found.stages)
