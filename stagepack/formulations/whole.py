"""Linear programs over whole numbers, which both kinds of engine take.

A program is written once and comes out as a `Linear` or as a `cp_model.CpModel`.  All
coefficients are integers; columns that are not declared integral are so at some optimum, and
become integers where an engine knows nothing else.

Objective
    minimise cost x, costs >= 0, in multiples of their greatest common divisor (`gain`)
Constraints
    low <= A x <= high, lower <= x <= upper, all of them whole; rows that the bounds of their
    columns imply are left out, rows that these contradict are remembered
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import LARGEST_FACTOR, LARGEST_STEPS, LOOSE, UNPRESOLVED
from stagepack.formulations.program import Program
from stagepack.linear import Linear

Terms = dict[int, int]
"""Coefficients of a row by column."""

LARGEST_SUM = 2**60
"""Sums of a row beyond which CP-SAT would not compute exactly."""

LARGEST_COEFFICIENT = 2**10
"""Largest coefficient in a row for HiGHS; larger ones are scaled down by powers of two."""

LARGEST_SCALED = 2**38
"""Largest coefficient that is scaled down so; models with larger ones are refused."""

BY_HIGHS: Mapping[str, object] = MappingProxyType({"tolerance": LOOSE})
"""Parameters of models for HiGHS, which is asked for its own tolerance: with 1e-9 it called worse
packings optimal."""

LARGEST_COST = 2**43
"""Costs for HiGHS are below: doubles hold sums of a thousand of them, and its bounds, to a unit."""

BEYOND = "the MILP would count beyond what HiGHS computes exactly"
COARSER = "give bytes and cycles in a coarser unit, or use another method"


def require_costs(program: Program[int], gain: int) -> None:
    """Refuse a linear model whose costs, in units of `gain`, are more than HiGHS tells apart."""
    costs = zip(program.cost, program.upper, strict=True)
    if max((abs(cost * upper) for cost, upper in costs), default=0) >= LARGEST_COST * gain:
        raise InputError(BEYOND, field="size", remedy=COARSER)


def add(terms: Terms, column: int, value: int) -> None:
    """Add `value` to the factor of a `column` in `terms`, the row; nothing is entered for 0."""
    if value:
        terms[column] = terms.get(column, 0) + value


class WholeProgram(Program[int]):
    """A linear program in whole numbers, to be minimised; costs are not negative.

    Columns that are not declared integral are so at some optimum.
    """

    def row(
        self, terms: Mapping[int, int], *, low: int | None = None, high: int | None = None
    ) -> None:
        """Add a row of `terms`, `low` to `high`, unless bounds of its columns say it already."""
        found = {column: int(value) for column, value in terms.items() if value}
        least = sum(v * (self.lower[c] if v > 0 else self.upper[c]) for c, v in found.items())
        most = sum(v * (self.upper[c] if v > 0 else self.lower[c]) for c, v in found.items())
        low = None if low is None or low <= least else int(low)
        high = None if high is None or high >= most else int(high)
        if low is None and high is None:
            return
        if (low is not None and low > most) or (high is not None and high < least):
            self.contradiction = True
            return
        super().row(found, low=low, high=high)

    @property
    def gain(self) -> int:
        """What every objective value is a multiple of (but for the offset)."""
        return max(1, math.gcd(*self.cost)) if self.cost else 1

    def arrays(self) -> Linear:
        """Return the program for an engine that computes in floats, costs in units of `gain`.

        Wide rows are scaled, and their sides moved out by half a unit: no point of whole numbers is
        gained, and none is lost to a rounding error.  `InputError` is raised when factors or
        objective exceed what the engine tells apart.
        """
        require_costs(self, self.gain)
        if max(map(abs, self._values), default=0) > LARGEST_SCALED:
            raise InputError(BEYOND, field="size", remedy=COARSER)
        plain = super().arrays()
        entries = np.diff(plain.start)
        largest = np.ones(plain.rows)
        if plain.rows:
            largest = np.maximum.reduceat(np.abs(plain.value), plain.start[:-1])
        wide = largest > LARGEST_COEFFICIENT
        scale = np.ones(plain.rows)
        scale[wide] = 2.0 ** -np.ceil(np.log2(largest[wide] / LARGEST_COEFFICIENT))
        slack = np.where(wide & (plain.low != plain.high), 0.5, 0.0)
        return dataclasses.replace(
            plain,
            cost=plain.cost / self.gain,
            value=plain.value * np.repeat(scale, entries),
            low=(plain.low - slack) * scale,
            high=(plain.high + slack) * scale,
        )

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of CP-SAT that the figures need."""
        return {} if max(self._sums(), self._worth) < LARGEST_FACTOR else UNPRESOLVED

    @property
    def _worth(self) -> float:
        """What the objective can be at most, in units of `gain`."""
        return float(np.dot(np.array(self.cost, float), np.array(self.upper, float))) / self.gain

    def _sums(self) -> float:
        """Return the largest that the figures of a row can add up to."""
        if not self.rows:
            return 0.0
        reach = np.maximum(np.abs(np.array(self.lower, float)), np.abs(np.array(self.upper, float)))
        columns = np.array(self._columns, dtype=np.int64)
        sums = np.abs(np.array(self._values, dtype=np.float64)) * reach[columns]
        return float(np.add.reduceat(sums, self._ends[:-1]).max())

    def cp_sat(self) -> Any:
        """Return the program as a `cp_model.CpModel`, costs in units of `gain`.

        `InputError` is raised when sums exceed what the engine computes exactly.
        """
        from ortools.sat.python import cp_model

        if max(self._sums(), self._worth) >= LARGEST_SUM:
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

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what a bound of an engine that computes in floats may be too high by.

        That is its tolerance times (1 + the bound + the largest cost), all in units of `gain`, and
        at least half a unit, which costs nothing.
        """
        largest = max(self.cost, default=0) / self.gain
        return max(0.5, tolerance * (1 + abs(raw) + largest))

    @property
    def coarse(self) -> bool:
        """Whether the tolerance of a binary is worth half a unit of some row, for HiGHS."""
        return max(map(abs, self._values), default=0) >= LARGEST_STEPS
