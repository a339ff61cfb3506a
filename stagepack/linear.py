"""A linear program as arrays.  MILP models produce it, and MILP engines solve it.

minimise    cost x + offset
subject to  low <= A x <= high,  lower <= x <= upper,  x_j integral where integral_j
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """A mixed-integer linear program, to be minimised."""

    # `cost`, `lower`, `upper`: float64, shape (columns,): objective and bounds; infinite where
    # there is no bound.
    cost: Array
    lower: Array
    upper: Array
    integral: Array  # bool, shape (columns,): which columns are whole numbers
    # int64, shape (rows + 1,): row i has the entries start[i] .. start[i + 1] - 1.
    start: Array
    # `column`, `value`: int64 and float64, shape (entries,): where they stand and what
    # they are: no zeros, no place twice.
    column: Array
    value: Array
    # `low`, `high`: float64, shape (rows,): sides of the rows, infinite where there is none.
    low: Array
    high: Array
    offset: float = 0.0  # what the objective has on top

    @classmethod
    def of(cls, *, row: Array, column: Array, value: Array, low: Array, **others: Any) -> Linear:
        """Return the program with entries (`row`, `column`, `value`) in any order, no place twice.

        Zeros are left out; `low` and the `others` are the attributes.
        """
        some = np.flatnonzero(value)
        some = some[np.argsort(row[some], kind="stable")]
        count = np.bincount(row[some], minlength=len(low))
        return cls(
            start=np.concatenate([[0], np.cumsum(count)]),
            column=column[some],
            value=value[some],
            low=low,
            **others,
        )

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.cost)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.low)

    def objective(self, values: Array) -> float:
        """Return what a point is worth."""
        return float(np.dot(self.cost, values) + self.offset)

    def violation(self, values: Array) -> float:
        """Return by how much `values` miss bounds, rows and integrality at most.

        Row and bound misses are relative to the magnitude of the broken side (at least 1).
        """
        if not np.isfinite(values).all():
            return float("inf")
        row = np.repeat(np.arange(self.rows), np.diff(self.start))
        activity = np.bincount(row, self.value * values[self.column], minlength=self.rows)
        misses = [0.0]
        for point, low, high in (
            (values, self.lower, self.upper),
            (activity, self.low, self.high),
        ):
            for side, miss in ((low, low - point), (high, point - high)):
                bounded = np.isfinite(side)
                scale = np.maximum(1.0, np.abs(side[bounded]))
                misses.append(float(np.max(miss[bounded] / scale, initial=0.0)))
        fractions = np.abs(values - np.rint(values))[self.integral]
        return max(*misses, float(np.max(fractions, initial=0.0)))
