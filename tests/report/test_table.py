from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from stagepack.compare.table import comparison_table, render
from stagepack.instances.pipeline.estimate import estimate
from stagepack.report import format as as_text
from stagepack.report import summary
from stagepack.report.pipeline import VIEW
from stagepack.report.pipeline.view import stages
from stagepack.report.table import (
    catalog_table,
    facts_table,
    methods_table,
    parameters_table,
)
from tests.report.sample import comparison, cut, network


def printed(table: Any, width: int) -> str:
    import io

    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_fits_and_never_cuts_a_number(width: int) -> None:
    compared = comparison()
    text = render(compared, width)
    assert max(map(len, text.splitlines())) <= width
    for row in compared.rows:
        if row["objective"] is not None:
            assert f"{row['objective']:,}" in text
            assert as_text.seconds(row["runtime"]) in text
            assert as_text.gap(row["gap"]) in text
    table = [line for line in text.splitlines() if " FEASIBLE " in line]
    assert len(table) == 6
    assert not re.search(r"\d…|…\d", "".join(table))


def test_columns_by_width() -> None:
    compared = comparison()
    wide, narrow, tiny = (render(compared, width) for width in (120, 80, 60))
    assert wide.splitlines()[0].split() == (
        ["instance", "method", "status", "objective", "bound", "gap", "time", "ratio"]
    )
    assert wide.count("pipeline/network-12-layers  ") == 1
    assert narrow.splitlines()[0] == "pipeline/network-12-layers"
    assert "ratio" in narrow
    assert "bound" in narrow
    assert "bound" not in tiny
    assert render(compared, 200).count("\n") < render(compared, 80).count("\n")


def test_long_names_are_shortened_in_the_middle() -> None:
    compared = comparison()
    label = "pipeline/" + "very-" * 30 + "long-name"
    first = compared.cells[0].instance
    compared.instances = {
        label if name == first else name: instance for name, instance in compared.instances.items()
    }
    swap = {cell: cell._replace(instance=label) for cell in compared.cells if cell[0] == first}
    compared.cells = [swap.get(cell, cell) for cell in compared.cells]
    compared.results = {swap.get(c, c): r for c, r in compared.results.items()}  # type: ignore[call-overload]
    compared.failures = {swap.get(c, c): f for c, f in compared.failures.items()}  # type: ignore[call-overload]
    for width in (80, 120):
        text = render(compared, width)
        assert max(map(len, text.splitlines())) <= width
        assert re.search(r"pipeline/ve.*….*long-name", text)


def test_reasons_and_markup() -> None:
    text = " ".join(render(comparison(), 100).split())
    assert "too-tight <b> (dp, milp-assignment, cp-sat): layer 7 needs 14,680,064 bytes" in text
    assert "n/a 2 instances (cp-sat): ortools is not installed" in text
    assert "error too-tight <b> (greedy): ZeroDivisionError" in text
    assert "CONTRADICTION" not in text


def test_colours_only_when_asked() -> None:
    assert "\x1b" not in render(comparison(), 100)
    assert "\x1b[1;32m" in render(comparison(), 100, color=True)


def test_seeds_are_named() -> None:
    compared = comparison()
    cell = compared.cells[0]
    other = cell._replace(seed=7)
    compared.cells.insert(1, other)
    compared.results[other] = compared.results[cell]
    assert "equal-layers #7" in render(compared, 120)


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
        SimpleNamespace(
            name="dp",
            kind="k",
            exact=True,
            engines=(),
            available=False,
            reason="no",
            description="fast",
        )
    ]
    assert "fast (not here: no)" in printed(methods_table(methods), 80)
    entry = SimpleNamespace(name="bert", description="a network", parameters={"batch": 1})
    assert "a network" in printed(catalog_table([entry]), 80)
    text = printed(parameters_table(entry), 80)
    assert "batch" in text
    assert "samples" in text


def test_lines_for_people() -> None:
    instance = network(10, 4, name="net", training=True, microbatches=4)
    lines = dict(summary.lines(instance))
    assert lines["Mode"] == "training, 4 microbatches"
    assert lines["Layers"] == "10"
    assert (lines["Problem"], lines["Objective"]) == ("pipeline-partition", "transfer-bounded")


def test_is_a_renderable() -> None:
    assert "equal-layers" in printed(comparison_table(comparison(), 80), 80)
