"""The comparison as one self-contained page: no network, no other files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack import files
from stagepack.errors import InputError
from stagepack.report import format as as_text
from stagepack.report.assets import CSS, SCRIPT
from stagepack.report.format import escape
from stagepack.report.kinds import face
from stagepack.report.section import instance_section
from stagepack.report.table import standing_of

if TYPE_CHECKING:
    from stagepack.compare import Comparison

HEADINGS = ("Instance", "Method", "Status", "Objective", "Bound", "Gap", "Time", "Ratio to best")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The browser itself forbids the page to load anything."""


def write_html(comparison: Comparison, directory: str | Path) -> Path:
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


def to_html(comparison: Comparison) -> str:
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
    sections = [instance_section(comparison, label, anchors[label]) for label in labels]
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
    return _document("Stagepack comparison", body, figures)


def write_figure(instance: Any, solution: Any, path: str | Path, scale: str | None = None) -> None:
    """Write the picture of one solution as a self-contained page.

    Raises
    ------
    InputError
        When the file cannot be written, or plotly is not installed.
    """
    kind = face(instance)
    section = kind.page(instance, solution, scale)
    body = [
        f"<header><h1>{escape(instance.name)}</h1>"
        f'<p class="muted">{escape(kind.headline(instance))}</p></header>',
        "<main>",
        section.html,
        "</main>",
    ]
    files.write(path, _document(instance.name, body, section.figures))


def _document(title: str, body: Iterable[str], figures: Mapping[str, Any]) -> str:
    """Return a whole page, with everything that its figures need."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError(
            "the report needs plotly", remedy="pip install 'stagepack[report]'"
        ) from error
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>{CSS}</style>",
            "</head>",
            "<body>",
            *body,
            f'<script type="application/json" id="figures">{_embedded(figures)}</script>',
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{SCRIPT}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _header(comparison: Comparison) -> str:
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


def _warnings(comparison: Comparison) -> str:
    notes = []
    if comparison.interrupted:
        notes.append('<p class="note">Interrupted: the comparison is not complete.</p>')
    notes += [
        f'<p class="note bad"><strong>Contradiction, a bug in Stagepack:</strong> {escape(c)}</p>'
        for c in comparison.contradictions
    ]
    return "\n".join(notes)


def _summary(comparison: Comparison, rows: list[dict[str, Any]], anchors: Mapping[str, str]) -> str:
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


def _footer(comparison: Comparison) -> str:
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


def _embedded(data: Any) -> str:
    """Return data as JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
