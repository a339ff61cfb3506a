"""A store of cells as one self-contained page: methods, curves, all cells."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence

from stagepack.compare.curves import PICTURES
from stagepack.contracts import JsonObject
from stagepack.report import format as as_text
from stagepack.report.canvas import close
from stagepack.report.extra import Axes
from stagepack.report.html import page


def to_html(
    rows: Sequence[JsonObject], summary: Sequence[JsonObject], draw: Callable[[str], Axes]
) -> str:
    """Return the page.

    Parameters
    ----------
    rows, summary : sequence of dict
        One a cell, and one a method.
    draw : callable
        Draws one of `PICTURES`.

    Raises
    ------
    InputError
        When matplotlib or jinja2 is not installed.
    """
    cases = len({(row["digest"], row["seed"]) for row in rows})
    kinds = sorted({row["problem"] for row in rows})
    counted = [as_text.plural(cases, "case"), as_text.plural(len(rows), "cell")]
    return page(
        "compare/templates/store.html",
        "Stagepack results",
        {},
        about=[", ".join(kinds), *counted],
        summary=summary,
        pictures=[(PICTURES[what].title, _picture(draw(what))) for what in PICTURES],
        rows=[
            {**row, "reason": row["reason"] if row["status"] == "error" else None}
            for row in sorted(rows, key=_order)
        ],
        standing=lambda row: row["status"],
    )


def _order(row: JsonObject) -> tuple[str, str, int, str]:
    return row["problem"], row["instance"], row["seed"], row["method"]


def _picture(ax: Axes) -> str:
    """Return a picture as the address of an image that holds it."""
    stream = io.BytesIO()
    ax.figure.savefig(stream, format="svg", bbox_inches="tight")
    close(ax.figure)
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()
