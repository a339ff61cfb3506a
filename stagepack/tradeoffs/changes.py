"""What binds: which part decides the value of a solution, and what one change would buy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.instances.answer import require_instance
from stagepack.instances.tradeoffs import tradeoffs
from stagepack.report import format as as_text
from stagepack.report.pages import Chapter, chapter, with_pictures
from stagepack.report.shown import contents
from stagepack.report.table import Account, Head, Sheet
from stagepack.report.view import view
from stagepack.result import Result
from stagepack.shown import Shown
from stagepack.solve import solve

LEAST = 0.01
"""Seconds that every solve gets, however much time those before it took."""


@dataclass(frozen=True)
class Change:
    """What one change would buy.

    Attributes
    ----------
    change : str
    result : Result
        Of the changed instance; what it found and what it proved.
    saved : number or None
        By how much the best known value falls; None where either is missing.
    most : number or None
        No solution of the changed instance saves more.
    """

    change: str
    result: Result[Any]
    saved: Number | None
    most: Number | None

    @property
    def binds(self) -> bool | None:
        """Whether what is changed keeps the value from being better; None: not known."""
        if self.saved is None:
            return None
        if self.saved > 0:
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
    """What decides the value of a result, and what changes would buy.

    Attributes
    ----------
    instance : instance
    result : Result
    critical : tuple of (str, str)
        Which layer, device, link or moment decides the value: what it is, and its figures.
    changes : tuple of Change
    """

    instance: Instance
    result: Result[Any]
    critical: tuple[tuple[str, str], ...]
    changes: tuple[Change, ...]

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
                _share(change.saved, self.result.objective),
                _share(change.most, self.result.objective),
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
    """Solve an instance, and say what binds: which part, which limit, what changes would buy.

    Every change makes an instance of its own: one more device, a tenth more memory, a link twice as
    fast, no limit at all.  It is solved like the first one; its value is what the change buys, its
    bound what it can buy at most.

    Parameters
    ----------
    instance : instance of any problem
    method : str
    time_limit : float, optional
        Seconds of all solves together, of which each gets an equal part of what is left.
    **options
        What else :func:`stagepack.solve` takes.

    Returns
    -------
    Explanation

    Raises
    ------
    InputError
        What :func:`stagepack.solve` refuses.
    """
    require_instance(instance)
    known = tradeoffs(instance.kind)
    by_work = bool((options.get("options") or {}).get("deterministic"))  # so that runs repeat
    changed = list(known.what_ifs(instance))
    results: list[Result[Any]] = []
    for one in (instance, *(what.instance for what in changed)):
        limit = _part(time_limit, results, 1 + len(changed), evenly=by_work)
        results.append(solve(one, method, time_limit=limit, **options))
    result = results[0]
    critical: tuple[tuple[str, str], ...] = ()
    if result.solution is not None:
        critical = tuple(known.critical(instance, result.solution))
    changes = []
    for what, found in zip(changed, results[1:], strict=True):
        saved = _less(result.objective, found.objective)
        changes.append(Change(what.change, found, saved, _less(result.objective, found.bound)))
    return Explanation(instance, result, critical, tuple(changes))


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


def _less(one: Number | None, other: Number | None) -> Number | None:
    """Return how much less another value is; None where either is missing."""
    return None if one is None or other is None else one - other


def _share(saved: Number | None, whole: Number | None) -> str:
    """Return what is saved as a share."""
    if saved is None or not whole:
        return as_text.NOTHING
    return as_text.share(float(saved) / float(whole)) if saved else "0 %"


@contents.register
def _explanation(given: Explanation, *, whole: bool = False) -> list[Head | Sheet | Account]:
    return given.contents()


@chapter.register
def _chapter(given: Explanation, anchor: str, figures: JsonObject) -> Chapter:
    return with_pictures(f"What binds in {given.instance.name}", given, {})
