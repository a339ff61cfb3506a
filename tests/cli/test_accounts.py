"""Fronts, explanations and stores of plans where instances, solutions or results are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import stagepack as sp
from stagepack.contracts import JsonObject
from stagepack.errors import suggest
from tests.cli.shell import run
from tests.planning import test_inside
from tests.planning.test_plan_model import chain


def front() -> JsonObject:
    return sp.pareto(chain(0), "memory", points=2, time_limit=1).to_dict()


def explanation() -> JsonObject:
    return sp.explain(chain(0), time_limit=1).to_dict()


def plan_explanation() -> JsonObject:
    return sp.explain_plan(sp.plan_model(chain(0)), time_limit=1).to_dict()


def tuning() -> JsonObject:
    return sp.tune(lambda batch: chain(batch), {"batch": [1]}, "batch", time_limit=1).to_dict()


def test_tunings_are_sent_to_the_command_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(tuning()))
    for command in ("show", "solve"):
        done = run(command, path)
        assert done.returncode == 2
        assert "holds a tuning" in done.stderr
        assert "stagepack report FILE" in done.stderr
    told = run("check", path)
    assert told.returncode == 5
    assert "a tuning holds figures, and no plans that show them" in told.stdout
    better = tuning()
    better["best"]["throughput"] *= 2
    path.write_text(json.dumps(better))
    assert run("check", path).returncode == 4


@pytest.mark.parametrize("made", [front, explanation, plan_explanation])
def test_what_is_no_instance_and_no_solution_is_named(
    made: Callable[[], JsonObject], tmp_path: Path
) -> None:
    path, instance = tmp_path / "made.json", tmp_path / "chain.json"
    path.write_text(json.dumps(made()))
    sp.write(chain(0), instance)
    commands: tuple[tuple[str | Path, ...], ...] = ("report", path), ("check", instance, path)
    for words in commands:
        done = run(*words)
        assert done.returncode == 2
        assert ("holds a front" if made is front else "holds an explanation") in done.stderr
        assert ("pareto INSTANCE" if made is front else "explain FILE") in done.stderr


def test_stores_of_plans_are_named(tmp_path: Path) -> None:
    sp.tune(lambda batch: chain(batch), {"batch": [1]}, "batch", store=tmp_path, time_limit=1)
    for command in ("report", "results"):
        done = run(command, tmp_path)
        assert done.returncode == 2
        assert "is no store of results but of plans; go on with it: stagepack tune" in done.stderr


def test_plans_say_what_they_are_not_exported_to(tmp_path: Path) -> None:
    plan = sp.plan_model(chain(0, capacity=1))
    assert plan.levels == ()
    with pytest.raises(sp.InputError, match="has no levels") as caught:
        plan.export(tmp_path / "x", format="torch")
    assert plan.reason in str(caught.value)
    graph = sp.plan_model(test_inside.graph(0), time_limit=1)
    with pytest.raises(sp.InputError, match="torchtitan"):
        graph.export(tmp_path / "x", format="vllm")
    graph.export(tmp_path / "x", format="torchtitan")
    assert not suggest("torch", ()).endswith("one of ")
