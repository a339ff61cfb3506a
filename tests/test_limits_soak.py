"""A cell a kind of the soak of limits, and what it calls wrong."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import soak_limits
from benchmarks.soak_limits import Cell, Watch, soak, verdict

CELLS = [
    ("lmem-packing", "one-buffer", "exact"),
    ("pipeline-partition", "one-layer", "dp"),
    ("phase-schedule", "one-layer-phases", "enumerate"),
    ("pipeline-schedule", "one-operation", "greedy"),
]


@pytest.mark.parametrize(("kind", "family", "method"), CELLS)
def test_a_cell(kind: str, family: str, method: str) -> None:
    report = soak([kind], method, family, 5.0, [False])
    (cell,) = report.cells[kind, family]
    assert cell.status == "OPTIMAL PROVED"
    assert cell.method == method
    assert not report.wrong(5.0)
    assert {"building", "reading", "check of an answer"} <= set(report.outside[kind, family])


def test_what_is_wrong() -> None:
    assert verdict(Cell(method="m", deterministic=False, cpu=1.4, silence=0.1), 1.0) == ""
    assert "used 1.60 s" in verdict(Cell(method="m", deterministic=False, cpu=1.6), 1.0)
    silent = Cell(method="m", deterministic=True, silence=0.3, begin="a:1", end="b:2")
    assert verdict(silent, 1.0) == "asked nothing for 0.30 s, from a:1 to b:2"
    assert (
        verdict(Cell(method="m", deterministic=True, printed="a word"), 1.0) == "printed 'a word'"
    )
    early = Cell(method="m", deterministic=True, status="FEASIBLE TIME_LIMIT", cpu=0.4)
    assert verdict(early, 1.0) == "counted the limit as used after 0.40 s"
    assert verdict(early, 0.5) == ""
    assert "thread" in verdict(Cell(method="m", deterministic=True, left=0.4), 1.0)


def test_the_longest_stretch_without_a_question(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(soak_limits, "CPU", lambda: now[0])
    watch = Watch()
    for at, place in ((0.1, "a"), (0.4, "b"), (0.5, "c")):
        now[0] = at
        watch.hear(place)
    assert (round(watch.silence, 3), watch.begin, watch.end) == (0.3, "a", "b")
    now[0] = 1.5
    watch.leave_out(0.9)  # a check of an answer
    watch.hear("end")
    assert (watch.begin, watch.end) == ("a", "b")
