"""Names that would steer a terminal, a page or a spreadsheet are only shown."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.compare.page import to_html
from stagepack.errors import shown
from stagepack.files import guarded, unguarded
from tests.cli.shell import run

EVIL = "a\x1b[31mb\u202ec\nOPTIMAL\x9b2J<b>[red]"
STEERING = ("\x1b", "\u202e", "\x9b", "\nOPTIMAL\x9b", "\nOPTIMAL\\x9b")
NAMES = ["=1+1", "+a", "-1", "@x", "'=1", "''-x", "'plain", "plain", "a=b"]


def evil(**changes: Any) -> sp.PipelinePartition:
    given: dict[str, Any] = {"devices": 2, "exclusive": [4] * 5, "capacity": 12, "name": EVIL}
    return sp.PipelinePartition.from_arrays([1, 5, 3, 2, 4], **{**given, **changes})


def test_screens_show_names_as_they_are_written(tmp_path: Path) -> None:
    path, solution, wrong = tmp_path / "evil.json", tmp_path / "s.json", tmp_path / "wrong.json"
    sp.write(evil(layer_names=[f"{EVIL}{i}" for i in range(5)]), path)
    solution.write_text('{"boundaries": [0, 2, 5]}')
    wrong.write_text('{"boundaries": [0, 1, 5]}')
    for arguments in (
        ("show", path, solution),
        ("solve", path),
        ("solve", path, "--capacity", "9"),
        ("compare", path, "-m", "dp", "-j", "0", "--no-html"),
        ("check", path, wrong),
        ("methods", path),
        ("solve", f"{path}#x\x1b[31m"),
        ("solve", "no\x1b[31m"),
    ):
        done = run(*arguments)
        assert done.returncode in (0, 2, 3, 4), done.stderr
        for mark in STEERING:
            assert mark not in done.stdout + done.stderr, arguments


def test_checks_of_plans_show_names_as_they_are_written(tmp_path: Path) -> None:
    plan = sp.plan_model(evil(layer_names=[f"{EVIL}{i}" for i in range(5)]), microbatches=2)
    valid, wrong = tmp_path / "plan.json", tmp_path / "wrong.json"
    plan.to_json(str(valid))
    document = json.loads(valid.read_text())
    schedule = next(level for level in document["levels"] if level["name"] == "schedule")
    schedule["result"]["solution"]["start"][0][0][0] += 7
    wrong.write_text(json.dumps(document))
    for path, code, said in ((valid, 0, "valid: a\\x1b[31mb"), (wrong, 4, "F of a\\x1b[31mb")):
        done = run("check", path)
        assert done.returncode == code, done.stderr
        assert said in done.stdout
        assert not [mark for mark in STEERING if mark in done.stdout + done.stderr]


def test_a_terminal_gets_no_codes_but_the_screens_own(tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    sp.write(evil(), path)
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "stagepack", "solve", str(path)],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color"},
    ):
        os.close(follower)
        said = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
    os.close(leader)
    assert b"a\\x1b" in said
    assert b"\x1b[31m" not in said
    assert "\u202e".encode() not in said


def test_tables_and_pages_show_names_as_they_are_written() -> None:
    comparison = sp.compare([evil()], ["dp"], jobs=0)
    page = to_html(comparison).partition("<script")[0]
    for text in (comparison.table(100), page):
        for mark in STEERING:
            assert mark not in text
    assert "<b>[red]" not in page


def test_estimates_and_solutions_print_names_as_they_are_written() -> None:
    chain = sp.PipelinePartition.from_arrays([1, 2], devices=1, name=EVIL)
    packing = sp.LmemPacking.from_arrays([1, 2], [0, 0], [1, 1], ids=[EVIL, "c"])
    for printed in (str(sp.estimate(chain, sp.solve(chain))), str(sp.solve(packing).solution)):
        assert r"a\x1b[31mb\u202ec\nOPTIMAL\x9b2J<b>[red]" in printed
        assert not any(mark in printed for mark in STEERING[:4])


def test_maps_of_memory_show_names_as_they_are_written(tmp_path: Path) -> None:
    packing = sp.LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], ids=[EVIL, "y"], name=EVIL)
    sp.plot(packing, sp.PackingSolution(np.array([0, 4])), tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text().partition("plotly.js (basic")[0]
    assert r"a\\x1b[31mb\\u202ec\\nOPTIMAL" in page
    for mark in (*STEERING, r"\u001b", r"\u009b"):
        assert not re.search(r"(?<!\\)" + re.escape(mark), page), mark


@pytest.mark.parametrize("name", [*NAMES, "\tx", "\rx", "", "'"])
def test_guarded_cells_are_undone_exactly(name: str) -> None:
    assert unguarded(guarded(name)) == name
    assert not guarded(name).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_no_csv_holds_a_formula_and_what_is_read_back_is_the_same(tmp_path: Path) -> None:
    n = len(NAMES)
    packing = sp.LmemPacking.from_arrays([4] * n, [0] * n, [1] * n, ids=NAMES, capacity=4 * n)
    path = tmp_path / f"names.{4 * n}.csv"
    sp.write(packing, path)
    again: Any = sp.read(path)
    assert list(again.ids) == NAMES
    assert again.digest == packing.digest
    solution: Any = sp.solve(packing).solution
    placed = tmp_path / "placed.csv"
    sp.write_solution(packing, solution, placed)
    back: Any = sp.read_solution(placed, packing)
    assert back.offsets.tolist() == solution.offsets.tolist()
    named = evil(name="=cmd", layer_names=["=a", "+b", "-c", "@d", "e"])
    estimate = sp.estimate(named, sp.PipelineSolution((0, 2, 5), (0, 1)))
    rows = tmp_path / "estimate.csv"
    estimate.to_csv(rows)
    texts = [path.read_text(), placed.read_text(), rows.read_text()]
    texts.append(sp.compare([named], ["dp"], jobs=0).to_csv())
    for text in texts:
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    peaks = {row.get("peak_layer_name") for row in sp.read_measured(rows)}
    assert peaks == {stage.peak_layer_name for stage in estimate.stages}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["a\x1b[31mb", r"$\frac$", "a$b$c"])
def test_plots_draw_names_as_they_are_written(name: str) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    packing = sp.LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], ids=[name, "y"], name=name)
    axes = sp.plot(packing, sp.solve(packing))
    axes.figure.canvas.draw()
    words = [axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)]
    assert any(shown(name).replace("$", r"\$") in said for said in words)
    pyplot.close(axes.figure)
