"""The comparison as a table for terminals of any width.

Numbers are never cut.  In a narrow terminal, instances become headings and less important columns
are dropped; only names may be shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stagepack.compare.outcomes import Outcomes, reasons, secondary_header
from stagepack.contracts import JsonObject
from stagepack.errors import shown
from stagepack.report import format as as_text
from stagepack.report.table import Sheet, printed
from stagepack.report.templating import part as rendered
from stagepack.report.view import view

if TYPE_CHECKING:
    from rich.console import RenderableType

STATUS_STYLES = {
    "OPTIMAL": "green",
    "fits": "green",
    "FEASIBLE": "yellow",
    "INFEASIBLE": "magenta",
    "UNKNOWN": "red",
    "n/a": "dim",
    "error": "bold red",
    "invalid": "bold red",
    "skipped": "dim",
}
HEADER = ("instance", "method", "status", "objective", "bound", "proof", "gap", "time", "ratio")
WORDS = ("instance", "method", "status", "proof")
SPARE = ("proof", "instance", "ratio", "bound", "gap", "time", "status")
"""Columns that narrow terminals do without; instances become headings then.

After instances comes what decides between equal objectives, where that has a name."""


def comparison_table(comparison: Outcomes, width: int = 80) -> RenderableType:
    """Return the comparison as something that rich prints in `width` columns.

    One line a cell, grouped by kind and instance, the best objective of each in bold; below, why
    cells have no answer, a summary of the methods and, loudly, any contradiction.
    """
    from rich.console import Group
    from rich.text import Text

    rows = comparison.rows
    sheet = _sheet(comparison).fitted(width)
    secondary = secondary_header(comparison)
    # One table a kind where instances fit beside their rows, else one an instance.
    by = "problem" if sheet.by in sheet.header else "instance"
    kinds = list(dict.fromkeys(row["problem"] for row in rows))
    parts: list[RenderableType] = []
    for kind in kinds:
        own = [at for at, row in enumerate(rows) if row["problem"] == kind]
        groups: dict[str, list[int]] = {}
        for at in own:
            groups.setdefault(rows[at][by], []).append(at)
        objectives = _objectives(comparison, {rows[at]["instance"]: None for at in own})
        title = Text(f"\n{kind}" if parts else kind, style="bold")
        parts.append(title.append(f": {objectives}\n", style="not bold dim"))
        for number, (group, chosen) in enumerate(groups.items()):
            if by == "instance":
                if number:
                    parts.append(Text(""))
                parts.append(Text(shown(group, width), style="bold cyan", no_wrap=True))
            part = sheet.part(chosen)
            for name in secondary:
                if all(rows[at]["secondary"] is None for at in own):
                    part = part.without(name)
            parts.append(part)
    notes = list(_notes(rows))
    if notes:
        parts.append(Text(""))
    parts += notes
    if len(comparison.instances) > 1:
        parts += [Text(""), Text(f"{comparison.verdict}; {comparison.means}.\n")]
        parts.append(_summary(comparison).fitted(width))
    if comparison.interrupted:
        parts.append(Text("\nInterrupted: the comparison is not complete.", style="yellow"))
    for claim in comparison.contradictions:
        parts.append(
            Text(f"\nCONTRADICTION (a bug in Stagepack): {shown(claim)}", style="bold red")
        )
    return Group(*parts)


def render(comparison: Outcomes, width: int = 80, *, color: bool = False) -> str:
    """Return the table of a `comparison` as text of `width` columns, perhaps in `color`."""
    return printed(comparison_table(comparison, width), width, color=color) + "\n"


def standing_of(comparison: Outcomes, row: JsonObject) -> str:
    """Return the status of a row in words."""
    instance = comparison.instances[row["instance"]]
    return as_text.standing(row["status"], row["objective"], instance)


def _sheet(comparison: Outcomes) -> Sheet:
    """Return one row a cell."""
    rows = comparison.rows
    several_seeds = len({row["seed"] for row in rows}) > 1
    more = secondary_header(comparison)
    marks: dict[tuple[int, str], str] = {}
    lines = []
    for at, row in enumerate(rows):
        status = standing_of(comparison, row)
        marks[at, "status"] = STATUS_STYLES.get(status, "")
        if row["best"]:
            marks[at, "objective"] = marks[at, "ratio"] = "bold green"
        lines.append(
            [
                row["instance"],
                row["method"] + (f" #{row['seed']}" if several_seeds else ""),
                status,
                as_text.number(row["objective"]),
                as_text.number(row["bound"]),
                row["proof"] or as_text.NOTHING,
                as_text.gap(row["gap"]),
                as_text.seconds(row["runtime"]),
                as_text.ratio(row["ratio"]),
                *([as_text.number(row["secondary"])] if more else []),
            ]
        )
    spare = (*SPARE[:2], *more, *SPARE[2:])
    return Sheet((*HEADER, *more), lines, WORDS, spare, "instance", marks=marks)


def _objectives(comparison: Outcomes, labels: Iterable[str]) -> str:
    """Return the objectives of some instances, each once, with what they are counted in."""
    instances = (comparison.instances[label] for label in labels)
    return ", ".join(dict.fromkeys(view(each.kind).objective(each) for each in instances))


def _summary(comparison: Outcomes) -> Sheet:
    """Return one row a method."""
    lines = [
        [
            row["method"],
            *(f"{row[key]:,} of {row['cells']:,}" for key in ("solved", "proved")),
            as_text.ratio(row["ratio"]),
            as_text.seconds(row["runtime"]),
        ]
        for row in comparison.summary
    ]
    return Sheet(("method", "solved", "proved", "mean ratio", "time"), lines, ("method",))


def _notes(rows: list[JsonObject]) -> Iterator[RenderableType]:
    """Yield why cells have no answer, equal reasons together."""
    from rich.text import Text

    for (status, reason), where in reasons(rows).items():
        methods = dict.fromkeys(method for some in where.values() for method in some)
        places = next(iter(where)) if len(where) == 1 else f"{len(where):,} instances"
        text = Text(status, style=STATUS_STYLES.get(status, ""))
        text.append(shown(f" {places} ({', '.join(methods)}): {reason}"), style="not bold default")
        yield text


def fragment(comparison: Outcomes) -> str:
    """Return the table as HTML without scripts or styles, for a notebook."""
    sheet = rendered("sheet", _sheet(comparison).first(200))
    notes = [rendered("lines", [("Contradiction:", claim)]) for claim in comparison.contradictions]
    return "".join([sheet, *notes])
