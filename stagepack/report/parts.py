"""Parts of a page that all kinds of problems share: figures, and the choice among solutions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from stagepack.contracts import JsonObject, Number, SolutionT
from stagepack.report.extra import Figure
from stagepack.report.figures import ZOOM
from stagepack.report.templating import part, render
from stagepack.result import Result, Status

TOP = 38  # pixels above a plot, for its buttons
OTHER_PLOTS = ("colorscale", "geo", "map", "mapbox", "polar", "scene", "ternary")
"""What plotly's template says of plots that pages have none of: most of its bytes."""


@dataclass
class Section:
    """HTML of a section, and the figures to be drawn into its elements by their ids."""

    html: str
    figures: JsonObject = field(default_factory=dict)


def choices(solved: Mapping[str, Result[SolutionT]]) -> list[tuple[str, Result[SolutionT]]]:
    """Return the different solutions, each with the names of the methods that found it."""
    names: dict[SolutionT, list[str]] = {}
    first: dict[SolutionT, Result[SolutionT]] = {}
    for name, result in solved.items():
        names.setdefault(result.solution, []).append(name)
        known = first.setdefault(result.solution, result)
        if result.status == Status.OPTIMAL and known.status != Status.OPTIMAL:
            first[result.solution] = result
    return [(", ".join(names[solution]), first[solution]) for solution in names]


def choose(
    what: str,
    found: Sequence[tuple[str, Result[object]]],
    best: Result[object] | None,
    worth: Callable[[Number | None], str],
) -> tuple[str, int]:
    """Return the element in which people choose a solution, and the first choice: the `best`.

    `what` is its label; `found` are names of methods, and what they found; `worth` says an
    objective value in words.
    """
    start = next(
        (i for i, (_, result) in enumerate(found) if best and result.solution == best.solution), 0
    )
    options = [(name, worth(result.objective)) for name, result in found]
    return part("choose", what, options, start), start


def section(
    figures: JsonObject,
    selector: str,
    start: int,
    *,
    above: Sequence[str] = (),
    panels: Sequence[str] = (),
    accounts: Iterable[str] = (),
    title: str = "",
    stacked: bool = False,
) -> Section:
    """Return the section of an instance, in which people choose among solutions.

    `figures` are all its figures by the ids of their elements; `selector` and `start` are where
    people choose, and the first choice, as :func:`choose` returns them.  Of HTML are the panels of
    all solutions, `above`, the `panels` of the chosen one, in pairs unless `stacked`, and the
    `accounts` of what each amounts to, which can be opened and closed if they have a `title`.
    """
    html = render(
        "report/templates/section.html",
        above=above,
        selector=selector,
        start=start,
        panels=panels,
        accounts=accounts,
        title=title,
        pairs=not stacked and len(panels) > 1,
    )
    return Section(html, figures)


def panel(
    name: str,
    figure: Figure,
    drawn: JsonObject,
    *,
    start: int = 0,
    of: str = "",
    rectangles: Mapping[str, object] | None = None,
) -> str:
    """Keep a figure (or one for every choice) for the script; return its place on the page.

    It goes to `drawn`, by the id of its element, `name`; `start` is the first choice, `of` whose
    figure it is, where the choice does not tell.  The script paints `rectangles` below it, see
    ``static/rectangles.js``.
    """
    several = isinstance(figure, Sequence)
    plain = [json.loads(f.to_json()) for f in (figure if several else [figure])]
    layout = plain[start if several else 0]["layout"]
    title = ". ".join(
        filter(None, [of, layout.pop("title")["text"]])
    )  # a heading wraps where a plot's title would overlap
    title, zoom, _ = title.partition(f": {ZOOM}")
    layout["margin"]["t"] = TOP
    _keep_what_is_used(layout["template"], {one["type"] for f in plain for one in f["data"]})
    drawn[name] = {"layout": layout}
    if several:
        drawn[name] |= {"choices": [f["data"] for f in plain], "start": start}
    else:
        drawn[name]["data"] = plain[0]["data"]
    if rectangles:
        drawn[name]["rectangles"] = {**rectangles, "choice": start}
    return part("panel", name, title, zoom, layout["height"], several)


def _keep_what_is_used(template: JsonObject, types: AbstractSet[str]) -> None:
    """Drop from a template what no trace of these types looks up."""
    looks = template.get("data", {})
    template["data"] = {name: looks[name] for name in looks if name in types}
    for name in OTHER_PLOTS:
        template["layout"].pop(name, None)
