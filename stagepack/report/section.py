"""One instance on the page: facts, the map of its stages, device bars, curves of the search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from stagepack.instances.pipeline import KIND as PIPELINE
from stagepack.instances.pipeline.estimate import Estimate, estimate
from stagepack.report import figures, summary
from stagepack.report import format as as_text
from stagepack.result import Result, Status

if TYPE_CHECKING:
    from stagepack.compare import Comparison

COLUMNS = ("Stage", "Layers", "Device", "Compute", "Transfer", "Memory", "Capacity", "Used")

TOP = 38  # pixels above a plot, for its buttons


@dataclass
class Section:
    """HTML of a section, and the figures to be drawn into its elements by their ids."""

    html: str
    figures: dict[str, Any] = field(default_factory=dict)


def instance_section(comparison: Comparison, label: str, anchor: str) -> Section:
    """Return the section of one instance."""
    instance = comparison.instances[label]
    results = _results(comparison, label)
    drawn: dict[str, Any] = {}
    parts = [
        f'<section class="instance" id="{anchor}">',
        f"<h2>{escape(label)}</h2>",
        _facts(instance),
        *_reasons(comparison, label),
    ]
    solved = {name: result for name, result in results.items() if result.solution is not None}
    if solved and instance.kind == PIPELINE:
        parts += _pipeline(instance, solved, comparison.best(label), anchor, drawn)
    infeasible = any(result.status == Status.INFEASIBLE for result in results.values())
    if any(result.trace.events for result in results.values()) and (solved or not infeasible):
        searched = {name: result for name, result in results.items() if result.trace.events}
        parts.append(_figure(f"{anchor}-trace", figures.trace(searched), drawn))
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


def _pipeline(
    instance: Any,
    solved: dict[str, Result[Any]],
    best: Result[Any] | None,
    anchor: str,
    drawn: dict[str, Any],
) -> list[str]:
    """Return the map of all solutions and, for a choice of them, the bars and the stages."""
    parts = [_figure(f"{anchor}-map", figures.stage_map(instance, solved), drawn)]
    choices = _choices(solved)
    estimates: list[Estimate] = [estimate(instance, r.solution) for _, r in choices if r.solution]
    start = next(
        (i for i, (_, result) in enumerate(choices) if best and result.solution == best.solution), 0
    )
    options = "".join(
        f'<option value="{i}"{" selected" if i == start else ""}>{escape(name)}: '
        f"{as_text.number(result.objective)}</option>"
        for i, (name, result) in enumerate(choices)
    )
    parts.append(
        f'<p class="choose"><label>Stages of <select class="method">{options}</select></label></p>'
    )
    parts.append('<div class="pair">')
    cycles = [figures.device_bars(e) for e in estimates]
    parts.append(_figure(f"{anchor}-cycles", cycles, drawn, start=start))
    if any(stage.memory for e in estimates for stage in e.stages):
        memory = [figures.memory_bars(e, estimates) for e in estimates]
        parts.append(_figure(f"{anchor}-memory", memory, drawn, start=start))
    parts.append("</div>")
    parts.append("<details><summary>Stages in figures</summary>")
    parts += [
        f'<div class="scroll" data-choice="{i}"{"" if i == start else " hidden"}>'
        f"{_stages(figures_of)}</div>"
        for i, figures_of in enumerate(estimates)
    ]
    parts.append("</details>")
    return parts


def _choices(solved: dict[str, Result[Any]]) -> list[tuple[str, Result[Any]]]:
    """Return the different solutions, each with the names of the methods that found it."""
    names: dict[Any, list[str]] = {}
    first: dict[Any, Result[Any]] = {}
    for name, result in solved.items():
        names.setdefault(result.solution, []).append(name)
        known = first.setdefault(result.solution, result)
        if result.status == Status.OPTIMAL and known.status != Status.OPTIMAL:
            first[result.solution] = result
    return [(", ".join(names[solution]), first[solution]) for solution in names]


def _figure(name: str, figure: Any, drawn: dict[str, Any], *, start: int = 0) -> str:
    """Keep a figure (or one for every choice) for the script; return its place on the page."""
    several = isinstance(figure, Sequence)
    plain = [json.loads(f.to_json()) for f in (figure if several else [figure])]
    layout = plain[start]["layout"]
    title = layout.pop("title")["text"]  # a heading wraps where a plot's title would overlap
    layout["margin"]["t"] = TOP
    drawn[name] = {"data": plain[start]["data"], "layout": layout}
    if several:
        drawn[name]["choices"] = [f["data"] for f in plain]
    marker = " data-choices" if several else ""
    return (
        f'<div class="panel"><h3>{escape(title)}</h3>'
        f'<div class="figure" id="{name}"{marker} style="height:{layout["height"]}px"></div></div>'
    )


def _stages(figures_of: Estimate) -> str:
    head = "".join(
        f"<th{' class=number' if index > 2 else ''}>{name}</th>"
        for index, name in enumerate(COLUMNS)
    )
    lines = []
    for s in figures_of.stages:
        over = " class=over" if s.free is not None and s.free < 0 else ""
        numbers = (
            as_text.number(s.compute),
            as_text.number(s.transfer),
            as_text.quantity(s.memory),
            as_text.quantity(s.capacity),
            as_text.share(s.utilisation),
        )
        lines.append(
            f"<tr{over}><td>{s.stage}</td><td>{s.first:,}–{s.end - 1:,}</td>"
            f"<td>{escape(s.device_name)}</td>"
            + "".join(f'<td class="number">{text}</td>' for text in numbers)
            + "</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
