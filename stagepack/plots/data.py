"""What the plots of all kinds show, as plain numbers: solutions by label, curves of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stagepack.result import InputError, Result


def named(solutions: Any) -> dict[str, Any]:
    """Return solutions or results by label: of a mapping, or of one or several results."""
    if isinstance(solutions, Mapping):
        return {str(label): solution for label, solution in solutions.items()}
    if hasattr(solutions, "to_dict"):  # a single one
        solutions = [solutions]
    labelled: dict[str, Any] = {}
    if isinstance(solutions, str) or not isinstance(solutions, Iterable):
        raise InputError(
            f"a {type(solutions).__name__} is no solution",
            field="solution",
            remedy="give a solution or a result, or several of them",
        )
    for solution in solutions:
        name = getattr(solution, "method", "") or "solution"
        label, number = name, 1
        while label in labelled:
            number += 1
            label = f"{name} ({number})"
        labelled[label] = solution
    return labelled


@dataclass(frozen=True)
class Curve:
    """A step curve: from each time on, the value holds until the next."""

    times: tuple[float, ...]
    values: tuple[float, ...]


SHORTEST = 1e-4  # seconds: a logarithmic axis of time begins here


def curves(result: Result[Any]) -> tuple[Curve, Curve]:
    """Return the incumbents and the bounds of a run over its seconds, up to its end."""
    found = []
    for events, last in (
        (result.trace.incumbents, result.objective),
        (result.trace.bounds, result.bound),
    ):
        points = [(max(event.time, SHORTEST), float(event.value)) for event in events]
        end = max([result.runtime, SHORTEST, *(time for time, _ in points)])
        if last is not None:
            points.append((end, float(last)))
        found.append(Curve(tuple(t for t, _ in points), tuple(v for _, v in points)))
    return found[0], found[1]
