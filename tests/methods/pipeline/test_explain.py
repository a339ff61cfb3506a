"""Why no partition fits: what is named, what would do, and that time is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.choices import with_alternatives
from stagepack.instances.pipeline.problem import MEMORY
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.methods.pipeline import explain
from stagepack.progress import Progress, Stopped
from stagepack.result import Status
from stagepack.solve import solve
from tests.strategies import brute_force


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exclusive": [5, 50, 5], "capacity": 40}, ["layer 1", "50", "40", "10 too many"]),
        (
            {"exclusive": [30, 30, 5], "capacity": 40, "variables": [("tied", 0, 1)]},
            ["layers 0 to 1", "'tied'", "20 too many"],
        ),
        ({"exclusive": [30, 30, 30], "capacity": 40}, ["20 bytes more", "60", "3 devices"]),
        (
            {"devices": 3, "variables": [("tied", 0, 1)]},
            [
                "3 devices need 3 stages",
                "3 layers",
                "2 at most, as variable 'tied' keeps 2 together",
            ],
        ),
        ({"fixed_cuts": [1, 2]}, ["2 fixed cuts", "3 stages"]),
        ({"fixed_cuts": [1], "variables": [("tied", 0, 1)]}, ["fixed cut at 1", "'tied'"]),
    ],
)
def test_infeasible_says_why_and_what_would_do(changes: dict[str, Any], words: list[str]) -> None:
    options: dict[str, Any] = {"devices": 2, **changes}
    instance = PipelinePartition.from_arrays([1, 1, 1], **options)
    assert brute_force(instance) is None
    result = solve(instance, "dp")
    assert result.status is Status.INFEASIBLE
    for word in words:
        assert word in result.reason


class Asked(Progress[PipelineSolution]):
    """Counts how often it is asked for the time, and ends at one of these times."""

    def __init__(self, instance: PipelinePartition, end: int) -> None:
        super().__init__(instance.evaluate, instance.check)
        self.asked, self._end = 0, end

    def require_time(self) -> None:
        self.asked += 1
        if self.asked >= self._end:
            raise Stopped


def test_the_search_for_a_reason_asks_for_the_time_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain, "BLOCK", 10)  # a look every so many uses of keys
    rng = np.random.default_rng(0)
    n = 100
    shared = {f"k{at}": (10, rng.integers(0, n, 8).tolist()) for at in range(20)}
    tight = PipelinePartition.from_arrays(
        [1] * n, devices=5, exclusive=[10] * n, shared=shared, capacity=250
    )
    whole = Asked(tight, 10**9)
    reason = explain.explain(RangeCosts(tight), whole)
    assert "would be feasible with" in reason
    for end in range(1, whole.asked + 1, 7):  # wherever time runs out, what is known is told
        told = explain.explain(RangeCosts(tight), Asked(tight, end))
        assert told == "no partition into 5 stages fits the devices' memory"
    # A question for every block of uses, every probe of a capacity and every number of devices.
    uses = sum(len(set(layers)) for _, layers in shared.values())
    assert whole.asked > uses // 10 + 2 * 10


def test_recomputation_is_named_where_it_makes_room() -> None:
    rng, named = np.random.default_rng(3), 0
    for _ in range(60):
        n = int(rng.integers(2, 6))
        arrays: dict[str, Any] = {
            name: rng.integers(0, 9, n) for name in ("stash", "exclusive", "temporary")
        }
        instance = PipelinePartition.from_arrays(
            rng.integers(1, 9, n),
            devices=2,
            in_bytes=rng.integers(0, 3, n + 1),
            capacity=int(rng.integers(8, 40)),
            training=True,
            microbatches=int(rng.integers(1, 5)),
            **arrays,
        )
        result = solve(instance, "dp")
        if result.status is not Status.INFEASIBLE:
            continue
        again = with_alternatives(instance, {}, ("layer", "own"), "full", frozenset(MEMORY))
        fits = solve(again, "dp").solution is not None
        if "it would be feasible" in result.reason:
            assert ("--recompute full" in result.reason) == fits
            named += fits
    assert named > 2
