"""A Pareto front as users see it: printed, as a table, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.contracts import Instance, JsonObject, Number
from stagepack.report import format as as_text
from stagepack.report.canvas import engineering, heading, own_picture, quiet, whole_numbers
from stagepack.report.extra import Axes
from stagepack.report.format import byte_unit
from stagepack.report.pages import Chapter, chapter, with_pictures
from stagepack.report.shown import picture_of
from stagepack.report.style import MUTED, PAGE, line_colour
from stagepack.report.table import Head, Sheet
from stagepack.report.view import view
from stagepack.result import Result, relative_gap
from stagepack.shown import ShownRows

COLUMNS = ("x", "y", "bound", "gap", "proved", "least")


@dataclass(frozen=True)
class FrontPoint:
    """A point of a front: no solution uses less of the resource and has a lower objective."""

    x: int  # how much of the limited resource the solution uses, in the unit of the front
    y: Number  # the objective of the solution
    bound: Number | None  # lower bound on the objective of all solutions that use at most `x`
    # Whether `y` equals the bound, so that no solution that uses at most `x` is better.
    proved: bool
    # Whether it is proved that every solution that uses less than `x` has a higher objective.
    least: bool
    result: Result[Any]  # the result of the solve that found the solution

    @property
    def gap(self) -> float | None:
        """Relative gap of `y` and `bound`."""
        return relative_gap(self.y, self.bound)

    def to_row(self) -> JsonObject:
        """Return the point without its solution."""
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass(frozen=True, repr=False)
class Front(ShownRows):
    """A Pareto front; its rows are the points.

    Attributes
    ----------
    x, unit : str
        The limited resource and its unit.
    points : tuple of FrontPoint
        In order of rising `x`; the objective falls from each point to the next.
    infeasible : int or None
        The largest limit that is proved to allow no solution.
    complete : bool
        Whether these are all points and each is proved optimal.
    solves : int
        Number of solves.
    result : Result
        The result for the instance itself; without a solution it gives the reason.
    """

    instance: Instance
    x: str
    unit: str
    points: tuple[FrontPoint, ...]
    infeasible: int | None
    complete: bool
    solves: int
    result: Result[Any]

    @property
    def y(self) -> str:
        """The objective."""
        return str(self.instance.objective)

    def to_dict(self) -> JsonObject:
        """Return everything but the instance as plain JSON data."""
        data: JsonObject = files.finite(
            {
                "instance": self.instance.name,
                "problem": self.instance.kind,
                "digest": self.instance.digest,
                "x": self.x,
                "unit": self.unit,
                "y": self.y,
                "complete": self.complete,
                "infeasible": self.infeasible,
                "solves": self.solves,
                "status": str(self.result.status),
                "reason": self.result.reason or None,
                "points": [
                    {**point.to_row(), "solution": point.result.solution.to_dict()}
                    for point in self.points
                ],
            }
        )
        return data

    def _columns(self) -> Sequence[str]:
        return COLUMNS

    def _rows(self) -> Sequence[JsonObject]:
        return [point.to_row() for point in self.points]

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw the front as a staircase, and its bounds where they are not reached.

        Parameters
        ----------
        path : path-like or matplotlib Axes, optional
            The file to write: .png, .svg or .pdf.  Or where to draw.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        return own_picture(self._draw, path, ax)

    def _draw(self, ax: Axes) -> None:
        divisor, divided = 1, self.unit
        if self.unit == "bytes":
            divisor, divided = byte_unit(max((point.x for point in self.points), default=0))

        def across(points: Sequence[FrontPoint]) -> list[float]:
            return [point.x / divisor for point in points]

        colour = line_colour(0)
        heights = [point.y for point in self.points]
        ax.step(across(self.points), heights, where="post", color=colour, linewidth=1.6)
        for proved in (True, False):
            some = [point for point in self.points if point.proved is proved]
            if some:
                ax.scatter(
                    across(some),
                    [point.y for point in some],
                    s=18,
                    color=colour if proved else PAGE,
                    edgecolors=colour,
                    label="proved" if proved else "best known",
                    zorder=3,
                )
        below = [point for point in self.points if not point.proved and point.bound is not None]
        if below:
            ax.scatter(
                across(below),
                [point.bound for point in below],
                marker="_",
                color=MUTED,
                label="bound",
            )
        quiet(ax, "y")
        engineering(ax.yaxis)
        if self.unit != "bytes":
            whole_numbers(ax.xaxis)
        ax.set_xlabel(_with_unit(self.x.capitalize(), divided))
        ax.set_ylabel(_with_unit(self.y.capitalize(), self._objective_unit))
        heading(ax, self.instance.name, f"{self.y} against {self.x}")
        if self.points:
            ax.legend(frameon=False, fontsize=8)

    @property
    def _objective_unit(self) -> str:
        return view(self.instance.kind).unit(self.instance)

    def contents(self) -> list[Head | Sheet]:
        """Return what is printed."""
        what = f"{self.y} against {self.x} of {self.instance.name}"
        if not self.points:
            return [Head([(what, f"{self.result.status}")], reason=self.result.reason)]
        figures = [as_text.plural(len(self.points), "point")]
        figures.append("exact and complete" if self.complete else "not complete, or not all proved")
        figures.append(as_text.plural(self.solves, "solve"))
        if self.infeasible:
            figures.append(f"nothing fits {as_text.plural(self.infeasible, self.unit[:-1])}")
        rows = [
            [
                as_text.number(point.x),
                as_text.number(point.y),
                as_text.number(point.bound),
                as_text.gap(point.gap),
                "yes" if point.proved and point.least else "no",
            ]
            for point in self.points
        ]
        header = (
            _with_unit(self.x, self.unit), _with_unit(self.y, self._objective_unit),
            "bound", "gap", "exact",
        )  # fmt: skip
        return [Head([(what, "")], figures), Sheet(header, rows)]

    def _line(self) -> str:
        return f"{self.y} against {self.x}, {len(self.points)} points"


def _with_unit(name: str, unit: str) -> str:
    """Return a name with its unit in parentheses, unless it says the unit by itself."""
    return f"{name} ({unit})" if unit and unit != name.lower() else name


@picture_of.register
def _picture(given: Front) -> tuple[str, Axes | None]:
    return f"{given.y} against {given.x}", given.plot() if given.points else None


@chapter.register
def _chapter(given: Front, anchor: str, figures: JsonObject) -> Chapter:
    shows = f"{given.y} against {given.x} of {given.instance.name}"
    drawn = {shows: given.plot} if given.points else {}
    return with_pictures(f"Pareto front of {given.instance.name}", given, drawn)
