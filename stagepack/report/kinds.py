"""What each kind of problem looks like to people: a module a kind, with the same functions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from stagepack.report.parts import Section
from stagepack.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType

FACES = {
    "pipeline-partition": "stagepack.report.pipeline",
    "lmem-packing": "stagepack.report.packing",
    "pipeline-schedule": "stagepack.report.schedule",
    "phase-schedule": "stagepack.report.phases",
}
"""Modules by kind, imported when first asked for."""
PLAIN = "stagepack.report.plain"
"""For kinds that have no module of their own."""


class Face(Protocol):
    """The functions of such a module."""

    def facts(self, instance: Any) -> dict[str, Any]:
        """Return sizes, totals and simple bounds as plain data."""

    def lines(self, given: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return facts as (what, text) for people."""

    def headline(self, instance: Any) -> str:
        """Return what an instance is, in one line."""

    def worth(self, instance: Any, value: Any) -> str:
        """Return an objective value or bound in words."""

    def unit(self, instance: Any) -> str:
        """Return what objectives are counted in."""

    def solution_facts(self, instance: Any, solution: Any) -> dict[str, Any]:
        """Return what a solution amounts to, as plain data under the names it has in JSON."""

    def solution_table(self, instance: Any, solution: Any, width: int = 80) -> RenderableType:
        """Return what a solution amounts to, for a terminal of `width` columns."""

    def html(self, instance: Any, solution: Any) -> str:
        """Return what a solution amounts to, as HTML without scripts or styles."""

    def against(self, instance: Any, solution: Any, measured: str | Path) -> list[dict[str, Any]]:
        """Return what a solution should cost beside the measured values of a file."""

    def section(
        self,
        instance: Any,
        solved: Mapping[str, Result[Any]],
        best: Result[Any] | None,
        anchor: str,
    ) -> Section:
        """Return what a report shows of the solutions."""

    def picture(self, instance: Any, solution: Any, scale: str | None = None) -> Any:
        """Return the picture of a solution, drawn with matplotlib."""

    def page(self, instance: Any, solution: Any, scale: str | None = None) -> Section:
        """Return the picture of a solution as part of a page."""


def face(instance: Any) -> Face:
    """Return the module for the kind of `instance`."""
    return cast("Face", importlib.import_module(FACES.get(instance.kind, PLAIN)))
