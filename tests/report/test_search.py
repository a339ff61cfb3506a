"""Curves of incumbents and bounds, whose axes tell values apart."""

from __future__ import annotations

from typing import Any

import pytest

from stagepack.report.search import trace, trace_figure
from stagepack.result import Event, Result, Status, Termination, Trace


def run(best: float, bound: float) -> Result[Any]:
    events = [Event(0.1, "bound", bound, "x"), Event(0.2, "incumbent", best, "x")]
    return Result(
        status=Status.FEASIBLE, termination=Termination.FINISHED, objective=best, bound=bound,
        runtime=1.0, trace=Trace(events),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("best", "bound", "form"),
    [
        (120_000, 80_000, "~s"),
        (3 * 10**15 + 237_570, 3 * 10**15, ",.0f"),
        (1.0000002, 1.0, ",.10~g"),
        (1_000_003, 1_000_000, ","),
    ],
)
def test_ticks_differ_however_near_the_values(best: float, bound: float, form: str) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    assert trace_figure(run(best, bound)).layout.yaxis.tickformat == form
    ax = trace(run(best, bound))
    ax.figure.canvas.draw()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(set(labels)) == len(labels) > 2
