"""Runs of pipeline partitioning that are limited by work: they repeat, and they end."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.pipeline import MilpAssignment, MilpInterval, cp_sat, frame
from stagepack.heuristics import effort
from stagepack.heuristics.pipeline import bisect, dp, reference
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Progress, Stopped
from stagepack.result import Status, Termination
from stagepack.solve import solve
from stagepack.solvers import Limits
from stagepack.solvers.cp_sat import CpSatEngine


def chain(n: int, devices: int) -> PipelinePartition:
    rng = np.random.default_rng(n)
    crossing = rng.integers(0, 10**9, n + 1)
    return PipelinePartition.from_arrays(
        rng.integers(0, 10**6, n),
        devices=devices,
        bandwidth=10,
        in_bytes=crossing,
        out_bytes=crossing,
        objective="transfer-bounded",
    )


def test_searches_limited_by_work_repeat() -> None:
    instance = chain(3_000, 40)
    whole = solve(instance, "dp")
    assert whole.status is Status.OPTIMAL
    options = {"deterministic": True, "tuning": {"probes": {"steps_at_once": 10_000}}}
    ends = []
    for limit in (0.001, 0.002, 0.004):
        once, again = (solve(instance, "dp", time_limit=limit, options=options) for _ in range(2))
        assert once.termination is Termination.TIME_LIMIT
        assert (once.objective, once.bound) == (again.objective, again.bound)
        assert once.solution == again.solution
        assert once.bound is not None
        assert whole.objective is not None
        assert once.bound <= whole.objective
        ends.append((once.objective, once.bound))
    assert len(set(ends)) > 1  # more work, more known


@pytest.mark.parametrize("model", [MilpInterval, MilpAssignment, cp_sat.CpSat])
def test_models_that_take_too_long_to_build_are_given_up(
    model: type[MilpInterval | MilpAssignment | cp_sat.CpSat], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        while True:  # until it is ended from outside
            time.sleep(0.001)

    monkeypatch.setattr(model, "__init__", build)
    names = {"MilpInterval": "milp-interval", "MilpAssignment": "milp-assignment"}
    method = names.get(model.__name__, "cp-sat")
    options = {"deterministic": True, "tuning": {"overdue": 0.0}}
    result = solve(chain(20, 4), method, time_limit=9, options=options)
    assert result.status is Status.FEASIBLE
    assert result.termination is Termination.TIME_LIMIT
    assert "ended by the clock" in result.reason


class HandedError(Exception):
    """Raised with the limits that an engine was handed."""


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(*_: object, limits: Limits, **__: object) -> None:
        raise HandedError(limits)

    monkeypatch.setattr(CpSatEngine, "solve", solve)


@pytest.mark.usefixtures("handed")
def test_tuples_take_time_to_load() -> None:
    table = np.triu(np.arange(31 * 31).reshape(31, 31))
    instance = PipelinePartition.from_arrays(None, devices=3, compute_table=table)
    costs = RangeCosts(instance)
    tuples = cp_sat.CpSat(costs).loading / cp_sat.LOADING_TUPLES
    assert 30 * 30 / 2 < tuples < 3 * 30 * 30
    with pytest.raises(HandedError) as raised:
        solve(instance, "cp-sat", time_limit=5, warm_start=None, options={"deterministic": True})
    assert raised.value.args[0].work_limit < TUNING.pace * (5 - cp_sat.LOADING_TUPLES * tuples)


@pytest.mark.usefixtures("handed")
@pytest.mark.parametrize("options", [{}, {"deterministic": True}])
def test_models_that_take_longer_to_load_than_there_is_are_not_handed_over(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cp_sat, "LOADING", 10.0)  # seconds an entry
    result = solve(chain(200, 4), "cp-sat", time_limit=1000, options=options)
    assert (result.status, result.termination) == (Status.FEASIBLE, Termination.FINISHED)
    assert "to load CpSat, more than is left" in result.reason
    with pytest.raises(HandedError):
        solve(chain(200, 4), "cp-sat", time_limit=None)


def test_a_model_that_is_too_large_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MOST_CUTS", 3)
    result = solve(chain(200, 4), "cp-sat", time_limit=None)
    assert (result.status, result.termination) == (Status.FEASIBLE, Termination.FINISHED)
    assert "more than 3 together" in result.reason
    with pytest.raises(InputError, match="more than 3 together"):
        solve(chain(200, 4), "cp-sat", time_limit=None, warm_start=None)


@pytest.mark.usefixtures("handed")
def test_loading_counts_as_work() -> None:
    instance = chain(200, 4)
    entries = cp_sat.CpSat(RangeCosts(instance)).loading / cp_sat.LOADING
    with pytest.raises(HandedError) as raised:
        solve(instance, "cp-sat", time_limit=5, warm_start=None, options={"deterministic": True})
    work = raised.value.args[0].work_limit
    assert work == pytest.approx(
        TUNING.pace * (5 - TUNING.layer_seconds * 200 - cp_sat.LOADING * entries)
    )
    assert entries > 200


def test_checks_of_what_a_search_finds_take_a_part_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Progress, "stale", False)  # as if checks took very long
    instance = chain(500, 10).replace(objective="sum")
    options = {"tuning": {"probes": {"steps_at_once": 1000}}}
    result = solve(instance, "dp", warm_start=None, options=options)
    assert result.status is Status.OPTIMAL
    assert len([event for event in result.trace.events if event.kind == "incumbent"]) == 1


@pytest.mark.parametrize("method", ["equal-layers", "greedy"])
def test_rules_count_the_stages_that_they_place(method: str) -> None:
    options = {"deterministic": True}
    result = solve(chain(5_000, 4_000), method, time_limit=0.01, options=options)
    assert result.termination is Termination.TIME_LIMIT


def test_the_recurrence_counts_its_tables_as_work() -> None:
    instance = PipelinePartition.from_arrays(np.arange(600), devices=5)
    options = {"deterministic": True}  # as a busy machine may take long
    result = solve(instance, "dp-reference", time_limit=0.05, options=options)
    assert result.termination is Termination.TIME_LIMIT
    assert solve(instance, "dp-reference", options=options).status is Status.OPTIMAL


@pytest.mark.parametrize("search", [bisect, dp, reference])
def test_searches_count_on_the_clock_that_all_problems_share(search: ModuleType) -> None:
    instance = chain(60, 4).replace(objective="bottleneck")
    progress: Progress[PipelineSolution] = Progress(instance.evaluate, instance.check)
    with effort.counting():
        with contextlib.suppress(Stopped):  # once it is proved
            search.solve(RangeCosts(instance), progress)
        assert progress.proved
        assert effort.spent() > 0


def test_the_recurrence_asks_while_it_numbers_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of ten million values were sorted without a question, for 1.5 s."""
    costs = RangeCosts(PipelinePartition.from_arrays(np.arange(60), devices=3, bandwidth=1.0))
    run: Progress[PipelineSolution] = Progress(lambda _: 0, lambda _: ())
    often = dataclasses.replace(TUNING.recurrence, entries_at_once=500)
    tables = reference._tables(costs, run, often)
    whole = reference._numbered(*tables, run, TUNING.recurrence)
    asked: list[int] = []
    monkeypatch.setattr(run, "require_time", lambda: asked.append(1))
    parts = reference._numbered(*tables, run, often)
    assert len(asked) > 3 * tables[0].size / 500
    fits = tables[0] < reference.INFINITE
    assert parts.values.tolist() == [*np.unique(tables[0][fits]), reference.INFINITE]
    assert parts.thresholds.tolist() == whole.thresholds.tolist()
    assert (parts.cost == whole.cost).all()
    assert (parts.allowed_from == whole.allowed_from).all()
    assert [row.tolist() for row in parts.lengths] == [row.tolist() for row in whole.lengths]


def test_the_recurrence_counts_the_numbering_of_its_tables_apart() -> None:
    costs = RangeCosts(PipelinePartition.from_arrays(np.arange(60), devices=5))
    run: Progress[PipelineSolution] = Progress(lambda _: 0, lambda _: ())
    tuning = dataclasses.replace(TUNING.recurrence, fill_seconds=0.0)
    with effort.counting():
        tables = reference._tables(costs, run, tuning)
        assert effort.spent() == 0
        reference._numbered(*tables, run, tuning)
        assert effort.spent() == pytest.approx(tuning.number_seconds * tables[0].size)
