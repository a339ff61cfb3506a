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

from stagepack.linear import Array

Instance = TypeVar("Instance")
Solution = TypeVar("Solution")

LARGEST_VALUE = 2**44
"""Numbers of models for CP-SAT are kept below this, where bounds written as floats are exact."""

TOLERANCE = 1e-6
"""Error allowed for in raw bounds where the engine states none."""

NOTHING = -(2**62)
"""Whole steps of an engine's bound that says nothing."""


class Formulation(ABC, Generic[Instance, Solution]):
    """A model of an instance, for an engine.

    Attributes
    ----------
    model : cp_model.CpModel, Linear or None
        What the engine is given; None when `infeasible`.
    infeasible : bool
        Whether it is known without an engine that no solution (worth at most `upper`) exists.
    upper : int or None
        What a known solution is worth, in the unit of `lower_bound`: what is worth more may be
        cut off, nothing else is.
    scale : float
        What one step of the objective counts in the model.
    loading : float
        Seconds that the engine takes to load the model, in which it neither asks nor counts.
    parameters : mapping of str to object
        Settings of the engine that suit the model.
    """

    model: Any = None
    infeasible = False
    upper: int | None = None
    scale = 1.0
    loading: float = 0.0
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

        Raises
        ------
        ValueError, InputError
            When the solution is not in the model.
        """

    def lower_bound(self, raw: float, tolerance: float = TOLERANCE) -> int:
        """Return the value that no solution undercuts, from an engine's bound.

        Parameters
        ----------
        raw : float
            The bound; infinite or NaN where it says nothing.
        tolerance : float
            The engine's own.

        Returns
        -------
        int
            `raw` less `slack`, rounded up to whole steps and to what solutions can be worth; at
            most upper + 1, for better solutions may be all that the model has.
        """
        steps = NOTHING
        if math.isfinite(raw):
            steps = math.ceil((raw - self.slack(raw, tolerance)) / self.scale)
        bound = self.worth(steps)
        return bound if self.upper is None else min(bound, self.upper + 1)

    def slack(self, raw: float, tolerance: float) -> float:
        """Return what a bound may be too high by.

        Here the engine is exact: an integer written as a double, give or take its last bits.
        """
        return max(tolerance, TOLERANCE, 4 * math.ulp(raw))

    @abstractmethod
    def worth(self, steps: int) -> int:
        """Return the least value of a solution whose objective is so many whole steps."""
