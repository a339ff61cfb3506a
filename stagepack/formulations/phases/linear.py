"""Linear integer programs that both kinds of engine take: rows over whole numbers.

A program is written once and lowered to a `highspy.HighsLp` or a `cp_model.CpModel`.  All
coefficients are integers; columns that are not declared integral are so at some optimum, and
become integers where an engine knows nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.profile import Array

Terms = dict[int, int]
"""Coefficients of a row by column."""

LARGEST_SUM = 2**60
"""Sums of a row beyond which CP-SAT would not compute exactly."""

LARGEST_COEFFICIENT = 2**10
"""Rows for HiGHS are scaled down (by powers of two) to coefficients of at most this."""

TOLERANCE = 1e-6
"""Relative error allowed for in raw bounds where the engine states none."""

ROUNDING = 1e-9
"""Relative error of bounds that are integers written as floats, as those of CP-SAT."""


def add(terms: Terms, column: int, value: int) -> None:
    """Add to a coefficient."""
    if value:
        terms[column] = terms.get(column, 0) + value


def merged(one: Terms, other: Terms) -> Terms:
    """Return the sum of two rows."""
    found = dict(one)
    for column, value in other.items():
        add(found, column, value)
    return found


class Linear:
    """A linear program, to be minimised; columns and rows are added one by one.

    Attributes
    ----------
    lower, upper, cost : list of int
        By column.
    integral : list of bool
        By column: whether the engine must see to it.
    """

    def __init__(self) -> None:
        self.lower: list[int] = []
        self.upper: list[int] = []
        self.cost: list[int] = []
        self.integral: list[bool] = []
        self._columns: list[int] = []
        self._values: list[int] = []
        self._ends: list[int] = [0]
        self._low: list[int | None] = []
        self._high: list[int | None] = []
        self.contradiction = False

    def column(
        self, cost: int = 0, *, lower: int = 0, upper: int = 1, integral: bool = True
    ) -> int:
        """Add a column and return its number."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.cost.append(int(cost))
        self.integral.append(integral)
        return len(self.cost) - 1

    def row(
        self, terms: Mapping[int, int], *, low: int | None = None, high: int | None = None
    ) -> None:
        """Add low <= sum of coefficient * column <= high; sides left out are infinite."""
        found = [(column, int(value)) for column, value in terms.items() if value]
        least = sum(v * (self.lower[c] if v > 0 else self.upper[c]) for c, v in found)
        most = sum(v * (self.upper[c] if v > 0 else self.lower[c]) for c, v in found)
        low = None if low is None or low <= least else int(low)
        high = None if high is None or high >= most else int(high)
        if low is None and high is None:
            return
        if (low is not None and low > most) or (high is not None and high < least):
            self.contradiction = True
            return
        self._columns += [column for column, _ in found]
        self._values += [value for _, value in found]
        self._ends.append(len(self._columns))
        self._low.append(low)
        self._high.append(high)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._low)

    @property
    def gain(self) -> int:
        """What every objective value is a multiple of (but for the offset)."""
        return max(1, math.gcd(*self.cost)) if self.cost else 1

    def highs(self) -> Any:
        """Return the program as a `highspy.HighsLp`, costs in units of `gain`.

        Wide rows are scaled, and their sides moved out by half a unit: no point of whole numbers
        is gained, and none is lost to a rounding error.
        """
        import highspy
        from scipy.sparse import csr_array

        count, rows = len(self.cost), self.rows
        values = np.array(self._values, dtype=np.float64)
        ends = np.array(self._ends, dtype=np.int64)
        low = np.array([-math.inf if v is None else v for v in self._low], dtype=np.float64)
        high = np.array([math.inf if v is None else v for v in self._high], dtype=np.float64)
        if rows:
            largest = np.maximum.reduceat(np.abs(values), ends[:-1])
            wide = largest > LARGEST_COEFFICIENT
            scale = np.ones(rows)
            scale[wide] = 2.0 ** -np.ceil(np.log2(largest[wide] / LARGEST_COEFFICIENT))
            slack = np.where(wide & (low != high), 0.5, 0.0)
            low, high = (low - slack) * scale, (high + slack) * scale
            values = values * np.repeat(scale, np.diff(ends))
        matrix = csr_array(
            (values, np.array(self._columns, dtype=np.int64), ends), shape=(rows, count)
        ).tocsc()
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = rows, count
        lp.col_cost_ = np.array(self.cost, dtype=np.float64) / self.gain
        lp.col_lower_ = np.array(self.lower, dtype=np.float64)
        lp.col_upper_ = np.array(self.upper, dtype=np.float64)
        lp.row_lower_, lp.row_upper_ = low, high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = rows, count
        lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
        lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = matrix.data
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if i else kinds.kContinuous for i in self.integral]
        return lp

    def cp_sat(self) -> Any:
        """Return the program as a `cp_model.CpModel`, costs in units of `gain`.

        Raises
        ------
        InputError
            When sums exceed what the engine computes exactly.
        """
        from ortools.sat.python import cp_model

        reach = np.array(
            [max(abs(a), abs(b)) for a, b in zip(self.lower, self.upper, strict=True)],
            dtype=np.float64,
        )
        values = np.array(self._values, dtype=np.float64)
        columns = np.array(self._columns, dtype=np.int64)
        sums = np.add.reduceat(np.abs(values) * reach[columns], self._ends[:-1]) if self.rows else 0
        worth = float(np.dot(np.abs(np.array(self.cost, dtype=np.float64)), reach)) / self.gain
        if max(float(np.max(sums, initial=0)), worth) >= LARGEST_SUM:
            raise InputError(
                "the CP-SAT model would count beyond what it computes exactly",
                field="size",
                remedy="give bytes and cycles in a coarser unit",
            )
        model = cp_model.CpModel()
        x = [model.new_int_var(a, b, "") for a, b in zip(self.lower, self.upper, strict=True)]
        for k in range(self.rows):
            here = slice(self._ends[k], self._ends[k + 1])
            total = cp_model.LinearExpr.weighted_sum(
                [x[c] for c in self._columns[here]], self._values[here]
            )
            low, high = self._low[k], self._high[k]
            low = -LARGEST_SUM if low is None else low
            high = LARGEST_SUM if high is None else high
            model.add_linear_constraint(total, low, high)
        gain = self.gain
        priced = [(x[c], v // gain) for c, v in enumerate(self.cost) if v]
        model.minimize(
            cp_model.LinearExpr.weighted_sum([v for v, _ in priced], [v for _, v in priced])
        )
        return model

    def value(self, values: Array) -> int:
        """Return the objective of a column of whole numbers."""
        return sum(c * round(float(v)) for c, v in zip(self.cost, values, strict=True) if c)

    def lower_bound(self, raw: float, tolerance: float) -> int:
        """Return the objective value that none undercuts, from an engine's bound.

        Lowered by the engine's `tolerance` times (1 + the bound + the largest cost), rounded up
        to the next multiple of `gain`; 0 at least, as no cost is negative.
        """
        if not math.isfinite(raw):
            return 0
        largest = max(self.cost, default=0) / self.gain
        slack = max(tolerance, 1e-12) * (1 + abs(raw) + largest)
        return max(0, math.ceil(raw - slack)) * self.gain
