"""A relation between two instances, and what is wrong with the answers to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stagepack.contracts import Number
from stagepack.result import Status

TOLERANCE = 1e-6
"""Relative, of values of instances with fractions."""

Change = Callable[[Any], Any]
"""Makes another instance of one; None where that does not apply to it."""


@dataclass(frozen=True)
class Prediction:
    """What the optimum of the changed instance is, from that of the first one.

    Attributes
    ----------
    times : number
        It is this many times as much,
    exactly : bool
        or at most that.
    """

    times: Number = 1
    exactly: bool = False


@dataclass(frozen=True)
class Relation:
    """A transformation of instances of a kind, and its prediction."""

    name: str
    change: Change
    prediction: Prediction
    longer: int = 1
    """How many times the limit there is."""


SAME = Prediction(exactly=True)
NO_WORSE = Prediction()
LONGER = Relation("a longer limit", lambda given: given, SAME, longer=4)
"""What is known of every kind."""


def scaled(times: Number) -> Prediction:
    """Predict an optimum of so many times as much."""
    return Prediction(times, exactly=True)


def at_most(times: Number) -> Prediction:
    """Predict an optimum of at most so many times as much."""
    return Prediction(times)


@dataclass(frozen=True)
class Answer:
    """What is said of an instance."""

    feasible: bool | None
    """None: nothing is known."""
    objective: Number | None
    bound: Number | None
    optimal: bool

    @classmethod
    def of(cls, result: Any) -> Answer:
        """Return what a result, or a plan, says."""
        known = {Status.INFEASIBLE: False, Status.UNKNOWN: None}.get(result.status, True)
        return cls(known, result.objective, result.bound, result.status is Status.OPTIMAL)


def wrong(
    relation: Relation, first: Answer, then: Answer, *, exact: bool, fits: bool = False
) -> Sequence[str]:
    """Return what the answers to two instances say that cannot both be true.

    Parameters
    ----------
    relation : Relation
    first, then : Answer
        Before and after the change.
    exact : bool
        Whether whoever answered claims to find the optimum of what is so small.
    fits : bool
        Whatever fits is an answer: its value says nothing.
    """
    found = []
    expected = relation.prediction
    if first.feasible and then.feasible is False:
        found.append("infeasible, though what it was made from is not")
    if expected.exactly and first.feasible is False and then.feasible:
        found.append("feasible, though what it was made from is not")
    if exact and first.optimal and then.objective is None and then.feasible is not False:
        found.append("no answer, though what it was made from has a proved one")
    if _above(then.bound, first.objective, expected.times):
        found.append(f"bound {then.bound} above {expected.times} x {first.objective}")
    if fits:
        return found
    if exact and first.optimal and _above(then.objective, first.objective, expected.times):
        found.append(f"answer {then.objective} above {expected.times} x {first.objective}")
    if expected.exactly and _below(then.objective, first.bound, expected.times):
        found.append(f"answer {then.objective} below the bound {expected.times} x {first.bound}")
    return found


def _above(value: Number | None, other: Number | None, times: Number) -> bool:
    if value is None or other is None:
        return False
    return value > times * other + TOLERANCE * max(1, abs(times * other)) * _loose(value, other)


def _below(value: Number | None, other: Number | None, times: Number) -> bool:
    if value is None or other is None:
        return False
    return value < times * other - TOLERANCE * max(1, abs(times * other)) * _loose(value, other)


def _loose(value: Number, other: Number) -> bool:
    """Whether values have fractions: whole ones are compared as they are."""
    return not (isinstance(value, int) and isinstance(other, int))
