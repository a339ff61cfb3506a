"""A cell a kind of the soak of limits, and what it calls wrong."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from benchmarks import soak_limits
from benchmarks.hostile import FAMILIES
from benchmarks.soak_limits import Cell, Wait, Watch, soak, verdict
from stagepack.heuristics.schedule import effort
from stagepack.instances.schedule import ScheduleSolution
from stagepack.progress import Progress, compilation
from stagepack.solve import REGISTRY

CELLS = [
    ("lmem-packing", "one-buffer", "exact"),
    ("pipeline-partition", "one-layer", "dp"),
    ("phase-schedule", "one-layer-phases", "enumerate"),
    ("pipeline-schedule", "one-operation", "greedy"),
    ("layer-grouping", "one-operator", "dp"),
    ("graph-partition", "one-node", "frontier"),
]


@pytest.mark.parametrize(("kind", "family", "method"), CELLS)
def test_a_cell(kind: str, family: str, method: str) -> None:
    report = soak([kind], method, family, 5.0, [False])
    (cell,) = report.cells[kind, family]
    assert cell.status == "OPTIMAL PROVED"
    assert cell.method == method
    assert not report.wrong(5.0)
    assert {"building", "reading", "check of an answer"} <= set(report.outside[kind, family])


def test_cells_that_there_are_not_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak_limits", "--kind", "lmem-packing", "--family", "none"])
    with pytest.raises(SystemExit):
        soak_limits.main()
    assert "no family or no method is called so" in capsys.readouterr().err


def test_a_method_that_does_not_apply_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--kind", "layer-grouping", "--family", "one-operator", "--method", "dag"]
    monkeypatch.setattr(sys, "argv", ["soak_limits", *asked, "--mode", "clock"])
    with pytest.raises(SystemExit):
        soak_limits.main()
    assert "dag does not apply: groups keep to the order" in capsys.readouterr().err


def test_what_is_wrong() -> None:
    assert verdict(Cell(method="m", deterministic=False, cpu=1.4, silence=0.1), 1.0) == ""
    assert "used 1.60 s" in verdict(Cell(method="m", deterministic=False, cpu=1.6), 1.0)
    left = Cell(method="m", deterministic=False, left=0.4)
    assert "left a thread behind" in verdict(left, 1.0)
    silent = Cell(method="m", deterministic=True, silence=0.3, begin="a:1", end="b:2")
    assert verdict(silent, 1.0) == "asked nothing for 0.30 s, from a:1 to b:2"
    assert (
        verdict(Cell(method="m", deterministic=True, printed="a word"), 1.0) == "printed 'a word'"
    )
    early = Cell(method="m", deterministic=True, status="FEASIBLE TIME_LIMIT", cpu=0.4)
    assert verdict(early, 1.0) == "counted the limit as used after 0.40 s"
    assert verdict(early, 0.5) == ""
    assert "thread" in verdict(Cell(method="m", deterministic=True, left=0.4), 1.0)


def test_counted_work_is_judged_in_seconds_of_a_usual_machine() -> None:
    slow = Cell(method="m", deterministic=True, status="FEASIBLE TIME_LIMIT", cpu=2.0, pace=1.6)
    assert verdict(slow, 1.0) == ""
    assert verdict(slow, 0.7) == "used 1.25 s (2.00 s at pace 1.60)"
    assert "as used after 1.25 s" in verdict(slow, 3.0)
    assert "used 2.00 s" in verdict(dataclasses.replace(slow, deterministic=False), 1.0)


def test_compiling_is_no_silence(monkeypatch: Any) -> None:
    """A kernel that was compiled within a run was told as 1.6 s without a question."""
    now = [0.0]
    monkeypatch.setattr(soak_limits, "CPU", lambda: now[0])
    watch = Watch()
    now[0] = 3.0
    compiled = compilation.seconds + 2.9
    monkeypatch.setattr(type(compilation), "seconds", property(lambda _: compiled))
    watch.hear("a")
    assert watch.silence == pytest.approx(0.1)


def test_the_pace_is_taken_again_and_again_and_left_out(monkeypatch: Any) -> None:
    now = [0.0]

    def reference() -> float:
        now[0] += 2 * soak_limits.USUAL
        return 2 * soak_limits.USUAL

    monkeypatch.setattr(soak_limits, "CPU", lambda: now[0])
    monkeypatch.setattr(soak_limits, "_reference", reference)
    watch = Watch()
    for _ in range(100):
        now[0] += 0.01
        watch.hear("a")
    assert 5 <= len(watch.paced) <= 10
    assert watch.pace() == pytest.approx(2)
    assert watch.silence == pytest.approx(0.01)


def test_what_is_known_is_allowed_for_and_no_more() -> None:
    wait = Wait(kind="k", method="m", deterministic=True, times=1.5, seconds=0.2, why="an engine")
    cell = Cell(method="m", deterministic=True, cpu=2.1)
    assert wait.covers("k", "any", cell)
    assert not wait.covers("other", "any", cell)
    assert not wait.covers("k", "any", Cell(method="m", deterministic=False))
    assert not wait.covers("k", "any", Cell(method="n", deterministic=True))
    assert not dataclasses.replace(wait, family="one").covers("k", "another", cell)
    assert verdict(cell, 1.0) == "used 2.10 s"
    assert verdict(cell, 1.0, wait) == ""
    assert verdict(dataclasses.replace(cell, cpu=2.3), 1.0, wait) == "used 2.30 s"


def test_what_is_known_is_counted_by_itself(monkeypatch: Any) -> None:
    wait = Wait(kind="k", seconds=1.0, why="an engine")
    monkeypatch.setattr(soak_limits, "KNOWN", (wait,))
    report = soak_limits.Report()
    report.cells["k", "f"] = [
        Cell(method="m", deterministic=True, cpu=cpu) for cpu in (1.0, 2.2, 2.7)
    ]
    assert report.wrong(1.0) == 1
    assert report.waited(1.0) == {wait: 1}


def test_what_is_known_is_about_what_there_is() -> None:
    for wait in soak_limits.KNOWN:
        assert wait.family in ("", *FAMILIES[wait.kind])
        assert wait.method in ("", *(method.name for method in REGISTRY[wait.kind]))


def test_places_are_where_questions_come_from_not_where_they_are_handed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress: Progress[ScheduleSolution] = Progress(lambda _: 0, lambda _: ())
    told: list[str] = []

    def asked() -> None:
        told.append(soak_limits._place(sys._getframe(1)))

    monkeypatch.setattr(progress, "stop_reason", asked)
    effort.looking(progress)(0)
    assert told[0].startswith("benchmarks/test_soak_limits:")


def test_the_longest_stretch_without_a_question(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(soak_limits, "CPU", lambda: now[0])
    monkeypatch.setattr(soak_limits, "_reference", lambda: 0.0)
    watch = Watch()
    for at, place in ((0.1, "a"), (0.4, "b"), (0.5, "c")):
        now[0] = at
        watch.hear(place)
    assert (round(watch.silence, 3), watch.begin, watch.end) == (0.3, "a", "b")
    now[0] = 1.5
    watch.leave_out(0.9)  # a check of an answer
    watch.hear("end")
    assert (watch.begin, watch.end) == ("a", "b")
