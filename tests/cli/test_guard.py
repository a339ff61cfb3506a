"""Runs in little memory: whatever ends them, it is one line and exit 2."""

from __future__ import annotations

import ctypes
import pickle
import shlex
import sys
from pathlib import Path

import pytest

import stagepack as sp
from stagepack import memory
from stagepack.cli import guard
from stagepack.compare.cell import NO_ROOM, attempt, run_cell
from stagepack.compare.outcomes import Failure
from stagepack.contracts import Solution
from stagepack.result import Result
from tests.cli.shell import STAGEPACK, shell

LIMITED = "ulimit -v 4000000; "


def ended_by(what: str) -> str:
    """Return a shell's words for a guarded run that ends in its own way."""
    code = (
        "import os, sys\n"
        "from stagepack.cli.guard import guarded\n"
        "tell = lambda stopped: 130 if stopped else sys.stderr.write('too little\\n') and 2\n"
        "left = guarded(tell)\n"
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


def test_a_run_that_a_signal_ends_was_interrupted() -> None:
    what = "import signal; signal.signal(15, lambda *a: os._exit(1)); "
    what += "os.kill(os.getppid(), 15); signal.pause()"
    done = shell(ended_by(what))
    assert (done.returncode, done.stderr) == (130, "")


def test_a_child_does_without_a_c_library_that_knows_prctl(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def library(name: object) -> object:
        asked.append(name)
        return object()

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(sys, "platform", "linux")
    guard._die_with_parent()
    assert asked == [None]


@pytest.mark.parametrize("where", ["parent", "child"])
def test_a_signal_right_behind_the_fork_ends_the_run(where: str) -> None:
    """It ended the parent alone, or with a traceback, where the handler was not there yet."""
    at_once = f"os.register_at_fork(after_in_{where}=lambda: os.kill(os.getpid(), 15))\n"
    code = (
        f"import os, sys; {at_once}from stagepack.cli import main\n"
        "sys.argv[1:] = ['solve', 'packing/above-load']\nmain()"
    )
    done = shell(LIMITED + shlex.join([sys.executable, "-c", code]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_large_limit_is_not_little_memory() -> None:
    assert shell("ulimit -v 64000000; " + ended_by("os._exit(3)")[len(LIMITED) :]).returncode == 3


@pytest.mark.parametrize("kilobytes", [150_000, 450_000])
@pytest.mark.parametrize(
    "arguments",
    [
        "plot packing/above-load {solution} -o {folder}/a.png",
        "solve packing/above-load -m cp-sat -t 1",
    ],
    ids=["plot", "cp-sat"],
)
def test_little_memory_is_no_internal_error(tmp_path: Path, arguments: str, kilobytes: int) -> None:
    solution = tmp_path / "solution.json"
    assert shell(f"{STAGEPACK} solve packing/above-load -q -o {solution}").returncode == 0
    said = arguments.format(solution=solution, folder=tmp_path)
    done = shell(f"ulimit -v {kilobytes}; timeout -s KILL 300 {STAGEPACK} {said}")
    assert done.returncode in (0, 2), done.stderr
    if done.returncode:
        *_, last = done.stderr.splitlines()  # libraries may have warned of what they did not get
        assert last == f"error: the run {memory.TOO_LITTLE}; use a larger machine"


def test_cells_that_no_library_gets_memory_for_are_no_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def starve(*_: object, **__: object) -> Result[Solution]:
        raise ImportError("libortools.so: failed to map segment from shared object")

    monkeypatch.setattr(memory, "is_scarce", lambda: False)
    outcome = attempt(starve, sp.load("packing/above-load"), {}, None)
    assert isinstance(outcome, Failure)
    assert outcome.status == "error"
    monkeypatch.setattr(memory, "is_scarce", lambda: True)
    assert attempt(starve, sp.load("packing/above-load"), {}, None) == NO_ROOM


class Vast:
    """What takes more memory to read than there is."""

    def __reduce__(self) -> tuple[object, ...]:
        return bytearray, (2**62,)


def test_a_cell_that_cannot_be_read_for_lack_of_memory_is_no_error() -> None:
    assert run_cell(pickle.dumps(Vast())) == NO_ROOM
