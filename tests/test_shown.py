"""Things print as a few readable lines, show themselves in notebooks, and become tables."""

from __future__ import annotations

import html
import pickle
import re
import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.result import Event
from stagepack.shown import PRESENTER, Shown, some

INSTANCES: dict[str, Any] = {
    "pipeline": sp.PipelinePartition.from_arrays(
        [4, 2, 5, 3, 1, 6], devices=3, exclusive=[1] * 6, capacity=4, objective="sum"
    ),
    "packing": sp.LmemPacking.from_arrays([4, 4, 4], [0, 3, 0], [3, 9, 9], ids=["a", "b", "c"]),
    "schedule": sp.PipelineSchedule.from_arrays([2, 2], [3, 3], microbatches=3),
    "phases": sp.PhaseSchedule.from_arrays(
        [4] * 3, [6] * 3, [8, 8, 2, 2], memory=40, remote_bandwidth=2, steps=4, modes=["compute"]
    ),
    "groups": sp.load("groups/examples/balanced-rows"),
    "graph": sp.GraphPartition.from_arrays(
        [4, 2, 5],
        accelerators=2,
        producer=[0, 1],
        consumers=[1, 2],
        consumer_ptr=[0, 1, 2],
        traffic=[2, 3],
    ),
}
KINDS = list(INSTANCES)
ROWS = {"pipeline": 3, "packing": 3, "schedule": 12, "phases": 1, "groups": 1, "graph": 2}
FIGURES = ("8 cycles", "8 bytes", "20 cycles", "78 cycles", "256 cycles", "9")
UNITS = dict(zip(KINDS, FIGURES, strict=True))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {kind: sp.solve(instance) for kind, instance in INSTANCES.items()}


def everything(results: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for kind, result in results.items():
        methods = sp.methods(INSTANCES[kind])
        found += [result, result.solution, result.trace, INSTANCES[kind], methods]
    found.append(sp.estimate(INSTANCES["pipeline"], results["pipeline"]))
    found.append(sp.plan(INSTANCES["phases"], results["phases"]))
    found.append(sp.compare(list(INSTANCES.values()), "auto", jobs=0))
    return found


def balanced(html: str) -> bool:
    """Whether every element that is opened is closed again, in order."""
    open_elements: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("br", "img"):
                open_elements.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_elements.pop() == tag

    Reader().feed(html)
    return not open_elements


def test_everything_prints_in_a_few_lines_and_is_represented_in_one(results: Any) -> None:
    for thing in everything(results):
        assert isinstance(thing, Shown)
        line = repr(thing)
        assert line.startswith(f"<{type(thing).__name__}: ")
        assert "\n" not in line
        assert len(line) < 160
        text = str(thing)
        assert text != line
        if isinstance(thing, list):  # the list of methods: each has its row, or several
            assert len(thing) < len(text.splitlines()) <= 6 * len(thing)
        else:
            assert 1 <= len(text.splitlines()) <= 36
        assert "array(" not in text
        assert "object at" not in text
        html = thing._repr_html_()
        assert balanced(html)
        assert "<script" not in html


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_prints_as_the_summary_of_its_run(
    kind: str, results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # lines are broken where they do not fit
    result = results[kind]
    first, second, third, *rest = str(result).splitlines()
    assert first.startswith(f"{result.instance}: ")
    by = f"by auto on {result.engine}" if result.engine else "by auto"
    assert second.startswith(f"OPTIMAL {by} in ")
    named = f"objective ({result.objective_name}) {UNITS[kind]}, bound {UNITS[kind]} ("
    assert third.startswith(named)
    assert third.endswith("gap 0%")
    assert len(rest) >= 2, "what the solution amounts to"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_result_prints_too_and_is_small(kind: str, results: Any) -> None:
    result = results[kind]
    assert result.problem.digest == result.digest
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.problem is None
    assert UNITS[kind] in str(again)
    assert "<img" not in again._repr_html_()
    with pytest.raises(sp.InputError, match="to_dataframe"):
        again.to_dataframe()
    size = len(pickle.dumps(again))
    assert again.of(INSTANCES[kind]).problem is INSTANCES[kind]
    assert str(again) == str(result)
    assert len(pickle.dumps(again)) == size


def test_pickles_do_not_grow_with_the_instance() -> None:
    instance = sp.PipelinePartition.from_arrays(np.ones(100_000, dtype=np.int64), devices=2)
    assert len(pickle.dumps(sp.solve(instance, "bisect"))) < 10_000


def test_results_without_solution() -> None:
    instance = sp.LmemPacking.from_arrays([4, 4], [0, 0], [3, 3], capacity=6)
    result = sp.solve(instance)
    assert result.status is sp.Status.INFEASIBLE
    assert result.reason in str(result)
    assert balanced(result._repr_html_())
    with pytest.raises(sp.InputError, match="holds no solution"):
        result.to_dataframe()
    bare: sp.Result[Any] = sp.Result(
        status=sp.Status.UNKNOWN, termination=sp.Termination.TIME_LIMIT
    )
    assert str(bare).splitlines()[0].startswith("UNKNOWN, time limit")
    assert "gap" not in str(bare)


def test_huge_things_stay_short() -> None:
    n = 200_000
    chain = sp.PipelinePartition.from_arrays(np.ones(n, dtype=np.int64), devices=5000)
    start = np.arange(n)
    packing = sp.LmemPacking.from_arrays(np.full(n, 8), start, start + 3)
    steps = sp.PipelineSchedule.from_arrays([1] * 4, microbatches=20_000)
    cuts = sp.PipelineSolution.in_order(np.linspace(0, n, 5001).astype(int).tolist())
    offsets = sp.PackingSolution.of(packing, start % 3 * 8)
    starts = sp.ScheduleSolution.of(steps, np.arange(80_000))
    figures = sp.estimate(chain, cuts)
    result: sp.Result[Any] = sp.Result(
        status=sp.Status.FEASIBLE,
        termination=sp.Termination.FINISHED,
        solution=cuts,
        kind=chain.kind,
    ).of(chain)
    trace = sp.Trace([Event(0.1 * i, "bound", i, "test") for i in range(5000)])
    for thing in (chain, packing, steps, cuts, offsets, starts, figures, result, trace):
        assert len(repr(thing)) < 200
        assert len(str(thing).splitlines()) <= 32
        assert len(str(thing)) < 4000
        if thing is not result:  # its picture takes a while
            assert len(thing._repr_html_()) < 200_000
    assert "4,984 more stages" in str(result)


def test_names_do_no_harm() -> None:
    evil = "<script>alert(1)</script>[bold]"
    instance = sp.LmemPacking.from_arrays([4], [0], [3], ids=[evil], name=evil)
    result = sp.solve(instance)
    for thing in (instance, result, result.solution, sp.compare(instance, "auto", jobs=0)):
        assert "<script" not in thing._repr_html_()
        assert "[bold]" in str(thing)


def test_what_cannot_be_shown_is_still_printed() -> None:
    nothing: Any = None
    broken = sp.PackingSolution(nothing)
    assert repr(broken) == str(broken) == "<PackingSolution>"
    assert repr(object.__new__(sp.LmemPacking)) == "<LmemPacking>"


def test_results_of_processes_know_their_instances() -> None:
    comparison = sp.compare(INSTANCES["pipeline"], ["dp", "greedy"], jobs=1)
    assert all(result.problem is INSTANCES["pipeline"] for result in comparison.results.values())


@pytest.mark.parametrize("kind", KINDS)
def test_notebooks_show_the_picture_where_matplotlib_is_there(
    kind: str, results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    before = pyplot.get_fignums()
    html = results[kind]._repr_html_()
    assert '<img alt="' in html
    assert 'src="data:image/png;base64,' in html
    assert "<table" in html
    assert pyplot.get_fignums() == before
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    alone = results[kind]._repr_html_()
    assert "<img" not in alone
    assert "<table" in alone


def test_notebooks_print_where_the_writer_of_html_is_missing(
    results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    compared = sp.compare(INSTANCES["packing"], "auto", jobs=0)
    for thing in (*results.values(), *INSTANCES.values(), compared):
        text = thing._repr_html_()
        assert text == f"<pre>{html.escape(str(thing))}</pre>"
        assert "\n" in text


@pytest.mark.parametrize("kind", KINDS)
def test_solutions_as_tables(kind: str, results: Any) -> None:
    pytest.importorskip("pandas")
    result, instance = results[kind], INSTANCES[kind]
    table = result.to_dataframe()
    assert len(table) == ROWS[kind]
    assert table.equals(result.solution.to_dataframe(instance))
    assert table.equals(pickle.loads(pickle.dumps(result)).to_dataframe(instance))
    match kind:
        case "pipeline":
            assert table.compute.max() == 8
        case "packing":
            assert table.set_index("id").offset.to_dict() == result.solution.by_name(instance)
            assert table.top.max() == 8
        case "schedule":
            assert table.end.max() == 20
            assert table.kind.value_counts().to_dict() == {"F": 6, "B": 6}
        case "phases":
            assert table.time.sum() == 78
        case "groups":
            assert table.cycles.sum() == 256
        case _:
            assert table.load.max() == 9
    with pytest.raises(sp.InputError, match=r"another instance|no solution"):
        result.to_dataframe(INSTANCES[KINDS[KINDS.index(kind) - 1]])


def test_other_tables(results: Any) -> None:
    pytest.importorskip("pandas")
    for thing, rows, columns in (
        (results["pipeline"].trace, None, {"time", "kind", "value", "source"}),
        (sp.estimate(INSTANCES["pipeline"], results["pipeline"]), 3, {"stage", "compute"}),
        (sp.plan(INSTANCES["phases"], results["phases"]), 1, {"name", "first", "end", "time"}),
        (sp.methods("lmem-packing"), None, {"name", "exact", "available"}),
        (sp.compare(INSTANCES["packing"], "auto", jobs=0), 1, {"method", "objective", "gap"}),
    ):
        table = thing.to_dataframe()
        assert columns <= set(table.columns)
        assert len(table) == rows or (rows is None and len(table) > 0)
    assert list(sp.Trace().to_dataframe().columns) == ["time", "kind", "value", "source"]


def test_without_pandas_the_error_says_what_to_install(
    results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for make in (results["packing"].to_dataframe, results["packing"].trace.to_dataframe):
        with pytest.raises(sp.StagepackError, match=re.escape("pip install 'stagepack[frame]'")):
            make()


def test_sequences_in_short() -> None:
    assert some([]) == ""
    assert some([3]) == "3"
    assert some(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert some(iter(range(9))) == "0, 1, 2, 3, 4, 5, 6, ..., 8"


def test_the_ground_floor_knows_one_address_above_it() -> None:
    import importlib

    presenter = importlib.import_module(PRESENTER)
    assert all(callable(getattr(presenter, name)) for name in ("text", "html", "columns"))
