"""Writes pages: any number of results, plans, comparisons and other objects in one file.

Each object is a chapter with its figures and pictures, provided by the module of the object.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import NamedTuple

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Solution
from stagepack.errors import InputError
from stagepack.report import format as as_text
from stagepack.report.canvas import close
from stagepack.report.extra import Axes
from stagepack.report.html import page
from stagepack.report.shown import contents, fragment
from stagepack.report.style import DARK, INK
from stagepack.report.templating import render
from stagepack.report.view import view
from stagepack.result import Result

KNOWN = "results, plans, tunings, fronts, explanations, comparisons, stores of results"


class Chapter(NamedTuple):
    """What a page says of one thing."""

    title: str
    html: str


def report(found: object, path: str | Path) -> Path:
    """Write a self-contained page about one or several objects, one below the other.

    Parameters
    ----------
    found : object or sequence
        One object or several: results, plans, tunings, fronts, explanations, comparisons, and the
        results of a store.
    path : path-like
        The file to write; names that end in ``.gz`` are compressed.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If an object has no page, a result has no instance attached, the file cannot be written, or
        matplotlib, plotly or jinja2 is not installed.
    """
    several = isinstance(found, Sequence) and not isinstance(found, str | bytes)
    things = list(found) if isinstance(found, Sequence) and several else [found]
    if not things:
        raise InputError("holds nothing", field="found", remedy=f"give {KNOWN}")
    target = files.require_path(path)
    figures: JsonObject = {}
    chapters = [chapter(given, f"part{at}", figures) for at, given in enumerate(things)]
    title = chapters[0].title if len(chapters) == 1 else "Stagepack report"
    text = page("report/templates/report.html", title, figures, chapters=chapters)
    files.write(target, text)
    return target


@singledispatch
def chapter(given: object, anchor: str, figures: JsonObject) -> Chapter:
    """Return what a page says of a thing, `given`.

    The names of its elements begin with `anchor`; by these its figures go to `figures`.
    """
    raise InputError(f"{type(given).__name__} has no page", field="found", remedy=f"give {KNOWN}")


@chapter.register(Result)
def _result(given: Result[Solution], anchor: str, figures: JsonObject) -> Chapter:
    if given.problem is None:
        raise InputError(
            "does not know its instance",
            field="found",
            remedy="give result.of(instance)",
        )
    title = given.problem.name or given.problem.kind
    head = fragment(contents(given)[0])
    if given.solution is None:
        return Chapter(title, head)
    return Chapter(title, head + answers([("solution", given.problem, given)], anchor, figures))


def with_pictures(title: str, given: object, pictures: Mapping[str, Callable[[], Axes]]) -> Chapter:
    """Return the chapter of an object, `given`, below a `title`: its first lines, `pictures` of
    matplotlib by what they show, each with the function that draws it, then its tables.
    """
    first, *others = (fragment(content) for content in contents(given, whole=True))
    drawn = [(name, picture(draw())) for name, draw in pictures.items()]
    return Chapter(
        title,
        "".join([first, render("report/templates/pictures.html", pictures=drawn), *others]),
    )


def picture(ax: Axes) -> str:
    """Return a picture as the address of an image that holds it, with colours for dark pages."""
    stream = io.StringIO()
    ax.figure.savefig(stream, format="svg", bbox_inches="tight")
    close(ax.figure)
    head, root, rest = stream.getvalue().partition("<svg ")
    attributes, end, drawn = rest.partition(">")
    text = "".join((head, root, attributes, end, f"<style>{_dark_rules()}</style>", drawn))
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()


def _dark_rules() -> str:
    """Return CSS that gives fills and strokes of matplotlib's SVG their colours on dark pages."""
    rules = [f"svg {{ fill: {DARK[INK]}; }}"]  # text that names no colour
    rules += [
        f'[style*="{what}: {colour}"] {{ {what}: {dark} !important; }}'
        for colour, dark in DARK.items()
        for what in ("fill", "stroke")
    ]
    return f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def answers(
    given: Iterable[tuple[str, Instance, Result[Solution]]],
    anchor: str,
    figures: JsonObject,
    microbatches: int | None = None,
) -> str:
    """Return answers one below the other: the levels of a plan, or a single one.

    `given` are their names, and what is shown of each; `anchor` and `figures` are as for
    :func:`chapter`, `microbatches` those of the step that all are about: partitions of a plan count
    those in flight.
    """
    levels = [
        _answer(name, instance, result, f"{anchor}level{at}", figures, microbatches)
        for at, (name, instance, result) in enumerate(given)
    ]
    return render("report/templates/answers.html", levels=levels)


def _answer(
    name: str,
    instance: Instance,
    result: Result[Solution],
    anchor: str,
    figures: JsonObject,
    microbatches: int | None,
) -> JsonObject:
    """Return what the page says of an answer; its figures go to `figures`."""
    kind = view(instance.kind)
    section = kind.section(instance, {result.method: result}, result, anchor)
    figures.update(section.figures)
    standing = as_text.standing(result.status, result.objective, instance)
    head = kind.headline(instance) if microbatches is None else kind.part(instance, microbatches)
    worth = kind.worth_with_unit(instance, result.objective)
    return {
        "anchor": anchor,
        "name": name,
        "headline": f"{head} · {worth} · {standing}",
        "html": section.html,
    }
