"""A problem that the package does not know: its folders and one line open every door."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stagepack as sp
from stagepack.cli import app
from stagepack.instances.problem import Export
from stagepack.kinds import KINDS, Kind
from stagepack.methods import Method, Settings, counted
from stagepack.report.figures import look
from stagepack.report.view import Charts, view
from tests.toy_kind.instances.toy import KIND, Knapsack, KnapsackSolution
from tests.toy_kind.instances.toy import problem as known
from tests.toy_kind.methods import toy
from tests.toy_kind.report import toy as shown_as


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(KINDS, KIND, Kind("toy", home="tests.toy_kind"))
    yield
    for name in ("Knapsack", "KnapsackSolution"):
        vars(sp).pop(name, None)


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def bag() -> Knapsack:
    loaded = sp.load("toy/stairs")
    assert isinstance(loaded, Knapsack)
    return loaded


def test_it_is_listed_and_loaded(bag: Knapsack) -> None:
    assert [entry.name for entry in sp.entries("toy")] == ["toy/stairs"]
    assert "toy/stairs" in {entry.name for entry in sp.entries()}
    assert sp.load("toy-knapsack/stairs", things="4", capacity=3).n == 4
    with pytest.raises(sp.InputError, match="things: 1000 will not do"):
        sp.load("toy/stairs", things=1000)
    assert [instance.digest for instance in sp.suite("toy")] == [bag.digest]
    assert json.loads(run("list", "toy", "--json"))[0]["name"] == "toy/stairs"
    listed = run("list", "toy/stairs")
    assert "number of things" in listed
    assert "room in the bag" in listed, "not what others call a capacity"
    with pytest.raises(sp.InputError, match="from 0 to 10,000"):
        sp.load("toy/stairs", capacity=20_000)


def test_its_files_are_read_and_written(bag: Knapsack, tmp_path: Path) -> None:
    path = tmp_path / "bag.json"
    sp.write(bag, path)
    for kind in (None, "toy", KIND):
        assert sp.read(path, kind=kind).digest == bag.digest
    assert sp.read(path, capacity=3).capacity == 3
    with pytest.raises(sp.InputError, match="files do not understand 'devices'"):
        sp.read(path, devices=3)
    with pytest.raises(sp.InputError, match="choose one of left-behind"):
        sp.read(path, objective="peak")
    assert sp.schema("toy")["$defs"]["Document"]["properties"]["capacity"]["description"] == (
        "room in the bag"
    )
    assert json.loads(run("schema", "toy")) == sp.schema(KIND)
    assert KIND in {kind for known in sp.formats() for kind in known.kinds}
    run("convert", path, tmp_path / "again.json")
    assert sp.read(tmp_path / "again.json").digest == bag.digest
    assert pickle.loads(pickle.dumps(bag)) == bag


def test_it_is_solved_and_compared(bag: Knapsack) -> None:
    result: sp.Result[KnapsackSolution] = sp.solve(bag)
    assert (str(result.status), result.objective) == ("OPTIMAL", 14)
    assert [method.name for method in sp.methods("toy")] == ["auto", "greedy"]
    assert "greedy" in run("methods", "toy")
    table = sp.compare([bag], jobs=0)
    assert {row["status"] for row in table.to_dict()["rows"]} == {"OPTIMAL", "FEASIBLE"}
    assert json.loads(run("solve", "toy/stairs", "--json"))["objective"] == 14
    assert "14" in str(result)
    assert result._repr_html_()


def test_workers_know_what_the_script_registered(bag: Knapsack) -> None:
    table = sp.compare([bag], jobs=1)
    assert [row["status"] for row in table.rows] == ["OPTIMAL", "FEASIBLE"]


def test_limits_end_a_search(bag: Knapsack) -> None:
    many: Any = sp.load("toy/stairs", things=40, capacity=400)
    result = sp.solve(many, target=sp.solve(many, "greedy").objective)
    assert str(result.termination) == "TARGET"
    assert result.bound is None


def test_a_method_that_counts_no_work_ends_by_the_clock(
    bag: Knapsack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(instance: Knapsack, progress: Any, settings: Settings) -> None:
        while progress.keep_going():
            assert progress.elapsed < 30, "the limit never comes"
            toy.greedy(instance, progress, settings)

    method = Method(name="endless", kind=KIND, exact=False, description="", run=counted(endless))
    monkeypatch.setattr(toy, "METHODS", (method,))
    result = sp.solve(bag, "endless", time_limit=0.05, options={"deterministic": True})
    assert str(result.termination) == "TIME_LIMIT"


def test_its_solutions_are_written_read_and_checked(bag: Knapsack, tmp_path: Path) -> None:
    result: Any = sp.solve(bag)
    plain, whole = tmp_path / "plain.json", tmp_path / "whole.json"
    sp.write_solution(bag, result, plain)
    result.to_json(whole)
    for path in (plain, whole):
        assert sp.read_solution(path, bag) == result.solution
        assert sp.read_solution(path) == result.solution
        claims = path == whole  # of which nothing of this kind can be verified
        assert json.loads(run("check", "toy/stairs", path, "--json", code=5 * claims))["valid"]
    plain.write_text('{"taken": [4, 4.5]}')
    with pytest.raises(sp.InputError, match=r"taken\[1\]"):
        sp.read_solution(plain)
    plain.write_text('{"taken": [3, 4, 2]}')
    assert "capacity" in run("check", "toy/stairs", plain, code=4)
    assert sp.check_result(bag, whole).valid
    other = sp.load("packing/above-load")
    with pytest.raises(sp.InputError, match="no solution for lmem-packing"):
        sp.read_solution(plain, other)


def test_it_is_shown_and_exported(bag: Knapsack, tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    sp.solve(bag).to_json(path)
    assert KIND in run("show", "toy/stairs")
    assert "Things  2" in run("show", "toy/stairs", path)
    exported = tmp_path / "bag.json"
    run("solve", "toy/stairs", "--export", exported)
    assert json.loads(exported.read_text()) == {"packed": [3, 4]}


def test_it_is_written_for_a_tool(bag: Knapsack, tmp_path: Path) -> None:
    lines = tmp_path / "bag.txt"
    sp.write_solution(bag, sp.solve(bag), lines, format="labels", mark="*")
    assert lines.read_text() == "* stairs-5 3\n* stairs-5 4\n"
    run("solve", "toy/stairs", "--export", lines, "--as", "labels")
    assert lines.read_text() == "- stairs-5 3\n- stairs-5 4\n"
    with pytest.raises(sp.InputError, match="labels has no option 'ink'"):
        sp.write_solution(bag, sp.solve(bag), lines, format="labels", ink="red")


def test_what_can_be_traded_in_it_is_found(bag: Knapsack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every room from that of nothing to that of all, against trying every one."""
    front = sp.pareto(bag, "room")
    values = {room: sp.solve(bag.replace(capacity=room)).objective for room in range(1, 10)}
    best = {min(room for room in values if values[room] == value) for value in values.values()}
    assert {point.x for point in front.points} == best
    assert all(point.y == values[point.x] for point in front.points)
    assert json.loads(run("pareto", "toy/stairs", "-x", "room", "--json"))
    assert "more room" in run("explain", "toy/stairs")
    monkeypatch.setitem(sys.modules, "tests.toy_kind.instances.toy.tradeoffs", None)
    with pytest.raises(sp.InputError, match="nothing is known of what can be traded"):
        sp.pareto(bag, "room")


def test_it_is_drawn_and_reported(bag: Knapsack, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result: Any = sp.solve(bag)
    result.to_json(tmp_path / "bag.json")
    run("plot", "toy/stairs", tmp_path / "bag.json", "-o", tmp_path / "bag.svg")
    assert "in the bag" in (tmp_path / "bag.svg").read_text()
    assert "a bag for" in str(result)
    assert "14 value" in str(result)
    table = sp.compare([bag], jobs=0)
    page = table.to_html(tmp_path).read_text()
    assert "<dt>Things</dt><dd>2</dd>" in page
    with pytest.raises(sp.InputError, match="no interactive picture"):
        sp.plot(bag, result, tmp_path / "bag.html")
    with pytest.raises(sp.InputError, match="no interactive picture") as refused:
        run("solve", "toy/stairs", "--plot", tmp_path / "bag.html")
    assert refused.value.field == "--plot"
    with pytest.raises(sp.InputError, match="has one scale"):
        sp.plot(bag, result, scale="sizes")


def test_figures_as_the_documents_ask_for_them_make_it_interactive(
    bag: Knapsack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    pytest.importorskip("matplotlib")

    def figures(instance: Knapsack, solutions: list[KnapsackSolution]) -> Charts:
        layout = {**look("Sizes"), "height": 300}
        bars = [plotly.Bar(y=[instance.sizes[i] for i in s.taken]) for s in solutions]
        return Charts([plotly.Figure(bar, layout) for bar in bars])

    monkeypatch.setattr(shown_as, "VIEW", shown_as.KnapsackView(shown_as.draw, figures))
    sp.plot(bag, sp.solve(bag), tmp_path / "bag.html")
    assert "Sizes" in (tmp_path / "bag.html").read_text()
    assert "Sizes" in sp.compare([bag], jobs=0).to_html(tmp_path / "all").read_text()


def test_what_is_written_for_others_is_no_solution(
    bag: Knapsack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where `check` reads it the message says so."""
    path = tmp_path / "list.json"
    path.write_text('{"list": "of things"}')
    for check, words in (("", "program, no solution"), ("check_list", "only check reads")):
        told = replace(known.PROBLEM, export=Export(".json", "", {"list": "of things"}, check))
        monkeypatch.setattr(known, "PROBLEM", told)
        with pytest.raises(sp.InputError, match=words):
            sp.read_solution(path, bag)


def test_without_a_report_folder_the_defaults_show_it(
    bag: Knapsack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, KIND, Kind("nowhere", home="tests.toy_kind"))
    kind = view(KIND)
    assert kind.headline(bag) == "toy-knapsack, left-behind"
    assert not kind.drawn


def test_it_has_public_names() -> None:
    package: Any = sp
    assert package.Knapsack is Knapsack
    assert {"Knapsack", "KnapsackSolution"} <= set(dir(sp))
