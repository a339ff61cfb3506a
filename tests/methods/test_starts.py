"""Where runs start is read alike for all problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.effort import counting, spend
from stagepack.methods.starts import Turn, take_turns
from stagepack.progress import Progress

CHAIN = sp.PipelinePartition.from_arrays([3, 1, 4, 1, 5], devices=2)
GRAPH = sp.GraphPartition.from_arrays(
    [3, 1, 4, 1, 5],
    accelerators=2,
    producer=range(4),
    consumers=range(1, 5),
    consumer_ptr=range(5),
    traffic=[2, 3, 1, 1],
)
SCHEDULE = sp.PipelineSchedule.from_arrays([2, 3], [4, 1], microbatches=3)
PHASES = sp.PhaseSchedule.from_arrays([5, 6, 4], [9, 7, 8], [3, 2, 4, 2], memory=64)
PACKING = sp.LmemPacking.from_arrays([4, 6, 4], [0, 1, 2], [2, 3, 4])
KINDS = [
    (CHAIN, "dp", "greedy", {"boundaries": [0, 5, 5]}),
    (SCHEDULE, "cp-sat", "1f1b", {"start": [[[0, 0, 0], [9, 9, 9]], [[2, 5, 8], [8, 7, 9]]]}),
    (PACKING, "exact", "portfolio", {"offsets": {"0": 0, "1": 0, "2": 0}}),
    (PHASES, "enumerate", "greedy-head", {"boundaries": [0, 3], "mode": ["io"], "io_tiles": 0}),
]


@pytest.mark.parametrize(("instance", "method", "start", "_"), KINDS)
def test_a_name_a_solution_a_result_and_its_record_are_starts(
    instance: Any, method: str, start: str, _: Any
) -> None:
    first = sp.solve(instance, start)
    best = sp.solve(instance, method)
    for given in (start, first, first.solution, first.solution.to_dict(), None, "none", "auto"):
        result = sp.solve(instance, method, warm_start=given)
        assert result.status is sp.Status.OPTIMAL
        assert result.objective == best.objective
        named = isinstance(given, str) or given is None
        recorded = result.options["warm_start"]
        assert recorded == (given if named else first.solution.to_dict())


@pytest.mark.parametrize(("instance", "method", "start", "wrong"), KINDS)
def test_what_is_no_start_is_refused(instance: Any, method: str, start: str, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"warm_start.*unknown warm start 'magic'.*{start}"):
        sp.solve(instance, method, warm_start="magic")
    with pytest.raises(InputError, match="unknown warm start 'cp-sat'"):
        sp.solve(instance, method, warm_start="cp-sat")
    with pytest.raises(InputError):
        sp.solve(instance, method, warm_start=wrong)


def test_a_start_that_does_not_apply_says_why() -> None:
    for instance, method, start in (
        (CHAIN.replace(objective="sum"), "dp", "bisect"),
        (SCHEDULE, "cp-sat", "zb-h1"),
        (PACKING, "exact", "bank-aware"),
        (PHASES, "enumerate", "keep-all"),
    ):
        known = {m.name: m.reason for m in sp.methods(instance)}
        assert known[start]
        with pytest.raises(InputError) as caught:
            sp.solve(instance, method, warm_start=start)
        assert f"{start}: {known[start]}" in str(caught.value)


@pytest.mark.parametrize("start", ["anneal", "dive"])
def test_a_start_without_an_end_leaves_the_run_its_half_of_the_time(start: str) -> None:
    result = sp.solve(
        sp.load("packing/above-load"),
        "exact",
        warm_start=start,
        time_limit=1.0,
        options={"deterministic": True},
    )
    assert (result.status, result.bound_source) == (sp.Status.OPTIMAL, "exhausted search")


@pytest.mark.parametrize("instance", [GRAPH, *(row[0] for row in KINDS)])
def test_no_method_is_worse_than_the_solution_given(instance: Any) -> None:
    best = sp.solve(instance)
    for info in sp.methods(instance):
        if info.available:
            for limit in (1e-9, 0.1):
                kept = sp.solve(instance, info.name, warm_start=best.solution, time_limit=limit)
                assert kept.objective == best.objective, (info.name, limit)


def test_a_method_that_begins_with_nothing_says_so() -> None:
    first = sp.solve(PACKING).solution
    for method, unused in (("best-fit-area", True), ("exact", False), ("auto", False)):
        for given in (first, "portfolio"):
            result = sp.solve(PACKING, method, warm_start=given)
            assert ("has not used the warm start" in result.reason) == unused
    assert sp.solve(PACKING, "best-fit-area").reason == ""


def test_searches_take_turns_until_one_decides() -> None:
    """One that never ends is stopped, and goes on in its next turn; turns get longer."""
    turns: dict[str, list[float]] = {"endless": [], "short": [], "exact": []}

    def search(name: str, work: float) -> Callable[[], bool]:
        def go_on() -> bool:
            turns[name].append(0.0)
            while sum(turns[name]) < work:
                spend(0.01)
                turns[name][-1] += 0.01
                progress.require_time()
            return True

        return go_on

    progress: Progress[Any] = Progress(lambda _: 0, lambda _: ())
    with counting(40.0) as spent:
        progress.limit_by(spent, 40.0)
        take_turns(
            progress,
            [
                Turn(search("endless", math.inf)),
                Turn(search("short", 0.5)),
                Turn(search("exact", 6.0), 2, decides=True),
            ],
        )
        assert spent() < 20
    assert turns["endless"] == pytest.approx([1.25, 2.5], abs=0.05)
    assert len(turns["short"]) == 1
    assert turns["exact"] == pytest.approx([2.5, 3.5], abs=0.05)
    assert progress.keep_going()
