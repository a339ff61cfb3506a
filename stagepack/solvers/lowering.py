"""Programs for other solvers: as models of Pyomo, and as files in CPLEX LP format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import numpy as np

from stagepack.errors import StagepackError
from stagepack.linear import Array, Linear

CHUNK = 2000
"""Rows or columns between two looks of a long conversion at its caller's wish to stop."""

# What Pyomo makes: it tells no types.
Model = Any
Expression = Any


class InfeasibleRowError(StagepackError):
    """A row without variables that cannot hold: the model is infeasible as it stands."""


def lift(program: Linear, check: Callable[[], object] = lambda: None) -> Model:
    """Wrap arrays as a Pyomo model, so that every solver known to Pyomo can run them.

    Its variables are ``x[0] .. x[columns - 1]``, its constraints ``row[i]`` for every row that
    bounds anything, its objective ``cost``.  What `check`, called every now and then, raises ends
    the work.
    """
    import pyomo.environ as pyo
    from pyomo.core.expr import LinearExpression

    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(program.columns))
    x = [model.x[column] for column in range(program.columns)]
    for column, variable in enumerate(x):
        if column % CHUNK == 0:
            check()
        variable.domain = pyo.Integers if program.integral[column] else pyo.Reals
        variable.setlb(_finite(program.lower[column]))
        variable.setub(_finite(program.upper[column]))

    def expression(indices: Array, weights: Array, constant: float = 0.0) -> Expression:
        return LinearExpression(
            constant=constant,
            linear_coefs=weights.tolist(),
            linear_vars=[x[index] for index in indices.tolist()],
        )

    used = np.flatnonzero(program.cost)
    model.cost = pyo.Objective(expr=expression(used, program.cost[used], program.offset))
    model.row = pyo.Constraint(pyo.Any)
    for row in range(program.rows):
        if row % CHUNK == 0:
            check()
        low, high = _finite(program.low[row]), _finite(program.high[row])
        if low is None and high is None:
            continue
        begin, end = program.start[row], program.start[row + 1]
        if begin == end:
            _bound_nothing(model, pyo)
            body = model.zero
        else:
            body = expression(program.column[begin:end], program.value[begin:end])
        model.row[row] = (low, body, high) if low != high else body == low
    return model


def _bound_nothing(model: Model, pyo: ModuleType) -> None:
    """Give `model` a variable that is zero: Pyomo refuses rows without any variable."""
    if not hasattr(model, "zero"):
        model.zero = pyo.Var(bounds=(0, 0))


def write_file(program: Linear, path: Path, check: Callable[[], object] = lambda: None) -> None:
    """Write a `program` to `path` in CPLEX LP format, far faster than through a Pyomo model.

    Column j is called ``xj``, row i ``ril`` or ``riu`` by its side, or ``rie``.  A further column
    ``one``, which is 1, carries the objective's constant.  What `check`, called every now and then,
    raises ends the work, as does an InfeasibleRowError for a row without entries that cannot hold.
    """
    empty = np.diff(program.start) == 0
    broken = np.flatnonzero(empty & ((program.low > 0) | (program.high < 0)))
    if len(broken):
        raise InfeasibleRowError(f"row {int(broken[0])} has no entries and cannot hold")
    with path.open("w", encoding="ascii", newline="\n") as file:
        _write_objective(program, file, check)
        _write_rows(program, file, check)
        file.write("bounds\n")
        for begin in range(0, program.columns, CHUNK):
            check()
            span = slice(begin, begin + CHUNK)
            low, high = program.lower[span].tolist(), program.upper[span].tolist()
            sides = enumerate(zip(low, high, strict=True), begin)
            # Infinity comes out as the "inf" that the format wants.
            file.write("".join(f"{a:.17g} <= x{j} <= {b:+.17g}\n" for j, (a, b) in sides))
        integers = np.flatnonzero(program.integral).tolist()
        if integers:
            file.write("general\n")
        for begin in range(0, len(integers), CHUNK):
            check()
            file.write("".join(f"x{j}\n" for j in integers[begin : begin + CHUNK]))
        file.write("end\n")


def _write_objective(program: Linear, file: TextIO, check: Callable[[], object]) -> None:
    # A column that is in no row is named here, or the bounds below would be of nothing.
    used = np.zeros(program.columns, dtype=bool)
    used[program.column] = True
    named = np.flatnonzero((program.cost != 0) | ~used)
    file.write("minimize\ncost:\n")
    for begin in range(0, len(named), CHUNK):
        check()
        some = named[begin : begin + CHUNK]
        file.write(_terms(some, program.cost[some]))
    file.write(f"{program.offset:+.17g} one\nsubject to\nunit:\n+1 one\n= 1\n")


def _write_rows(program: Linear, file: TextIO, check: Callable[[], object]) -> None:
    low, high, written = program.low, program.high, 0
    some = (np.diff(program.start) > 0) & (np.isfinite(low) | np.isfinite(high))
    for row in np.flatnonzero(some).tolist():
        begin, end = program.start[row], program.start[row + 1]
        body = _terms(program.column[begin:end], program.value[begin:end])
        if low[row] == high[row]:
            file.write(f"r{row}e:\n{body}= {low[row]:.17g}\n")
        else:
            if np.isfinite(low[row]):
                file.write(f"r{row}l:\n{body}>= {low[row]:.17g}\n")
            if np.isfinite(high[row]):
                file.write(f"r{row}u:\n{body}<= {high[row]:.17g}\n")
        written += int(end - begin) + 1
        if written > CHUNK:
            written = 0
            check()


def _terms(columns: Array, weights: Array) -> str:
    pairs = zip(columns.tolist(), weights.tolist(), strict=True)
    return "".join(f"{weight:+.17g} x{column}\n" for column, weight in pairs)


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
