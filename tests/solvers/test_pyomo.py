"""Lowering Pyomo models to arrays and lifting arrays to Pyomo models."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest

from stagepack.errors import StagepackError
from stagepack.linear import Array
from stagepack.result import Status
from stagepack.solvers import Limits, engine
from stagepack.solvers.engine import Abandoned, left_behind, run_cancellable
from stagepack.solvers.lowering import InfeasibleRowError, write_file
from stagepack.solvers.pyomo import lift, lower, variables
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


def farm() -> Any:
    """A model with everything a lowering can trip over."""
    model = pyo.ConcreteModel()
    model.unused = pyo.Var(bounds=(2, 5), domain=pyo.Integers)
    model.x = pyo.Var(range(2), bounds=(0, 10), domain=pyo.Integers)
    model.fixed = pyo.Var(bounds=(0, 9))
    model.fixed.fix(4)
    model.inner = pyo.Block()
    model.inner.y = pyo.Var()
    model.flag = pyo.Var(domain=pyo.Binary)
    model.cost = pyo.Objective(expr=model.x[0] + 2 * model.inner.y + 5 * model.fixed + 1)
    model.range = pyo.Constraint(expr=(3, model.x[0] + model.x[1] - model.fixed, 7))
    model.inner.floor = pyo.Constraint(expr=model.inner.y >= -4 + model.x[1])
    model.off = pyo.Constraint(expr=model.x[0] >= 100)
    model.off.deactivate()
    return model


def test_lower_keeps_every_variable_in_order() -> None:
    model = farm()
    program, columns = lower(model)
    names = ["unused", "x[0]", "x[1]", "fixed", "flag", "inner.y"]
    assert [variable.name for variable in columns] == names
    assert [variable.name for variable in variables(model)] == names
    assert (program.rows, program.columns) == (3, 6)
    assert program.offset == 21
    assert program.cost.tolist() == [0, 1, 0, 0, 0, 2]
    assert program.lower.tolist() == [2, 0, 0, 4, 0, -np.inf]
    assert program.upper.tolist() == [5, 10, 10, 4, 1, np.inf]


@pytest.mark.parametrize(
    "name", ["highs", "pyomo:highs", "pyomo:glpk", "pyomo:cbc", "pyomo:appsi_highs"]
)
def test_every_variable_gets_a_value(name: str) -> None:
    solver = engine(name)
    if solver.unavailable():
        pytest.skip(solver.unavailable())
    model = farm()
    outcome = solver.solve(model)
    # x0 + x1 = 7 with cost x0 + 2 (x1 - 4): all of it on x0.
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == pytest.approx(7 + 2 * -4 + 21)
    assert outcome.values is not None
    assert np.allclose(outcome.values[[1, 2, 3, 5]], [7, 0, 4, -4])
    assert 2 <= outcome.values[0] <= 5
    assert outcome.values[4] in (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_lift_then_lower_says_the_same(seed: int) -> None:
    milp = random_milp(seed)
    there = milp.arrays()
    back, _ = lower(lift(there))
    count = len(milp.costs)
    for name in ("cost", "lower", "upper", "integral"):
        assert np.array_equal(getattr(back, name)[:count], getattr(there, name))
    assert back.offset == there.offset
    rng = np.random.default_rng(seed)
    for _ in range(50):
        point = rng.integers(-2, 6, count)
        padded = np.r_[point, np.zeros(back.columns - count)]
        assert (back.violation(padded) <= 1e-9) == milp.feasible(point, 1e-9)


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


@pytest.mark.parametrize("name", ["pyomo:highs", "pyomo:glpk"])
def test_a_row_without_variables_that_cannot_hold(name: str) -> None:
    solver = engine(name)
    if solver.unavailable():
        pytest.skip(solver.unavailable())
    model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, 1))
    model.cost = pyo.Objective(expr=model.x)
    model.row = pyo.Constraint(expr=(1, 0 * model.x, 2))
    outcome = solver.solve(model)
    assert outcome.status is Status.INFEASIBLE
    assert "row" in outcome.message


def test_models_that_cannot_be_lowered() -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, 1))
    model.cost = pyo.Objective(expr=model.x, sense=pyo.maximize)
    with pytest.raises(StagepackError, match="maximises"):
        lower(model)
    model.other = pyo.Objective(expr=model.x)
    with pytest.raises(StagepackError, match="2 active objectives"):
        lower(model)
    model.cost.deactivate()
    model.curve = pyo.Constraint(expr=model.x**2 >= 0.5)
    with pytest.raises(StagepackError, match=r"cannot be lowered.*nonlinear"):
        lower(model)


def test_a_model_without_objective_or_constraints() -> None:
    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(3), bounds=(1, 2))
    outcome = engine("pyomo").solve(model)
    assert outcome.status is Status.OPTIMAL
    assert outcome.values is not None
    assert outcome.values.shape == (3,)


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
