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
from stagepack.errors import shown
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
SPREAD = ("values", "estimate", "log")
"""Figures that measured ones have besides."""
MEASURED, FAILED = "MEASURED", "FAILED"
"""Statuses of measurements."""
RESTS_ON = {
    "larger": "{} with more than what failed (monotone)",
    "smaller": "{} with less than what ran (monotone)",
    "step": "{} since a larger batch takes no less time a step",
    "margin": "{} by the model's estimate (margin {:g} %)",
    "open": "{} left open",
}
"""Why configurations were not measured, and on what that rests."""
WHY = 60
"""Letters of the reason of a failure in a table."""


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


def told_options(options: JsonObject) -> str:
    """Return a configuration as people read it."""
    return ", ".join(f"{name} {value}" for name, value in options.items())


def rises(values: Sequence[Any]) -> bool:
    """Return whether values can be compared, and each is above the one before."""
    try:
        return all(one < other for one, other in itertools.pairwise(values))
    except TypeError:
        return False


@dataclass(frozen=True)
class Evaluation:
    """The plan of one configuration, or what was measured of it, in figures."""

    options: JsonObject
    status: str  # that of the plan; "MEASURED" or "FAILED" where a profiler was asked
    cycles: int | None  # of a step; None where nothing fits
    # `throughput`, `bound`: samples a second, and how many no plan of this configuration exceeds;
    # microbatches where the batch is no option.  Measured throughput is a median, in what the
    # profiler counts, and has no bound.
    throughput: float | None
    bound: float | None
    memory: int | None  # the most bytes that a device holds
    reason: str  # why nothing fits, or the measurement failed
    cached: bool  # it was kept from an earlier run
    values: tuple[float, ...] = ()  # all that was measured
    estimate: float | None = None  # what the model said of it, as far as that was asked
    log: str = ""  # the end of what a failed measurement wrote to stderr

    @property
    def spread(self) -> float | None:
        """The largest value over the least, less 1; None of fewer than two."""
        return max(self.values) / min(self.values) - 1 if len(self.values) > 1 else None

    def to_row(self) -> JsonObject:
        """Return the evaluation as one row, its options first."""
        more = SPREAD if self.values or self.status == FAILED else ()
        return {**self.options, **{name: getattr(self, name) for name in (*FIGURES, *more)}}

    def to_dict(self) -> JsonObject:
        """Return the evaluation as plain JSON data, which has words for infinities."""
        row = self.to_row()
        return {
            **row,
            **{name: plain(row[name]) for name in (*self.options, "values") if name in row},
        }


@dataclass(frozen=True)
class Measuring:
    """How a tuning was measured, and on what it rests that the rest was not."""

    by: str  # the command, or the name of the function
    calls: int  # measurements of this run; what was kept from earlier ones is not measured again
    repeats: int  # of those that may be the best
    margin: float  # by how much a configuration may be better than what is taken of it
    limit: float | None  # seconds of a measurement
    # Configurations that were not measured: "larger" than one that failed and "smaller" than one
    # that ran (both as the option is declared monotone), by the "step" of a smaller batch, by the
    # "margin" of estimates, or "open" since the run ended.
    skipped: dict[str, int]

    def lines(self) -> list[str]:
        """Return what people read of it."""
        percent = 100 * self.margin
        parts = [RESTS_ON[why].format(f"{count:,}", percent) for why, count in self.skipped.items()]
        left = [f"not measured: {'; '.join(parts)}"] if parts else []
        return [*left, "measured values prove nothing; they hold for this machine, as it was"]


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
    measured : Measuring or None
        How it was measured; None of plans.
    left : int
        Configurations that may be better than the best plan, since the search ended before all that
        might be were planned, or with less time than they need.
    most : float or None
        The most samples a second that any of these may have, if that is known.
    """

    options: dict[str, tuple[Any, ...]]
    monotone: tuple[str, ...]
    search: str
    evaluations: tuple[Evaluation, ...]
    configurations: int
    bisection: int
    interrupted: bool = False
    measured: Measuring | None = None
    left: int = 0
    most: float | None = None

    @property
    def counted(self) -> str:
        """What throughput counts: samples, or microbatches if the samples of one are not known.

        A profiler counts what it likes, samples as a rule.
        """
        return "samples" if BATCH in self.options or self.measured else "microbatches"

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
        noise = 1 + (self.measured.margin if self.measured else 0.0)
        told = "it runs with" if self.measured else "there is a plan with"
        for name in self.monotone:
            last: dict[str, Evaluation] = {}
            for one in sorted(self.evaluations, key=lambda one: one.options[name]):
                others = {key: value for key, value in one.options.items() if key != name}
                before = last.setdefault(repr(others), one)
                last[repr(others)] = one
                values = (json.dumps(plain(each.options[name])) for each in (before, one))
                pair = f"{name} {' and '.join(values)}".replace('"', "")
                if before.throughput is None and one.throughput is not None:
                    found.append(f"{pair}: {told} the larger one only")
                elif (one.throughput or math.inf) * noise < (before.throughput or 0.0):
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
                "left": self.left,
                "most": self.most,
                **({} if self.measured is None else {"measured": vars(self.measured)}),
                "best": None if best is None else best.to_dict(),
                "front": [one.to_dict() for one in self.front],
                "evaluations": [one.to_dict() for one in self.evaluations],
            }
        )
        return data

    def _columns(self) -> Sequence[str]:
        return (*self.options, *FIGURES, *(SPREAD if self.measured else ()))

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
        best = self.best
        ordered = sorted(self.evaluations, key=lambda one: -(one.throughput or 0.0))
        if best is None:
            told = "interrupted before anything that fits was known"
            told = told if self.interrupted else "nothing fits"
            reasons = dict.fromkeys(one.reason for one in ordered if one.reason)
            if self.measured is None or not ordered:
                return [Head([(told, "")], reason=next(iter(reasons), ""))]
            told = told if self.interrupted else "nothing that was measured fits"
            head = Head([(told, "")], self._counts(self.measured), next(iter(reasons), ""))
            return [head, self._table(ordered)]
        figures = [f"{as_text.number(best.throughput)} {self.counted} a second"]
        figures += self._told(best)
        if self.interrupted:
            figures.append("interrupted: not all that may be better was tried")
        if self.left:
            most = as_text.gap((self.most or math.inf) / (best.throughput or 1) - 1)
            least = f", by {most} at most" if self.most else ""
            what = "configuration" if self.left == 1 else "configurations"
            figures.append(f"{self.left:,} other {what} may be better{least}: give more time")
        if self.doubts:
            told = f"not monotone as declared: {self.doubts[0]}"
            more = len(self.doubts) - 1
            figures.append(f"{told}, and {more:,} more" if more else told)
        return [Head([("best:", told_options(best.options))], figures), self._table(ordered)]

    def _told(self, best: Evaluation) -> list[str]:
        """Return what is said of the best, and of how it was found."""
        if self.measured is None:
            plans = as_text.plural(len(self.evaluations), "plan")
            return [
                f"at most {as_text.number(best.bound)}",
                f"{plans} made for {self.configurations:,} configurations "
                f"(bisection would have made {self.bisection:,} or more)",
            ]
        median = f"median of {len(best.values)}, which are {as_text.gap(best.spread)} apart"
        return [*([] if best.spread is None else [median]), *self._counts(self.measured)]

    def _counts(self, how: Measuring) -> list[str]:
        """Return how much was measured, and why the rest was not."""
        failed = sum(one.throughput is None for one in self.evaluations)
        kept = sum(one.cached for one in self.evaluations)
        counts = [f"{failed:,} failed"] if failed else []
        counts += [f"{kept:,} kept from before"] if kept else []
        more = f" ({', '.join(counts)})" if counts else ""
        return [
            f"{len(self.evaluations)} of {self.configurations:,} configurations measured{more}",
            f"{as_text.plural(how.calls, 'measurement')} now; bisection takes {self.bisection:,} "
            "or more",
            *how.lines(),
        ]

    def _table(self, ordered: Sequence[Evaluation]) -> Sheet:
        """Return a line for each evaluation."""
        measured = self.measured is not None
        held = any(one.memory is not None for one in ordered)
        figures = ["status", f"{self.counted}/s"]
        figures += ["runs", "spread", "estimate"] if measured else ["at most"]
        figures += ["memory"] if held or not measured else []
        figures += ["why"] if measured and any(one.reason for one in ordered) else []
        rows = [
            [*map(str, one.options.values()), *(self._cell(one, name) for name in figures)]
            for one in ordered
        ]
        return Sheet(
            [*self.options, *figures],
            rows,
            ("status", "why"),
            spare=("runs", "estimate", "memory") if measured else (),
            what="measurement" if measured else "plan",
        )

    def _cell(self, one: Evaluation, name: str) -> str:
        """Return a figure of an evaluation as a table has it."""
        texts = {
            "status": one.status,
            f"{self.counted}/s": as_text.number(one.throughput),
            "at most": as_text.number(one.bound),
            "runs": str(len(one.values)),
            "spread": as_text.NOTHING if one.spread is None else as_text.gap(one.spread),
            "estimate": as_text.number(one.estimate),
            "memory": as_text.NOTHING if one.memory is None else as_text.quantity(one.memory),
            "why": shown(one.reason, WHY),
        }
        return texts[name]

    def _line(self) -> str:
        what = "plans" if self.measured is None else "measurements"
        return f"{len(self.evaluations)} {what} of {self.configurations} configurations"


def _drawn(given: Tuning) -> bool:
    """Whether there is something to draw: a profiler need not tell the memory."""
    return any(one.memory is not None for one in given.front)


@picture_of.register
def _picture(given: Tuning) -> tuple[str, Axes | None]:
    return "throughput against memory", given.plot() if _drawn(given) else None


@chapter.register
def _chapter(given: Tuning, anchor: str, figures: JsonObject) -> Chapter:
    drawn = {"throughput against memory": given.plot} if _drawn(given) else {}
    return with_pictures("Tuning", given, drawn)
