"""The runner that all engines share."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from typing import NoReturn

import numpy as np
import pytest

from stagepack import interrupts
from stagepack.solvers.engine import (
    GRACE,
    Abandoned,
    Relay,
    _again,
    agrees,
    left_behind,
    run_cancellable,
)


def test_a_value_comes_back() -> None:
    run = run_cancellable(lambda: 42, lambda: None)
    assert run.value == 42
    assert not run.interrupted
    assert not run.left_behind


def test_an_exception_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        run_cancellable(lambda: 1 // 0, lambda: None)


def test_cancel_is_called_until_the_solver_returns() -> None:
    calls = []
    cancelled = threading.Event()

    def cancel() -> None:
        calls.append(1)
        if len(calls) == 3:
            cancelled.set()

    run = run_cancellable(lambda: cancelled.wait(20), cancel, lambda: True)
    assert run.value is True
    assert len(calls) == 3


def test_a_deaf_solver_is_left_behind() -> None:
    release = threading.Event()
    relay = Relay(None, None)
    began = time.monotonic()
    run = run_cancellable(lambda: release.wait(20), lambda: None, relay=relay, time_limit=0.1)
    assert GRACE <= time.monotonic() - began < 10
    assert run.left_behind
    assert run.value is None
    release.set()


def test_what_is_not_worth_waiting_for_is_left_behind_at_once() -> None:
    release = threading.Event()
    began = time.monotonic()
    run = run_cancellable(lambda: release.wait(20), lambda: False, lambda: True)
    assert time.monotonic() - began < 10
    assert run.left_behind
    release.set()


def test_code_of_ours_ends_when_nobody_waits_for_it() -> None:
    began, ended = threading.Event(), threading.Event()
    steps = itertools.count()

    def build() -> None:
        try:
            for _ in steps:
                began.set()
                time.sleep(0.001)
        finally:
            ended.set()

    run = run_cancellable(build, lambda: False, began.is_set)
    assert run.left_behind
    assert ended.wait(20)
    assert next(steps) < 10_000


def test_should_stop_may_fail() -> None:
    cancelled = threading.Event()

    def fail() -> bool:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run_cancellable(lambda: cancelled.wait(20), cancelled.set, fail)
    assert cancelled.is_set()


def test_a_second_ctrl_c_comes_out() -> None:
    release = threading.Event()

    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cancellable(lambda: release.wait(20), interrupt, interrupt)
    assert left_behind()
    release.set()


def test_the_relay_passes_on_what_is_new() -> None:
    bounds: list[float] = []
    relay = Relay(None, bounds.append)
    for bound in (-np.inf, 1.0, 1.0, 0.5, np.nan, 2.0):
        relay.lower(bound)
    relay.incumbent(np.array([3]), 3.0)
    relay.incumbent(np.array([4]), 4.0)
    assert bounds == [1.0, 2.0]
    assert relay.best is not None
    assert relay.best[1] == 3
    assert relay.best_bound(None) == 2
    assert relay.best_bound(np.inf) == 2
    assert relay.best_bound(2.5) == 2.5


def test_a_closed_relay_is_silent() -> None:
    bounds: list[float] = []
    relay = Relay(None, bounds.append)
    relay.close()
    relay.lower(1.0)
    assert bounds == []


def test_agreement_looks_at_hinted_columns_only() -> None:
    hint = np.array([1, np.nan, 3])
    assert agrees(np.array([1, 7, 3]), hint)
    assert not agrees(np.array([1, 7, 4]), hint)
    assert not agrees(None, hint)


@pytest.mark.parametrize("busy", [False, True])
def test_abandoning_that_is_lost_in_a_callback_is_raised_again(
    monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    class Late(threading.Timer):
        delays = itertools.chain([1.0 if busy else 0.0], itertools.repeat(0.0))

        def start(self) -> None:  # comes back when its time is over, on a busy machine
            super().start()
            until = time.monotonic() + next(self.delays)
            while time.monotonic() < until:
                time.sleep(0.01)

    monkeypatch.setattr(threading, "Timer", Late)

    class Loses:
        def __del__(self) -> None:
            raise Abandoned

    ended = []

    def work() -> None:
        try:
            Loses()  # collected at once; nothing can be raised out of it
            for _ in range(200):
                time.sleep(0.01)
        except Abandoned:
            ended.append(True)

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    interrupts.heed(Abandoned, _again)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert ended
