"""What all models have in common: an instance goes in, an engine's answers come out as solutions.

A model is built when it is constructed.  `decode` turns values of its variables into a solution,
`hint` a solution into values, and `lower_bound` an engine's bound into one that is safe.  CP-SAT
is imported when a model for it is built, not before; linear models need no engine to be built.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from stagepack.errors import InputError
from stagepack.linear import Array

Instance = TypeVar("Instance")
Solution = TypeVar("Solution")

LARGEST_VALUE = 2**44
"""Variables of models for CP-SAT are kept below this, where floats of their bounds are exact."""

LARGEST_FACTOR = 2**30
"""Factors in rows for CP-SAT, and what they add up to, are kept below this; or it is not presolved.

Presolve of CP-SAT 9.15 multiplies factors of rows with one another, whether or not these are
enforced, and looks at no overflow: with factors from 2**32 on it was seen to call feasible models
infeasible, and to call optimal what was not.  Two below 2**31 have a product in 64 bits.  Thousands
of models with larger ones were answered right without presolve.
"""

UNPRESOLVED: Mapping[str, object] = MappingProxyType({"cp_model_presolve": False})
"""Settings of CP-SAT for models whose figures are no fewer than `LARGEST_FACTOR`."""

LARGEST_STEPS = 2**18
"""Factors in rows for HiGHS are whole numbers of steps; these and their sums are below this."""

LOOSE = 1e-6
"""The tolerance of HiGHS in such models, its own default: what may be off by so
much of the largest is off by a quarter of a step, and half of one is taken off every bound.

Doubles hold such sums exactly, and what they lose in quotients is far below the tolerance.  With
factors 1e9 apart, with such that are no whole numbers, and with tolerances from 1e-7 down, HiGHS
1.12 was seen to cut off better solutions in presolve, and to call optimal what was not, in one
model of a hundred.
"""

TOLERANCE = 1e-6
"""Error allowed for in raw bounds where the engine states none."""

NOTHING = -(2**62)
"""Whole steps of an engine's bound that says nothing."""


class Formulation(ABC, Generic[Instance, Solution]):
    """A model of an instance, for an engine."""

    model: Any = None  # a `cp_model.CpModel` or a `Linear`; None when `infeasible`
    # Whether it is known without an engine that no solution (worth at most `upper`) exists.
    infeasible = False
    # What a known solution is worth, in the unit of `lower_bound`: what is worth more may be cut
    # off, nothing else is.
    upper: int | None = None
    # Whether figures are counted in units too coarse for them: a solution of the model may break a
    # limit by a little, and the optimum be a little above that of the model.
    coarse = False
    loading: float = (
        0.0  # seconds of loading the model, in which the engine neither asks nor counts
    )
    # Settings of the engine that suit the model.
    parameters: Mapping[str, object] = MappingProxyType({})

    @staticmethod
    def unsupported(instance: Instance) -> str:
        """Return what the model cannot express of an instance, '' if it expresses it."""
        return ""

    @abstractmethod
    def decode(self, values: Array) -> Solution:
        """Return the solution that values of all variables stand for."""

    @abstractmethod
    def hint(self, solution: Solution) -> Array:
        """Return the value of every variable for a solution, NaN where the engine is to choose.

        Raises `ValueError` or `InputError` when the solution is not in the model.
        """

    def lower_bound(self, raw: float, tolerance: float = TOLERANCE) -> int:
        """Return the value that no solution undercuts, from an engine's bound.

        That is `raw`, infinite or NaN where it says nothing, less `slack`, rounded up to whole
        steps and to what solutions can be worth; at most upper + 1, for better solutions may be all
        that the model has.  `tolerance` is the engine's own.
        """
        bound = self._claimed(raw, tolerance)
        return bound if self.upper is None else min(bound, self.upper + 1)

    def denies(self, raw: float, tolerance: float = TOLERANCE) -> bool:
        """Whether a bound says that the known solution, worth `upper`, cannot be.

        `raw` and `tolerance` are as in :meth:`lower_bound`.
        """
        return self.upper is not None and self._claimed(raw, tolerance) > self.upper

    def _claimed(self, raw: float, tolerance: float) -> int:
        steps = NOTHING
        if math.isfinite(raw):
            steps = math.ceil(raw - self.slack(raw, tolerance))
        return self.worth(steps)

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what a bound may be too high by.

        Here the engine is exact: its bound is an integer, to which it has added an offset below
        `LARGEST_VALUE` in doubles.
        """
        return max(tolerance, 16 * math.ulp(LARGEST_VALUE), 4 * math.ulp(raw))

    @abstractmethod
    def worth(self, steps: int) -> int:
        """Return the least value of a solution whose objective is so many whole steps."""


def require_objective(objective: str, *known: str) -> None:
    """Refuse an objective that a model does not state."""
    if objective not in known:
        raise InputError(
            f"the model does not know {str(objective)!r}",
            field="objective",
            remedy=f"use {', '.join(known)}, or another method",
        )


class InSteps(Formulation[Instance, Solution]):
    """A linear model whose rows keep within `LARGEST_STEPS`, and whose objective is whole steps."""

    parameters = MappingProxyType({"tolerance": LOOSE})

    def slack(self, raw: float, tolerance: float) -> float:
        """Return half a step, which costs nothing; more where the engine may be off by more."""
        return max(0.5, tolerance * (1 + abs(raw)))
