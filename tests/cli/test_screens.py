"""What people read: answers in words, numbers with separators, at any width."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stagepack as sp
from stagepack.cli import app
from stagepack.cli.terminal.screen import Cells
from tests.cli.shell import python


@pytest.mark.parametrize("width", [0, 1, 7, 39])
def test_odd_widths_break_nothing(width: int) -> None:
    env = {"COLUMNS": str(width)}
    listed = python("-m", "stagepack", "list", "pipeline", env=env)
    assert listed.returncode == 0, listed.stderr
    assert "pipeline/bert-base" in listed.stdout


def test_a_question_of_fitting_is_answered() -> None:
    given = ["packing/random/planted", "-m", "first-fit-size", "--capacity", "2MiB"]
    words = ["solve", *given]
    done = CliRunner().invoke(app, words)
    assert "fits (FEASIBLE)" in done.output
    assert "(fit) 1," in done.output
    result = sp.solve(sp.load("packing/random/planted", capacity=2**21), "first-fit-size")
    assert "fits (FEASIBLE)" in str(result)
    assert "fits (FEASIBLE)" in result._repr_html_()
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.stdout)["status"] == "FEASIBLE"


def test_comparisons_say_what_fits(tmp_path: Path) -> None:
    roomy = sp.load("packing/random/planted", capacity=2**21)
    comparison = sp.compare([roomy], methods=["first-fit-size"], jobs=0)
    assert [row["status"] for row in comparison.rows] == ["FEASIBLE"]
    comparison.to_html(tmp_path)
    page = (tmp_path / "index.html").read_text()
    for said in (comparison.table(80), comparison._repr_html_()):
        assert "FEASIBLE" not in said
    assert "fits" in comparison.table(80)
    assert ">fits</td>" in comparison._repr_html_()
    assert re.search(r'<span class="status fits"[^>]*>fits</span>', page)


def test_lines_of_progress_say_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    roomy = sp.load("packing/random/planted", capacity=2**21)
    cells = Cells({"roomy": roomy})
    cells.told = True
    row = {"instance": "roomy", "method": "dive", "seed": 0, "status": "FEASIBLE"}
    cells.ended({**row, "objective": 2**20}, 1, 2)
    cells.ended({**row, "objective": 2**22}, 2, 2)
    assert capsys.readouterr().err == "1/2 roomy dive fits\n2/2 roomy dive FEASIBLE\n"


@pytest.mark.parametrize("objective", ["fit", "peak"])
def test_the_summary_is_that_of_print(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    given = sp.load("packing/random/planted", objective=objective, capacity=2**21)
    words = ["solve", "packing/random/planted", "-m", "first-fit-size", "--objective", objective]
    done = CliRunner().invoke(app, [*words, "--capacity", "2MiB"])
    printed = str(sp.solve(given, "first-fit-size"))

    def said(lines: str) -> list[str]:
        timeless = re.sub(r" in [<\d].*", "", lines)
        return [line.rstrip() for line in timeless.splitlines()][:3]

    assert said(done.output) == said(printed)


def large(kind: str) -> Any:
    """Return an instance that has no answer, whose numbers are large."""
    if kind == "layers":
        return sp.load("pipeline/random/infeasible")
    if kind == "load":
        return sp.load("packing/random/planted", capacity=900_000)
    if kind in ("search", "excess", "reserved"):
        tight = sp.load("packing/above-load")
        times = {"start": tight.start * 20_011, "end": tight.end * 20_011}
        scaled = tight.replace(size=tight.size * 100_003, capacity=16 * 100_003, **times)
        if kind == "reserved":
            return scaled.replace(reserved=[(200_006, 400_012)], objective="fit")
        return scaled.replace(objective="fit" if kind == "search" else "peak")
    if kind == "memory":
        return sp.PipelineSchedule.from_arrays(
            [50_000, 50_000], [60_000, 60_000], microbatches=4, memory_forward=[90_000, 90_000],
            memory_backward=[-90_000, -90_000], limit=80_000,
        )  # fmt: skip
    return sp.load("phases/bert-large", capacity=1_000_000)


@pytest.mark.parametrize(
    "kind", ["layers", "load", "search", "excess", "reserved", "memory", "phases"]
)
def test_no_reason_has_a_number_without_separators(kind: str) -> None:
    result = sp.solve(large(kind), "auto", time_limit=5)
    assert "," in result.reason
    assert re.search(r"\d{5}", result.reason) is None, result.reason


def test_no_violation_has_a_number_without_separators() -> None:
    packed, chain = large("search"), sp.load("pipeline/random/infeasible")
    n, k = chain.n, chain.k
    cuts = [*range(k), n]
    found = [
        *packed.check(sp.PackingSolution(packed.start * 0)),
        *packed.check(sp.PackingSolution(packed.start * 0 + 16 * 100_003)),
        *chain.check(sp.PipelineSolution(tuple(cuts), tuple(range(k)))),
    ]
    assert {violation.rule for violation in found} >= {"overlap", "capacity"}
    assert [v for v in found if re.search(r"\d{5}", str(v))] == []


def test_numbers_in_reasons_have_separators() -> None:
    crowded = sp.load("packing/random/planted", capacity=900_000)
    assert "hold 1,048,576 bytes, 148,576 more than the capacity of 900,000" in (
        sp.solve(crowded, "auto", time_limit=5).reason
    )
