"""Curves of results: who is done when, how near to the best, gaps over time; one a method.

Done is who has a proof, or who has reached a ratio to the best objective known: by proofs alone
methods that prove nothing would have no curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stagepack.contracts import JsonObject
from stagepack.errors import InputError, suggest
from stagepack.report.canvas import heading, own_picture, quiet, whole_numbers
from stagepack.report.extra import Axes
from stagepack.report.style import line_colour, line_style
from stagepack.result import EventKind

Steps = tuple[tuple[float, float], ...]
"""Times and gaps: from each time on, the gap holds until the next."""


@dataclass(frozen=True)
class Picture:
    """What is drawn of results; `counts`: what goes up is whole, `rises`: no curve goes down.

    The {} of what goes up says who is done.
    """

    title: str
    across: str
    up: str
    logarithmic: bool = True
    counts: bool = False
    rises: bool = True


PICTURES = {
    "profile": Picture("Performance profiles", "Time / shortest time", "Share of cases {}"),
    "cactus": Picture("Done within a time", "Seconds", "Cells {}", counts=True),
    "ratio": Picture("Ratios to the best known", "Objective / best known", "Share of cases"),
    "gap": Picture("Gap to the best known over time", "Seconds", "Mean gap", rises=False),
    "integral": Picture("Primal integrals", "Seconds x gap", "Share of cells", logarithmic=False),
}


PROOF = "proof"
"""The goal of who wants a proof; others are ratios to the best known."""
NEAR = 1e-9
"""By how much of itself a gap may be missed by rounding."""


def done(goal: str | float) -> str:
    """Return what those are that have reached a `goal`."""
    if isinstance(goal, str):
        return "proved"
    return (
        "at the best known" if goal == 1 else f"within {100 * (goal - 1):.3g} % of the best known"
    )


def ratio_of(steps: Steps) -> float:
    """Return how many times the best known objective a run ends with; infinite for nothing."""
    gap = steps[-1][1] if steps else 1.0
    return 1 / (1 - gap) if gap < 1 else math.inf


def reached(steps: Steps, goal: float) -> float:
    """Return when a run first has an objective of `goal` times the best known; infinite: never."""
    least = 1 - 1 / goal + NEAR
    return next((time for time, gap in steps if gap <= least), math.inf)


def gap_steps(result: JsonObject, goal: float) -> Steps:
    """Return the gap of a run to the best objective known as steps from 0 s and 1, no incumbent."""
    steps = [(0.0, 1.0)]
    for event in result["trace"]:
        if event["kind"] == EventKind.INCUMBENT:
            size = max(abs(event["value"]), abs(goal))
            gap = abs(event["value"] - goal) / size if size else 0.0
            steps.append((event["time"], min(1.0, gap)))
    return tuple(steps)


def integral(steps: Steps, end: float) -> float:
    """Return the integral of a gap up to the end of a run."""
    ends = [*(time for time, _ in steps[1:]), max(end, steps[-1][0])]
    return float(sum(gap * (e - time) for (time, gap), e in zip(steps, ends, strict=True)))


def mean_over_time(runs: Sequence[Steps]) -> Steps:
    """Return the mean of gaps over time; each holds on after the end of its run."""
    moments = {time for steps in runs for time, _ in steps if time > 0}
    if not moments:
        return ((0.0, 1.0),) if runs else ()
    first, last = min(moments), max(moments)
    grid = np.unique(np.geomspace(first, max(last, first), 300)) if first < last else [first]
    total = np.zeros(len(grid))
    for steps in runs:
        times = np.array([time for time, _ in steps])
        gaps = np.array([gap for _, gap in steps])
        total += gaps[np.searchsorted(times, grid, side="right") - 1]
    mean = (total / len(runs)).tolist()
    return ((0.0, 1.0), *zip(map(float, grid), mean, strict=True))


def rising(values: Sequence[float], whole: int) -> Steps:
    """Return how many of `whole` are at most so large, as steps; infinite ones are never."""
    finite = [value for value in values if math.isfinite(value)]
    return tuple((value, (at + 1) / whole) for at, value in enumerate(finite))


def draw(
    what: str,
    curves: Mapping[str, Steps],
    path: str | Path | None = None,
    ax: Axes | None = None,
    goal: str | float = PROOF,
) -> Axes:
    """Draw `curves` by the names of their methods; `what`, `path`, `ax`, `goal` as of `plot`."""
    picture = replace(PICTURES[what], up=PICTURES[what].up.format(done(goal)))
    return own_picture(lambda axes: _draw(picture, curves, axes), path, ax)


def _draw(picture: Picture, curves: Mapping[str, Steps], ax: Axes) -> None:
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    ends = [place for steps in curves.values() for place, _ in steps if place > 0]
    first, last = min(ends, default=1.0), 1.05 * max(ends, default=1.0)
    for index, (method, steps) in enumerate(curves.items()):
        if picture.rises and ends:  # who is never done lies at 0
            steps = steps or ((first, 0.0),)
        if steps:  # from nothing, and on to where the last of them ends
            steps = (
                (steps[0][0], 0.0 if steps[0][0] else steps[0][1]),
                *steps,
                (last, steps[-1][1]),
            )
        places, heights = zip(*steps, strict=True) if steps else ((), ())
        ax.step(
            places, heights, where="post",
            color=line_colour(index), linestyle=line_style(index), label=method,
        )  # fmt: skip
    quiet(ax, "y")
    ax.set_ylim(bottom=0)
    if picture.counts:
        whole_numbers(ax.yaxis)
    if picture.logarithmic and last > 3 * first:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        ax.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(picture.across)
    ax.set_ylabel(picture.up)
    heading(ax, "", picture.title)
    if curves:
        ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def require_picture(what: str) -> None:
    """Refuse what is no picture of a store, by name."""
    if what not in PICTURES:
        raise InputError(f"unknown {what!r}", field="what", remedy=suggest(what, PICTURES))
