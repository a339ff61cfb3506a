"""Comparisons as tables for papers: Markdown and LaTeX, an instance a row, a method a column.

Means are taken over the cases (an instance and a seed) that all methods solved, so that they are of
the same cases for each; how many those are is said beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from stagepack import files
from stagepack.contracts import Number
from stagepack.errors import InputError, suggest
from stagepack.report import format as as_text
from stagepack.shown import ShownRows

Row: TypeAlias = Mapping[str, Any]
Case: TypeAlias = tuple[Any, int]
"""An instance and a seed."""

VALUES: Mapping[str, Callable[[Any], str]] = {
    "objective": as_text.number,
    "bound": as_text.number,
    "gap": as_text.gap,
    "ratio": as_text.ratio,
    "runtime": as_text.seconds,
}
"""What a table may show of each cell, and how it is written."""
ESCAPED = {one: f"\\{one}" for one in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "–": "--",
}  # fmt: skip


def solved_by_all(rows: Iterable[Row], case: Callable[[Row], Case]) -> tuple[set[Case], set[str]]:
    """Return the cases that every method solved, and the methods that solved none.

    The methods are those of the problem of a case; those that solved none of its cases do not
    count.
    """
    having: dict[Case, set[str]] = {}
    known: dict[Case, str] = {}
    solving: dict[str, set[str]] = {}
    every = set()
    for row in rows:
        every.add(row["method"])
        known[case(row)] = row["problem"]
        if row["objective"] is not None:
            having.setdefault(case(row), set()).add(row["method"])
            solving.setdefault(row["problem"], set()).add(row["method"])
    shared = {one for one, methods in having.items() if methods >= solving[known[one]]}
    return shared, every - set().union(*solving.values())


def ratio(objective: Number | None, best: Number | None) -> float | None:
    """Return how many times the best an objective is; None where that is no number."""
    if objective is None or best is None:
        return None
    if objective == best:
        return 1.0
    return objective / best if best > 0 else None


def geometric(values: Sequence[float], shift: float = 0.0) -> float | None:
    """Return the geometric mean of values, each with `shift` added, less that; None of none."""
    if not values:
        return None
    return math.exp(math.fsum(math.log(one + shift) for one in values) / len(values)) - shift


class PaperTables(ShownRows):
    """Rows of cells that become tables of papers."""

    __slots__ = ()

    def to_markdown(self, path: str | Path | None = None, *, value: str = "objective") -> str:
        """Return a Markdown table, an instance a row, a method a column; the best are bold.

        Below are the geometric mean of the ratio to the best, and of the times (shifted by a
        second), over the cases that all methods solved, and how many those are.  Several problems
        make several tables.

        Parameters
        ----------
        path : path-like, optional
            Where to write it, too.
        value : str
            What is shown of each cell: "objective", "bound", "gap", "ratio" or "runtime".
        """
        tables = []
        for header, body, foot in self._sheets(value):
            lines = [header, ["---", *["---:"] * (len(header) - 1)]]
            lines += [[f"**{cell}**" if bold else cell for cell, bold in row] for row in body]
            lines += foot
            shown = [[cell.replace("|", r"\|") for cell in line] for line in lines]
            tables.append("\n".join(f"| {' | '.join(line)} |" for line in shown) + "\n")
        return _kept("\n".join(tables), path)

    def to_latex(self, path: str | Path | None = None, *, value: str = "objective") -> str:
        """Return the table of :meth:`to_markdown` in LaTeX, for the package booktabs.

        `path`, `value`: as there.
        """
        tables = []
        for header, body, foot in self._sheets(value):
            columns = "l" + "r" * (len(header) - 1)
            bold = [[rf"\textbf{{{_tex(c)}}}" if b else _tex(c) for c, b in row] for row in body]
            plain = [[*map(_tex, row)] for row in (header, *foot)]
            head, *last = (" & ".join(row) + r" \\" for row in (plain[0], *bold, *plain[1:]))
            split = len(last) - len(foot)
            tables.append(
                "\n".join([
                    rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule",
                    *last[:split], r"\midrule", *last[split:], r"\bottomrule", r"\end{tabular}", "",
                ])
            )  # fmt: skip
        return _kept("\n".join(tables), path)

    def _sheets(
        self, value: str
    ) -> Iterable[tuple[list[str], list[list[tuple[str, bool]]], list[list[str]]]]:
        """Yield header, body and foot of the table of each problem."""
        if value not in VALUES:
            raise InputError(f"unknown {value!r}", field="value", remedy=suggest(value, VALUES))
        rows = list(self._rows())
        for problem in dict.fromkeys(row["problem"] for row in rows):
            yield _sheet([row for row in rows if row["problem"] == problem], value)


def _sheet(
    rows: Sequence[Row], value: str
) -> tuple[list[str], list[list[tuple[str, bool]]], list[list[str]]]:
    """Return header, body (texts, and which are bold) and foot of the table of one problem."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cases: dict[Case, dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row["instance"], row["seed"]), {})[row["method"]] = row
    several = len({seed for _, seed in cases}) > 1
    ratios: dict[tuple[Case, str], float | None] = {}
    body = []
    for (label, seed), own in cases.items():
        best = min(
            (r["objective"] for r in own.values() if r["objective"] is not None), default=None
        )
        line = [(f"{label} #{seed}" if several else label, False)]
        for method in methods:
            row = own.get(method, {"objective": None, "status": as_text.NOTHING})
            ratios[(label, seed), method] = quotient = ratio(row["objective"], best)
            if row["objective"] is None:
                line.append((row["status"], False))
                continue
            shown = quotient if value == "ratio" else row[value]
            line.append((VALUES[value](shown), row["objective"] == best))
        body.append(line)
    shared, idle = solved_by_all(rows, lambda row: (row["instance"], row["seed"]))
    solved, means, times = [], [], []
    for method in methods:
        found = [one for one, own in cases.items() if method in own]
        found = [one for one in found if cases[one][method]["objective"] is not None]
        solved.append(f"{len(found):,} of {len(cases):,}")
        alike = [one for one in found if one in shared]
        means.append(geometric([known for one in alike if (known := ratios[one, method])]))
        times.append(geometric([cases[one][method]["runtime"] for one in alike], 1.0))
    but = f" but {', '.join(method for method in methods if method in idle)}" if idle else ""
    of = f"({len(shared):,} of {len(cases):,}, those solved by all{but})"
    foot = [
        ["solved", *solved],
        [f"mean ratio {of}", *map(as_text.ratio, means)],
        [f"mean time {of}", *map(as_text.seconds, times)],
    ]
    return ["instance", *methods], body, foot


def _tex(text: str) -> str:
    return "".join(ESCAPED.get(one, one) for one in text)


def _kept(text: str, path: str | Path | None) -> str:
    """Return a text, and write it where a path is given."""
    if path is not None:
        files.write(path, text)
    return text
