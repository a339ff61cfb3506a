"""How instances, results and other objects are printed and displayed in notebooks.

Each object has contents: heads, sheets, accounts and lines of text.  They are printed in terminals
and rendered as HTML in notebooks.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import singledispatch
from typing import TYPE_CHECKING

from stagepack import kinds
from stagepack.contracts import Instance, JsonObject, Number, Solution
from stagepack.errors import StagepackError, shown
from stagepack.instances.base import Answered, require_instance
from stagepack.report import format as as_text
from stagepack.report.table import Account, Head, Sheet, methods_table, printed
from stagepack.report.view import AnyView, view
from stagepack.result import Result, Termination, Trace
from stagepack.solve import MethodList

if TYPE_CHECKING:
    from stagepack.report.extra import Axes

Content = str | Head | Sheet | Account

MOST = 24  # lines that are printed
ROWS = 16  # and rows of their table
WIDEST = 120  # columns
MOST_ROWS = 200  # of a table in a notebook
DPI = 90  # of a picture in a notebook
CHECKS = "stagepack.claims."  # where what checks found is from


def text(given: object, width: int) -> str:
    """Return a few readable lines of at most `width` columns, or `WIDEST`."""
    width = min(WIDEST, width)
    if isinstance(given, MethodList):  # which is a table, and printed as such
        return printed(methods_table(given), width)
    kept = "\n".join(_printed(part, width) for part in contents(given)).strip("\n").split("\n")
    if len(kept) > MOST + 1:
        kept = [*kept[:MOST], f"... and {len(kept) - MOST:,} more lines"]
    return "\n".join(kept)


def _printed(part: Content, width: int) -> str:
    if isinstance(part, str):
        return "\n".join(map(shown, part.split("\n")))
    if isinstance(part, Head):
        return "\n".join(" ".join(filter(None, line)) for line in part.in_columns(width))
    return printed(part.first(ROWS), width)


def html(given: object, *, pictured: bool = True) -> str:
    """Return HTML without scripts or styles, for a notebook.

    `pictured`: its picture belongs to it; pages have pictures of their own.
    """
    from stagepack.report.templating import render

    parts = [fragment(content) for content in contents(given, whole=True)]
    name, picture = _picture(given) if pictured else ("", "")
    return render("report/templates/notebook.html", parts=parts, name=name, picture=picture)


def fragment(content: Content) -> str:
    """Return one of the contents as HTML."""
    from stagepack.report.templating import part

    match content:
        case Sheet():
            return part("sheet", content.first(MOST_ROWS))
        case Account():
            return part("account", content.first(MOST_ROWS))
        case Head():
            return part("lines", content.in_columns())
        case _:
            return part("lines", [("", line) for line in content.splitlines()])


def _picture(given: object) -> tuple[str, str]:
    """Return what a picture shows, and it in base 64; nothing where matplotlib is missing."""
    from stagepack.report.canvas import close, encoded

    try:
        name, drawn = picture_of(given)
    except StagepackError:
        return "", ""
    if drawn is None:
        return "", ""
    data = encoded(drawn.figure, "png", DPI)
    close(drawn.figure)
    return name, base64.b64encode(data).decode()


@singledispatch
def picture_of(given: object) -> tuple[str, Axes | None]:
    """Return what the picture of a thing shows, and its axes; None for what has no picture."""
    return "", None


@picture_of.register(Result)
def _(given: Result[Solution]) -> tuple[str, Axes | None]:
    if given.problem is None or given.solution is None:
        return "", None
    from stagepack.report.plot import plot

    return given.instance, plot(given.problem, given.solution)


def columns(instance: Instance, solution: object) -> JsonObject | list[JsonObject]:
    """Return the stages, buffers, operations or phases of a solution, by columns or rows."""
    require_instance(instance)
    return view(instance.kind).columns(instance, instance.solution_in(solution))


@singledispatch
def contents(given: object, *, whole: bool = False) -> Sequence[Content]:
    """Return what shows a thing, if it does not say itself; a notebook has room for the `whole`."""
    if hasattr(given, "contents"):
        own: Sequence[Content] = given.contents()
        return own
    if type(given).__module__.startswith(CHECKS):
        from stagepack.report import checks

        return [checks.told(given)]
    for kind in kinds.KINDS:
        if isinstance(given, view(kind).things):
            return view(kind).shown(given, whole=whole)
    return [repr(given)]


@contents.register(Result)
def _(given: Result[Solution], *, whole: bool = False) -> Sequence[Content]:
    head = _headlines(given)
    if given.problem is None or given.solution is None:
        return [head]
    return [head, _view(given).account(given.problem, given.solution)]


@contents.register(Answered)
def _(given: Instance, *, whole: bool = False) -> Sequence[Content]:
    from stagepack.report import summary

    head = Head([(f"{given.name}:", view(given.kind).headline(given))])
    lines = summary.lines(given)
    return [head, Sheet(("", ""), lines, ("",)) if whole else Account(lines)]


@contents.register(MethodList)
def _(given: MethodList, *, whole: bool = False) -> Sequence[Content]:
    header = ("method", "proves", "available", "what it does")
    rows = [
        [m.name, "yes" if m.exact else "no", "yes" if m.available else m.reason, m.description]
        for m in given
    ]
    return [Sheet(header, rows, header)]


@contents.register(Trace)
def _(given: Trace, *, whole: bool = False) -> Sequence[Content]:
    rows = [
        [as_text.seconds(e.time), e.kind, as_text.number(e.value), e.source] for e in given.events
    ]
    head = as_text.plural(len(given.incumbents), "incumbent") + ", "
    head += as_text.plural(len(given.bounds), "bound")
    earlier = len(rows) - (MOST_ROWS if whole else ROWS)
    if earlier > 0:
        head += f"\n... {earlier:,} earlier ones"
    sheet = Sheet(("time", "kind", "value", "source"), rows[max(0, earlier) :], ("kind", "source"))
    return [head, sheet] if rows else [head]


def _headlines(result: Result[Solution]) -> Head:
    """Return the lines of a summary."""
    instance = result.problem
    about = result.kind if instance is None else _view(result).headline(instance)
    status = as_text.standing(result.status, result.objective, instance)
    if status != result.status:
        status = f"{status} ({result.status})"
    if result.termination is not Termination.PROVED:
        status += f", {result.termination.value.lower().replace('_', ' ')}"
    by = f"by {result.method}" if result.method else ""
    engine = f"on {result.engine}" if result.engine else ""
    setup = f"(and {result.setup_time:.1f} s of setup)" if result.setup_time >= 0.1 else ""
    run = [by, engine, "in", as_text.seconds(result.runtime), setup]
    figures = []
    if result.objective is not None or result.bound is not None:
        named = f" ({result.objective_name})" if result.objective_name else ""
        sources = filter(None, (result.bound_source, result.proof))
        source = f" ({'; '.join(sources)})" if result.bound_source else ""
        figures = [
            f"objective{named} {_worth(result, result.objective)}",
            f"bound {_worth(result, result.bound)}{source}",
            *([] if result.gap is None else [f"gap {as_text.gap(result.gap)}"]),
        ]
    name = f"{result.instance}:" if result.instance else ""
    return Head(
        [(name, about), (status, " ".join(filter(None, run)))], figures, result.reason
    )  # fmt: skip


def _worth(result: Result[Solution], value: Number | None) -> str:
    """Return an objective value or bound in words, with its unit."""
    if value is None:
        return as_text.NOTHING
    kind = _view(result)
    if result.problem is not None:
        return kind.worth_with_unit(result.problem, value)
    unit = kind.unit_of(result.objective_name)
    return f"{as_text.number(value)} {unit}" if unit.isalpha() else as_text.number(value)


def _view(result: Result[Solution]) -> AnyView:
    return view(result.kind if result.problem is None else result.problem.kind)
