"""Results of many runs: rows, figures of each method, performance profiles, and regressions.

Instances are identified by their digests.  A cell is proved if it ended with OPTIMAL or
INFEASIBLE.  Times are those of solving, without imports and compilation.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.compare.curves import (
    PROOF,
    Steps,
    draw,
    gap_steps,
    integral,
    mean_over_time,
    ratio_of,
    reached,
    require_picture,
    rising,
)
from stagepack.compare.outcomes import FAILED
from stagepack.compare.papers import Case, PaperTables, Row, geometric, solved_by_all
from stagepack.compare.store import Store
from stagepack.compare.store_page import to_html
from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.report import format as as_text
from stagepack.report.extra import Axes
from stagepack.report.pages import Chapter, chapter, report
from stagepack.report.table import Head, Sheet
from stagepack.spelling import renamed

COLUMNS = (
    "instance", "problem", "digest", "method", "seed", "status", "termination", "objective",
    "bound", "proof", "gap", "runtime", "setup_time", "engine", "primal_integral", "reason",
    "arguments",
)  # fmt: skip
PROVED = ("OPTIMAL", "INFEASIBLE")
SOON = 1e-3
"""Seconds below which times are not told apart."""
NOTHING: JsonObject = {"objective": None, "trace": [], "runtime": None}
"""What a cell without an answer says."""


def require_parquet(path: str | Path) -> None:
    """Refuse to write Parquet where what writes it is not installed."""
    for package in ("pandas", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            remedy = "pip install 'stagepack[parquet]'"
            raise InputError(f"Parquet needs {package}", file=path, remedy=remedy)


@dataclass(frozen=True)
class Change:
    """How a cell differs from the same one in an earlier store."""

    instance: str
    method: str
    seed: int
    what: str
    before: object
    after: object
    worse: bool

    def __str__(self) -> str:
        return (
            f"{self.instance}, {self.method}, seed {self.seed}: {self.what} {self.after}, "
            f"was {self.before}"
        )


@dataclass(frozen=True, repr=False)
class StoredResults(PaperTables):
    """The cells of a store, or of a comparison.

    Attributes
    ----------
    rows : tuple of dict
        One for each cell, with the keys `COLUMNS`.
    gaps : tuple of tuple
        For each cell, pairs of a time and the gap to the best known objective; empty if none is
        known.
    """

    rows: tuple[JsonObject, ...]
    gaps: tuple[Steps, ...] = ()

    def where(self, **wanted: object) -> StoredResults:
        """Return the cells whose columns have these values; values are compared as text.

        Raises
        ------
        InputError
            For an unknown column.
        """
        for name in wanted:
            if name not in COLUMNS:
                raise InputError("is no column", field=name, remedy=suggest(name, COLUMNS))
        kept = [
            at
            for at, row in enumerate(self.rows)
            if all(str(row[name]) == str(value) for name, value in wanted.items())
        ]
        gaps = tuple(self.gaps[at] for at in kept) if self.gaps else ()
        return StoredResults(tuple(self.rows[at] for at in kept), gaps)

    # ------------------------------------------------------------------ figures

    @property
    def methods(self) -> list[str]:
        """The methods, by their names."""
        return sorted({row["method"] for row in self.rows})

    def summary(self, shift: float = 1.0) -> list[JsonObject]:
        """Return figures of each method.

        Methods are compared on each instance and seed.  A method wins if it alone has the lowest
        objective, ties if others have it, too, and otherwise loses, as it does without a solution
        if another method has one.  Cells of one method with different limits are not compared.

        Means of times and primal integrals are over the cases that all methods solved, `shared` in
        number; methods that solved nothing do not count there.

        Parameters
        ----------
        shift : float
            Seconds that are added to times before their geometric mean is taken, and then
            subtracted.
        """
        best, rivals = self._best()
        shared, _ = solved_by_all(self.rows, _case)
        found = []
        for method in self.methods:
            own = [row for row in self.rows if row["method"] == method]
            scores = [_score(row, best[_case(row)], rivals[_case(row)]) for row in own]
            alike = [row for row in own if _case(row) in shared and row["objective"] is not None]
            integrals = [row["primal_integral"] for row in alike]
            found.append(
                {
                    "method": method,
                    "cells": len(own),
                    "solved": sum(row["objective"] is not None for row in own),
                    "proved": sum(row["status"] in PROVED for row in own),
                    **{word: scores.count(word) for word in ("win", "tie", "loss")},
                    "failed": sum(row["status"] in FAILED for row in own),
                    "shared": len(alike),
                    "time": geometric([row["runtime"] for row in alike], shift),
                    "primal_integral": sum(integrals) / len(integrals) if integrals else None,
                }
            )
        return found

    def _best(self) -> tuple[dict[Case, float], dict[Case, int]]:
        """Return the least objective of each case, and how many methods have it."""
        best: dict[Case, float] = {}
        for row in self.rows:
            value = math.inf if row["objective"] is None else row["objective"]
            best[_case(row)] = min(value, best.get(_case(row), math.inf))
        having: dict[Case, set[str]] = {case: set() for case in best}
        for row in self.rows:
            if row["objective"] == best[_case(row)]:
                having[_case(row)].add(row["method"])
        return best, {case: len(methods) for case, methods in having.items()}

    def _pairs(self) -> Iterator[tuple[JsonObject, Steps]]:
        """Yield each cell with its gaps."""
        yield from zip(self.rows, self.gaps or itertools.repeat(()), strict=False)

    @property
    def goal(self) -> str | float:
        """Which goal pictures are of unless told: proofs, if each method has any, else the best."""
        proving = {row["method"] for row in self.rows if row["status"] in PROVED}
        return PROOF if proving and proving == set(self.methods) else 1.0

    def _times(self, goal: str | float | None) -> list[float]:
        """Return when each cell has reached a goal; infinite: never."""
        goal = _required(goal, self.goal)
        found = []
        for row, steps in self._pairs():
            proved = row["status"] in PROVED
            if isinstance(goal, str) or not steps:
                found.append(max(row["runtime"], SOON) if proved else math.inf)
            else:
                found.append(max(reached(steps, goal), SOON))
        return found

    def profile(self, goal: str | float | None = None) -> dict[str, list[float]]:
        """Return the performance profile of each method (Dolan and More, 2002).

        For each case that the method ran and in which any method reaches the goal: the ratio of its
        time to the shortest, in rising order; infinite if it does not.

        Parameters
        ----------
        goal : "proof" or float, optional
            A proof; or how many times the best objective known: 1 for that itself, 1.01 for one
            that is 1 % above it.  By default "proof" if every method proves anything, else 1.
        """
        asked = {(_case(row), row["method"]) for row in self.rows}
        times: dict[Case, dict[str, float]] = {}
        for row, time in zip(self.rows, self._times(goal), strict=True):
            if math.isfinite(time):
                of_case, method = times.setdefault(_case(row), {}), row["method"]
                of_case[method] = min(time, of_case.get(method, math.inf))
        return {
            method: sorted(
                some.get(method, math.inf) / min(some.values())
                for case, some in times.items()
                if (case, method) in asked
            )
            for method in self.methods
        }

    def cactus(self, goal: str | float | None = None) -> dict[str, list[float]]:
        """Return the times in which each method reaches a goal, in rising order.

        `goal`: as for :meth:`profile`.
        """
        found: dict[str, list[float]] = {method: [] for method in self.methods}
        for row, time in zip(self.rows, self._times(goal), strict=True):
            if math.isfinite(time):
                found[row["method"]].append(time)
        return {method: sorted(times) for method, times in found.items()}

    def ratios(self) -> dict[str, list[float]]:
        """Return how many times the best objective known each cell of a method ends with.

        In rising order; infinite without a solution.  Cases that no method solves do not count.
        """
        best, _ = self._best()
        found: dict[str, list[float]] = {method: [] for method in self.methods}
        for row, steps in self._pairs():
            if math.isfinite(best[_case(row)]):
                found[row["method"]].append(ratio_of(steps if row["objective"] is not None else ()))
        return {method: sorted(values) for method, values in found.items()}

    def against(self, earlier: StoredResults) -> list[Change]:
        """Return how cells differ from those of an earlier store, regressions first.

        Cells are compared if case, method, limits and other arguments are equal.  If both stores
        have exactly one cell of a method for a case, these are compared whatever their limits are.
        """
        known, asked = _by_question(earlier.rows), _by_question(self.rows)
        found: list[Change] = []
        for question, cells in asked.items():
            before = known.get(question, {})
            alone = len(cells) == len(before) == 1
            for arguments, new in cells.items():
                old = next(iter(before.values())) if alone else before.get(arguments)
                found += [] if old is None else _changes(old, new)
        return sorted(found, key=lambda change: not change.worse)

    # ------------------------------------------------------------------ showing

    def _columns(self) -> Sequence[str]:
        return COLUMNS

    def _rows(self) -> Sequence[JsonObject]:
        return self.rows

    def to_parquet(self, path: str | Path) -> None:
        """Write the cells as Parquet.

        Raises
        ------
        InputError
            When it cannot be written, or pandas or pyarrow is not installed.
        """
        require_parquet(path)
        stream = io.BytesIO()
        table = self.to_dataframe().reindex(columns=list(COLUMNS))
        table.to_parquet(stream, engine="pyarrow", index=False)
        files.write(path, stream.getvalue())

    @renamed(directory="path")
    def to_html(self, path: str | Path) -> Path:
        """Write a self-contained page ``index.html`` into the folder `path`, and return its path.

        Raises
        ------
        InputError
            When it cannot be written, or what draws is not installed.
        """
        files.require_directory(path)
        Path(path).mkdir(parents=True, exist_ok=True)
        return report(self, Path(path) / "index.html")

    def curves(self, what: str, goal: str | float | None = None) -> dict[str, Steps]:
        """Return the curve of each method as steps: pairs (x, y), where y holds from x on.

        Parameters
        ----------
        what : str
            "profile", "cactus" and "ratio": what :meth:`profile`, :meth:`cactus` and :meth:`ratios`
            return, as shares and counts;
            "gap": the mean gap to the best known objective over time, 1 before the first incumbent;
            "integral": the share of cells whose primal integral is at most x.
        goal : "proof" or float, optional
            Of "profile" and "cactus", as for :meth:`profile`.
        """
        require_picture(what)
        if what == "profile":
            return {m: rising(values, len(values)) for m, values in self.profile(goal).items()}
        if what == "cactus":
            return {m: rising(values, 1) for m, values in self.cactus(goal).items()}
        if what == "ratio":
            return {m: rising(values, len(values)) for m, values in self.ratios().items()}
        found: dict[str, list[Any]] = {method: [] for method in self.methods}
        for row, steps in zip(self.rows, self.gaps, strict=False):
            if steps:
                found[row["method"]].append(steps if what == "gap" else row["primal_integral"])
        if what == "gap":
            return {m: mean_over_time(runs) for m, runs in found.items()}
        return {m: rising(sorted(values), max(1, len(values))) for m, values in found.items()}

    def plot(
        self,
        path: str | Path | None = None,
        ax: Axes | None = None,
        *,
        what: str = "profile",
        goal: str | float | None = None,
    ) -> Axes:
        """Draw the curves of the methods.

        Parameters
        ----------
        path : path-like or matplotlib Axes, optional
            The file to write: .png, .svg or .pdf.  Or where to draw.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        what : str
            "profile", "cactus", "ratio", "gap" or "integral", as :meth:`curves` has them.
        goal : "proof" or float, optional
            Of "profile" and "cactus", as for :meth:`profile`.

        Returns
        -------
        matplotlib Axes
        """
        goal = _required(goal, self.goal)
        return draw(what, self.curves(what, goal), path, ax, goal)

    def to_dict(self) -> JsonObject:
        """Return cells and figures as plain JSON data."""
        data: JsonObject = files.finite({"summary": self.summary(), "rows": list(self.rows)})
        return data

    def contents(self) -> list[Head | Sheet]:
        """Return what is printed."""
        cases = len({_case(row) for row in self.rows})
        figures = [as_text.plural(cases, "case"), as_text.plural(len(self.rows), "cell")]
        failed = [row for row in self.rows if row["status"] in FAILED]
        if failed:
            figures.append(f"{as_text.plural(len(failed), 'cell')} failed: {failed[0]['reason']}")
        rows = [
            [
                one["method"],
                *(as_text.number(one[name]) for name in ("cells", "solved", "proved")),
                *(as_text.number(one[name]) for name in ("win", "tie", "loss")),
                as_text.seconds(one["time"]),
                as_text.seconds(one["primal_integral"]),
            ]
            for one in self.summary()
        ]
        header = ("method", "cells", "solved", "proved", "win", "tie", "loss", "time", "integral")
        return [Head([("results:", "")], figures), Sheet(header, rows, ("method",), ("integral",))]

    def _line(self) -> str:
        return f"{len(self.rows)} cells, {len(self.methods)} methods"


def read_store(path: str | Path) -> StoredResults:
    """Read the cells of a store that :func:`stagepack.compare` kept.

    Raises
    ------
    InputError
        For a folder that is none, or one of a newer version.
    """
    return gathered(
        (one["question"], one.get("result") or {**NOTHING, **one["failure"]})
        for one in Store(path, new=False).rows()
    )


def gathered(cells: Iterable[tuple[JsonObject, JsonObject]]) -> StoredResults:
    """Return cells as results: each its question, as a store has it, and its result or failure."""
    found = list(cells)
    best: dict[str, float] = {}
    for question, result in found:
        if result["objective"] is not None:
            key = question["digest"]
            best[key] = min(result["objective"], best.get(key, math.inf))
    rows = [_row(*pair) for pair in found]
    gaps: list[Steps] = []
    for row, (_, result) in zip(rows, found, strict=True):
        goal = None if row["status"] in FAILED else best.get(row["digest"])
        gaps.append(() if goal is None else gap_steps(result, goal))
        if goal is not None:
            row["primal_integral"] = integral(gaps[-1], result["runtime"])
    return StoredResults(tuple(rows), tuple(gaps))


def _required(goal: str | float | None, usual: str | float) -> str | float:
    """Return a goal, the `usual` one for None; refuse, by name, what is none."""
    if goal is None:
        return usual
    number = isinstance(goal, int | float) and not isinstance(goal, bool) and goal >= 1
    if goal != PROOF and not number:
        remedy = 'give "proof", or a ratio to the best known of at least 1'
        raise InputError(f"{goal!r}", field="goal", remedy=remedy)
    return goal


def _row(question: JsonObject, result: JsonObject) -> JsonObject:
    arguments = question["arguments"]
    others = {name: given for name, given in arguments.items() if name not in ("method", "seed")}
    return {name: result.get(name) for name in COLUMNS} | {
        "instance": question["label"],
        "problem": question["problem"],
        "digest": question["digest"],
        "method": arguments["method"],
        "seed": arguments["seed"],
        "arguments": json.dumps(others, sort_keys=True),
    }


def _by_question(rows: Iterable[JsonObject]) -> dict[tuple[object, ...], dict[str, JsonObject]]:
    """Return cells by case and method, and then by arguments; of several versions the best one."""
    found: dict[tuple[object, ...], dict[str, JsonObject]] = {}
    for row in rows:
        cells = found.setdefault((*_case(row), row["method"]), {})
        other = cells.setdefault(row["arguments"], row)
        if _worth(row) < _worth(other):
            cells[row["arguments"]] = row
    return found


def _worth(row: JsonObject) -> tuple[float, ...]:
    """Return what is less for the better of two cells: proved, its objective, its time."""
    objective, runtime = (
        math.inf if row[name] is None else row[name] for name in ("objective", "runtime")
    )
    return row["status"] not in PROVED, objective, runtime


def _case(row: Row) -> Case:
    return row["digest"], row["seed"]


def _score(row: JsonObject, best: float, rivals: int) -> str:
    """Return whether a cell wins, ties or loses among those of its case."""
    if math.isinf(best):
        return "tie"
    if row["objective"] != best:
        return "loss"
    return "win" if rivals == 1 else "tie"


def _changes(old: JsonObject, new: JsonObject) -> Iterable[Change]:
    """Yield how a cell differs."""
    who = new["instance"], new["method"], new["seed"]
    was, now = old["status"] in PROVED, new["status"] in PROVED
    if was != now:
        yield Change(*who, "status", old["status"], new["status"], worse=was)
    for name, sign in (("objective", 1), ("bound", -1)):
        before, after = old[name], new[name]
        if before is not None and after is not None and before != after:
            yield Change(*who, name, before, after, worse=sign * (after - before) > 0)
        elif (before is None) != (after is None) and name == "objective":
            yield Change(*who, name, before, after, worse=after is None)
    if None in (new["runtime"], old["runtime"]):
        return
    if new["runtime"] > max(1.5 * old["runtime"], old["runtime"] + 0.1):  # else it is noise
        yield Change(*who, "seconds", old["runtime"], new["runtime"], worse=True)


def changes_sheet(changes: Sequence[Change]) -> Sheet:
    """Return changes for people."""
    rows = [
        [one.instance, one.method, str(one.seed), one.what, str(one.before), str(one.after),
         "worse" if one.worse else "better"]
        for one in changes
    ]  # fmt: skip
    header = ("instance", "method", "seed", "what", "before", "after", "")
    return Sheet(header, rows, ("instance", "method", "what", ""), what="change")


@chapter.register
def _chapter(given: StoredResults, anchor: str, figures: JsonObject) -> Chapter:
    text = to_html(given.rows, given.summary(), lambda what: given.plot(what=what))
    return Chapter("Stagepack results", text)
