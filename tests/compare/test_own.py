"""Functions of users beside the methods of the package."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from tests.imports import ROOT

FAMILIES = (
    "pipeline/random/bert-like", "packing/random/planted", "schedule/uniform",
    "phases/six-layers", "groups/random/blocks", "graph/random/layered",
)  # fmt: skip


def packing(n: int = 20, seed: int = 0) -> Any:
    return sp.load("packing/random/powerlaw", buffers=n, seed=seed)


def stacked(instance: Any) -> Any:
    """Places buffers one above the other."""
    return np.cumsum(instance.size) - instance.size


class Shuffled:
    """Tries orders at random."""

    def __init__(self, tries: int) -> None:
        self.tries = tries

    def __call__(self, instance: Any, progress: sp.OwnProgress[Any], seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(self.tries):
            order = rng.permutation(instance.n)
            offsets = np.empty(instance.n, dtype=np.int64)
            offsets[order] = np.cumsum(instance.size[order]) - instance.size[order]
            progress.offer(offsets)

    def once(self, instance: Any) -> Any:
        return stacked(instance)


def failing(instance: Any) -> Any:
    raise ZeroDivisionError("on purpose")


def overlapping(instance: Any) -> Any:
    return [0] * instance.n


@pytest.mark.parametrize("jobs", [0, 2])
def test_functions_are_methods(jobs: int) -> None:
    lock = threading.Lock() if jobs == 0 else None  # which cannot be sent
    methods: list[Any] = [
        "auto", stacked, Shuffled(3), Shuffled(3).once, lambda one: stacked(one) if lock else None,
        functools.partial(sp.solve, method="first-fit-size"), failing, overlapping,
    ]  # fmt: skip
    found = sp.compare([packing(), packing(30)], methods, time_limit=5, jobs=jobs)
    assert found.methods == [
        "auto", "stacked", "Shuffled", "Shuffled.once", "lambda",
        "solve(method='first-fit-size')", "failing", "overlapping",
    ]  # fmt: skip
    rows = {row["method"]: row for row in found.rows if row["instance"] == "powerlaw-20"}
    assert rows["stacked"]["objective"] == rows["Shuffled"]["objective"] == packing().size.sum()
    assert rows["stacked"]["status"] == "FEASIBLE"
    assert rows["solve(method='first-fit-size')"]["bound"] is not None
    assert rows["lambda"]["status"] == ("FEASIBLE" if jobs == 0 else "UNKNOWN")
    assert rows["failing"]["status"] == "error"
    assert "ZeroDivisionError: on purpose (in failing, line" in rows["failing"]["reason"]
    assert rows["overlapping"]["status"] == "invalid"
    assert "overlap: buffers" in rows["overlapping"]["reason"]
    assert [cell.method for cell in found.cells[: len(methods)]] == found.methods


@pytest.mark.parametrize("name", FAMILIES)
def test_every_kind_takes_functions_and_plain_data(name: str) -> None:
    instance = sp.load(name)

    def plain(one: Any) -> object:
        found: object = sp.solve(one, time_limit=2).solution.to_dict()
        return found

    found = sp.solve(instance, plain, time_limit=5)
    assert found.status == "FEASIBLE"
    assert found.solution == sp.solve(instance, time_limit=2).solution
    assert found.method == "plain()"
    assert sp.check_result(instance, found.to_dict()).valid
    assert sp.solve(instance, lambda _: None).status == "UNKNOWN"


def test_what_a_result_proves_is_kept() -> None:
    instance = sp.load("packing/random/planted")
    found = sp.solve(instance, functools.partial(sp.solve, method="auto"))
    assert (found.status, found.proof) == ("OPTIMAL", sp.solve(instance).proof)
    tight = instance.replace(capacity=int(instance.size.max()) - 1, objective="fit")
    found = sp.solve(tight, sp.solve)
    assert found.status == "INFEASIBLE"


def test_what_is_proved_of_another_objective_is_no_bound() -> None:
    chain = sp.load("pipeline/random/heterogeneous")
    assert str(chain.objective) == "transfer-bounded"
    other = functools.partial(sp.solve, objective="bottleneck")
    found = sp.solve(chain, other)
    assert other(chain).status == "OPTIMAL"
    assert (found.status, found.bound, found.proof) == ("FEASIBLE", None, None)


def test_what_is_no_solution_says_what_is() -> None:
    with pytest.raises(sp.AnswerError, match=r"lambda returned a tuple .* return a PipelineSol"):
        sp.solve(sp.load("pipeline/gpt2-small"), lambda one: ([0, one.n], 7))


def test_arrays_are_solutions() -> None:
    chain = sp.PipelinePartition.from_arrays([1, 2, 3, 4], devices=2)
    assert sp.solve(chain, lambda _: [0, 3, 4]).objective == 6
    graph = sp.load("graph/random/layered")
    assert sp.solve(graph, lambda one: np.zeros(one.n, dtype=int)).status == "FEASIBLE"


def test_a_bound_of_a_function_is_an_engines_word() -> None:
    instance = packing()

    def claims(one: Any, progress: sp.OwnProgress[Any]) -> Any:
        progress.raise_bound(10**12)
        assert progress.bound == 10**12
        return stacked(one)

    found = sp.solve(instance, claims)
    assert found.bound is None
    assert "not believed" in found.reason


def test_what_was_found_by_then_is_kept() -> None:
    instance = packing()

    def falls(one: Any, progress: sp.OwnProgress[Any]) -> Any:
        assert progress.offer(stacked(one))
        assert not progress.offer(stacked(one))
        assert progress.objective == one.size.sum()
        raise ValueError("later")

    with pytest.raises(ValueError, match="later") as caught:
        sp.solve(instance, falls)
    assert caught.value.partial_result.objective == instance.size.sum()  # type: ignore[attr-defined]


def test_a_function_hears_of_its_run() -> None:
    heard: dict[str, object] = {}

    def one(_: Any, *, seed: int, time_limit: float, threads: int = 7) -> None:
        heard.update(seed=seed, time_limit=time_limit, threads=threads)

    sp.solve(packing(), one, seed=3, time_limit=4)
    assert heard == {"seed": 3, "time_limit": 4, "threads": 1}
    sp.solve(packing(), functools.partial(one, seed=9), seed=3)
    assert heard["seed"] == 9, "what is set stays"


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (Shuffled, "Shuffled is a class; give Shuffled()"),
        (lambda a, b, c: None, "missing a required argument: 'c'"),
        (lambda: None, "lambda cannot be called"),
    ],
)
def test_what_takes_no_instance_is_refused_before_anything_runs(
    method: Callable[..., Any], told: str
) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.compare(packing(), ["auto", method], jobs=0)
    assert told in str(caught.value)


def test_names_are_given_or_numbered() -> None:
    several: list[Any] = [stacked, lambda _: None, lambda _: None, stacked]
    assert sp.compare(packing(), several, jobs=0).methods == ["stacked", "lambda", "lambda (2)"]
    named = {"mine": stacked, "auto": "auto", "size": "first-fit-size"}
    found = sp.compare(packing(), named, jobs=0)
    assert found.methods == ["mine", "auto", "size"]
    assert found.summary[-1]["method"] == "mine"
    by_instance = sp.compare(
        {"a": packing(), "b": packing()}, {"a": [stacked], "b": "auto"}, jobs=0
    )
    assert [cell[:2] for cell in by_instance.cells] == [("a", "stacked"), ("b", "auto")]
    with pytest.raises(sp.InputError, match=r"methods\.x: 3"):
        sp.compare(packing(), {"x": 3, "y": stacked}, jobs=0)


def test_what_cannot_be_sent_says_so() -> None:
    lock = threading.Lock()

    def locked(one: Any) -> Any:
        with lock:
            return stacked(one)

    (row,) = sp.compare(packing(), locked, jobs=1).rows
    assert "cannot be sent to a worker" in row["reason"]
    assert "jobs=0" in row["reason"]


def test_a_store_tells_codes_apart(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def run(factor: int) -> Any:
        def mine(one: Any) -> Any:
            calls.open("a").write("x")
            return factor * (np.cumsum(one.size) - one.size)

        (row,) = sp.compare(packing(), mine, store=tmp_path / "store", jobs=0).rows
        return row["objective"]

    assert run(1) == run(1)
    assert len(calls.read_text()) == 1, "the second time it was there"
    assert run(2) > run(1)
    assert len(calls.read_text()) == 2


def test_a_script_needs_no_guard_for_its_functions(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, stagepack as sp\n"
        "def mine(one): return np.cumsum(one.size) - one.size\n"
        "found = sp.compare(sp.load('packing/random/planted'), [mine, 'auto'], time_limit=5)\n"
        "print([row['status'] for row in found.rows])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['FEASIBLE', 'OPTIMAL']", done.stderr


# ---------------------------------------------------------------------- ending from elsewhere


def waiting(one: Any, progress: sp.OwnProgress[Any]) -> None:
    progress.offer(stacked(one))
    while progress.keep_going():
        time.sleep(0.01)


def sleeping(_: Any) -> None:
    time.sleep(60)


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_comparison_ends_from_another_thread(jobs: int) -> None:
    stop = threading.Event()
    asked: list[float] = []

    def begun(*_: object) -> None:
        if not asked:
            asked.append(time.monotonic())
            threading.Timer(3 if jobs else 0.2, stop.set).start()

    methods: list[Any] = [waiting, sleeping] if jobs else [waiting]
    instances = [packing(), packing(30), packing(40)]
    found = sp.compare(instances, methods, jobs=jobs, time_limit=60, on_start=begun, stop=stop)
    assert time.monotonic() - asked[0] < 30
    assert found.interrupted
    assert not found.complete
    assert found.rows[0]["status"] in ("FEASIBLE", "skipped")
    if jobs == 0:
        assert found.rows[0]["termination"] == "INTERRUPTED"
    assert found.rows[-1]["status"] == "skipped"


@pytest.mark.parametrize("jobs", [0, 1])
@pytest.mark.parametrize("which", ["on_start", "on_result"])
def test_exceptions_of_callbacks_keep_what_there_is(jobs: int, which: str) -> None:
    calls = []

    def fails(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise LookupError("enough")

    callbacks: dict[str, Any] = {which: fails}
    with pytest.raises(LookupError, match="enough") as caught:
        sp.compare([packing(), packing(30)], [stacked, "auto"], jobs=jobs, **callbacks)
    kept = caught.value.partial_result  # type: ignore[attr-defined]
    assert kept.interrupted
    assert kept.rows[0]["status"] == "FEASIBLE"
    assert len(kept.rows) == 4


def test_functions_of_scripts_may_name_the_package(tmp_path: Path) -> None:
    """As users write them: the function's globals hold the package itself."""
    script = tmp_path / "mine.py"
    script.write_text(
        "import stagepack as sp\n"
        "instance = sp.PipelinePartition.from_arrays([3, 1, 2], devices=2)\n"
        "def mine(instance):\n"
        "    return sp.solve(instance).solution\n"
        "print([row['status'] for row in sp.compare([instance], [mine], jobs=1).rows])\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['FEASIBLE']", ran.stderr
