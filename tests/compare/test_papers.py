"""Tables for papers, means over what all solved, curves of methods that prove nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.compare import Failure
from stagepack.compare.papers import geometric, solved_by_all
from tests.compare.test_own import overlapping, packing, stacked


def compared(**options: Any) -> sp.Comparison:
    instances = [packing(), packing(30), packing(40)]
    return sp.compare(instances, {"auto": "auto", "stack_1": stacked, "bad": overlapping}, jobs=0)


@pytest.fixture(scope="module")
def found() -> sp.Comparison:
    return compared()


def test_means_are_of_what_all_solved(found: sp.Comparison) -> None:
    rows = found.rows
    ratios = [row["ratio"] for row in rows if row["method"] == "stack_1"]
    (mine,) = (row for row in found.summary if row["method"] == "stack_1")
    assert mine["shared"] == 3
    assert mine["ratio"] == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert found.means.endswith("over the 3 of 3 instances that all methods but bad solved")
    cell = next(c for c in found.cells if c.method == "stack_1")
    other = compared()
    del other.results[cell]
    other.failures[cell] = Failure("error", "on purpose")
    (mine,) = (row for row in other.summary if row["method"] == "stack_1")
    assert (mine["shared"], mine["solved"]) == (2, 2)
    assert mine["ratio"] == pytest.approx(math.prod(ratios[1:]) ** 0.5)
    assert "2 of 3 instances" in other.means
    assert "2 of 3, those solved by all but bad" in other.to_markdown()
    assert other.to_results().summary()[0]["shared"] == 2


def test_methods_of_other_problems_do_not_count() -> None:
    rows = [
        {"problem": "a", "instance": "x", "seed": 0, "method": "one", "objective": 1},
        {"problem": "a", "instance": "x", "seed": 0, "method": "two", "objective": 2},
        {"problem": "a", "instance": "y", "seed": 0, "method": "one", "objective": None},
        {"problem": "a", "instance": "y", "seed": 0, "method": "two", "objective": 2},
        {"problem": "b", "instance": "z", "seed": 0, "method": "three", "objective": 2},
        {"problem": "b", "instance": "z", "seed": 0, "method": "never", "objective": None},
    ]
    shared, idle = solved_by_all(rows, lambda row: (row["instance"], row["seed"]))
    assert shared == {("x", 0), ("z", 0)}
    assert idle == {"never"}
    assert geometric([]) is None
    assert geometric([2, 8]) == pytest.approx(4)


def test_tables_of_papers(found: sp.Comparison, tmp_path: Path) -> None:
    text = found.to_markdown(tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == text
    lines = text.splitlines()
    assert lines[0] == "| instance | auto | stack_1 | bad |"
    best = f"{found.results['powerlaw-20', 'auto', 0].objective:,}"
    assert lines[2].startswith(f"| powerlaw-20 | **{best}** | ")
    assert lines[2].endswith(" | invalid |")
    assert lines[5] == "| solved | 3 of 3 | 3 of 3 | 0 of 3 |"
    latex = found.to_latex(value="ratio")
    assert r"instance & auto & stack\_1 & bad \\" in latex
    assert r"powerlaw-20 & \textbf{1} & " in latex
    assert latex.count(r"\midrule") == 2
    assert latex.rstrip().endswith(r"\end{tabular}")
    with pytest.raises(sp.InputError, match="unknown 'colour'"):
        found.to_latex(value="colour")


def test_ratios_and_goals(found: sp.Comparison) -> None:
    results = found.to_results()
    assert results.goal == 1.0, "stack_1 proves nothing"
    assert results.ratios()["auto"] == [1.0, 1.0, 1.0]
    rows = {row["instance"]: row for row in found.rows if row["method"] == "stack_1"}
    assert results.ratios()["stack_1"] == pytest.approx(sorted(r["ratio"] for r in rows.values()))
    assert results.ratios()["bad"] == [math.inf] * 3
    assert results.cactus("proof")["stack_1"] == []
    assert len(results.cactus(1e9)["stack_1"]) == 3
    assert results.cactus(1e9)["bad"] == []
    assert len(results.cactus()["auto"]) == 3
    assert min(results.profile(1e9)["stack_1"]) >= 1
    assert results.curves("ratio")["auto"][-1] == (1.0, 1.0)
    for wrong in (0.5, "best", True):
        with pytest.raises(sp.InputError, match="goal"):
            results.profile(wrong)


def test_methods_that_prove_nothing_have_curves(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    instances = [packing(), packing(30)]
    found = sp.compare(instances, {"stack": stacked, "again": lambda one: stacked(one)}, jobs=0)
    for what in ("profile", "cactus", "ratio"):
        ax = found.plot(tmp_path / f"{what}.png", what=what)
        for line in ax.get_lines():
            assert max(line.get_ydata()) > 0, (what, line.get_label())
    assert ax.get_xlabel() == "Objective / best known"
    assert "at the best known" in found.plot(what="cactus").get_ylabel()
    assert "proved" in found.plot(what="cactus", goal="proof").get_ylabel()
    assert "within 5 % of" in found.plot(what="profile", goal=1.05).get_ylabel()
    pyplot.close("all")
