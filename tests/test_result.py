"""Traces, results and atomic files."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from stagepack import files
from stagepack.errors import CheckError, InputError
from stagepack.files import finite, json_text
from stagepack.progress import Part, Progress, Stopped, compilation
from stagepack.result import Result, Status, Termination, relative_gap


def progress(**options: Any) -> Progress[int]:
    """Solutions are their own values; odd ones are wrong."""
    return Progress(
        lambda value: value,
        lambda value: ("odd",) if value % 2 else (),
        **options,
    )


def test_of_equals_it_keeps_the_least_and_looks_at_each_once() -> None:
    looked: list[str] = []

    def second(name: str) -> int:
        looked.append(name)
        return {"a": 3, "b": 5, "c": 1}[name]

    run: Progress[str] = Progress(lambda _: 7, lambda _: (), secondary=second)
    for name in "abc":
        run.offer(name, name)
    assert run.solution == "c"
    assert looked == ["a", "b", "c"]


def test_keeps_the_best_incumbent_and_the_highest_bound() -> None:
    run = progress()
    assert run.offer(10, "a")
    assert not run.offer(12, "b")
    assert run.offer(8, "c")
    run.raise_bound(3, "x")
    run.raise_bound(2, "y")
    run.raise_bound(float("nan"), "z")
    run.raise_bound(None, "z")
    assert (run.objective, run.bound, run.bound_source) == (8, 3, "x")
    assert [(e.kind, e.value) for e in run.trace.events] == [
        ("incumbent", 10),
        ("incumbent", 8),
        ("bound", 3),
    ]
    assert run.outcome() == (Status.FEASIBLE, Termination.FINISHED)


def test_a_solution_that_fails_its_check_is_a_bug_and_raises() -> None:
    with pytest.raises(CheckError, match="odd"):
        progress().offer(3, "liar")


@pytest.mark.parametrize(
    ("options", "bound", "expected"),
    [
        ({}, 8, (Status.OPTIMAL, Termination.PROVED)),
        ({"target": 9}, 1, (Status.FEASIBLE, Termination.TARGET)),
        ({"gap": 0.5}, 4, (Status.FEASIBLE, Termination.TARGET)),
        ({"gap": 0.5}, 3, (Status.FEASIBLE, Termination.FINISHED)),
        ({"time_limit": 0}, 1, (Status.FEASIBLE, Termination.TIME_LIMIT)),
        ({"tolerance": 0.2}, 7, (Status.OPTIMAL, Termination.PROVED)),
    ],
)
def test_why_a_run_ends(
    options: dict[str, float], bound: int, expected: tuple[Status, Termination]
) -> None:
    run = progress(**options)
    run.offer(8, "a")
    run.raise_bound(bound, "b")
    assert run.outcome() == expected


def test_nothing_found_is_unknown_and_infeasible_is_an_answer() -> None:
    assert progress(time_limit=0).outcome() == (Status.UNKNOWN, Termination.TIME_LIMIT)
    run = progress()
    run.prove_infeasible("too big")
    assert run.outcome() == (Status.INFEASIBLE, Termination.PROVED)


def test_interrupt_stops_at_the_next_question() -> None:
    run = progress()
    run.require_time()
    run.interrupt()
    with pytest.raises(Stopped):
        run.require_time()


def test_setup_does_not_count() -> None:
    run = progress(time_limit=0.2)
    with run.setup("waiting"):
        import time

        time.sleep(0.25)
    assert run.setup_time >= 0.25
    assert run.keep_going()


def test_compilation_does_not_count_wherever_it_is() -> None:
    import time

    run = progress(time_limit=0.2)
    part = Part(run, float, lambda _: (), time_limit=0.2)
    compilation.begin()
    time.sleep(0.25)
    compilation.end()
    assert run.keep_going()
    assert part.keep_going()
    with part.setup("compiling"):
        compilation.begin()
        time.sleep(0.05)
        compilation.end()
    assert part.setup_time == run.setup_time >= 0.3
    assert run.elapsed >= 0  # what was compiled within is not counted twice


def test_gap() -> None:
    assert relative_gap(10, 8) == pytest.approx(0.2)
    assert relative_gap(0, -3) == 3
    assert relative_gap(1e-14, 8e-15) == pytest.approx(0.2)  # said 2e-15: a gap of nothing
    assert relative_gap(None, 3) is None
    assert relative_gap(3, None) is None


def test_json_holds_no_nan() -> None:
    result: Result[None] = Result(
        status=Status.UNKNOWN, termination=Termination.TIME_LIMIT, bound=float("-inf")
    )
    data = json.loads(result.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert data["bound"] is None
    assert data["gap"] is None
    for key in ("status", "termination", "objective", "bound_source", "method", "runtime"):
        assert key in data
    for key in ("setup_time", "solution", "violations", "reason"):
        assert key in data
    assert finite({"a": [float("nan"), (1.5, float("inf"))]}) == {"a": [None, [1.5, None]]}


def test_trace_as_csv(tmp_path: Path) -> None:
    run = progress()
    run.offer(10, "a, b")
    text = run.trace.to_csv(tmp_path / "trace.csv")
    assert text == (tmp_path / "trace.csv").read_text()
    header, line = text.splitlines()
    assert header == "time,kind,value,source"
    assert line.endswith(',incumbent,10,"a, b"')


def test_errors_name_place_field_and_remedy_and_pickle() -> None:
    error = InputError("is wrong", file="a.json", field="layers", remedy="mend it")
    assert str(error) == "a.json: layers: is wrong; mend it"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(InputError("is wrong")) == "is wrong"


def test_atomic_writing_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    files.write(target, "one")
    target.chmod(0o640)
    files.write(target, b"two")
    assert target.read_text() == "two"
    assert target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(InputError, match=r"missing/out\.json"):
        files.write(tmp_path / "missing" / "out.json", "x")
    with pytest.raises(InputError, match="directory"):
        files.write(tmp_path, "x")
    assert os.listdir(tmp_path) == ["out.json"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        "plain",
        {"a": {"b": [], "c": [1, 2]}, 'q"\u00fc': None, "e": {}},
        [[1, [2]], [], {"x": 0.5}, True],
        {"deep": {"offsets": {str(i): i for i in range(50)}}, "trace": [{"t": 1.5, "v": "x, y"}]},
    ],
)
def test_json_text_is_that_of_the_standard_library(data: Any) -> None:
    assert json_text(finite(data)) == json.dumps(data, indent=2)
