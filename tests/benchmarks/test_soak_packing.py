"""A slice of the soak of packing: exact methods, heuristics, bounds, explanations must agree."""

from __future__ import annotations

import pytest

from benchmarks.soak_packing import trials
from stagepack.result import Status

SLICE = 25


@pytest.mark.parametrize("part", range(6))
def test_methods_agree(part: int) -> None:
    first = 100_000 + part * SLICE
    tally = trials(range(first, first + SLICE))
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.counts["exact", str(Status.OPTIMAL)] > 5
    assert tally.counts["cp-sat", str(Status.INFEASIBLE)] > 5
    assert not [name for name, status in tally.counts if status == "NOT PROVED"]
