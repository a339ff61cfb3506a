"""The page of a store of results: methods, curves, all cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagepack.compare.curves import PICTURES
from stagepack.compare.outcomes import FAILED
from stagepack.contracts import JsonObject
from stagepack.report import format as as_text
from stagepack.report.extra import Axes
from stagepack.report.pages import picture
from stagepack.report.templating import render


def to_html(
    rows: Sequence[JsonObject], summary: Sequence[JsonObject], draw: Callable[[str], Axes]
) -> str:
    """Return what a page says of a store: `rows`, a `summary` a method, pictures to `draw`."""
    cases = len({(row["digest"], row["seed"]) for row in rows})
    kinds = sorted({row["problem"] for row in rows})
    counted = [as_text.plural(cases, "case"), as_text.plural(len(rows), "cell")]
    return render(
        "compare/templates/store.html",
        about=[", ".join(kinds), *counted],
        summary=summary,
        pictures=[(PICTURES[what].title, picture(draw(what))) for what in PICTURES],
        rows=[
            {**row, "reason": row["reason"] if row["status"] in FAILED else None}
            for row in sorted(rows, key=_order)
        ],
        standing=lambda row: row["status"],
    )


def _order(row: JsonObject) -> tuple[str, str, int, str]:
    return row["problem"], row["instance"], row["seed"], row["method"]
