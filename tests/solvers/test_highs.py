"""HiGHS: its known wrong answer, its statuses, LPs."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stagepack.errors import StagepackError
from stagepack.formulations.program import Program
from stagepack.result import Status
from stagepack.solvers import Limits, Outcome, engine, highs
from tests.solvers.models import INFINITY, Milp, covering, random_milp, single_machine


def mixed() -> Milp:
    """min 2x + 3z, x + z >= 4.5, z integer: 9, where HiGHS 1.14.0 says "Optimal" at 15."""
    return Milp(
        costs=np.array([2, 3]),
        matrix=np.array([[1, 1]]),
        row_lower=np.array([4.5]),
        row_upper=np.array([INFINITY]),
        lower=np.zeros(2),
        upper=np.full(2, 10),
        integral=np.array([False, True]),
    )


def continuous(milp: Milp) -> Milp:
    milp.integral = np.zeros(len(milp.costs), dtype=bool)
    return milp


def test_the_model_that_other_versions_get_wrong() -> None:
    outcome = engine("highs").solve(mixed().arrays())
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == pytest.approx(9, abs=1e-5)
    assert outcome.bound == pytest.approx(9, abs=1e-5)


@pytest.mark.parametrize("version", ["1.11.0", "1.12.0", "1.13.1", "1.14.0", "1.15.1", "1.17.0"])
def test_versions_that_cannot_be_trusted_are_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert f"highspy {version}" in engine("highs").unavailable()
    with pytest.raises(StagepackError, match=r"pip install 'highspy>=1.16,<1.17'"):
        engine("highs").load()


@pytest.mark.parametrize("version", ["1.16.0", "1.16.3"])
def test_versions_that_were_tried_are_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert engine("highs").unavailable() == ""


def test_a_second_run_without_presolve_proves_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(drive: highs._Drive) -> Outcome:
        if drive.presolves:
            raise highs._SolveError("HiGHS failed: Solve error")
        return solve(drive)

    solve = highs._Drive._solve
    monkeypatch.setattr(highs._Drive, "_solve", run)
    milp = covering()
    milp.row_lower, milp.upper = np.array([2, -INFINITY]), np.ones(4)
    outcome = engine("highs").solve(milp.arrays())
    assert (outcome.status, outcome.bound) == (Status.OPTIMAL, 0)


def test_a_last_run_with_wider_tolerances_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(drive: highs._Drive) -> Outcome:
        if not drive.loose:
            raise highs._SolveError("HiGHS failed: Solve error")
        return solve(drive)

    solve = highs._Drive._solve
    monkeypatch.setattr(highs._Drive, "_solve", run)
    outcome = engine("highs").solve(mixed().arrays())
    assert (outcome.status, outcome.bound) == (Status.FEASIBLE, None)
    assert outcome.objective == pytest.approx(9, abs=1e-5)
    assert outcome.message.startswith("HiGHS failed: Solve error; within its own tolerances")


@pytest.mark.parametrize("hint", [[0.5, 4], [0, 5], [float("nan"), 4]])
def test_hints_with_continuous_columns(hint: list[float]) -> None:
    outcome = engine("highs").solve(mixed().arrays(), hint=np.array(hint))
    assert outcome.hint_accepted is True
    assert outcome.objective == pytest.approx(9, abs=1e-5)


def test_a_hint_that_presolve_alone_would_have_found() -> None:
    milp = covering()
    milp.lower = milp.upper = np.array([7, 0, 6, 0])
    outcome = engine("highs").solve(milp.arrays(), hint=np.array([7, 0, 6, 0]))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is True
    assert outcome.hint_note == "its first solution is the start"
    assert outcome.bound == pytest.approx(46)


def test_a_start_that_presolve_alone_improves_on() -> None:
    """Its one column is moved to its bound before the start counts."""
    milp = covering()
    milp.matrix, milp.row_lower, milp.row_upper = milp.matrix[:0], np.empty(0), np.empty(0)
    outcome = engine("highs").solve(milp.arrays(), hint=np.array([1, 0, 2, 0]))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is True


def test_a_start_does_not_hide_what_presolve_makes_of_it() -> None:
    """HiGHS 1.16 called the start optimal, at the objective of another solution."""
    milp = Milp(
        costs=np.array([2, -4, 2, -2, 0, 0, -2]),
        matrix=np.array(
            [[0, 0, 3, 0, 3, 0, -1], [0, 0, -2, -1, 1, -2, 1], [0, -3, 0, 3, -1, 2, 2]]
        ),
        row_lower=np.full(3, -INFINITY),
        row_upper=np.array([3, 0, 1]),
        lower=np.zeros(7),
        upper=np.ones(7),
    )
    start = np.array([1, 1, 0, 0, 0, 1, 1])
    outcome = engine("highs").solve(milp.arrays(), hint=start)
    assert (outcome.status, outcome.bound) == (Status.OPTIMAL, -6)
    assert outcome.values is not None
    assert outcome.objective == milp.objective(outcome.values) == -6
    assert outcome.hint_accepted is True


def test_a_start_is_confirmed_even_when_no_time_is_left() -> None:
    outcome = engine("highs").solve(
        covering().arrays(), hint=np.array([0, 0, 10, 3]), limits=Limits(time_limit=0)
    )
    assert outcome.hint_accepted is True


def test_a_start_that_highs_calls_infeasible_is_not_confirmed() -> None:
    milp = covering()
    milp.lower = milp.upper = np.array([7, 0, 6, 0])
    outcome = engine("highs").solve(milp.arrays(), hint=np.array([7, 0, 7, 0]))
    assert outcome.status is Status.OPTIMAL
    assert outcome.hint_accepted is False
    assert outcome.hint_note == "did not confirm the start"


def test_the_first_solver_of_a_process_does_not_greet() -> None:
    script = (
        "from stagepack.solvers import highs\n"
        "solver = highs._silent()()\n"
        "assert solver.getOptionValue('output_flag')[1] is False\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout == ""


def test_an_lp_proves_its_own_objective() -> None:
    outcome = engine("highs").solve(continuous(covering()).arrays(), hint=np.zeros(4))
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == pytest.approx(46)
    assert outcome.bound == outcome.objective
    assert outcome.hint_accepted is False


@pytest.mark.parametrize("integers", [True, False])
def test_unbounded_is_no_bound(integers: bool) -> None:
    milp = covering()
    milp.costs, milp.upper = -milp.costs, np.full(4, INFINITY)
    milp = milp if integers else continuous(milp)
    outcome = engine("highs").solve(milp.arrays())
    assert outcome.status in (Status.FEASIBLE, Status.UNKNOWN)
    assert outcome.bound is None
    assert "nbounded" in outcome.message


@pytest.mark.parametrize("integers", [True, False])
def test_infeasible_with_an_open_direction(integers: bool) -> None:
    milp = covering()
    milp.costs, milp.upper = -milp.costs, np.full(4, INFINITY)
    milp.matrix = np.vstack([milp.matrix, milp.matrix[1]])
    milp.row_lower = np.r_[milp.row_lower, 8]
    milp.row_upper = np.r_[milp.row_upper, INFINITY]
    milp = milp if integers else continuous(milp)
    assert engine("highs").solve(milp.arrays()).status is Status.INFEASIBLE


def test_a_model_without_columns() -> None:
    outcome = engine("highs").solve(dataclasses.replace(Program[int]().arrays(), offset=3.0))
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == outcome.bound == 3
    assert outcome.values is not None
    assert outcome.values.shape == (0,)


def test_a_broken_model_is_an_error() -> None:
    broken = dataclasses.replace(covering().arrays(), column=np.full(6, 99))
    with pytest.raises(StagepackError, match="HiGHS rejects the model"):
        engine("highs").solve(broken)


def test_another_language_is_an_error() -> None:
    with pytest.raises(StagepackError, match=r"takes a Linear, not a str"):
        engine("highs").solve("model")
    with pytest.raises(StagepackError, match=r"takes a CpModel, not a str"):
        engine("cp-sat").solve("model")


@pytest.mark.parametrize("how", ["time limit", "should_stop"])
def test_a_deaf_root_lp_is_ended(how: str) -> None:
    lp = single_machine()
    engine("highs").load()
    began = time.monotonic()
    outcome = engine("highs").solve(
        lp,
        limits=Limits(time_limit=1 if how == "time limit" else 60),
        should_stop=lambda: how == "should_stop" and time.monotonic() - began > 1,
    )
    assert time.monotonic() - began < 6
    assert outcome.status in (Status.UNKNOWN, Status.FEASIBLE)


def test_highs_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS 1.12 printed a line, whatever its options, where it repaired a solution."""
    for seed in range(30):
        milp = random_milp(seed)
        for hint in (None, np.zeros(len(milp.costs)), np.full(len(milp.costs), np.nan)):
            engine("highs").solve(milp.arrays(), hint=hint)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("limit", "rule"), [(1.0, 1 << 15), (100.0, 0)])
def test_probing_needs_the_time_for_it(
    limit: float, rule: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks nothing: 1.5 s of 0.5 for a model of 4,500 columns, 31 s for one of 45,000."""
    program, found = covering().arrays(), []
    monkeypatch.setattr(highs, "PROBING", 10.0 / len(program.value))
    loaded = highs._Drive._loaded

    def note(drive: highs._Drive) -> highs.Highs:
        solver = loaded(drive)
        found.append(solver.getOptionValue("presolve_rule_off")[1])
        return solver

    monkeypatch.setattr(highs._Drive, "_loaded", note)
    outcome = engine("highs").solve(program, limits=Limits(time_limit=limit))
    assert outcome.status is Status.OPTIMAL
    assert set(found) == {rule}
