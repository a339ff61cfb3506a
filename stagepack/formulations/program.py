"""Linear programs as models write them: variables, sums of them, and rows over these.

A column is known by its number; a :class:`Sum` of columns adds and subtracts like a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from stagepack.linear import Array, Linear

N = TypeVar("N", int, float)


@dataclass(slots=True, eq=False)
class Sum(Generic[N]):
    """A `constant` and factors by column; never changed, but by :func:`total`."""

    terms: dict[int, N]
    constant: N = 0

    def __add__(self, other: Sum[N] | N) -> Sum[N]:
        return total((self, other))

    def __radd__(self, other: N) -> Sum[N]:
        return Sum(self.terms, self.constant + other)

    def __mul__(self, factor: N) -> Sum[N]:
        terms = {column: factor * value for column, value in self.terms.items()}
        return Sum(terms, factor * self.constant)

    __rmul__ = __mul__

    def __sub__(self, other: Sum[N] | N) -> Sum[N]:
        return total((self, -1 * other))

    def __rsub__(self, other: N) -> Sum[N]:
        return -1 * self + other

    @property
    def index(self) -> int:
        """The column of a sum that is one variable."""
        (column,) = self.terms
        return column

    def at(self, values: Array) -> float:
        """Return what the sum is worth at a point, given by column."""
        return self.constant + sum(v * float(values[c]) for c, v in self.terms.items())


def total(parts: Iterable[Sum[N] | N]) -> Sum[N]:
    """Return the sum of many, in the time it takes to read them."""
    terms: dict[int, N] = {}
    constant: N = 0
    for part in parts:
        if isinstance(part, Sum):
            constant += part.constant
            for column, value in part.terms.items():
                terms[column] = terms.get(column, 0) + value
        else:
            constant += part
    return Sum(terms, constant)


class Program(Generic[N]):
    """A linear program, to be minimised; columns and rows are added one by one.

    `cost`, `lower` and `upper` are by column, and so is `integral`: whether the engine must see to
    it.  `offset` is what the objective has on top.  `contradiction`: some row cannot hold, whatever
    the columns are; there is nothing to solve.
    """

    def __init__(self) -> None:
        self.cost: list[N] = []
        self.lower: list[N] = []
        self.upper: list[N] = []
        self.integral: list[bool] = []
        self.offset: N = 0
        self.contradiction = False
        self._columns: list[int] = []
        self._values: list[N] = []
        self._ends: list[int] = [0]
        self._low: list[N | None] = []
        self._high: list[N | None] = []

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._low)

    def column(self, cost: N = 0, *, lower: N = 0, upper: N = 1, integral: bool = True) -> int:
        """Add a column and return its number.

        `cost` is its factor in the objective, `lower` and `upper` are its bounds; `integral`: it is
        a whole number.
        """
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integral.append(integral)
        return len(self.cost) - 1

    def variable(self, *, lower: N = 0, upper: N = 1, integral: bool = True) -> Sum[N]:
        """Add a column as :meth:`column` does, with `lower`, `upper` and `integral`, as a sum."""
        return Sum({self.column(lower=lower, upper=upper, integral=integral): 1})

    def row(self, terms: Mapping[int, N], *, low: N | None = None, high: N | None = None) -> None:
        """Add `low` <= sum of factor * column <= `high`; sides left out are infinite.

        `terms` are factors by column.
        """
        if not any(terms.values()):
            self.contradiction |= (low is not None and low > 0) or (high is not None and high < 0)
            return
        self._columns += terms
        self._values += terms.values()
        self._ends.append(len(self._columns))
        self._low.append(low)
        self._high.append(high)

    def each_row(self) -> Iterator[tuple[dict[int, N], N | None, N | None]]:
        """Yield factors by column, and the sides, of every row."""
        for at in range(self.rows):
            part = slice(self._ends[at], self._ends[at + 1])
            factors = zip(self._columns[part], self._values[part], strict=True)
            yield (
                {column: value for column, value in factors if value},
                self._low[at],
                self._high[at],
            )

    def at_most(self, low: Sum[N] | N, high: Sum[N] | N) -> None:
        """Add low <= high; where one of them is a number, it is the side of the row."""
        body, over = total((low, -1 * high)), total((high, -1 * low))
        if isinstance(low, Sum) and low.terms:
            self.row(body.terms, high=over.constant)
        else:
            self.row(over.terms, low=body.constant)

    def minimise(self, value: Sum[N]) -> None:
        """Let `value` be the objective."""
        self.offset = value.constant
        for column, cost in value.terms.items():
            self.cost[column] = cost

    def arrays(self) -> Linear:
        """Return the program for an engine."""
        ends = np.array(self._ends)
        return Linear.of(
            cost=np.array(self.cost, dtype=np.float64),
            lower=np.array(self.lower, dtype=np.float64),
            upper=np.array(self.upper, dtype=np.float64),
            integral=np.array(self.integral, dtype=bool),
            row=np.repeat(np.arange(self.rows), np.diff(ends)),
            column=np.array(self._columns, dtype=np.int64),
            value=np.array(self._values, dtype=np.float64),
            low=_sides(self._low, -math.inf),
            high=_sides(self._high, math.inf),
            offset=float(self.offset),
        )


def _sides(given: list[N | None], missing: float) -> Array:
    return np.array([missing if side is None else side for side in given], dtype=np.float64)
