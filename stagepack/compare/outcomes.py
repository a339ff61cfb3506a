"""The outcome of a comparison: cells, results, rows of plain data, contradictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stagepack.compare.papers import Case, PaperTables, Row, geometric, ratio, solved_by_all
from stagepack.contracts import Instance, JsonObject, Number, Solution
from stagepack.errors import InputError
from stagepack.evidence import VERIFIABLE
from stagepack.files import finite
from stagepack.report import format as as_text
from stagepack.result import Result, Status, slack

COLUMNS = (
    "instance", "problem", "objective_name", "method", "seed", "status", "termination",
    "objective", "bound", "bound_source", "proof", "gap", "ratio", "best", "runtime", "setup_time",
    "engine", "reason", "digest", "secondary",
)  # fmt: skip


FAILED = ("error", "invalid")
"""What cells are said to be whose method, or its process, failed."""
PROVED = (Status.OPTIMAL, Status.INFEASIBLE, "fits")
"""Standings that leave nothing open: what fits is its own proof."""


class Cell(NamedTuple):
    """One run: the label of an instance, a method, a seed."""

    instance: str
    method: str
    seed: int


@dataclass(frozen=True)
class Failure:
    """Why a cell has no result.

    `status` is ``n/a`` (the method cannot solve this instance), ``error`` (it failed), ``invalid``
    (a method of yours gave a solution that breaks a rule) or ``skipped`` (the comparison was
    interrupted before it was done).
    """

    status: str
    reason: str
    detail: str = ""


@dataclass(repr=False)
class Outcomes(PaperTables):
    """What became of every cell, in the order of the request.

    Attributes
    ----------
    instances : dict
        The instances by label.
    cells : list of Cell
        All cells.
    results : dict
        The :class:`stagepack.result.Result` of each cell ``(instance, method, seed)`` that has one.
    failures : dict
        The :class:`Failure` of each other cell.
    unkept : dict
        Of each cell whose result the store did not take, why not.
    settings : dict
        Keyword arguments that repeat the comparison.
    interrupted : bool
        Whether Ctrl-C ended it early.
    runtime : float
        Seconds in all.
    command : str
        The command line that repeats the comparison, if it was started from one.
    """

    instances: dict[str, Instance]
    cells: list[Cell]
    results: dict[tuple[str, str, int], Result[Solution]] = field(default_factory=dict)
    failures: dict[tuple[str, str, int], Failure] = field(default_factory=dict)
    unkept: dict[tuple[str, str, int], str] = field(default_factory=dict)
    settings: JsonObject = field(default_factory=dict)
    interrupted: bool = False
    runtime: float = 0.0
    command: str = ""
    started: str = ""
    _checked: tuple[int, list[str]] = field(
        default_factory=lambda: (0, []), repr=False, compare=False
    )
    _listed: tuple[int, dict[str, list[Cell]]] = field(
        default_factory=lambda: (0, {}), repr=False, compare=False
    )
    _counted: dict[Cell, tuple[Result[Solution], Number]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def methods(self) -> list[str]:
        """The methods compared, in the order of the request."""
        return list(dict.fromkeys(cell.method for cell in self.cells))

    @property
    def complete(self) -> bool:
        """Whether every cell that can be solved ended in a status."""
        return not self.interrupted and all(f.status == "n/a" for f in self.failures.values())

    @property
    def lost(self) -> str:
        """How many results the store did not take, and why: a line; "" where it took all."""
        if not self.unkept:
            return ""
        number, reason = (
            as_text.plural(len(self.results), "result"),
            next(iter(self.unkept.values())),
        )
        return f"{len(self.unkept):,} of {number} not kept in the store: {reason}"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything that did the work."""
        merged: dict[str, str] = {}
        for result in self.results.values():
            merged.update(result.versions)
        return merged

    @property
    def repeat(self) -> str:
        """The command that repeats the comparison."""
        if self.command:
            return self.command
        given = {key: value for key, value in self.settings.items() if value is not None}
        options = ", ".join(f"{key}={value!r}" for key, value in given.items())
        return f"stagepack.compare(instances, {options})"

    @property
    def rows(self) -> list[JsonObject]:
        """One row of plain data a cell.

        `ratio` is to the best objective of its instance, `secondary` what decides between equal
        objectives, where the instance has a name for that.
        """
        best = {label: self._least(label) for label in self.instances}
        return [self._row(cell, best[cell.instance]) for cell in self.cells if self._ended(cell)]

    def _columns(self) -> Sequence[str]:
        return COLUMNS

    def _rows(self) -> Sequence[JsonObject]:
        return self.rows

    @property
    def summary(self) -> list[JsonObject]:
        """One row a method: cells, how many are solved and proved, mean ratio, seconds.

        The `ratio` to the best is the geometric mean over cells of cases (instance and seed) that
        all methods of their problem solved, `shared` in number; methods that solved nothing do not
        count there, nor do cells that were not run anywhere.  Those that prove most come first,
        then those of the least ratio.
        """
        found = []
        rows = [row for row in self.rows if row["status"] not in ("n/a", "skipped")]
        shared, _ = solved_by_all(self.rows, _case)
        for method in self.methods:
            own = [row for row in rows if row["method"] == method]
            if own:
                ratios = [row["ratio"] for row in own if row["ratio"] and _case(row) in shared]
                found.append(
                    {
                        "method": method,
                        "cells": len(own),
                        "solved": sum(row["objective"] is not None for row in own),
                        "proved": sum(map(self._proves, own)),
                        "ratio": geometric(ratios),
                        "shared": len(ratios),
                        "runtime": math.fsum(row["runtime"] or 0.0 for row in own),
                    }
                )
        return sorted(found, key=lambda row: (-row["proved"] / row["cells"], row["ratio"] or 1e9))

    @property
    def means(self) -> str:
        """Over how many cases the means of the summary are: a line."""
        rows = self.rows
        cases = {_case(row) for row in rows}
        shared, idle = solved_by_all(rows, _case)
        many = as_text.plural(len(cases), "case" if len(self._seeds()) > 1 else "instance")
        but = f" but {', '.join(sorted(idle))}" if idle else ""
        return f"mean ratios are over the {len(shared):,} of {many} that all methods{but} solved"

    @property
    def verdict(self) -> str:
        """How many instances are solved, or shown to be infeasible, with proof: a line."""
        rows = self.rows
        proved = {row["instance"] for row in rows if self._proves(row)}
        solved = {row["instance"] for row in rows if row["objective"] is not None}
        undecided = len(self.instances) - len(solved | proved)
        total = as_text.plural(len(self.instances), "instance")
        parts = [f"{len(proved):,} of {total} decided with proof"]
        shown = {row["instance"] for row in rows if self._proves(row) and self._shows(row)}
        if proved:
            parts.append(f"{len(shown):,} of these with one that can be verified")
        if solved - proved:
            parts.append(f"{len(solved - proved):,} solved without one")
        if undecided:
            parts.append(f"{undecided:,} open")
        return ", ".join(parts)

    def _shows(self, row: JsonObject) -> bool:
        """Whether others can verify what a row proves: what fits is its own proof."""
        return row["proof"] in VERIFIABLE or row["status"] not in (Status.OPTIMAL, "INFEASIBLE")

    def best(self, instance: Instance | str) -> Result[Solution] | None:
        """Return the best result of an instance (or of its label); None when none has a solution.

        Among equals, one that is proved comes first, then the order of the request.
        """
        label = self._label(instance)
        found = [result for result in self._of(label) if result.objective is not None]
        return min(found, key=lambda r: (r.objective, r.status != Status.OPTIMAL), default=None)

    @property
    def contradictions(self) -> list[str]:
        """Claims that cannot all be true: a bug in a method; empty when all is well.

        An optimum that another method beats, a bound above a solution's objective, an instance
        proved infeasible and solved, a solution that its instance's checker refuses or values
        differently.
        """
        if self._checked[0] != len(self.results):
            several = len(self._seeds()) > 1
            found = [
                claim for label in self.instances for claim in self._broken_claims(label, several)
            ]
            self._checked = (len(self.results), found)
        return self._checked[1]

    def _broken_claims(self, label: str, several_seeds: bool) -> Iterator[str]:
        instance, best = self.instances[label], self.best(label)
        tolerance = float(getattr(instance, "tolerance", 0.0))
        for cell in self._cells_of(label):
            result = self.results.get(cell)
            if result is None:
                continue
            who = f"{label}: {cell.method}" + (f" (seed {cell.seed})" if several_seeds else "")
            if result.solution is not None and hasattr(instance, "check"):
                broken = instance.check(result.solution)
                if broken:
                    yield f"{who} gives a solution that breaks {broken[0]}"
                elif _differ(instance.evaluate(result.solution), result.objective, tolerance):
                    worth = instance.evaluate(result.solution)
                    yield f"{who} claims {result.objective:,} for a solution worth {worth:,}"
            if best is None or best.objective is None:
                continue
            margin = slack(best.objective, tolerance)
            if result.status == Status.INFEASIBLE:
                yield f"{who} claims INFEASIBLE, but {best.method} found {best.objective:,}"
            elif result.status == Status.OPTIMAL and (
                result.objective is None or result.objective > best.objective + margin
            ):
                claim = "OPTIMAL"
                if result.objective is not None:
                    claim += f" {result.objective:,}"
                yield f"{who} claims {claim}, but {best.method} found {best.objective:,}"
            if result.bound is not None and result.bound > best.objective + margin:
                yield (
                    f"{who} claims the bound {result.bound:,}, but {best.method} found "
                    f"{best.objective:,}"
                )

    def _proves(self, row: JsonObject) -> bool:
        standing = as_text.standing(
            row["status"], row["objective"], self.instances[row["instance"]]
        )
        return standing in PROVED

    def _close(self, *, interrupted: bool, runtime: float) -> None:
        """Take the end: what was not done was skipped."""
        self.interrupted |= interrupted
        self.runtime = runtime
        for cell in self.cells:
            if not self._ended(cell):
                self.failures[cell] = Failure("skipped", "interrupted before it was done")

    def _line(self) -> str:
        return f"{len(self.instances)} instances, {len(self.methods)} methods"

    def _ended(self, cell: Cell) -> bool:
        return cell in self.results or cell in self.failures

    def _cells_of(self, label: str) -> list[Cell]:
        """Return the cells of an instance, in the order of the request."""
        if self._listed[0] != len(self.cells):
            found: dict[str, list[Cell]] = {}
            for cell in self.cells:
                found.setdefault(cell.instance, []).append(cell)
            self._listed = len(self.cells), found
        return self._listed[1].get(label, [])

    def _of(self, label: str) -> list[Result[Solution]]:
        ended = (self.results.get(cell) for cell in self._cells_of(label))
        return [result for result in ended if result is not None]

    def _seeds(self) -> set[int]:
        return {cell.seed for cell in self.cells}

    def _label(self, instance: Instance | str) -> str:
        if isinstance(instance, str) and instance in self.instances:
            return instance
        for label, known in self.instances.items():
            if known is instance:
                return label
        raise InputError(
            f"{instance if isinstance(instance, str) else type(instance).__name__} is not compared",
            field="instance",
            remedy="name one of " + ", ".join(self.instances),
        )

    def _secondary(self, cell: Cell, instance: Instance, result: Result[Solution]) -> Number | None:
        """Return what decides between equal objectives, counted once a result."""
        count: Callable[[Solution], Number] | None = getattr(instance, "secondary", None)
        if result.solution is None or count is None or not _secondary_name(instance):
            return None
        if cell not in self._counted or self._counted[cell][0] is not result:
            self._counted[cell] = result, count(result.solution)
        return self._counted[cell][1]

    def _least(self, label: str) -> Number | None:
        found = [r.objective for r in self._of(label) if r.objective is not None]
        return min(found, default=None)

    def _row(self, cell: Cell, best: Number | None) -> JsonObject:
        row: JsonObject = dict.fromkeys(COLUMNS)
        instance = self.instances[cell.instance]
        row.update(
            instance=cell.instance,
            problem=getattr(instance, "kind", ""),
            objective_name=str(getattr(instance, "objective", "")),
            method=cell.method,
            seed=cell.seed,
            best=False,
            digest=getattr(instance, "digest", ""),
        )
        failure = self.failures.get(cell)
        if failure is not None:
            row.update(status=failure.status, reason=failure.reason)
            return row
        result = self.results[cell]
        row.update(
            status=str(result.status),
            termination=str(result.termination),
            objective=result.objective,
            bound=result.bound,
            bound_source=result.bound_source or None,
            proof=result.proof,
            gap=result.gap,
            ratio=ratio(result.objective, best),
            best=result.objective is not None and result.objective == best,
            runtime=result.runtime,
            setup_time=result.setup_time,
            engine=result.engine or None,
            reason=result.reason or None,
            secondary=self._secondary(cell, instance, result),
        )
        plain: JsonObject = finite(row)
        return plain


def reasons(rows: Iterable[JsonObject]) -> dict[tuple[str, str], dict[str, list[str]]]:
    """Return why cells have no answer: by status and reason, the methods of each instance."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        if row["reason"] and row["objective"] is None:
            where = found.setdefault((row["status"], row["reason"]), {})
            where.setdefault(row["instance"], []).append(row["method"])
    return found


def secondary_header(comparison: Outcomes) -> list[str]:
    """Return the name of the column of what decides between equal objectives, [] for none."""
    names = dict.fromkeys(filter(None, map(_secondary_name, comparison.instances.values())))
    return ["/".join(names)] if names else []


def _secondary_name(instance: Instance) -> str:
    name: str = getattr(instance, "secondary_name", "")
    return name


def _case(row: Row) -> Case:
    return row["instance"], row["seed"]


def _differ(a: Number, b: Number | None, tolerance: float) -> bool:
    if b is None:
        return True
    return a != b and not math.isclose(a, b, rel_tol=tolerance)
