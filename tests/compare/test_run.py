from __future__ import annotations

import csv
import importlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stagepack.compare import Cell, Comparison, compare
from stagepack.compare.workers import Run
from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.result import Event, Result, Status, Termination, Trace

ROOT = Path(__file__).parents[2]


def small(name: str = "small", k: int = 2) -> PipelinePartition:
    return PipelinePartition.from_arrays([4, 3, 2, 1], devices=k, name=name)


def fake_methods(instance: Any) -> list[Any]:
    def info(name: str, default: bool = True, reason: str = "") -> Any:
        return SimpleNamespace(
            name=name, exact=name == "best", default=default, available=not reason, reason=reason,
            engines=(),
        )  # fmt: skip

    needs_two = "" if instance.k == 2 else "only for two devices"
    return [
        info("even"),
        info("best"),
        info("two", reason=needs_two),
        info("refuses", default=False),
        info("crashes", default=False),
        info("dies", default=False),
        info("waits", default=False),
        info("lies", default=False),
        info("cheats", default=False),
        info("gives-up", default=False),
    ]


def seen(instance: Any, name: str) -> Any:
    return next(method for method in fake_methods(instance) if method.name == name)


def fake_solve(
    instance: Any, method: str, *, time_limit: float | None, seed: int, threads: int, **options: Any
) -> Result[PipelineSolution]:
    if method == "refuses":
        raise InputError("too many layers", field="n")
    if method == "crashes":
        raise ZeroDivisionError("first line\nsecond line")
    if method == "dies":
        os._exit(3)
    n, k = instance.n, instance.k
    cuts = [0, *range(n - k + 1, n), n] if method == "even" else [0, *range(1, k), n]
    solution = PipelineSolution.in_order(cuts)
    value = instance.evaluate(solution)
    proved = method in ("best", "two", "lies")
    termination = Termination.PROVED if proved else Termination.FINISHED
    if method == "waits":
        try:
            time.sleep(30)
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
    result: Result[Any] = Result(
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        termination=termination,
        objective=value,
        bound=value if proved else 1,
        solution=solution,
        method=method,
        runtime=0.001 * (seed + 1),
        instance=instance.name,
        options={"seed": seed, **options},
        versions={"stagepack": "0"},
        trace=Trace([Event(0.0, "incumbent", value, method)]),
    )
    if method == "lies":
        result.bound = result.objective = value + 1
    if method == "cheats":
        result.solution = PipelineSolution.in_order([0, 0, n])
    if method == "gives-up":
        result.status, result.objective, result.solution = Status.INFEASIBLE, None, None
    return result


def install(setattr_: Any = setattr) -> None:
    module = importlib.import_module("stagepack.solve")
    setattr_(module, "solve", fake_solve)
    setattr_(module, "REGISTRY", {"pipeline-partition": fake_methods(small("any"))})
    setattr_(module, "seen_from", lambda instance, method: seen(instance, method.name))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)


def outline(comparison: Comparison) -> list[tuple[Any, ...]]:
    keys = ("instance", "method", "seed", "status", "objective", "ratio", "reason")
    return [tuple(row[key] for key in keys) for row in comparison.rows]


@pytest.mark.usefixtures("fakes")
class TestCells:
    def test_default_methods_in_order(self) -> None:
        comparison = compare([small("a"), small("b", 3)], jobs=0)
        assert outline(comparison) == [
            ("a", "even", 0, "FEASIBLE", 9, 1.5, None),
            ("a", "best", 0, "OPTIMAL", 6, 1.0, None),
            ("a", "two", 0, "OPTIMAL", 6, 1.0, None),
            ("b", "even", 0, "FEASIBLE", 7, 1.75, None),
            ("b", "best", 0, "OPTIMAL", 4, 1.0, None),
        ]
        assert comparison.complete
        assert comparison.contradictions == []
        assert [row["best"] for row in comparison.rows] == [False, True, True, False, True]

    def test_cells_without_an_answer(self) -> None:
        methods = ["two", "refuses", "crashes", "best"]
        comparison = compare(small(k=3), methods, jobs=0)
        assert [(row["status"], row["reason"]) for row in comparison.rows] == [
            ("n/a", "only for two devices"),
            ("n/a", "n: too many layers"),
            ("error", "ZeroDivisionError: first line"),
            ("OPTIMAL", None),
        ]
        assert not comparison.complete
        assert "ZeroDivisionError" in comparison.failures["small", "crashes", 0].detail

    def test_processes_give_what_one_process_gives(self) -> None:
        cells: Any = ([small("a"), small("a"), small("b", 3)], ["even", "crashes", "best", "two"])
        told: list[tuple[str, int, int]] = []
        pooled = compare(
            *cells,
            seeds=(1, 0),
            jobs=2,
            on_result=lambda row, done, total: told.append((row["instance"], done, total)),
        )
        assert outline(pooled) == outline(compare(*cells, seeds=(1, 0), jobs=0))
        assert list(pooled.instances) == ["a", "a (2)", "b"]
        assert [done for _, done, _ in told] == list(range(1, 25))
        assert {total for _, _, total in told} == {24}

    def test_any_executor(self) -> None:
        with ThreadPoolExecutor(2) as executor:
            threaded = compare([small("a"), small("b", 3)], executor=executor)
        assert outline(threaded) == outline(compare([small("a"), small("b", 3)], jobs=0))

    def test_cells_begin_side_by_side_with_those_of_other_problems(self) -> None:
        begun: list[str] = []
        one, two = cast("Any", small("a")), cast("Any", SimpleNamespace(kind="lmem-packing"))
        run = Run(
            fake_solve, {"a": one, "b": one, "c": two}, {},
            start=lambda cell: begun.append(cell.instance), finish=lambda cell, outcome: None,
        )  # fmt: skip
        run.take(Cell(label, "even", 0) for label in "abc")
        with ThreadPoolExecutor(1) as executor:
            run.on_executor(executor)
        assert begun == ["a", "c", "b"]

    def test_a_worker_that_dies_costs_only_its_cell(self) -> None:
        instances = [small(name) for name in "abc"]
        comparison = compare(instances, ["even", "dies", "best"], jobs=2)
        for _, method, _, status, objective, _, reason in outline(comparison):
            if method == "dies":
                assert (status, objective) == ("error", None)
                assert "died" in reason
            else:
                assert objective in (6, 9)

    def test_what_cannot_be_sent_is_an_error_of_its_cell(self) -> None:
        comparison = compare(small(), ["best"], jobs=1, on_incumbent=lambda *_: None)
        assert comparison.rows[0]["status"] == "error"
        assert "cannot be sent" in comparison.rows[0]["reason"]

    def test_objective_is_that_of_the_instances(self) -> None:
        comparison = compare(small(), ["best"], jobs=0, objective="sum")
        assert comparison.instances["small"].objective == "sum"
        assert comparison.rows[0]["objective_name"] == "sum"

    def test_mapping_gives_the_labels(self) -> None:
        assert list(compare({"x": small()}, "best", jobs=0).instances) == ["x"]

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"instances": []}, "instances"),
            ({"instances": ["vgg16"]}, "not an instance"),
            ({"instances": PipelinePartition}, "not an instance"),
            ({"methods": ["fastest"]}, "unknown method 'fastest'"),
            ({"seeds": []}, "seeds"),
            ({"seeds": 5}, "seeds"),
            ({"time_limit": 0}, "time_limit"),
            ({"time_limit": float("nan")}, "time_limit"),
            ({"time_limit": "3"}, "time_limit"),
            ({"methods": 5}, "methods"),
            ({"jobs": -1}, "jobs"),
            ({"jobs": "2"}, "jobs"),
            ({"threads": 0}, "threads"),
            ({"objective": "beauty"}, "objective"),
        ],
    )
    def test_bad_input(self, arguments: dict[str, Any], named: str) -> None:
        given: dict[str, Any] = {"instances": [small()], "jobs": 0, **arguments}
        with pytest.raises(InputError, match=named):
            compare(given.pop("instances"), **given)

    def test_interrupted_in_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", interrupt)
        comparison = compare(small(), ["best", "waits", "even"], jobs=0)
        assert comparison.interrupted
        assert [row["status"] for row in comparison.rows] == ["OPTIMAL", "FEASIBLE", "skipped"]


@pytest.mark.usefixtures("fakes")
class TestComparison:
    def test_best(self) -> None:
        instance = small()
        comparison = compare(instance, ["even", "best", "two"], jobs=0)
        best = comparison.best(instance)
        assert best is not None
        assert best is comparison.best("small")
        assert (best.method, best.objective) == ("best", 6)
        with pytest.raises(InputError, match="not compared"):
            comparison.best("large")

    @pytest.mark.parametrize(
        ("method", "claim"),
        [
            ("lies", "claims OPTIMAL 7, but best found 6"),
            ("lies", "claims the bound 7, but best found 6"),
            ("lies", "claims 7 for a solution worth 6"),
            ("cheats", "breaks boundaries"),
            ("gives-up", "claims INFEASIBLE, but best found 6"),
        ],
    )
    def test_contradictions(self, method: str, claim: str, caplog: Any) -> None:
        comparison = compare(small(), ["best", method], jobs=0)
        assert any(claim in text for text in comparison.contradictions)
        assert claim in caplog.text
        assert "CONTRADICTION" in " ".join(str(comparison).split())

    def test_files(self, tmp_path: Path) -> None:
        comparison = compare([small("a"), small("b", 3)], ["even", "two"], jobs=0)
        text = comparison.to_csv(tmp_path / "c.csv")
        assert (tmp_path / "c.csv").read_text() == text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["status"] for row in rows] == ["FEASIBLE", "OPTIMAL", "FEASIBLE", "n/a"]
        comparison.to_json(tmp_path / "c.json")
        data = json.loads((tmp_path / "c.json").read_text())
        assert len(data["rows"]) == 4
        assert len(data["results"]) == 3
        assert data["settings"]["time_limit"] == 10
        assert data["repeat"].startswith("stagepack.compare(instances, methods=['even', 'two']")
        assert data["versions"] == {"stagepack": "0"}

    def test_pickles(self) -> None:
        comparison = compare(small(), ["even"], jobs=0)
        assert outline(pickle.loads(pickle.dumps(comparison))) == outline(comparison)


SCRIPT = """
import sys
from tests.compare import test_run as t
t.install()
from stagepack.compare import compare
print("begun", flush=True)
c = compare([t.small("a"), t.small("b")], {methods}, jobs=2,
            on_result=lambda row, done, total: print("ended", row["method"], flush=True))
print([row["status"] for row in c.rows], [row["objective"] for row in c.rows], c.interrupted)
"""


def run_script(path: Path, methods: list[str]) -> subprocess.Popen[str]:
    path.write_text(SCRIPT.format(methods=methods))
    return subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    process = run_script(tmp_path / "script.py", ["best", "even"])
    output, errors = process.communicate(timeout=60)
    assert output.count("begun") == 1, errors
    assert "['OPTIMAL', 'FEASIBLE', 'OPTIMAL', 'FEASIBLE'] [6, 9, 6, 9] False" in output


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_keeps_what_there_is(tmp_path: Path, whole_group: bool) -> None:
    process = run_script(tmp_path / "script.py", ["best", "waits", "waits", "even"])
    assert process.stdout is not None
    ended = 0
    while ended < 1:  # "best" on the first instance; "waits" is under way by then, or soon
        line = process.stdout.readline()
        assert line, process.communicate()
        ended += line.startswith("ended")
    time.sleep(1.0)
    sent = time.monotonic()
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 8
    assert "True" in output.splitlines()[-1], errors
    assert "'OPTIMAL', 'FEASIBLE'" in output  # "waits" handed over its incumbent
    assert "Traceback" not in errors


def test_unknown_options_are_refused_before_anything_runs() -> None:
    instance = PipelinePartition.from_arrays([1, 2], devices=1)
    with pytest.raises(InputError, match=r"^seed_: .*seed"):
        compare([instance], methods=["dp"], jobs=0, seed_=1)
    with pytest.raises(InputError, match=r"^methods: no methods"):
        compare([instance], methods=[], jobs=0)


def test_json_holds_settings_that_are_no_data() -> None:
    instance = small()
    warm = importlib.import_module("stagepack.solve").solve(instance, "greedy")
    found = compare(instance, "dp", jobs=0, warm_start=warm, on_bound=print)
    settings = json.loads(found.to_json())["settings"]
    assert settings["warm_start"] == repr(warm)
    assert settings["on_bound"] == repr(print)
    assert settings["time_limit"] == 10


@pytest.mark.usefixtures("fakes")
def test_methods_of_each_instance_run_by_turns() -> None:
    begun: list[tuple[str, str]] = []
    compared = compare(
        {"a": small("a"), "b": small("b")},
        {"a": ["even", "best"], "b": ["best"]},
        jobs=0,
        on_start=lambda cell, done, total: begun.append((cell.instance, cell.method)),
    )
    assert begun == [("a", "even"), ("b", "best"), ("a", "best")]
    assert [(row["instance"], row["method"]) for row in compared.rows] == [
        ("a", "even"), ("a", "best"), ("b", "best"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="unknown method 'bset'; did you mean best"):
        compare({"a": small("a")}, {"a": ["bset"]}, jobs=0)


@pytest.mark.usefixtures("fakes")
def test_the_summary_counts_what_methods_solve_and_prove() -> None:
    compared = compare([small("a"), small("b")], ["even", "best", "refuses"], jobs=0)
    first, second = compared.summary
    assert (first["method"], first["cells"], first["solved"], first["proved"]) == ("best", 2, 2, 2)
    assert first["ratio"] == 1
    even = [row["ratio"] for row in compared.rows if row["method"] == "even"]
    assert (second["method"], second["proved"]) == ("even", 0)
    assert second["ratio"] == pytest.approx((even[0] * even[1]) ** 0.5)
    assert compared.verdict.startswith("2 of 2 instances decided with proof, ")
