"""A page of answers one below the other: the levels of a plan, or a single one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.contracts import Instance, JsonObject
from stagepack.report import format as as_text
from stagepack.report.html import page
from stagepack.report.view import view
from stagepack.result import Result


def write_page(
    path: str | Path,
    title: str,
    summary: str,
    answers: Iterable[tuple[str, Instance, Result[Any]]],
) -> None:
    """Write a self-contained page.

    Parameters
    ----------
    path : path-like
    title : str
    summary : str
        HTML of what comes first.
    answers : iterable of (str, instance, Result)
        Their names, and what is shown of each.

    Raises
    ------
    InputError
        When it cannot be written, or what draws is not installed.
    """
    figures: JsonObject = {}
    levels = [
        _section(name, instance, result, f"level{at}", figures)
        for at, (name, instance, result) in enumerate(answers)
    ]
    text = page("report/templates/levels.html", title, figures, summary=summary, levels=levels)
    files.write(path, text)


def _section(
    name: str, instance: Instance, result: Result[Any], anchor: str, figures: JsonObject
) -> JsonObject:
    """Return what the page says of an answer; its figures go to `figures`."""
    kind = view(instance.kind)
    section = kind.section(instance, {result.method: result}, result, anchor)
    figures.update(section.figures)
    standing = as_text.standing(result.status, result.objective, instance)
    worth = kind.worth_with_unit(instance, result.objective)
    return {
        "anchor": anchor,
        "name": name,
        "headline": f"{kind.headline(instance)} · {worth} · {standing}",
        "html": section.html,
    }
