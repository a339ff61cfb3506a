"""Explanations: which part of a solution determines its value, and what one change would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.instances.base import require_instance
from stagepack.instances.tradeoffs import tradeoffs
from stagepack.interrupts import Interrupts
from stagepack.report import format as as_text
from stagepack.report.pages import Chapter, chapter, with_pictures
from stagepack.report.shown import contents
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import view
from stagepack.result import Result, Status, Termination, slack
from stagepack.shown import Shown
from stagepack.solve import deterministic, require_keywords, require_time, solve

LEAST = 0.01
"""Seconds that every solve gets, however much time those before it took."""
WORTH = 0.05
"""Share of a value from which on a gain is told unasked."""
MOST = 1.0
"""Seconds that are spent on each option to find that out."""


class Found(Protocol):
    """What planning or solving with a change led to: a result, or a plan."""

    @property
    def status(self) -> Status:
        """What is known."""
        ...

    @property
    def objective(self) -> Number | None:
        """The value that was found."""
        ...

    @property
    def bound(self) -> Number | None:
        """Nothing is worth less."""
        ...


FoundT = TypeVar("FoundT", bound=Found)


@dataclass(frozen=True)
class Change(Generic[FoundT]):
    """What one change would buy."""

    change: str  # in words
    result: FoundT  # of the changed instance; what it found and what it proved
    # By how much the best known value falls; None where either is missing.  What is at hand is
    # there with the change, too, so that it is never less than nothing.
    saved: Number | None
    most: Number | None  # no solution of the changed instance saves more
    # Every solution without the change is worth at least so much more than the one with it.
    least: Number | None

    @property
    def binds(self) -> bool | None:
        """Whether what is changed keeps the value from being better; None: not known."""
        if self.least is not None and self.least > 0:
            return True
        return False if self.most is not None and self.most <= 0 else None

    def to_row(self) -> JsonObject:
        """Return the change without solutions."""
        return {
            "change": self.change,
            "status": str(self.result.status),
            "objective": self.result.objective,
            "bound": self.result.bound,
            "saved": self.saved,
            "most": self.most,
            "binds": self.binds,
        }


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Which part determines the value of a result, and what changes of its limits would gain.

    Attributes
    ----------
    critical : tuple of (str, str)
        The layer, device, link or point in time that determines the value: its label and figures.
    changes : tuple of Change
        What changes of the limits would gain.
    """

    instance: Instance
    result: Result[Any]
    critical: tuple[tuple[str, str], ...]
    changes: tuple[Change[Result[Any]], ...]

    def to_dict(self) -> JsonObject:
        """Return everything but the instance as plain JSON data."""
        data: JsonObject = files.finite(
            {
                "result": self.result.to_dict(),
                "critical": dict(self.critical),
                "changes": [change.to_row() for change in self.changes],
            }
        )
        return data

    def contents(self) -> list[Head | Sheet | Account]:
        """Return what is printed."""
        parts: list[Head | Sheet | Account] = [
            *(part for part in contents(self.result.of(self.instance)) if isinstance(part, Head))
        ]
        if self.critical:
            parts.append(Account(self.critical))
        worth = view(self.instance.kind).worth
        rows = [
            [
                change.change,
                as_text.standing(change.result.status, change.result.objective, None),
                worth(self.instance, change.result.objective),
                share(change.saved, self.result.objective),
                share(change.most, self.result.objective),
            ]
            for change in self.changes
        ]
        if rows:
            header = ("with", "status", str(self.instance.objective), "saves", "at most")
            parts.append(Sheet(header, rows, ("with", "status"), spare=("status",)))
        return parts

    def _line(self) -> str:
        return f"{self.instance.name!r}, {len(self.changes)} changes"


def explain(
    instance: Instance,
    *,
    method: str = "auto",
    time_limit: float | None = 10,
    **options: Any,
) -> Explanation:
    """Solve an instance, and explain which part and which limits determine the value.

    Several changed instances are solved in the same way: with more freedom, one more device, a
    tenth more memory, links twice as fast, or without a limit.  The value of each shows what the
    change gains, and its bound the most that the change can gain.

    Parameters
    ----------
    method : str
        One of :func:`stagepack.methods`.
    time_limit : float, optional
        Seconds of all solves together; each gets an equal part of the remaining time.
    **options
        Other arguments of :func:`stagepack.solve`.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        As :func:`stagepack.solve`.
    """
    require_instance(instance, remedy="give an instance, or a plan to explain_plan")
    time_limit = require_time(time_limit)
    require_keywords(options, "explain")
    objective = options.pop("objective", None)
    if objective is not None:
        instance = instance.replace(objective=objective)
    known = tradeoffs(instance.kind)
    by_work = deterministic(options.get("options"))  # so that runs repeat
    changed = list(known.what_ifs(instance))
    results: list[Result[Any]] = []
    with Interrupts() as interrupts:
        for one in (instance, *(what.instance for what in changed)):
            limit = _part(time_limit, results, 1 + len(changed), evenly=by_work)
            results.append(solve(one, method, time_limit=limit, **options))
            if interrupts.asked or results[-1].termination is Termination.INTERRUPTED:
                break
    result = results[0]
    critical: tuple[tuple[str, str], ...] = ()
    if result.solution is not None:
        critical = tuple(known.critical(instance, result.solution))
    changes = []
    for what, found in zip(changed, results[1:], strict=False):
        changes.append(change(what.change, result, found, float(instance.tolerance)))
    return Explanation(instance, result, critical, tuple(changes))


def freed(
    instance: Instance, result: Result[Any], time_limit: float | None, **options: Any
) -> list[tuple[str, Change[Result[Any]]]]:
    """Return options of the command line that save `WORTH` of a proved optimum, and what they save.

    `result` is the optimum of `instance`, found with `options` of :func:`.solve`.  Each is solved
    for a tenth of `time_limit` seconds, for `MOST` at most, for what its solution saves and not for
    a bound.
    """
    if result.status is not Status.OPTIMAL or not result.objective:
        return []
    each = MOST if time_limit is None else min(MOST, time_limit / 10)
    found, tolerance = [], float(instance.tolerance)
    with Interrupts() as interrupts:
        for what in tradeoffs(instance.kind).what_ifs(instance):
            if not what.option or interrupts.asked:
                break  # options come first
            then = solve(what.instance, time_limit=each, **options)
            gain = change(what.change, result, then, tolerance)
            if gain.saved and float(gain.saved) >= WORTH * abs(float(result.objective)):
                found.append((what.option, gain))
    return found


def _part(
    limit: float | None, ended: list[Result[Any]], whole: int, *, evenly: bool
) -> float | None:
    """Return the seconds for the next one of so many solves, all of which share the limit."""
    if limit is None:
        return None
    if evenly:
        return limit / whole
    left = limit - sum(result.runtime for result in ended)
    return max(left / (whole - len(ended)), LEAST)


def change(name: str, now: Found, then: FoundT, tolerance: float = 0.0) -> Change[FoundT]:
    """Return what a change called `name` would buy, by what is known `now` and `then`.

    Values that differ by less than the relative `tolerance` are equal.
    """

    def less(one: Number | None, other: Number | None) -> Number | None:
        if one is None or other is None:
            return None
        return 0 if abs(one - other) <= slack(one, tolerance) else one - other

    saved, most = less(now.objective, then.objective), less(now.objective, then.bound)
    return Change(
        change=name,
        result=then,
        saved=None if saved is None else max(0, saved),
        most=None if most is None else max(0, most),
        least=less(now.bound, then.objective),
    )


def share(saved: Number | None, whole: Number | None) -> str:
    """Return what is saved as a share."""
    if saved is None or not whole:
        return as_text.NOTHING
    return as_text.share(float(saved) / abs(float(whole))) if saved else "0 %"


@chapter.register
def _chapter(given: Explanation, anchor: str, figures: JsonObject) -> Chapter:
    return with_pictures(f"What binds in {given.instance.name}", given, {})
