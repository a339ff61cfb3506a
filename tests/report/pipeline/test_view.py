"""What people read of a partition beside its stages."""

from typing import Any

import pytest

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.report.pipeline.numbers import map_scale
from stagepack.report.pipeline.view import VIEW


@pytest.mark.parametrize(("objective", "said"), [("bottleneck", True), ("overlap", False)])
def test_transfers_longer_than_a_bottleneck_that_counts_none_are_told(
    objective: str, said: bool
) -> None:
    columns: dict[str, Any] = {"in_bytes": [0, 9, 9, 0], "out_bytes": [0, 9, 9, 0]}
    columns |= {"bandwidth": 1.0, "clock": 2**30, "objective": objective}
    instance = PipelinePartition.from_arrays([2, 3, 4], devices=3, **columns)
    apart, together = PipelineSolution.in_order((0, 1, 2, 3)), PipelineSolution.in_order((0, 3))
    lines = VIEW.account(instance, apart).lines
    assert [what for what, _ in lines] == ["Not counted"] * said
    assert all("9 cycles" in text for _, text in lines)
    assert not VIEW.account(instance, together).lines


def test_maps_of_chains_with_alternatives_count_layers() -> None:
    chain = PipelinePartition.from_arrays(
        [3, 4], devices=2, alternatives={"cpu": {"forward": [9, 9]}}
    )
    assert map_scale(chain, "cycles")[0] == "layers"
    assert map_scale(chain.replace(alternatives=None), "cycles")[0] == "cycles"
