"""Ctrl-C ends what asks many questions, with what it has so far."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from typing import Any

import pytest

import stagepack as sp
from stagepack.planning.tries import LEAST
from stagepack.result import Termination
from tests.cli.shell import run
from tests.planning.test_plan_model import chain

Interrupt = Callable[[str, int], list[Any]]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Let the solves of a module be interrupted from some question on; return all their limits."""

    def begin(module: str, question: int) -> list[Any]:
        limits: list[Any] = []

        def solve(*given: Any, **options: Any) -> Any:
            limits.append(options["time_limit"])
            found = sp.solve(*given, **options)
            if len(limits) == question:
                found = dataclasses.replace(found, termination=Termination.INTERRUPTED)
            return found

        monkeypatch.setattr(f"{module}.solve", solve)
        return limits

    return begin


def test_a_plan_is_the_best_so_far(interrupt: Interrupt) -> None:
    whole = sp.plan_model(chain(0))
    assert not whole.interrupted
    limits = interrupt("stagepack.planning.tries", 2)
    plan = sp.plan_model(chain(0))
    assert plan.interrupted
    assert plan.check() == ()
    assert set(limits[2:]) <= {LEAST}
    assert plan.bound is not None
    assert whole.objective is not None
    assert plan.bound <= whole.objective


def test_tuning_ends_with_the_plans_that_were_made(interrupt: Interrupt) -> None:
    def make(batch: int) -> sp.PipelinePartition:
        return chain(batch)

    alone = interrupt("stagepack.planning.tries", 0)
    sp.plan_model(make(1))
    interrupt("stagepack.planning.tries", len(alone) + 1)
    found = sp.tune(make, {"batch": [1, 2, 3]}, search="grid")
    assert [one.options["batch"] for one in found.evaluations] == [1]
    assert found.interrupted
    assert "interrupted" in str(found)
    interrupt("stagepack.planning.tries", 1)
    nothing = sp.tune(make, {"batch": [1, 2]}, search="grid")
    assert (nothing.best, nothing.interrupted) == (None, True)
    assert "nothing fits" not in str(nothing)


def test_fronts_and_explanations_are_as_far_as_they_came(interrupt: Interrupt) -> None:
    instance = chain(1, capacity=80)
    whole = sp.pareto(instance)
    assert whole.solves > 2
    interrupt("stagepack.tradeoffs.epsilon", 2)
    front = sp.pareto(instance, time_limit=None)
    assert (front.solves, front.complete) == (2, False)
    interrupt("stagepack.tradeoffs.changes", 2)
    assert len(sp.explain(instance).changes) == 1
    interrupt("stagepack.planning.tries", 1)
    plan = sp.plan_model(chain(1))
    interrupt("stagepack.planning.tries", 1)
    assert len(sp.explain_plan(dataclasses.replace(plan, interrupted=False)).changes) <= 1


@pytest.mark.parametrize("within", [True, False], ids=["in a solve", "after it"])
def test_ctrl_c_is_heard_though_the_solve_proves(
    within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    def solve(*given: Any, **options: Any) -> Any:
        optimum = sp.solve(*given, **options).objective

        def at_the_proof(bound: Any, _: str) -> None:
            if within and bound == optimum:
                press()

        found = sp.solve(*given, **options, on_bound=at_the_proof)
        assert found.termination is Termination.PROVED
        if not within:
            press()
        return found

    instance = chain(1, capacity=80)
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("stagepack.tradeoffs.epsilon.solve", solve)
    assert sp.pareto(instance).solves == 1
    monkeypatch.setattr("stagepack.tradeoffs.changes.solve", solve)
    assert sp.explain(instance).changes == ()
    monkeypatch.setattr("stagepack.planning.tries.solve", solve)
    assert sp.plan_model(chain(0)).interrupted
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_that_fits_is_a_result() -> None:
    done = run("tune", "bert-base", "--over", "batch=4096", "--over", "devices=2")
    assert done.returncode == 3, done.stderr
    assert "nothing fits" in done.stdout
