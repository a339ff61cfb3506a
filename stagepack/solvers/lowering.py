"""Linear Pyomo models and HiGHS's arrays: each can be turned into the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stagepack.errors import StagepackError
from stagepack.solvers.engine import Array

CHUNK = 2000
"""Rows or columns between two looks of a long conversion at its caller's wish to stop."""

_one_compiler = threading.Lock()


class InfeasibleRowError(StagepackError):
    """A row without variables that cannot hold: the model is infeasible as it stands."""


def require_pyomo_model(model: Any) -> None:
    """Raise a StagepackError unless `model` is a concrete Pyomo model."""
    # The base classes are asked for by name, so that a wrong model does not import Pyomo.
    if not any(base.__name__ == "BlockData" for base in type(model).__mro__):
        raise StagepackError(
            f"takes a HighsLp or a Pyomo ConcreteModel, not a {type(model).__name__}"
        )


def variables(model: Any) -> list[Any]:
    """Return the variables of a Pyomo model in the order of its values and hints.

    That is ``list(model.component_data_objects(pyo.Var, active=True))``: every variable of
    every active block as declared, fixed and unused ones included.
    """
    import pyomo.environ as pyo

    return list(model.component_data_objects(pyo.Var, active=True))


def lower(model: Any) -> tuple[Any, list[Any]]:
    """Lower a linear Pyomo model to arrays.

    Parameters
    ----------
    model : pyomo.environ.ConcreteModel
        Linear constraints and at most one active, minimised objective.

    Returns
    -------
    lp : highspy.HighsLp
        One column for each of `columns`: a fixed variable is a column with equal bounds, a
        variable without a constraint an empty column.  A range constraint becomes two rows.
    columns : list
        The variables: those of :func:`variables`, then any that the constraints use but the
        model does not own.

    Raises
    ------
    InfeasibleRowError
        When a constraint without variables cannot hold.
    StagepackError
        When the model is not linear, maximises, or has several objectives.
    """
    import highspy
    import pyomo.environ as pyo
    import scipy.sparse
    from pyomo.common.errors import InfeasibleConstraintException, PyomoException
    from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

    objectives = list(model.component_data_objects(pyo.Objective, active=True))
    if len(objectives) > 1:
        raise StagepackError(f"the model has {len(objectives)} active objectives; keep one")
    if objectives and objectives[0].sense == pyo.maximize:
        raise StagepackError("the model maximises; minimise the negated objective")
    try:
        # Pyomo switches garbage collection off meanwhile and on again in strict order: two at
        # once, one of them left behind, would leave it off for good.
        with _one_compiler:
            form = LinearStandardFormCompiler().write(model, mixed_form=True)
    except InfeasibleConstraintException as error:
        raise InfeasibleRowError(str(error)) from error
    except (PyomoException, ValueError) as error:
        raise StagepackError(f"the Pyomo model cannot be lowered: {error}") from error

    columns = variables(model)
    place = {id(variable): column for column, variable in enumerate(columns)}
    for variable in form.columns:
        if id(variable) not in place:
            place[id(variable)] = len(columns)
            columns.append(variable)
    chosen = np.array([place[id(variable)] for variable in form.columns], dtype=np.int64)

    kinds = np.array([row.bound_type for row in form.rows], dtype=np.int64)
    sides = np.asarray(form.rhs, dtype=np.float64)
    coordinates = scipy.sparse.coo_array(form.A)
    matrix = scipy.sparse.csc_array(
        (coordinates.data, (coordinates.row, chosen[coordinates.col])),
        shape=(len(sides), len(columns)),
    )
    costs = np.zeros(len(columns))
    if objectives:
        costs[chosen] = np.asarray(form.c.todense()).ravel()

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(columns), len(sides)
    lp.col_cost_ = costs
    lp.offset_ = float(form.c_offset[0]) if objectives else 0.0
    lower_bounds, upper_bounds, integral = _domains(columns)
    lp.col_lower_, lp.col_upper_ = lower_bounds, upper_bounds
    lp.row_lower_ = np.where(kinds <= 0, sides, -np.inf)
    lp.row_upper_ = np.where(kinds >= 0, sides, np.inf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = len(columns), len(sides)
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data.astype(np.float64)
    if integral.any():
        types = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [types[flag] for flag in integral.astype(int)]
    return lp, columns


def _domains(columns: list[Any]) -> tuple[Array, Array, Array]:
    """Return lower bounds, upper bounds and integrality, each of shape (columns,)."""
    lower_bounds = np.full(len(columns), -np.inf)
    upper_bounds = np.full(len(columns), np.inf)
    integral = np.zeros(len(columns), dtype=bool)
    for column, variable in enumerate(columns):
        if variable.fixed:
            lower_bounds[column] = upper_bounds[column] = variable.value
            continue
        low, high = variable.bounds
        if low is not None:
            lower_bounds[column] = low
        if high is not None:
            upper_bounds[column] = high
        if variable.is_integer():
            integral[column] = True
        elif not variable.is_continuous():
            raise StagepackError(f"the domain of {variable.name} is neither real nor integer")
    return lower_bounds, upper_bounds, integral


def lift(lp: Any, check: Callable[[], object] = lambda: None) -> Any:
    """Wrap arrays as a Pyomo model, so that every solver known to Pyomo can run them.

    Parameters
    ----------
    lp : highspy.HighsLp
        A minimisation with continuous and integer columns.
    check : callable, optional
        Called every now and then; what it raises ends the work.

    Returns
    -------
    pyomo.environ.ConcreteModel
        Variables ``x[0] .. x[columns - 1]``, constraints ``row[i]`` for every row that bounds
        anything, objective ``cost``.
    """
    import highspy
    import pyomo.environ as pyo
    from pyomo.core.expr import LinearExpression

    whole = integral(lp)
    lower_bounds, upper_bounds = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
    costs = np.asarray(lp.col_cost_)
    matrix = csr_matrix(lp)
    row_lower, row_upper = np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)

    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(lp.num_col_))
    x = [model.x[column] for column in range(lp.num_col_)]
    for column, variable in enumerate(x):
        if column % CHUNK == 0:
            check()
        variable.domain = pyo.Integers if whole[column] else pyo.Reals
        variable.setlb(_finite(lower_bounds[column]))
        variable.setub(_finite(upper_bounds[column]))

    def expression(indices: Array, weights: Array, constant: float = 0.0) -> Any:
        return LinearExpression(
            constant=constant,
            linear_coefs=weights.tolist(),
            linear_vars=[x[index] for index in indices.tolist()],
        )

    used = np.flatnonzero(costs)
    sense = pyo.maximize if lp.sense_ == highspy.ObjSense.kMaximize else pyo.minimize
    model.cost = pyo.Objective(expr=expression(used, costs[used], float(lp.offset_)), sense=sense)
    model.row = pyo.Constraint(pyo.Any)
    for row in range(lp.num_row_):
        if row % CHUNK == 0:
            check()
        low, high = _finite(row_lower[row]), _finite(row_upper[row])
        if low is None and high is None:
            continue
        begin, end = matrix.indptr[row], matrix.indptr[row + 1]
        if begin == end:
            _bound_nothing(model, pyo)
            body = model.zero
        else:
            body = expression(matrix.indices[begin:end], matrix.data[begin:end])
        model.row[row] = (low, body, high) if low != high else body == low
    return model


def _bound_nothing(model: Any, pyo: Any) -> None:
    """Give `model` a variable that is zero: Pyomo refuses rows without any variable."""
    if not hasattr(model, "zero"):
        model.zero = pyo.Var(bounds=(0, 0))


def write_file(lp: Any, path: Path, check: Callable[[], object] = lambda: None) -> None:
    """Write arrays as a file in CPLEX LP format, far faster than through a Pyomo model.

    Column j is called ``xj``, row i ``ril`` or ``riu`` by its side, or ``rie``.  A further column
    ``one``, which is 1, carries the objective's constant.

    Parameters
    ----------
    lp : highspy.HighsLp
        A minimisation with continuous and integer columns.
    path : Path
        What to write.
    check : callable, optional
        Called every now and then; what it raises ends the work.

    Raises
    ------
    InfeasibleRowError
        When a row without entries cannot hold.
    StagepackError
        When the model maximises or has columns of another kind.
    """
    import highspy

    if lp.sense_ == highspy.ObjSense.kMaximize:
        raise StagepackError("the model maximises; minimise the negated objective")
    whole = integral(lp)
    matrix = csr_matrix(lp)
    matrix.eliminate_zeros()
    low, high = np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)
    empty = np.diff(matrix.indptr) == 0
    if (empty & ((low > 0) | (high < 0))).any():
        row = int(np.flatnonzero(empty & ((low > 0) | (high < 0)))[0])
        raise InfeasibleRowError(f"row {row} has no entries and cannot hold")
    costs = np.asarray(lp.col_cost_, dtype=np.float64)
    # A column that is in no row is named here, or the bounds below would be of nothing.
    used = np.zeros(lp.num_col_, dtype=bool)
    used[matrix.indices] = True
    named = np.flatnonzero((costs != 0) | ~used)
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("minimize\ncost:\n")
        for begin in range(0, len(named), CHUNK):
            check()
            some = named[begin : begin + CHUNK]
            file.write(_terms(some, costs[some]))
        file.write(f"{lp.offset_:+.17g} one\nsubject to\nunit:\n+1 one\n= 1\n")
        written = 0
        for row in np.flatnonzero(~empty & (np.isfinite(low) | np.isfinite(high))).tolist():
            begin, end = matrix.indptr[row], matrix.indptr[row + 1]
            body = _terms(matrix.indices[begin:end], matrix.data[begin:end])
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
        file.write("bounds\n")
        low, high = np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)
        for begin in range(0, lp.num_col_, CHUNK):
            check()
            span = slice(begin, begin + CHUNK)
            sides = enumerate(zip(low[span].tolist(), high[span].tolist(), strict=True), begin)
            # Infinity comes out as the "inf" that the format wants.
            file.write("".join(f"{a:.17g} <= x{j} <= {b:+.17g}\n" for j, (a, b) in sides))
        integers = np.flatnonzero(whole).tolist()
        if integers:
            file.write("general\n")
        for begin in range(0, len(integers), CHUNK):
            check()
            file.write("".join(f"x{j}\n" for j in integers[begin : begin + CHUNK]))
        file.write("end\n")


def _terms(columns: Array, weights: Array) -> str:
    pairs = zip(columns.tolist(), weights.tolist(), strict=True)
    return "".join(f"{weight:+.17g} x{column}\n" for column, weight in pairs)


def integral(lp: Any) -> Array:
    """Return, shape (columns,), which columns of a HighsLp are integers.

    Raises
    ------
    StagepackError
        When a column is neither continuous nor integer.
    """
    import highspy

    kinds = lp.integrality_
    if not kinds:
        return np.zeros(lp.num_col_, dtype=bool)
    codes = np.fromiter((kind.value for kind in kinds), dtype=np.int8, count=len(kinds))
    types = highspy.HighsVarType
    whole = codes == types.kInteger.value
    if not (whole | (codes == types.kContinuous.value)).all():
        raise StagepackError("only continuous and integer columns can be handed to Pyomo")
    return np.asarray(whole)


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None


def csr_matrix(lp: Any) -> Any:
    """Return the constraint matrix of a HighsLp as a SciPy CSR array of shape (rows, columns)."""
    import highspy
    import scipy.sparse

    shape = (lp.num_row_, lp.num_col_)
    entries = lp.a_matrix_
    parts = (np.asarray(entries.value_), np.asarray(entries.index_), np.asarray(entries.start_))
    if len(parts[2]) == 0:
        return scipy.sparse.csr_array(shape)
    if entries.format_ == highspy.MatrixFormat.kColwise:
        return scipy.sparse.csr_array(scipy.sparse.csc_array(parts, shape=shape))
    return scipy.sparse.csr_array(parts, shape=shape)


def violation(lp: Any, values: Array) -> float:
    """Return by how much `values` miss the bounds, rows and integrality of `lp` at most.

    Row and bound misses are relative to the magnitude of the broken side (at least 1).
    """
    if not np.isfinite(values).all():
        return float("inf")
    misses = [0.0]
    for point, low, high in (
        (values, np.asarray(lp.col_lower_), np.asarray(lp.col_upper_)),
        (csr_matrix(lp) @ values, np.asarray(lp.row_lower_), np.asarray(lp.row_upper_)),
    ):
        for side, miss in ((low, low - point), (high, point - high)):
            bounded = np.isfinite(side)
            scale = np.maximum(1.0, np.abs(side[bounded]))
            misses.append(float(np.max(miss[bounded] / scale, initial=0.0)))
    whole = integral(lp)
    if whole.any():
        misses.append(float(np.max(np.abs(values - np.rint(values))[whole], initial=0.0)))
    return max(misses)
