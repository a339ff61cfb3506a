"""Runs in little memory: whatever ends them, it is one line and exit 2."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from stagepack import memory
from tests.cli.shell import STAGEPACK, shell

LIMITED = "ulimit -v 4000000; "


def ended_by(what: str) -> str:
    """Return a shell's words for a guarded run that ends in its own way."""
    code = (
        "import os, sys\n"
        "from stagepack.cli.guard import guarded\n"
        "left = guarded(lambda: sys.stderr.write('too little\\n') and 2)\n"
        f"{what}"
    )
    return LIMITED + shlex.join([sys.executable, "-c", code])


@pytest.mark.parametrize("what", ["os._exit(1)", "os.abort()", "os.kill(os.getpid(), 9)"])
def test_an_end_that_python_does_not_see_is_told(what: str) -> None:
    done = shell(ended_by(what))
    assert (done.returncode, done.stderr) == (2, "too little\n")


@pytest.mark.parametrize("code", [0, 1, 4, 130])
def test_a_run_that_leaves_by_itself_keeps_its_code(code: int) -> None:
    done = shell(ended_by(f"left(); os._exit({code})"))
    assert (done.returncode, done.stderr) == (code, "")


def test_a_signal_reaches_the_run() -> None:
    what = "import signal; signal.signal(15, lambda *a: (left(), os._exit(5))); "
    what += "os.kill(os.getppid(), 15); signal.pause()"
    assert shell(ended_by(what)).returncode == 5


@pytest.mark.parametrize("kilobytes", [150_000, 450_000])
@pytest.mark.parametrize(
    "arguments",
    [
        "plot packing/above-load {solution} -o {folder}/a.png",
        "solve packing/above-load -m cp-sat -t 1",
        "compare packing/above-load -t 1 --html {folder}/page --jobs 0",
        "compare packing/above-load -t 1 --html {folder}/page",
    ],
    ids=["plot", "cp-sat", "compare here", "compare in workers"],
)
def test_little_memory_is_no_internal_error(tmp_path: Path, arguments: str, kilobytes: int) -> None:
    solution = tmp_path / "solution.json"
    assert shell(f"{STAGEPACK} solve packing/above-load -q -o {solution}").returncode == 0
    said = arguments.format(solution=solution, folder=tmp_path)
    done = shell(f"ulimit -v {kilobytes}; {STAGEPACK} {said}")
    assert done.returncode in (0, 2), done.stderr
    if done.returncode:
        assert memory.TOO_LITTLE in done.stderr or "MemoryError" in done.stderr
