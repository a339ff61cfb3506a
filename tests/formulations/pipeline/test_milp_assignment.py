"""What is particular to the assignment model."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.pipeline import MilpAssignment
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from tests.formulations.engines import lowered, solve, solve_lp


def test_what_it_cannot_express_is_refused_by_name() -> None:
    chain = PipelinePartition.from_arrays([1, 2, 3], devices=2, speed=[1, 2])
    table = np.ones((4, 4), dtype=np.int64)
    for changed, why in [
        (chain.replace(compute_table=table), "tables"),
        (chain.replace(memory_table=table), "tables"),
        (chain.replace(fewer_stages=True), "every device"),
        (chain.replace(free_order=True), "fixed order"),
    ]:
        assert why in MilpAssignment.unsupported(changed)
        with pytest.raises(InputError, match=why):
            MilpAssignment(RangeCosts(changed))
    assert MilpAssignment.unsupported(chain) == ""
    alike = PipelinePartition.from_arrays([1, 2, 3], devices=2, free_order=True)
    assert MilpAssignment.unsupported(alike) == ""


def test_forbidden_cuts_leave_blocks() -> None:
    instance = PipelinePartition.from_arrays(
        [1] * 6, devices=2, variables=[("v", 0, 2)], forbidden_cuts=[4]
    )
    formulation = MilpAssignment(RangeCosts(instance))
    assert formulation.places.tolist() == [0, 3, 5, 6]
    assert len(formulation.begins) == 1  # the cut lies at 3 or at 5


def test_bytes_by_the_billion_do_not_slip_through_the_tolerance() -> None:
    giga = 2**34
    instance = PipelinePartition.from_arrays(
        [1, 1, 9, 1],
        devices=2,
        exclusive=[giga, 1, giga, 1],
        shared={"code": (giga, [1, 2])},
        capacity=2 * giga + 1,
    )
    # [0, 2) holds one byte and one key more than [0, 1); only [0, 1) and [1, 4) is too much.
    formulation = MilpAssignment(RangeCosts(instance))
    answer = solve(formulation)
    assert answer.values is None or not instance.check(formulation.decode(answer.values))


def test_reach_tightens_the_relaxation_to_integers() -> None:
    # Only 4 of 8 unit layers fit a device beside their shared key: no fraction may cheat.
    instance = PipelinePartition.from_arrays(
        [1] * 8, devices=2, exclusive=[1] * 8, shared={"code": (96, range(8))}, capacity=100
    )
    formulation = MilpAssignment(RangeCosts(instance))
    answer = solve_lp(lowered(formulation), relaxed=True)
    assert answer.values is not None
    assert formulation.decode(answer.values).boundaries == (0, 4, 8)


def test_a_solution_outside_the_model_has_no_hint() -> None:
    instance = PipelinePartition.from_arrays([5, 1, 1, 5], devices=2)
    formulation = MilpAssignment(RangeCosts(instance), upper=6)
    for boundaries in ([0, 1, 4], [0, 4], [0, 1, 2, 4]):
        with pytest.raises(ValueError, match="not in the model"):
            formulation.hint(PipelineSolution.in_order(boundaries))


def test_more_devices_than_blocks_is_infeasible() -> None:
    formulation = MilpAssignment(
        RangeCosts(PipelinePartition.from_arrays([1, 2, 3], devices=3, forbidden_cuts=[1]))
    )
    assert formulation.infeasible
    assert formulation.model is None
