"""Child processes that run cells, and what becomes of them when a cell takes too much."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from typing import Any

import pytest

from stagepack.compare.cell import DIED, NO_ROOM
from stagepack.compare.child import Forked, Keeper, Limits, Process, Start, spawned
from stagepack.compare.outcomes import Failure
from stagepack.kinds import KINDS
from stagepack.progress import compilation

PID = "__import__('os').getpid()"
SLEEP = "__import__('time').sleep(600)"
posix = pytest.mark.skipif(sys.platform == "win32", reason="passes a pipe to a process by number")


def cell(text: str) -> bytes:
    """Return a cell whose answer is the value of an expression."""
    return pickle.dumps((eval, pickle.dumps(text), {}, None, next(iter(KINDS.items()))))


@pytest.fixture(scope="module")
def forked() -> Forked:
    return Forked((), hide_main=True)


@pytest.fixture
def keepers(forked: Forked) -> Iterator[Any]:
    made: list[Keeper] = []

    def keeper(start: Start = forked, **limits: Any) -> Keeper:
        made.append(Keeper(start, Limits(**limits)))
        return made[-1]

    yield keeper
    for one in made:
        one.close()


def reason(outcome: Any) -> str:
    assert isinstance(outcome, Failure)
    return outcome.reason


def test_a_fork_server_that_cannot_be_begun_early_begins_with_the_first_child(
    keepers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.delattr(forkserver, "ensure_running")
    later = Forked((), hide_main=True)
    assert signal.getsignal(signal.SIGINT) is handler
    assert keepers(later).run(cell("7")) == 7


def test_a_child_stays_unless_every_cell_has_its_own(keepers: Any) -> None:
    stays, fresh = keepers(), keepers(fresh=True)
    assert stays.run(cell(PID)) == stays.run(cell(PID))
    assert fresh.run(cell(PID)) != fresh.run(cell(PID))


def test_a_child_that_dies_or_takes_too_long_is_replaced(keepers: Any) -> None:
    keeper = keepers(wall=0.5)
    first = keeper.run(cell("7"))
    assert first == 7
    assert keeper.run(cell("__import__('os')._exit(3)")) == DIED
    assert "after 0.5 s" in reason(keeper.run(cell(SLEEP)))
    assert keeper.run(cell("8")) == 8


def test_what_children_compile_is_told_until_they_have_or_die(
    keepers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(compilation, "heard", seen.append)
    theirs = "__import__('stagepack.progress').progress.compilation"
    keeper = keepers()
    assert keeper.run(cell(f"[{theirs}.begin(), {theirs}.end(), 7]")) == [None, None, 7]
    assert seen == [True, False]
    assert keeper.run(cell(f"{theirs}.begin() or __import__('os')._exit(3)")) == DIED
    assert seen == [True, False] * 2
    assert not compilation.under_way


def test_failures_of_a_cell_leave_its_child_alone(keepers: Any) -> None:
    keeper = keepers()
    pid = keeper.run(cell(PID))
    assert "ZeroDivisionError" in reason(keeper.run(cell("1 / 0")))
    assert "cannot be handed over" in reason(keeper.run(cell("lambda: 0")))
    assert "cannot be read" in reason(keeper.run(b"?"))
    assert keeper.run(cell(PID)) == pid


@pytest.mark.skipif(sys.platform != "linux", reason="limits of data are Linux's")
def test_memory_is_limited(keepers: Any) -> None:
    keeper = keepers(memory=2**31)
    assert keeper.run(cell("len(bytearray(2**32))")) == NO_ROOM
    assert keeper.run(cell("len(bytearray(2**20))")) == 2**20


@posix
def test_a_child_of_any_process_ends_with_its_keeper(keepers: Any) -> None:
    assert keepers(spawned).run(cell("sum(range(4))")) == 6
    process: Process
    process, pipe = spawned(None)
    pipe.recv_bytes()
    pipe.send_bytes(cell(SLEEP))
    pipe.close()
    process.join()
