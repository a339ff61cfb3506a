"""The comparison as a self-contained page: tables, and a section for each instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from stagepack import files
from stagepack.compare.outcomes import Outcomes, reasons, secondary_header
from stagepack.compare.table import standing_of
from stagepack.contracts import JsonObject, Solution
from stagepack.errors import InputError
from stagepack.report import format as as_text
from stagepack.report import summary
from stagepack.report.html import page
from stagepack.report.parts import panel
from stagepack.report.search import trace_figure
from stagepack.report.view import view
from stagepack.result import Result, Status

NEAR = 1.00005
"""A ratio that reads as 1."""
FEW = 12
"""Instances of which the page shows pictures first; tables of more are folded."""


def write_html(comparison: Outcomes, directory: str | Path) -> Path:
    """Write ``index.html`` into `directory`, making it if need be, and return its path."""
    text = to_html(comparison)
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
    files.write(path, text)
    return path


def to_html(comparison: Outcomes) -> str:
    """Return the page."""
    figures: JsonObject = {}
    given = shown_in(comparison, "", figures)
    return page("compare/templates/page.html", "Stagepack comparison", figures, **given)


def shown_in(comparison: Outcomes, anchor: str, figures: JsonObject) -> JsonObject:
    """Return what the templates of a `comparison` are about; its figures go to `figures`.

    Names of its elements begin with `anchor`.
    """
    kinds = list(dict.fromkeys(row["problem"] for row in comparison.rows))
    rows = sorted(comparison.rows, key=lambda row: kinds.index(row["problem"]))
    labels = dict.fromkeys(row["instance"] for row in rows)
    anchors = {label: f"{anchor}i{index}" for index, label in enumerate(labels)}
    cells_of: dict[str, set[str]] = {}
    for row in rows:
        cells_of.setdefault(row["method"], set()).add(row["instance"])
    settings = (f"{key} = {said}" for key, said in comparison.settings.items() if said is not None)
    return {
        "comparison": comparison,
        "about": _about(comparison, kinds),
        "rows": rows,
        "several_kinds": len(kinds) > 1,
        "secondary": [name.capitalize() for name in secondary_header(comparison)],
        "several_seeds": len({row["seed"] for row in rows}) > 1,
        "standing": lambda row: standing_of(comparison, row),
        "anchors": anchors,
        "summary": [
            row for row in comparison.summary if len(kinds) == 1 or len(cells_of[row["method"]]) > 1
        ],
        "answer": "" if len(kinds) > 1 else _answer(comparison.summary),
        "pictures": list(_pictures(comparison, anchors, figures)),
        "folded": len(labels) > FEW,
        "contents": [_best(comparison, label, anchors[label], rows) for label in labels],
        "sections": [_section(comparison, label, anchors[label], figures) for label in labels],
        "settings": ", ".join(settings),
        "versions": ", ".join(f"{name} {said}" for name, said in comparison.versions.items()),
    }


def _pictures(
    comparison: Outcomes, anchors: Mapping[str, str], figures: JsonObject
) -> Iterator[JsonObject]:
    """Yield of each instance what is furthest from the best beside the best, at one scale.

    `anchors` begin the names of elements, by instance; figures go to `figures`.
    """
    for label, anchor in anchors.items() if len(anchors) <= FEW else ():
        instance, best = comparison.instances[label], comparison.best(label)
        kind, found = view(instance.kind), _results(comparison, label)
        found = {name: one for name, one in found.items() if one.objective is not None}
        worst = max(found, key=lambda name: found[name].objective or 0, default="")
        least = None if best is None else best.objective
        if best is None or least is None or not kind.interactive or least <= 0:
            continue
        saved = float(1 - least / (found[worst].objective or least))
        if saved <= NEAR - 1:
            continue
        worth = partial(kind.worth_with_unit, instance)
        pair = {worst: found[worst], best.method: best}
        titles = [f"{name}: {worth(one.objective)}" for name, one in pair.items()]
        own = kind.beside(instance, dict(zip(titles, pair.values(), strict=True)), f"{anchor}-and")
        figures.update(own.figures)
        proved = "proved optimal" if best.status == Status.OPTIMAL else "not proved optimal"
        yield {
            "anchor": anchor,
            "label": label,
            "saved": as_text.gap(saved),
            "said": f"less than {worst}: {kind.goal(instance)} {worth(best.objective)} instead of "
            f"{worth(found[worst].objective)}, {proved}",
            "html": own.html,
        }


def _about(comparison: Outcomes, kinds: list[str]) -> list[str]:
    """Return what was compared: how many, how long, when."""
    about = [
        ", ".join(filter(None, kinds)),
        as_text.plural(len(comparison.instances), "instance"),
        as_text.plural(len(comparison.methods), "method"),
    ]
    seeds = {cell.seed for cell in comparison.cells}
    if len(seeds) > 1:
        about.append(as_text.plural(len(seeds), "seed"))
    about.append(f"{as_text.seconds(comparison.runtime)} in all")
    if comparison.started:
        about.append(comparison.started)
    return about


def _answer(summary: Sequence[JsonObject]) -> str:
    """Return which methods prove most, and which is furthest from the best, in a sentence each."""
    parts = []
    most = max((row["proved"] for row in summary), default=0)
    if most:
        names = ", ".join(row["method"] for row in summary if row["proved"] == most)
        parts.append(f" Most proofs: {names} ({most:,}).")
    worst = max(summary, key=lambda row: row["ratio"] or 1, default=None)
    if worst is not None and (worst["ratio"] or 1) > NEAR:
        above = as_text.gap(worst["ratio"] - 1)
        parts.append(f" Furthest from the best: {worst['method']}, {above} above it on average.")
    return "".join(parts)


def _best(comparison: Outcomes, label: str, anchor: str, rows: Sequence[JsonObject]) -> JsonObject:
    """Return what the line of an instance says: its objective, and who found the best."""
    instance = comparison.instances[label]
    kind = view(instance.kind)
    own = [row for row in rows if row["instance"] == label]
    found = [row for row in own if row["best"]]
    refused = [row for row in own if row["status"] == Status.INFEASIBLE]
    found.sort(key=lambda row: row["status"] != Status.OPTIMAL)
    best = next(iter(found or refused), None)
    return {
        "anchor": anchor,
        "label": label,
        "problem": instance.kind,
        "objective": kind.objective(instance),
        "best": best,
        "worth": as_text.number(found[0]["objective"] if found else None),
        "methods": ", ".join(dict.fromkeys(row["method"] for row in found or refused)),
        "furthest": _furthest(own),
    }


def _furthest(own: Sequence[JsonObject]) -> str:
    """Return which of the runs of an instance is furthest from the best, and by how much."""
    worst = max(own, key=lambda row: row["ratio"] or 1, default=None)
    if worst is None or (worst["ratio"] or 1) <= NEAR:
        return ""
    return f"{worst['method']}: {as_text.gap(worst['ratio'] - 1)} above"


def _headline(comparison: Outcomes, label: str, results: Mapping[str, Result[Solution]]) -> str:
    """Return what the folded card of an instance says."""
    instance, best = comparison.instances[label], comparison.best(label)
    kind = view(instance.kind)
    parts = [kind.headline(instance)]
    if best is not None:
        standing = as_text.standing(best.status, best.objective, instance)
        parts.append(kind.worth_with_unit(instance, best.objective))
        parts.append(f"{standing} by {best.method}")
    elif refused := [name for name, one in results.items() if one.status == Status.INFEASIBLE]:
        parts.append(f"{Status.INFEASIBLE} by {refused[0]}")
    return " · ".join(parts)


def _section(comparison: Outcomes, label: str, anchor: str, figures: JsonObject) -> JsonObject:
    """Return what the section of one instance is made of; its figures go to `figures`."""
    instance = comparison.instances[label]
    kind = view(instance.kind)
    results = _results(comparison, label)
    parts = []
    solved = {name: result for name, result in results.items() if result.solution is not None}
    if solved:
        own = kind.section(instance, solved, comparison.best(label), anchor)
        parts.append(own.html)
        figures.update(own.figures)
    infeasible = any(result.status == Status.INFEASIBLE for result in results.values())
    searched = {name: result for name, result in results.items() if result.trace.events}
    if searched and (solved or not infeasible):
        curves = trace_figure(searched, kind.unit(instance))
        parts.append(panel(f"{anchor}-trace", curves, figures))
    return {
        "anchor": anchor,
        "label": label,
        "summary": _headline(comparison, label, results),
        "facts": summary.lines(instance),
        "reasons": _reasons(comparison, label),
        "parts": parts,
    }


def _results(comparison: Outcomes, label: str) -> dict[str, Result[Solution]]:
    """Return the results of an instance by method, with the seed where there are several."""
    several = len({cell.seed for cell in comparison.cells}) > 1
    return {
        cell.method + (f" · seed {cell.seed}" if several else ""): comparison.results[cell]
        for cell in comparison.cells
        if cell.instance == label and cell in comparison.results
    }


def _reasons(comparison: Outcomes, label: str) -> list[tuple[tuple[str, str], list[str]]]:
    """Return why methods have no solution: of each status and reason its methods."""
    own = reasons(row for row in comparison.rows if row["instance"] == label)
    found = [(key, list(dict.fromkeys(where[label]))) for key, where in own.items()]
    return sorted(found, key=lambda item: item[0][0] != Status.INFEASIBLE)
