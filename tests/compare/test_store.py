"""Suites in TOML, stores of cells that are found again, and what is read off them."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack import files
from stagepack.compare import curves
from stagepack.compare.curves import gap_steps, integral, mean_over_time
from stagepack.compare.results import COLUMNS, StoredResults
from stagepack.compare.store import Store
from tests.cli.shell import run

SUITE = """
methods = ["dp", "greedy"]
seeds = [0, 1]
time_limit = 5
threads = 1

[[instances]]
catalog = "pipeline/random/het*"
layers = [8, 9]
devices = 3
seed = {from = 0, to = 2}

[[instances]]
files = "*.json"
capacity = 20
"""


def suite(folder: Path, text: str = SUITE) -> Path:
    chain = sp.PipelinePartition.from_arrays([1, 5, 3, 2], devices=2, exclusive=[4] * 4, name="own")
    sp.write(chain, folder / "own.json")
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def test_a_suite_says_instances_and_settings(tmp_path: Path) -> None:
    found = sp.read_suite(suite(tmp_path))
    assert len(found.instances) == 2 * 3 + 1
    assert found.settings == {
        "methods": ["dp", "greedy"], "seeds": [0, 1], "time_limit": 5, "threads": 1,
    }  # fmt: skip
    assert "own" in found.instances
    assert len({instance.digest for instance in found.instances.values()}) == 7


def test_a_suite_takes_a_list_of_files(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        instance = sp.PipelinePartition.from_arrays([3, 1, ord(name)], devices=1, name=name)
        sp.write(instance, tmp_path / f"{name}.json")
    text = '[[instances]]\nfiles = ["b.json", "a*.json"]\ndevices = [2, 3]\n'
    found = sp.read_suite(suite(tmp_path, text)).instances
    assert [name[0] for name in found] == ["b", "b", "a", "a"]


def test_files_of_a_suite_may_be_absolute(tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    instance = sp.PipelinePartition.from_arrays([3, 1], devices=1, name="far")
    sp.write(instance, tmp_path / "far.json")
    text = f"[[instances]]\nfiles = '{tmp_path / 'f*.json'}'\n"
    assert list(sp.read_suite(suite(tmp_path / "sweeps", text)).instances) == ["far"]
    text = f"[[instances]]\nfiles = '{tmp_path / 'x*.json'}'\n"
    with pytest.raises(sp.InputError, match="looked in") as caught:
        sp.read_suite(suite(tmp_path / "sweeps", text))
    assert str(caught.value).endswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "field", "what"),
    [
        ('[[instances]]\nfiles = ["suite.toml", 3]', "instances[0].files", "a pattern, or a list"),
        ("[[instances]]\nfiles = []", "instances[0].files", "is empty"),
        ('[[instances]]\nfiles = "*.csv"', "instances[0]", "fits nothing; looked in "),
        ('[[instances]]\nfiles = "*.csv"\ncatalog = "*"', "instances[0]", "has files and catalog"),
        ("", "instances", "no instances"),
        ("metods = []", "metods", "methods"),
        ("seeds = []", "seeds", "not empty"),
        ("threads = true", "threads", "number"),
        ("[[instances]]\nlayers = 3", "instances[0]", "catalog"),
        ('[[instances]]\ncatalog = "x/*"', "instances[0]", "fits nothing"),
        ('[[instances]]\ncatalog = "pipeline/bert-base"\nbatch = {to = 3}',
         "instances[0].batch", "from"),
        ('[[instances]]\ncatalog = "pipeline/bert-base"\nbatch = {from = 3, to = 1}',
         "instances[0].batch", "from"),
        ('[[instances]]\ncatalog = "pipeline/bert-base"\nbach = 3', "bach", "batch"),
        ("a = [", "", "TOML"),
        ("seeds = ['a']", "seeds", "integers"),
        ("methods = [1]", "methods", "names"),
        ('[[instances]]\ncatalog = "pipeline/bert-base"\nbatch = {from = 1, to = 9999999999}',
         "instances[0]", "9,999,999,999"),
        ('[[instances]]\ncatalog = "pipeline/bert-base"\nbatch = {from = true, to = 2}',
         "instances[0].batch", "from"),
    ],
)  # fmt: skip
def test_bad_suites_are_named(tmp_path: Path, text: str, field: str, what: str) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.read_suite(suite(tmp_path, text))
    assert caught.value.field == field
    assert what in str(caught.value)
    assert "suite.toml" in str(caught.value)


def cells(store: Path, folder: Path, **more: Any) -> tuple[sp.Comparison, list[Any]]:
    """Run the suite with a store; return the comparison and the cells that were run."""
    found = sp.read_suite(suite(folder))
    begun: list[Any] = []
    given = {"jobs": 0, "on_start": lambda cell, *_: begun.append(cell), **found.settings, **more}
    return sp.compare(found.instances, store=store, **given), begun


def plain(comparison: sp.Comparison) -> list[Any]:
    return [(r["instance"], r["method"], r["seed"], r["status"], r["objective"], r["bound"])
            for r in comparison.rows]  # fmt: skip


def test_cells_that_are_there_are_not_run_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, begun = cells(store, tmp_path)
    assert len(begun) == 7 * 2 * 2
    again, begun = cells(store, tmp_path)
    assert begun == []
    assert plain(again) == plain(first)
    assert again.contradictions == []
    torn, other, *_ = sorted(store.glob("*/*.json"))
    torn.write_text(torn.read_text()[:100])
    other.rename(other.with_name("0" * 24 + ".json"))
    mended, begun = cells(store, tmp_path)
    assert len(begun) == 2
    assert plain(mended) == plain(first)
    _, begun = cells(store, tmp_path, time_limit=4)
    assert len(begun) == 28, "another question"


def test_a_run_that_was_ended_goes_on_where_it_was(tmp_path: Path) -> None:
    store, ended = tmp_path / "store", 0

    def end(row: Any, done: int, total: int) -> None:
        nonlocal ended
        ended += 1
        if ended == 10:
            raise KeyboardInterrupt

    first, _ = cells(store, tmp_path, on_result=end)
    assert first.interrupted
    again, begun = cells(store, tmp_path)
    assert len(begun) == 28 - 10
    alone, _ = cells(tmp_path / "other", tmp_path)
    assert plain(again) == plain(alone)


def test_a_full_disk_costs_what_was_under_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource")
    store, before = tmp_path / "store", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(row: Any, done: int, total: int) -> None:
        if done == 10:
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))

    try:
        found, _ = cells(store, tmp_path, on_result=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found.complete, "the answers are there"
    assert len(found.unkept) == 18
    assert all("cannot be written" in reason for reason in found.unkept.values())
    assert [found.lost] == [one.message[7:] for one in caplog.records if one.levelname == "ERROR"]
    assert found.lost.startswith("18 of 28 results not kept in the store: ")
    assert len([path for path in store.rglob("*") if path.is_file()]) == 10 + 1, "nothing torn"
    again, begun = cells(store, tmp_path)
    assert len(begun) == 18
    assert again.complete


def test_workers_keep_what_they_find(tmp_path: Path) -> None:
    store = tmp_path / "store"
    found, _ = cells(store, tmp_path, jobs=2, seeds=[0], methods=["greedy"])
    assert len(list(store.glob("*/*.json"))) == 7
    _, begun = cells(store, tmp_path, seeds=[0], methods=["greedy"])
    assert begun == []
    assert {row["method"] for row in found.rows} == {"greedy"}


def test_cells_that_failed_are_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve, store = sp.solve, tmp_path / "store"

    def fails(instance: sp.Instance, method: str = "auto", **more: Any) -> Any:
        if method == "greedy":
            raise RuntimeError("the method broke")
        return solve(instance, method, **more)

    monkeypatch.setattr(sys.modules["stagepack.solve"], "solve", fails)
    cells(store, tmp_path, seeds=[0])
    found = sp.read_store(store)
    assert [one["failed"] for one in found.summary()] == [0, 7]
    broken = found.where(status="error")
    assert {row["reason"] for row in broken.rows} == {"RuntimeError: the method broke"}
    assert "7 cells failed: RuntimeError: the method broke" in str(found)
    assert found.to_html(tmp_path / "page").read_text().count("the method broke") == 7
    assert len(found.curves("gap")["greedy"]) == 0
    monkeypatch.undo()
    _, begun = cells(store, tmp_path, seeds=[0])
    assert {cell.method for cell in begun} == {"greedy"}
    mended = sp.read_store(store)
    assert not mended.where(status="error").rows
    assert any(change.what == "status" for change in mended.against(found))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(sp.InputError, match="no store"):
        Store(tmp_path)
    newer = tmp_path / "newer"
    Store(newer)
    (newer / files.MARK).write_text('{"version": 2}')
    with pytest.raises(sp.InputError, match="newer"):
        sp.read_store(newer)
    with pytest.raises(sp.InputError, match="no store"):
        sp.read_store(tmp_path / "nothing")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / ".stagepack-1").write_text("")  # another process makes it
    assert sp.read_store(Store(tmp_path / "begun").path).rows == ()


def row(digest: str, method: str, objective: float | None, seconds: float, status: str) -> Any:
    return {
        "instance": digest, "problem": "p", "digest": digest, "method": method, "seed": 0,
        "status": status, "termination": "", "objective": objective, "bound": None, "gap": None,
        "runtime": seconds, "setup_time": 0.0, "engine": None, "primal_integral": 0.5,
        "reason": None, "arguments": "{}",
    }  # fmt: skip


TABLE = StoredResults(
    (
        row("a", "one", 10, 1.0, "OPTIMAL"),
        row("a", "two", 10, 3.0, "OPTIMAL"),
        row("b", "one", 8, 7.0, "FEASIBLE"),
        row("b", "two", 7, 3.0, "OPTIMAL"),
        row("c", "one", None, 3.0, "UNKNOWN"),
        row("c", "two", 5, 1.0, "FEASIBLE"),
    )
)


def test_figures_of_methods_by_hand() -> None:
    one, two = TABLE.summary()
    assert [one[k] for k in ("solved", "proved", "win", "tie", "loss")] == [2, 1, 0, 1, 2]
    assert [two[k] for k in ("solved", "proved", "win", "tie", "loss")] == [3, 2, 2, 1, 0]
    assert one["time"] == pytest.approx((2 * 8 * 4) ** (1 / 3) - 1)
    assert TABLE.profile() == {"one": [1.0, math.inf], "two": [1.0, 3.0]}
    assert TABLE.cactus() == {"one": [1.0], "two": [3.0, 3.0]}
    assert len(TABLE.where(method="one", status="OPTIMAL").rows) == 1
    with pytest.raises(sp.InputError, match="method"):
        TABLE.where(metod="one")


def test_a_method_is_no_rival_of_itself() -> None:
    """A store may hold a method twice, with different limits."""
    slow = row("a", "two", 10, 9.0, "OPTIMAL")
    twice = StoredResults((*TABLE.rows, row("b", "two", 7, 2.0, "OPTIMAL"), slow))
    two = twice.summary()[1]
    assert [two[k] for k in ("cells", "win", "tie", "loss")] == [5, 3, 2, 0]
    for rows in (twice.rows, twice.rows[::-1]):
        assert StoredResults(rows).profile() == {"one": [1.0, math.inf], "two": [1.0, 3.0]}


def test_what_became_worse_is_named() -> None:
    assert TABLE.against(TABLE) == []
    later = StoredResults(
        (
            row("a", "one", 11, 1.0, "FEASIBLE"),
            row("a", "two", 10, 9.0, "OPTIMAL"),
            row("b", "one", 7, 7.0, "FEASIBLE"),
            row("c", "two", None, 1.0, "UNKNOWN"),
        )
    )
    changes = [(c.instance, c.method, c.what, c.worse) for c in later.against(TABLE)]
    assert sorted(changes) == [
        ("a", "one", "objective", True), ("a", "one", "status", True),
        ("a", "two", "seconds", True), ("b", "one", "objective", False),
        ("c", "two", "objective", True),
    ]  # fmt: skip
    assert changes[-1][-1] is False


def test_cells_are_compared_with_those_of_the_same_limits() -> None:
    """Of a method asked once in both stores, limits may differ; times of several versions count."""

    def cell(value: int, seconds: float, arguments: str) -> Any:
        return row("a", "one", value, seconds, "FEASIBLE") | {"arguments": arguments}

    short, long = cell(12, 1.0, "1"), cell(10, 5.0, "5")
    now = StoredResults((cell(13, 1.0, "1"), cell(10, 5.0, "5")))
    for before in ((short, long), (long, short)):
        changes = now.against(StoredResults(before))
        assert [(one.what, one.before, one.after) for one in changes] == [("objective", 12, 13)]
    assert now.against(StoredResults((cell(9, 9.0, "9"),))) == []
    once = StoredResults((cell(11, 1.0, "2"),))
    assert [one.before for one in once.against(StoredResults((long,)))[:1]] == [10]
    again = StoredResults((cell(14, 1.0, "1"), short, long))
    assert len(now.against(again)) == 1


def test_a_method_is_profiled_on_what_it_was_asked() -> None:
    other = StoredResults((*TABLE.rows, row("d", "three", 7, 2.0, "OPTIMAL")))
    assert other.profile() == {**TABLE.profile(), "three": [1.0]}


def test_gaps_over_time_by_hand() -> None:
    events = [("incumbent", 2.0, 20), ("bound", 2.5, 9), ("incumbent", 3.0, 10)]
    result = {"trace": [dict(zip(("kind", "time", "value"), e, strict=True)) for e in events]}
    steps = gap_steps(result, 10)
    assert steps == ((0.0, 1.0), (2.0, 0.5), (3.0, 0.0))
    assert integral(steps, 5.0) == 2.5
    never = gap_steps({"trace": []}, 10)
    mean = dict(mean_over_time([steps, never]))
    assert [mean[t] for t in (0.0, 2.0, 3.0)] == [1.0, 0.75, 0.5]
    assert mean_over_time([never]) == ((0.0, 1.0),)
    assert mean_over_time([]) == ()
    table = StoredResults(TABLE.rows[:2], (steps, never))
    assert table.where(method="two").gaps == (never,)
    assert table.curves("gap")["two"] == ((0.0, 1.0),)
    assert table.curves("integral")["one"] == ((0.5, 1.0),)
    with pytest.raises(sp.InputError, match="profile"):
        table.plot(what="profil")


def test_a_store_is_a_page_and_parquet(tmp_path: Path) -> None:
    cells(tmp_path / "store", tmp_path, seeds=[0])
    found = sp.read_store(tmp_path / "store")
    text = found.to_html(tmp_path / "page").read_text()
    for aside in ("Ties", "Mean primal integral"):  # narrow screens do without
        assert f'<th scope="col" class="number aside">{aside}<' in text
    assert text.count("data:image/svg+xml") == 5
    assert text.count('class="method"') == 14
    assert "plotly" not in text.lower()[:100_000]
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found.to_parquet(tmp_path / "cells.parquet")
    again = pd.read_parquet(tmp_path / "cells.parquet")
    assert list(again.columns) == list(COLUMNS)
    known = [row["objective"] for row in found.rows if row["objective"] is not None]
    assert list(again["objective"].dropna()) == known


def test_commands_fill_a_store_and_read_it(tmp_path: Path) -> None:
    path, store, csv = suite(tmp_path), tmp_path / "store", tmp_path / "cells.csv"
    done = run("compare", path, "--store", store, "-j", "0", "--no-html")
    assert done.returncode == 0, done.stderr
    found = run("results", store, "--json", "--where", "method=dp", "--csv", csv)
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert [one["proved"] for one in document["summary"]] == [14]
    assert len(csv.read_text().splitlines()) == 15
    pictures = [f for w in ("gap", "integral") for f in (f"--{w}", tmp_path / f"{w}.svg")]
    drawn = run("results", store, *pictures, "--html", tmp_path / "page")
    assert drawn.returncode == 0, drawn.stderr
    assert {path.suffix for path in tmp_path.glob("*.svg")} == {".svg"}
    assert (tmp_path / "page" / "index.html").exists()
    shown = run("results", store, "--against", store)
    assert shown.returncode == 0
    assert "14 cases, 28 cells" in shown.stdout
    assert run("compare", path, "--devices", "3").returncode == 2
    unknown = run("results", store, "--profile", tmp_path / "profile.xyz")
    assert (unknown.returncode, unknown.stdout) == (2, ""), "refused before the store is read"
    assert "no name of a picture" in unknown.stderr


@pytest.mark.parametrize("last", [2.5, 300.0])
def test_curves_begin_with_nothing_and_hold_to_where_the_last_ends(last: float) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    given = {"soon": curves.rising([1.0, 2.0], 2), "late": curves.rising([last], 2), "never": ()}
    ax = curves.draw("profile", given)
    lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    assert lines["soon"][0].tolist() == [1, 0]
    assert lines["late"][0].tolist() == [last, 0]
    assert lines["soon"][-1][0] == lines["late"][-1][0] > last
    assert lines["soon"][-1][1] == 1
    assert {height for _, height in lines["never"]} == {0}
    assert ax.get_ylim()[0] == 0
    assert ax.get_xscale() == ("log" if last > 3 else "linear")
    counted = curves.draw("cactus", {"soon": ((1.0, 1.0), (2.0, 2.0))})
    assert all(tick == int(tick) for tick in counted.get_yticks())
    pyplot.close("all")


def test_curves_of_one_colour_have_dashes_of_their_own() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    given = {f"method-{at}": curves.rising([1.0 + at], 1) for at in range(20)}
    lines = curves.draw("cactus", given).get_lines()
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == 20
    pyplot.close("all")
