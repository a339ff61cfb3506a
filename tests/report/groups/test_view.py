"""What people see of plans: columns that add up, memory within the lane, tables, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import stagepack as sp
from stagepack.compare.page import to_html
from stagepack.errors import InputError
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.check import group_cycles
from stagepack.instances.groups.chips import CHIPS
from stagepack.plots import group_rows, plot
from stagepack.report.groups import VIEW
from stagepack.report.groups.figure import plan_charts
from stagepack.report.groups.numbers import (
    ROLES,
    bank_lines,
    cut_words,
    lane_limit,
    plan_drawing,
    row_limit,
)
from stagepack.report.html import write_figure
from tests.report.printed import printed

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "squeezenet": ({"chip": "cv184x"}, "dp"),  # sliced, whole and from global memory
    "alexnet": ({"chip": "bm1684x"}, "dp"),
    "shufflenet": ({"chip": "cv184x"}, "layerwise"),
    "resnet50": ({"chip": "bm1688", "batch": 4, "slicing": "free"}, "greedy-tail"),
}


@pytest.fixture(scope="module", params=list(CASES))
def solved(request: pytest.FixtureRequest) -> tuple[LayerGrouping, GroupingSolution]:
    options, method = CASES[request.param]
    instance = sp.load(f"groups/{request.param}", **options)
    assert isinstance(instance, LayerGrouping)
    solution = sp.solve(instance, method).solution
    assert isinstance(solution, GroupingSolution)
    return instance, solution


def small() -> tuple[LayerGrouping, GroupingSolution]:
    instance = sp.load("groups/squeezenet", chip="cv184x")
    assert isinstance(instance, LayerGrouping)
    solution = sp.solve(instance, "dp").solution
    assert isinstance(solution, GroupingSolution)
    return instance, solution


def test_columns_take_the_cycles_of_the_plan(solved: Any) -> None:
    instance, solution = solved
    drawn = plan_drawing(instance, solution)
    assert [group.end - group.start for group in drawn.groups] == group_cycles(instance, solution)
    assert drawn.cycles == instance.evaluate(solution)
    assert drawn.width == len(drawn.columns)
    for column in drawn.columns:
        longest = max(column.compute, column.load + column.store)
        assert longest <= column.cycles <= column.compute + column.load + column.store


def test_a_free_order_and_free_timesteps_are_drawn_as_they_are() -> None:
    instance = sp.load("groups/squeezenet", chip="cv184x", order="free", timesteps="free")
    assert isinstance(instance, LayerGrouping)
    solution = sp.solve(instance, "cp-sat", time_limit=30).solution
    assert isinstance(solution, GroupingSolution)
    drawn = plan_drawing(instance, solution)
    named = [column.operator for column in drawn.columns if column.operator is not None]
    assert tuple(named) == (solution.order or tuple(range(instance.n)))
    assert drawn.cycles == instance.evaluate(solution)
    assert all(arc.left < arc.right for arc in drawn.arcs)


def test_every_operator_has_one_column(solved: Any) -> None:
    instance, solution = solved
    drawn = plan_drawing(instance, solution)
    named = [column.operator for column in drawn.columns if column.operator is not None]
    assert named == list(range(instance.n))


def test_work_is_that_of_the_table(solved: Any) -> None:
    instance, solution = solved
    drawn = plan_drawing(instance, solution)
    for group, row in zip(drawn.groups, VIEW.rows(instance, solution), strict=True):
        assert group.total("compute") == row["compute"]
        assert group.total("load") + group.total("store") == row["transfers"]
        assert max((box.high for box in group.boxes), default=None) == row["lane_bytes"]


def test_boxes_lie_in_their_groups_apart_from_one_another(solved: Any) -> None:
    instance, solution = solved
    drawn = plan_drawing(instance, solution)
    for group in drawn.groups:
        for at, box in enumerate(group.boxes):
            assert group.left <= box.left < box.right <= group.right
            assert 0 <= box.low <= box.high <= instance.chip.memory
            assert box.role in ROLES
            for other in group.boxes[:at]:
                apart = box.right <= other.left or other.right <= box.left
                apart |= box.high <= other.low or other.high <= box.low
                same = (box.low, box.high) == (other.low, other.high)  # in place
                assert apart or same, (box, other)


def test_tensors_cross_where_groups_end() -> None:
    instance, solution = small()
    drawn = plan_drawing(instance, solution)
    ends = {group.left for group in drawn.groups[1:]}
    assert any(arc.crossing for arc in drawn.arcs)
    assert any(not arc.crossing for arc in drawn.arcs)
    for arc in drawn.arcs:
        assert arc.left < arc.right
        assert arc.crossing == any(arc.left < end <= arc.right for end in ends)


def test_cuts_in_words() -> None:
    assert cut_words(()) == "global memory"
    assert cut_words((1, 1, 1, 1)) == "whole"
    assert cut_words((2, 1, 3, 1)) == "n 2 x h 3"


def test_an_axis_of_rows_ends_below_few_that_dwarf_the_rest() -> None:
    assert row_limit([10, 20, 30]) == pytest.approx(31.8)
    assert row_limit([10] * 49 + [1000]) == pytest.approx(1.06 * 13)
    assert row_limit([0]) > 0


def test_an_axis_of_addresses_minds_only_plans_that_have_some() -> None:
    instance = sp.load("groups/squeezenet")
    whole = plan_drawing(instance, sp.solve(instance, "dp").solution)
    alone = plan_drawing(instance, GroupingSolution.from_global_memory(instance.n))
    assert lane_limit(whole) < instance.chip.memory
    assert lane_limit(alone) == instance.chip.memory


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_says_where_the_rest_is(width: int) -> None:
    instance = sp.load("groups/resnet50", chip="cv184x")
    solution = sp.solve(instance, "layerwise").solution
    text = printed(VIEW.account(instance, solution), width)
    assert max(map(len, text.splitlines())) <= width
    assert "... and 33 more groups (JSON has all)" in text


@pytest.mark.parametrize(("banks", "lines"), [(1, 0), (5, 4), (2**30, 0)])
def test_banks_that_do_not_come_out_even_or_are_many_are_drawn(banks: int, lines: int) -> None:
    instance, solution = small()
    instance = instance.replace(chip=structs.replace(instance.chip, banks=banks))
    drawn = plan_drawing(instance, solution)
    assert len(bank_lines(drawn)) == lines
    assert plot(instance, solution) is not None
    drawn_lines = plan_charts(instance, [solution])["rows"].figures[0].layout.shapes
    assert len(drawn_lines) >= lines


def test_facts_are_json_and_lines_say_them() -> None:
    instance = sp.load("groups/squeezenet", chip="cv184x", order="free", standalone="needed")
    given = VIEW.facts(instance)
    json.dumps(given, allow_nan=False)
    told = dict(VIEW.lines(given))
    assert told["Local memory"] == "8 lanes of 64.0 KiB, 16 banks"
    assert told["Groups"] == (
        "at most 64 operators; order free, timesteps nearest; from global memory: needed"
    )


def test_what_is_assumed_of_a_chip_is_said() -> None:
    known, other = (sp.load("groups/squeezenet", chip=chip) for chip in ("bm1688", "bm1690"))
    told = dict(VIEW.lines(VIEW.facts(known)))["Assumed"]
    assert told == "load latency, store latency, startup, overlap, cores"
    assert "load rate, store rate" in dict(VIEW.lines(VIEW.facts(other)))["Assumed"]
    measured = other.replace(chip=structs.replace(other.chip, load_rate=60.0, startup=7))
    assert VIEW.facts(measured)["assumed"] == [
        "load_latency", "store_latency", "overlap", "cores", "store_rate",
    ]  # fmt: skip
    peak = VIEW.facts(other.replace(chip=CHIPS["bm1684"]))["assumed"]
    assert {"channels", "pixels", "load_rate", "store_rate"} <= set(peak)
    assert "Assumed" not in dict(
        VIEW.lines(VIEW.facts(sp.load("groups/squeezenet", chip="generic")))
    )


def test_a_plan_without_addresses_is_shown() -> None:
    instance, solution = small()
    bare = GroupingSolution(solution.boundaries, solution.slices)
    assert all(row["lane_bytes"] is None for row in VIEW.rows(instance, bare))
    assert not list(plan_drawing(instance, bare).boxes)


def test_charts_of_several_plans_have_equal_axes() -> None:
    instance, solution = small()
    other = GroupingSolution.from_global_memory(instance.n)
    charts = plan_charts(instance, [solution, other])
    assert list(charts) == ["map", "rows"]
    one, two = (figure.layout for figure in charts["map"].figures)
    assert one.to_plotly_json() == two.to_plotly_json()


def test_pages_say_what_a_row_is_once() -> None:
    """A page of the suite has hundreds of plans: no bar repeats what the one behind it tells."""
    instance, solution = small()
    charts = plan_charts(instance, [solution])
    told = [t for t in charts["rows"].figures[0].data if t.hovertext and len(t.hovertext) > 20]
    assert len(told) <= 1
    whole = sum(len(one.figures[0].to_json()) for one in charts.values())
    assert whole < 1_000 * instance.n + 20_000


def test_pages_of_several_plans_draw_the_rows_of_the_best_alone() -> None:
    instance, _ = small()
    solved = {name: sp.solve(instance, name) for name in ("layerwise", "dp")}
    section = VIEW.section(instance, solved, solved["dp"], "i0")
    whole, rows = section.figures["i0-map"], section.figures["i0-rows"]
    assert (len(whole["choices"]), whole["start"]) == (2, 1)
    assert "data" not in whole
    assert "choices" not in rows
    assert "Plan of dp. Rows of the groups" in section.html
    alone = VIEW.section(instance, {"dp": solved["dp"]}, solved["dp"], "i0")
    assert alone.figures["i0-rows"]["choices"] == [rows["data"]]


def test_pages_name_colours_and_the_unit_once() -> None:
    """Plotly takes numbers on a scale for bars, but warns of them where it writes on a bar."""
    instance, solution = small()
    bars = [
        trace
        for one in plan_charts(instance, [solution]).values()
        for trace in one.figures[0].data
        if trace.type == "bar"
    ]
    named = [of for bar in bars for of in (bar.marker.color, bar.marker.line.color) if of]
    assert len(named) > len(bars)
    assert all(isinstance(one, str) for colours in named for one in np.atleast_1d(colours))
    page = to_html(sp.compare(instance, ["layerwise"], jobs=0))
    assert ">cycles</td>" in page
    assert "cycles in cycles" not in page


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    instance, solution = small()
    plot(instance, solution, tmp_path / "plan.svg")
    group_rows(instance, solution, tmp_path / "group.png", group=1)
    assert "</svg>" in (tmp_path / "plan.svg").read_text()
    write_figure(instance, solution, tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert 'id="map"' in page
    assert 'id="rows"' in page
    with pytest.raises(
        InputError, match=rf"groups 0 to {solution.groups - 1}, no {solution.groups}"
    ):
        group_rows(instance, solution, group=solution.groups)
    with pytest.raises(InputError, match="one scale"):
        sp.plot(instance, solution, scale="rows")


def test_narrow_screens_keep_names_slices_and_cycles() -> None:
    sheet = VIEW.account(*small()).sheet
    assert sheet is not None
    kept = [name for name in sheet.header if name not in sheet.spare]
    assert kept == ["group", "from", "slices", "cycles"]
