"""Parts of a page that all kinds of problems share: figures, and the choice among solutions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stagepack.report.format import escape
from stagepack.report.table import Account, Sheet
from stagepack.result import Result, Status

TOP = 38  # pixels above a plot, for its buttons


@dataclass
class Section:
    """HTML of a section, and the figures to be drawn into its elements by their ids."""

    html: str
    figures: dict[str, Any] = field(default_factory=dict)


def choices(solved: Mapping[str, Result[Any]]) -> list[tuple[str, Result[Any]]]:
    """Return the different solutions, each with the names of the methods that found it."""
    names: dict[Any, list[str]] = {}
    first: dict[Any, Result[Any]] = {}
    for name, result in solved.items():
        names.setdefault(result.solution, []).append(name)
        known = first.setdefault(result.solution, result)
        if result.status == Status.OPTIMAL and known.status != Status.OPTIMAL:
            first[result.solution] = result
    return [(", ".join(names[solution]), first[solution]) for solution in names]


def choose(
    what: str,
    found: Sequence[tuple[str, Result[Any]]],
    best: Result[Any] | None,
    worth: Callable[[Any], str],
) -> tuple[str, int]:
    """Return the element in which people choose a solution, and the first choice: the best."""
    start = next(
        (i for i, (_, result) in enumerate(found) if best and result.solution == best.solution), 0
    )
    options = "".join(
        f'<option value="{i}"{" selected" if i == start else ""}>{escape(name)}: '
        f"{escape(worth(result.objective))}</option>"
        for i, (name, result) in enumerate(found)
    )
    label = f'<label>{escape(what)} <select class="method">{options}</select></label>'
    return f'<p class="choose">{label}</p>', start


def chosen(parts: Iterable[str], start: int) -> list[str]:
    """Return one element a choice, of which only the one chosen shows."""
    return [
        f'<div class="scroll" data-choice="{i}"{"" if i == start else " hidden"}>{part}</div>'
        for i, part in enumerate(parts)
    ]


def panel(
    name: str,
    figure: Any,
    drawn: dict[str, Any],
    *,
    start: int = 0,
    painting: Mapping[str, Any] | None = None,
) -> str:
    """Keep a figure (or one for every choice) for the script; return its place on the page.

    Parameters
    ----------
    name : str
        Id of the element.
    figure : plotly Figure, or a sequence of them
    drawn : dict
        Where figures are kept by the ids of their elements.
    start : int
        The first choice.
    painting : mapping, optional
        What the script paints below the figure, see ``static/painting.js``.
    """
    several = isinstance(figure, Sequence)
    plain = [json.loads(f.to_json()) for f in (figure if several else [figure])]
    layout = plain[start]["layout"]
    title = layout.pop("title")["text"]  # a heading wraps where a plot's title would overlap
    layout["margin"]["t"] = TOP
    drawn[name] = {"data": plain[start]["data"], "layout": layout}
    if several:
        drawn[name]["choices"] = [f["data"] for f in plain]
    if painting:
        drawn[name]["painting"] = {**painting, "choice": start}
    marker = " data-choices" if several else ""
    return (
        f'<div class="panel"><h3>{escape(title)}</h3>'
        f'<div class="figure" id="{name}"{marker} style="height:{layout["height"]}px"></div></div>'
    )


def account_html(account: Account) -> str:
    """Return what a solution amounts to, as HTML without scripts or styles."""
    parts = [] if not account.lines else [facts_html(account.lines, wide=True)]
    return "".join(parts if account.sheet is None else [*parts, sheet_html(account.sheet)])


def facts_html(lines: Iterable[tuple[str, str]], *, wide: bool = False) -> str:
    """Return facts as (what, text) in columns."""
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in lines
    )
    return f'<dl class="facts{" wide" if wide else ""}">{pairs}</dl>'


def sheet_html(sheet: Sheet) -> str:
    """Return a sheet as a table; one with a title can be opened."""
    kinds = ["" if name in sheet.words else ' class="number"' for name in sheet.header]
    head = "".join(
        f"<th{kind}>{escape(name[:1].upper() + name[1:])}</th>"
        for name, kind in zip(sheet.header, kinds, strict=True)
    )
    over = {row for (row, _), style in sheet.marks.items() if "red" in style}
    body = "".join(
        f"<tr{' class=over' if at in over else ''}>"
        + "".join(f"<td{k}>{escape(text)}</td>" for text, k in zip(row, kinds, strict=True))
        + "</tr>"
        for at, row in enumerate(sheet.shown)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    table += f"<p>{sheet.more}</p>" if sheet.more else ""
    if not sheet.title:
        return table
    return f"<details><summary>{escape(sheet.title)}</summary>{table}</details>"
