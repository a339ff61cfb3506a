"""Signs of life on a terminal, and silence elsewhere."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.cli.terminal.screen import Cells, Solving, elapsed
from stagepack.compare.comparison import Cell
from stagepack.progress import compilation
from tests.cli.shell import python

CHAIN = "pipeline/random/bert-like"


def watched(*arguments: str) -> tuple[str, str]:
    """Run a command with stderr on a terminal; return its stdout and what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "stagepack", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    out, _ = process.communicate()
    return out.decode(), seen.decode()


def test_the_line_of_a_search_says_what_is_known() -> None:
    search = Solving("net", "auto")
    assert search.line() == "0 s   net, auto"
    search.bound(1000, "load")
    search.incumbent(object(), 1234567, None)
    assert search.line() == "0 s   incumbent 1,234,567   bound 1,000   gap 99.92%   net, auto"


def test_the_bar_of_a_comparison_names_what_runs_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    cells = Cells({"net": sp.load(CHAIN)})
    cells.begun(Cell("net", "dp", 0), 0, 3)
    now[0] += 65
    cells.begun(Cell("net", "cp-sat", 0), 0, 3)
    now[0] += 4
    assert cells.lines() == ["   1:09  net  dp", "    4 s  net  cp-sat"]
    ended = {"instance": "net", "method": "dp", "seed": 0, "status": "OPTIMAL", "objective": 1}
    cells.ended(ended, 1, 3)
    assert cells.lines() == ["    4 s  net  cp-sat"]


def test_lines_say_that_kernels_are_compiled_while_they_are() -> None:
    search, cells = Solving("net", "auto"), Cells({"net": sp.load(CHAIN)})
    cells.begun(Cell("net", "dp", 0), 0, 3)
    compilation.begin()
    try:
        assert search.line() == "0 s, compiling kernels   net, auto"
        assert cells.count() == "0/3  0 s, compiling kernels"
    finally:
        compilation.end()
    assert search.line() == "0 s   net, auto"
    assert cells.count() == "0/3  0 s"


def test_time_that_runs() -> None:
    assert [elapsed(x) for x in (0.9, 59.9, 60, 3725)] == ["0 s", "59 s", "1:00", "1:02:05"]


def test_comparisons_tell_what_begins() -> None:

    told: list[tuple[str, int, int]] = []
    sp.compare(
        sp.load(CHAIN, layers=6, devices=2),
        ["greedy", "equal-layers"],
        jobs=0,
        on_start=lambda cell, done, total: told.append((cell.method, done, total)),
    )
    assert told == [("greedy", 0, 2), ("equal-layers", 1, 2)]


def test_solve_tells_bounds() -> None:

    told: list[tuple[Any, str]] = []
    result = sp.solve(sp.load(CHAIN), "dp", on_bound=lambda *news: told.append(news))
    assert told[-1] == (result.bound, result.bound_source)


def test_a_person_sees_the_search_and_a_pipe_does_not() -> None:
    words = ("solve", "packing/random/evolved", "-m", "anneal", "-t", "1", "--json")
    out, seen = watched(*words)
    assert "incumbent" in seen
    assert "bound" in seen
    assert json.loads(out)["objective"]
    out, seen = watched(*words, "-q")
    assert seen == ""
    done = python("-m", "stagepack", *words)
    assert "incumbent" not in done.stderr


def test_nothing_that_engines_write_is_seen() -> None:
    code = """
import os, subprocess, sys, logging
from stagepack.cli.terminal.screen import engines_silenced, Stderr
logging.basicConfig(handlers=[Stderr()], format="%(message)s")
with engines_silenced():
    os.write(1, b"BANNER")
    os.write(2, b"BANNER")
    subprocess.run(["sh", "-c", "echo BANNER; echo BANNER >&2"])
    logging.getLogger("stagepack").warning("ours")
    print("ours too", file=sys.stderr)
print("answer")
os.write(2, b"end")
"""
    done = python("-c", code)
    assert done.stdout == "answer\n"
    assert done.stderr == "ours\nours too\nend"


def test_compiling_is_told_only_while_compiling(tmp_path: Path) -> None:
    code = """
import logging, sys
logging.basicConfig(format="%(message)s", level=logging.INFO)
import stagepack.progress
stagepack.progress.PATIENCE = 0.0
from stagepack.kernels.compiled import compiled
sys.path.insert(0, sys.argv[1])
import some_kernels
progress = stagepack.progress.Progress(lambda _: 0, lambda _: ())
with progress.setup("loading kernels"):
    assert some_kernels.add(1, 2) == 3
import time; time.sleep(0.2)
"""
    kernel = tmp_path / "some_kernels.py"
    kernel.write_text(
        "from stagepack.kernels.compiled import compiled\n"
        "@compiled\ndef add(a, b):\n    return a + b\n"
    )
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first = python("-c", code, str(tmp_path), env=env)
    again = python("-c", code, str(tmp_path), env=env)
    assert "compiling kernels (first use only) ..." in first.stderr.splitlines()
    assert "compiling" not in again.stderr
    assert again.returncode == 0, again.stderr
