"""A slice of the soak of schedules: exact methods, rules, searches and bounds must agree."""

from __future__ import annotations

import pytest

from benchmarks.soak_schedules import trials
from stagepack.result import Status

SLICE = 20


@pytest.mark.parametrize("part", range(4))
def test_methods_agree(part: int) -> None:
    first = 100_000 + part * SLICE
    tally = trials(range(first, first + SLICE))
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.counts["cp-sat", str(Status.OPTIMAL)] > 5
    assert tally.counts["bound", "MET"] > 5
