"""Checkers value the objectives that they know, and nothing else in the place of another one."""

from __future__ import annotations

from typing import Any

import pytest

import stagepack as sp
from stagepack.instances.problem import PROBLEMS
from tests.formulations.test_objectives import unknown

SMALL: dict[str, Any] = {
    "pipeline-partition": sp.PipelinePartition.from_arrays([5, 1, 4], devices=2),
    "lmem-packing": sp.LmemPacking.from_arrays([4, 4], [0, 1], [2, 3]),
    "pipeline-schedule": sp.PipelineSchedule.from_arrays([1, 2], microbatches=2),
    "graph-partition": sp.load("graph/random/layered"),
}


@pytest.mark.parametrize("kind", SMALL)
def test_an_objective_of_the_future_has_no_value_yet(kind: str) -> None:
    known = SMALL[kind]
    solution = sp.solve(known, time_limit=0.2).solution
    assert len(PROBLEMS[kind].objectives) > 1
    assert known.evaluate(solution) == known.rules.evaluate(known, solution)
    with pytest.raises(AssertionError):
        known.rules.evaluate(unknown(known), solution)
