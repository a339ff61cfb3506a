"""The comparison as one self-contained page: a table, and a section an instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.compare.outcomes import Outcomes
from stagepack.compare.table import standing_of
from stagepack.errors import InputError
from stagepack.report import format as as_text
from stagepack.report import summary
from stagepack.report.format import escape
from stagepack.report.html import document
from stagepack.report.parts import Section, facts_html, panel
from stagepack.report.search import trace_figure
from stagepack.report.view import view
from stagepack.result import Result, Status

HEADINGS = ("Instance", "Method", "Status", "Objective", "Bound", "Gap", "Time", "Ratio to best")


def write_html(comparison: Outcomes, directory: str | Path) -> Path:
    """Write ``index.html`` into `directory`, making it if need be, and return its path.

    Raises
    ------
    InputError
        When the directory or the file cannot be written, or plotly is not installed.
    """
    page = to_html(comparison)
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be made ({error.strerror or error})",
            file=directory,
            remedy="choose a writable place",
        ) from error
    path = directory / "index.html"
    files.write(path, page)
    return path


def to_html(comparison: Outcomes) -> str:
    """Return the page.

    Raises
    ------
    InputError
        When plotly is not installed.
    """
    kinds = list(dict.fromkeys(row["problem"] for row in comparison.rows))
    rows = sorted(comparison.rows, key=lambda row: kinds.index(row["problem"]))
    labels = list(dict.fromkeys(row["instance"] for row in rows))
    anchors = {label: f"i{index}" for index, label in enumerate(labels)}
    sections = [_section(comparison, label, anchors[label]) for label in labels]
    figures: dict[str, Any] = {}
    for section in sections:
        figures.update(section.figures)
    body = [
        _header(comparison),
        "<main>",
        _warnings(comparison),
        _summary(comparison, rows, anchors),
        *(section.html for section in sections),
        "</main>",
        _footer(comparison),
    ]
    return document("Stagepack comparison", body, figures)


def _header(comparison: Outcomes) -> str:
    kinds = dict.fromkeys(row["problem"] for row in comparison.rows)
    about = [
        as_text.plural(len(comparison.instances), "instance"),
        as_text.plural(len(comparison.methods), "method"),
    ]
    seeds = {cell.seed for cell in comparison.cells}
    if len(seeds) > 1:
        about.append(as_text.plural(len(seeds), "seed"))
    about.append(f"{as_text.seconds(comparison.runtime)} in all")
    if comparison.started:
        about.append(comparison.started)
    return (
        f"<header><h1>Stagepack comparison</h1>"
        f'<p class="muted">{escape(", ".join(filter(None, kinds)))} · '
        f"{escape(' · '.join(about))}</p></header>"
    )


def _warnings(comparison: Outcomes) -> str:
    notes = []
    if comparison.interrupted:
        notes.append('<p class="note">Interrupted: the comparison is not complete.</p>')
    notes += [
        f'<p class="note bad"><strong>Contradiction, a bug in Stagepack:</strong> {escape(c)}</p>'
        for c in comparison.contradictions
    ]
    return "\n".join(notes)


def _summary(comparison: Outcomes, rows: list[dict[str, Any]], anchors: Mapping[str, str]) -> str:
    several_seeds = len({row["seed"] for row in rows}) > 1
    several_kinds = len({row["problem"] for row in rows}) > 1
    lines, shown, kind = [], None, None
    for row in rows:
        if several_kinds and row["problem"] != kind:
            kind = row["problem"]
            lines.append(f'<tr class="kind"><th colspan="{len(HEADINGS)}">{escape(kind)}</th></tr>')
        label, first = row["instance"], row["instance"] != shown
        shown = label
        name = f'<a href="#{anchors[label]}">{escape(label)}</a>' if first else ""
        method = row["method"] + (f" · seed {row['seed']}" if several_seeds else "")
        best = " best" if row["best"] else ""
        lines.append(
            f"<tr{' class=first' if first else ''}><td>{name}</td>"
            f'<td class="method">{escape(method)}</td>'
            f"<td>{_badge(standing_of(comparison, row), row['reason'])}</td>"
            f'<td class="number{best}">{as_text.number(row["objective"])}</td>'
            f'<td class="number">{as_text.number(row["bound"])}</td>'
            f'<td class="number">{escape(as_text.gap(row["gap"]))}</td>'
            f'<td class="number">{escape(as_text.seconds(row["runtime"]))}</td>'
            f'<td class="number{best}">{escape(as_text.ratio(row["ratio"]))}</td></tr>'
        )
    head = "".join(
        f"<th{' class=number' if index > 2 else ''}>{name}</th>"
        for index, name in enumerate(HEADINGS)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _badge(status: str, reason: str | None) -> str:
    """Return a status in words and colour, its reason as a tip."""
    kind = status.replace("/", "")
    tip = f' title="{escape(reason)}"' if reason else ""
    return f'<span class="status {kind}"{tip}>{escape(status)}</span>'


def _footer(comparison: Outcomes) -> str:
    settings = ", ".join(f"{key} = {value}" for key, value in comparison.settings.items())
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    return (
        "<footer><h3>To repeat this comparison</h3>"
        f"<pre>{escape(comparison.repeat)}</pre>"
        f"<p><strong>Options.</strong> {escape(settings)}</p>"
        f"<p><strong>Versions.</strong> {escape(versions or 'none recorded')}</p>"
        '<p class="muted">Every solution was checked against its instance; gap = (objective − '
        "bound) / max(1, |objective|); time is that of solving, without imports and "
        "compilation.</p></footer>"
    )


def _section(comparison: Outcomes, label: str, anchor: str) -> Section:
    """Return the section of one instance."""
    instance = comparison.instances[label]
    kind = view(instance.kind)
    results = _results(comparison, label)
    drawn: dict[str, Any] = {}
    parts = [
        f'<section class="instance" id="{anchor}">',
        f"<h2>{escape(label)}</h2>",
        facts_html(summary.lines(instance)),
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
        curves = trace_figure(searched, kind.unit(instance))
        parts.append(panel(f"{anchor}-trace", curves, drawn))
    parts.append("</section>")
    return Section("\n".join(parts), drawn)


def _results(comparison: Outcomes, label: str) -> dict[str, Result[Any]]:
    """Return the results of an instance by method, with the seed where there are several."""
    several = len({cell.seed for cell in comparison.cells}) > 1
    return {
        cell.method + (f" · seed {cell.seed}" if several else ""): comparison.results[cell]
        for cell in comparison.cells
        if cell.instance == label and cell in comparison.results
    }


def _reasons(comparison: Outcomes, label: str) -> list[str]:
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
