from __future__ import annotations

import re
from typing import Any

import pytest

from stagepack.catalog import Entry
from stagepack.instances.pipeline.estimate import estimate
from stagepack.report import format as as_text
from stagepack.report import summary
from stagepack.report.pipeline import VIEW
from stagepack.report.pipeline.view import stages
from stagepack.report.table import (
    Sheet,
    catalog_table,
    facts_table,
    methods_table,
    parameters_table,
)
from stagepack.report.templating import part
from stagepack.solve import MethodInfo
from tests.compare.sample import cut, network
from tests.report.printed import printed


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (as_text.number, 1234567, "1,234,567"),
        (as_text.number, 2**60, "1,152,921,504,606,846,976"),
        (as_text.number, 1234.5, "1,234.500"),
        (as_text.number, 7.0, "7"),
        (as_text.number, 0.00123456, "0.001235"),
        (as_text.number, None, "–"),
        (as_text.gap, 0, "0%"),
        (as_text.gap, 1e-9, "<0.01%"),
        (as_text.gap, 0.1234, "12.34%"),
        (as_text.gap, 30.0, "3,000%"),
        (as_text.seconds, 0.0121, "0.012 s"),
        (as_text.seconds, 0.0001, "<1 ms"),
        (as_text.seconds, 12.34, "12.3 s"),
        (as_text.seconds, 1234.0, "1,234 s"),
        (as_text.ratio, 1.0, "1"),
        (as_text.ratio, 1.00001, ">1"),
        (as_text.ratio, 1.0123, "1.0123"),
        (as_text.quantity, 894 * 2**20, "894.0 MiB"),
        (as_text.quantity, 12, "12 B"),
        (as_text.quantity, None, "no limit"),
    ],
)
def test_numbers(function: Any, value: Any, text: str) -> None:
    assert function(value) == text


@pytest.mark.parametrize("width", [80, 120])
def test_estimate_and_against(width: int) -> None:
    instance = network(1000, 16, name="net")
    figures = estimate(instance, cut(instance, 0))
    text = printed(stages(figures), width)
    assert max(map(len, text.splitlines())) <= width
    assert f"{figures.stages[3].compute:,}" in text
    rows = figures.against([{"compute": 10**7, "memory": 3 * 10**8, "exclusive.weights": 10**8}])
    text = printed(VIEW.against_sheet(rows), width)
    assert max(map(len, text.splitlines())) <= width
    assert "exclusive.weights" in text
    assert f"{rows[0]['difference']:,}" in text


def test_other_tables() -> None:
    lines = summary.lines(network(10, 4, name="net", training=True, microbatches=4))
    text = printed(facts_table(lines), 80)
    assert "training, 4 microbatches" in text
    methods = [
        MethodInfo(
            name="dp",
            kind="k",
            exact=True,
            default=True,
            engines=(),
            available=False,
            reason="no",
            description="fast",
        )
    ]
    assert "fast (not here: no)" in printed(methods_table(methods), 80)
    entry = Entry("bert", "pipeline-partition", "a network", {"batch": 1})
    assert "a network" in printed(catalog_table([entry]), 80)
    text = printed(parameters_table(entry), 80)
    assert "batch" in text
    assert "samples" in text


def test_lines_for_people() -> None:
    instance = network(10, 4, name="net", training=True, microbatches=4)
    lines = dict(summary.lines(instance))
    assert lines["Mode"] == (
        "training, 4 microbatches (as many as devices), gradients come back over the links"
    )
    assert lines["Layers"] == "10"
    assert (lines["Problem"], lines["Objective"]) == ("pipeline-partition", "transfer-bounded")


LONG = "a-network-with-a-name-that-says-everything-about-it"
HUGE = [f"{7 * 10**15 + i:,}" for i in range(4)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_numbers_are_never_cut_and_names_never_vanish(width: int) -> None:
    header = ("name", "size", "life", "offset", "top")
    sheet = Sheet(header, [[LONG, *HUGE]], ("name",), spare=("life", "size"))
    text = printed(sheet, width)
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(r"[\d,]…|…[\d,]", text)
    assert "…" in text.splitlines()[1]
    shown = [number in text for number in HUGE]
    if width >= 60:
        assert shown[2:] == [True, True], "a top and an offset say the size"
        assert shown[:2] in ([True, True], [True, False], [False, False]), (
            "spare ones are given up in their order"
        )


def test_columns_are_given_up_before_names_are_cut_short() -> None:
    sheet = Sheet(("name", "size", "life"), [[LONG, *HUGE[:2]]], ("name",), spare=("size", "life"))
    for width, header in ((100, ["name", "size", "life"]), (60, ["name", "life"]), (30, ["name"])):
        lines = printed(sheet, width).splitlines()
        assert lines[0].split() == header
        assert len(lines[1].split()[0]) >= 28
    assert printed(sheet, 20).splitlines()[1].startswith("a-network-…")


def test_numbers_too_wide_for_a_terminal_go_on_below() -> None:
    sheet = Sheet(("a", "b"), [HUGE[:2]])
    lines = printed(sheet, 20).splitlines()
    assert max(map(len, lines)) <= 20
    assert sum(map(str.isdigit, "".join(lines))) == sum(map(str.isdigit, "".join(HUGE[:2])))


def test_groups_stand_apart_and_name_themselves_once() -> None:
    rows = [["x", "1"], ["x", "2"], ["y", "3"]]
    sheet = Sheet(("group", "value"), rows, ("group",), by="group", marks={(2, "value"): "red"})
    assert [line.split() for line in printed(sheet, 40).splitlines()[1:]] == [
        ["x", "1"], ["2"], [], ["y", "3"],
    ]  # fmt: skip
    wide = sheet.fitted(40).part([2])
    assert (list(wide.rows), dict(wide.marks)) == ([["y", "3"]], {(0, "value"): "red"})
    assert wide.widths == [5, 5]


def test_a_stage_of_one_layer_is_no_range() -> None:
    instance = network(3, 3, name="net")
    found = stages(estimate(instance, cut(instance, 0)))
    assert [row[1] for row in found.rows] == ["0", "1", "2"]


def test_narrow_screens_do_without_what_narrow_terminals_do_without() -> None:
    html = str(part("sheet", Sheet(("stage", "of"), [["0", "9"]], ("stage",), spare=("of",))))
    assert "<td>0</td>" in html
    assert '<td class="number aside">9</td>' in html
