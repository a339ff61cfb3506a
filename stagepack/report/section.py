"""One instance on the page: facts, what its kind shows of the solutions, curves of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagepack.report import figures, summary
from stagepack.report.format import escape
from stagepack.report.kinds import face
from stagepack.report.parts import Section, panel
from stagepack.result import Result, Status

if TYPE_CHECKING:
    from stagepack.compare import Comparison


def instance_section(comparison: Comparison, label: str, anchor: str) -> Section:
    """Return the section of one instance."""
    instance = comparison.instances[label]
    kind = face(instance)
    results = _results(comparison, label)
    drawn: dict[str, Any] = {}
    parts = [
        f'<section class="instance" id="{anchor}">',
        f"<h2>{escape(label)}</h2>",
        _facts(instance),
        *_reasons(comparison, label),
    ]
    solved = {name: result for name, result in results.items() if result.solution is not None}
    if solved:
        own = kind.section(instance, solved, comparison.best(label), anchor)
        parts.append(own.html)
        drawn.update(own.figures)
    infeasible = any(result.status == Status.INFEASIBLE for result in results.values())
    if any(result.trace.events for result in results.values()) and (solved or not infeasible):
        searched = {name: result for name, result in results.items() if result.trace.events}
        curves = figures.trace(searched, kind.unit(instance))
        parts.append(panel(f"{anchor}-trace", curves, drawn))
    parts.append("</section>")
    return Section("\n".join(parts), drawn)


def _results(comparison: Comparison, label: str) -> dict[str, Result[Any]]:
    """Return the results of an instance by method, with the seed where there are several."""
    several = len({cell.seed for cell in comparison.cells}) > 1
    return {
        cell.method + (f" · seed {cell.seed}" if several else ""): comparison.results[cell]
        for cell in comparison.cells
        if cell.instance == label and cell in comparison.results
    }


def _facts(instance: Any) -> str:
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in summary.lines(instance)
    )
    return f'<dl class="facts">{pairs}</dl>'


def _reasons(comparison: Comparison, label: str) -> list[str]:
    """Return why methods have no solution, equal reasons together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in comparison.rows:
        if row["instance"] == label and row["objective"] is None and row["reason"]:
            reasons.setdefault((row["status"], row["reason"]), []).append(row["method"])
    notes = []
    certain_first = sorted(reasons.items(), key=lambda item: item[0][0] != Status.INFEASIBLE)
    for (status, reason), methods in certain_first:
        names = escape(", ".join(dict.fromkeys(methods)))
        bad = " bad" if status == "error" else ""
        notes.append(
            f'<p class="note{bad}"><strong>{escape(status)}</strong> ({names}): '
            f"{escape(reason)}</p>"
        )
    return notes
