"""Programs as Pyomo models and as files, and solvers that Pyomo runs."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest

from stagepack.linear import Array
from stagepack.result import Status
from stagepack.solvers import Limits, engine
from stagepack.solvers.engine import Abandoned, left_behind, run_cancellable
from stagepack.solvers.lowering import InfeasibleRowError, lift, write_file
from tests.solvers.models import INFINITY, covering, market_split, random_milp


class Sleeper:
    """A solver of Pyomo's that starts its process by a name that we do not know."""

    name = "sleeper"

    def __init__(self, **_: object) -> None:
        self.options: dict[str, object] = {}

    def available(self, exception_flag: bool = True) -> bool:
        return not exception_flag

    def solve(self, *_: object, **__: object) -> None:
        time.sleep(1.5)


def test_a_solver_whose_process_is_not_seen_is_left_behind() -> None:
    pyo.SolverFactory.register("sleeper")(Sleeper)
    began = time.monotonic()
    outcome = engine("pyomo:sleeper").solve(
        covering().arrays(), should_stop=lambda: time.monotonic() - began > 0.3
    )
    assert outcome.status is Status.UNKNOWN
    assert "left behind" in outcome.message
    while left_behind():
        time.sleep(0.05)


@pytest.mark.parametrize("seed", range(20))
def test_a_model_says_the_same(seed: int) -> None:
    milp = random_milp(seed)
    there = milp.arrays()
    model = lift(there)
    columns = [model.x[column] for column in range(there.columns)]
    assert [variable.is_integer() for variable in columns] == there.integral.tolist()
    rng = np.random.default_rng(seed)
    for _ in range(50):
        point = rng.integers(-2, 6, there.columns)
        for variable, value in zip(columns, point.tolist(), strict=True):
            variable.set_value(value, skip_validation=True)
        if hasattr(model, "zero"):
            model.zero.set_value(0)
        inside = all(variable.lb <= variable.value <= variable.ub for variable in columns)
        rows = model.component_data_objects(pyo.Constraint, active=True)
        slack = min((row.slack() for row in rows), default=0.0)
        assert (inside and slack >= -1e-9) == milp.feasible(point, 1e-9)
        assert pyo.value(model.cost) == milp.objective(point)


@pytest.mark.parametrize("seed", range(20))
def test_a_file_says_the_same(seed: int, tmp_path: Path) -> None:
    import highspy

    milp = random_milp(seed)
    milp.lower = np.where(np.arange(len(milp.lower)) == 1, -INFINITY, milp.lower)
    milp.upper = np.where(np.arange(len(milp.upper)) == 0, INFINITY, milp.upper)
    there = milp.arrays()
    try:
        write_file(there, tmp_path / "model.lp")
    except InfeasibleRowError:
        assert not (milp.matrix != 0).any(axis=1).all()
        return
    reader = highspy.Highs()
    reader.setOptionValue("output_flag", False)
    reader.readModel(str(tmp_path / "model.lp"))
    back = reader.getLp()
    order = [back.col_names_.index(f"x{column}") for column in range(there.columns)]
    for name in ("cost", "lower", "upper"):
        read = np.asarray(getattr(back, f"col_{name}_"))[order]
        assert np.array_equal(read, getattr(there, name))
    whole = [back.integrality_[place] == highspy.HighsVarType.kInteger for place in order]
    assert whole == there.integral.tolist()
    one = back.col_names_.index("one")
    assert back.col_cost_[one] + back.offset_ == there.offset
    rng = np.random.default_rng(seed)
    for _ in range(50):
        point = rng.integers(-2, 6, there.columns)
        padded = np.ones(back.num_col_)
        padded[order] = point
        assert fits(back, padded) == milp.feasible(point, 1e-9)


def fits(lp: Any, point: Array) -> bool:
    """Whether a point keeps the bounds and rows of a `HighsLp` as HiGHS reads it."""
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.passModel(lp)
    columns = np.arange(lp.num_col_, dtype=np.int32)
    highs.changeColsCost(lp.num_col_, columns, np.zeros(lp.num_col_))
    inside = (np.asarray(lp.col_lower_) <= point) & (point <= np.asarray(lp.col_upper_))
    highs.changeColsBounds(lp.num_col_, columns, point, point)
    highs.run()
    return bool(inside.all()) and highs.getModelStatus() == highspy.HighsModelStatus.kOptimal


def test_a_conversion_can_be_stopped(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyError("enough")

    for convert in (
        lambda: lift(covering().arrays(), stop),
        lambda: write_file(covering().arrays(), tmp_path / "model.lp", stop),
    ):
        with pytest.raises(KeyError, match="enough"):
            convert()


@pytest.mark.parametrize("name", ["pyomo:glpk", "pyomo:cbc"])
def test_no_file_is_left_over(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = engine(name)
    if solver.unavailable():
        pytest.skip(solver.unavailable())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert solver.solve(covering().arrays()).status is Status.OPTIMAL
    began = time.monotonic()
    solver.solve(
        market_split().arrays(),
        limits=Limits(time_limit=30),
        should_stop=lambda: time.monotonic() - began > 0.5,
    )
    assert not list(tmp_path.iterdir())


def test_violation() -> None:
    program = covering().arrays()
    assert program.violation(np.array([7.0, 0, 6, 0])) == 0
    assert program.violation(np.array([7.5, 0, 6, 0])) == pytest.approx(0.5)
    assert program.violation(np.array([7.0, 0, 5, 0])) == pytest.approx(1 / 13)
    assert program.violation(np.array([np.nan, 0, 5, 0])) == np.inf


@pytest.mark.parametrize("name", ["pyomo:highs", "pyomo:glpk", "pyomo:appsi_highs"])
def test_a_row_without_variables_that_cannot_hold(name: str) -> None:
    solver = engine(name)
    if solver.unavailable():
        pytest.skip(solver.unavailable())
    there = covering().arrays()
    ends = np.append(there.start, there.start[-1])
    low, high = np.append(there.low, 1.0), np.append(there.high, 2.0)
    outcome = solver.solve(dataclasses.replace(there, start=ends, low=low, high=high))
    assert outcome.status is Status.INFEASIBLE


def test_what_is_abandoned_is_no_error_of_pyomo() -> None:
    # Its handler writes to the standard output, where documents go.
    record = logging.LogRecord("pyomo.core", logging.ERROR, "", 0, "Constructing failed", (), None)
    begun, ended = threading.Event(), threading.Event()
    handlers = logging.getLogger("pyomo").handlers
    passed: list[bool] = []

    def build() -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        except Abandoned:
            passed.extend(
                all(keep(record) for keep in handler.filters if callable(keep))
                for handler in handlers
            )
            raise
        finally:
            ended.set()

    assert run_cancellable(build, lambda: False, begun.is_set).left_behind
    assert ended.wait(60)
    assert handlers
    assert passed == [False] * len(handlers)
