"""The result of tuning: all plans computed, the best one, and throughput against memory."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stagepack import files
from stagepack.contracts import JsonObject
from stagepack.report import format as as_text
from stagepack.report.canvas import engineering, heading, own_picture, quiet
from stagepack.report.extra import Axes
from stagepack.report.format import byte_unit
from stagepack.report.pages import Chapter, chapter, with_pictures
from stagepack.report.shown import picture_of
from stagepack.report.style import MUTED, line_colour
from stagepack.report.table import Head, Sheet
from stagepack.shown import ShownRows

PROBLEM, VERSION = "tuning", 1
"""What its documents say they are."""
BATCH = "batch"
"""The option that says how many samples a microbatch has."""
ENDLESS = {"Infinity": math.inf, "-Infinity": -math.inf}
"""Words of JSON documents, which have no such numbers."""
FIGURES = ("status", "cycles", "throughput", "bound", "memory", "reason", "cached")


def plain(value: Any) -> Any:
    """Return a value of an option as JSON has it; infinities are words."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return next(word for word, one in ENDLESS.items() if one == value)
    known = files.finite(value)
    return known if isinstance(known, str | int | float | dict | None) else str(known)


def meant(value: Any) -> Any:
    """Return what :func:`plain` made JSON of; tuples are lists."""
    if isinstance(value, list):
        return [meant(one) for one in value]
    return ENDLESS.get(value, value) if isinstance(value, str) else value


def rises(values: Sequence[Any]) -> bool:
    """Return whether values can be compared, and each is above the one before."""
    try:
        return all(one < other for one, other in itertools.pairwise(values))
    except TypeError:
        return False


@dataclass(frozen=True)
class Evaluation:
    """The plan of one configuration in figures.

    Attributes
    ----------
    options : dict
    status : str
    cycles : int or None
        Of a step; None where nothing fits.
    throughput, bound : float or None
        Samples a second, and how many no plan of this configuration exceeds; microbatches where
        the batch is no option.
    memory : int or None
        The most bytes that a device holds.
    reason : str
        Why nothing fits.
    cached : bool
        It was kept from an earlier run.
    """

    options: JsonObject
    status: str
    cycles: int | None
    throughput: float | None
    bound: float | None
    memory: int | None
    reason: str
    cached: bool

    def to_row(self) -> JsonObject:
        """Return the evaluation as one row, its options first."""
        return {**self.options, **{name: getattr(self, name) for name in FIGURES}}

    def to_dict(self) -> JsonObject:
        """Return the evaluation as plain JSON data, which has words for infinities."""
        return {**self.to_row(), **{name: plain(value) for name, value in self.options.items()}}


@dataclass(frozen=True, repr=False)
class Tuning(ShownRows):
    """The result of tuning; its rows are the evaluations.

    Attributes
    ----------
    options : dict of str to tuple
    monotone : tuple of str
    search : str
    evaluations : tuple of Evaluation
        In the order in which they were made.
    configurations : int
        Number of configurations.
    bisection : int
        Number of plans that bisection in every point of the grid would compute; a lower bound on it
        where this is not known.
    interrupted : bool
        Whether the search was interrupted, so that the best plan may be missing.
    """

    options: dict[str, tuple[Any, ...]]
    monotone: tuple[str, ...]
    search: str
    evaluations: tuple[Evaluation, ...]
    configurations: int
    bisection: int
    interrupted: bool = False

    @property
    def counted(self) -> str:
        """What throughput counts: samples, or microbatches if the samples of one are not known."""
        return "samples" if BATCH in self.options else "microbatches"

    @property
    def best(self) -> Evaluation | None:
        """The configuration with the highest throughput; None if none fits."""
        fits = [one for one in self.evaluations if one.throughput is not None]
        return max(fits, key=lambda one: one.throughput or 0.0, default=None)

    @property
    def saved(self) -> int:
        """Number of plans saved compared with bisection in every point of the grid."""
        return self.bisection - len(self.evaluations)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Evaluations that contradict the declaration of an option as monotone."""
        found = []
        for name in self.monotone:
            last: dict[str, Evaluation] = {}
            for one in sorted(self.evaluations, key=lambda one: one.options[name]):
                others = {key: value for key, value in one.options.items() if key != name}
                before = last.setdefault(repr(others), one)
                last[repr(others)] = one
                values = (json.dumps(plain(each.options[name])) for each in (before, one))
                pair = f"{name} {' and '.join(values)}".replace('"', "")
                if before.throughput is None and one.throughput is not None:
                    found.append(f"{pair}: there is a plan with the larger one only")
                elif (one.throughput or math.inf) < (before.throughput or 0.0):
                    found.append(f"{pair}: fewer {self.counted} a second with the larger one")
        return tuple(found)

    @property
    def front(self) -> tuple[Evaluation, ...]:
        """The evaluations on the Pareto front of throughput and memory, by rising memory."""
        found: list[Evaluation] = []
        fits = [one for one in self.evaluations if one.throughput is not None]
        for one in sorted(fits, key=lambda one: (one.memory or 0, -(one.throughput or 0.0))):
            if not found or (one.throughput or 0.0) > (found[-1].throughput or 0.0):
                found.append(one)
        return tuple(found)

    def to_dict(self) -> JsonObject:
        """Return the tuning as plain JSON data."""
        best = self.best
        data: JsonObject = files.finite(
            {
                "problem": PROBLEM,
                "version": VERSION,
                "options": {name: plain(values) for name, values in self.options.items()},
                "monotone": list(self.monotone),
                "search": self.search,
                "configurations": self.configurations,
                "bisection": self.bisection,
                "saved": self.saved,
                "doubts": list(self.doubts),
                "counted": self.counted,
                "interrupted": self.interrupted,
                "best": None if best is None else best.to_dict(),
                "front": [one.to_dict() for one in self.front],
                "evaluations": [one.to_dict() for one in self.evaluations],
            }
        )
        return data

    def _columns(self) -> Sequence[str]:
        return (*self.options, *FIGURES)

    def _rows(self) -> Sequence[JsonObject]:
        return [one.to_row() for one in self.evaluations]

    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw throughput against memory: every plan, and the front.

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
        fits = [one for one in self.evaluations if one.throughput is not None]
        colour = line_colour(0)
        factor, unit = byte_unit(max((one.memory or 0 for one in fits), default=0))

        def across(some: Sequence[Evaluation]) -> list[float]:
            return [(one.memory or 0) / factor for one in some]

        ax.scatter(across(fits), [one.throughput for one in fits], s=16, color=MUTED)
        ax.step(
            across(self.front), [one.throughput for one in self.front], where="post",
            color=colour, marker="o", markersize=4,
        )  # fmt: skip
        quiet(ax, "y")
        engineering(ax.yaxis)
        ax.set_xlabel(f"Memory of the fullest device ({unit})")
        ax.set_ylabel(f"{self.counted.capitalize()} a second")
        heading(ax, "", "Throughput against memory")

    def contents(self) -> list[Head | Sheet]:
        """Return what is printed."""
        best, made = self.best, len(self.evaluations)
        if best is None:
            reasons = dict.fromkeys(one.reason for one in self.evaluations if one.reason)
            told = "interrupted before anything that fits was planned"
            told = told if self.interrupted else "nothing fits"
            return [Head([(told, "")], reason=next(iter(reasons), ""))]
        chosen = ", ".join(f"{name} {value}" for name, value in best.options.items())
        figures = [
            f"{as_text.number(best.throughput)} {self.counted} a second",
            f"at most {as_text.number(best.bound)}",
            f"{as_text.plural(made, 'plan')} made for {self.configurations:,} configurations "
            f"(bisection would have made {self.bisection:,} or more)",
        ]
        if self.interrupted:
            figures.append("interrupted: not all that may be better was tried")
        if self.doubts:
            told = f"not monotone as declared: {self.doubts[0]}"
            more = len(self.doubts) - 1
            figures.append(f"{told}, and {more:,} more" if more else told)
        rows = [
            [
                *(str(value) for value in one.options.values()),
                one.status,
                as_text.number(one.throughput),
                as_text.number(one.bound),
                as_text.NOTHING if one.memory is None else as_text.quantity(one.memory),
            ]
            for one in sorted(self.evaluations, key=lambda one: -(one.throughput or 0.0))
        ]
        header = (*self.options, "status", f"{self.counted}/s", "at most", "memory")
        return [Head([("best:", chosen)], figures), Sheet(header, rows, ("status",), what="plan")]

    def _line(self) -> str:
        return f"{len(self.evaluations)} plans of {self.configurations} configurations"


@picture_of.register
def _picture(given: Tuning) -> tuple[str, Axes | None]:
    return "throughput against memory", given.plot() if given.front else None


@chapter.register
def _chapter(given: Tuning, anchor: str, figures: JsonObject) -> Chapter:
    drawn = {} if given.best is None else {"throughput against memory": given.plot}
    return with_pictures("Tuning", given, drawn)
