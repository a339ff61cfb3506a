"""Kinds of problems without a face of their own: their names, and no pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.report import format as as_text
from stagepack.report.parts import Section
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from rich.console import RenderableType


def facts(instance: Any) -> dict[str, Any]:
    """Return sizes, totals and simple bounds as plain data: none are known."""
    return {}


def lines(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return facts as (what, text) for people."""
    return []


def headline(instance: Any) -> str:
    """Return what an instance is, in one line."""
    return f"{instance.kind}, {instance.objective}"


def worth(instance: Any, value: Any) -> str:
    """Return an objective value or bound in words."""
    return as_text.number(value)


def unit(instance: Any) -> str:
    """Return what objectives are counted in: unknown."""
    return ""


def solution_facts(instance: Any, solution: Any) -> dict[str, Any]:
    """Return what a solution amounts to, as plain data under the names it has in JSON."""
    return {"objective": instance.evaluate(solution)}


def solution_table(instance: Any, solution: Any, width: int = 80) -> RenderableType:
    """Return what a solution amounts to, for a terminal of `width` columns."""
    return f"objective {as_text.number(instance.evaluate(solution))}"


def html(instance: Any, solution: Any) -> str:
    """Return what a solution amounts to, as HTML without scripts or styles."""
    return f"<p>objective {as_text.number(instance.evaluate(solution))}</p>"


def against(instance: Any, solution: Any, measured: str | Path) -> list[dict[str, Any]]:
    """Refuse: nothing is measured here."""
    raise InputError(f"nothing is measured of a {instance.kind}", field="--measured")


def section(
    instance: Any, solved: Mapping[str, Result[Any]], best: Result[Any] | None, anchor: str
) -> Section:
    """Return what a report shows of the solutions: nothing."""
    return Section("")


def picture(instance: Any, solution: Any, scale: str | None = None) -> Any:
    """Refuse: there is no picture."""
    raise InputError(f"there is no picture of a {instance.kind}")


def page(instance: Any, solution: Any, scale: str | None = None) -> Section:
    """Refuse: there is no picture."""
    raise InputError(f"there is no picture of a {instance.kind}")
