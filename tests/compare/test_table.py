from __future__ import annotations

import re

import pytest

import stagepack as sp
from stagepack.compare import Cell
from stagepack.compare.page import to_html
from stagepack.compare.table import comparison_table, render
from stagepack.contracts import Instance
from stagepack.report import format as as_text
from tests.compare.sample import comparison
from tests.report.printed import printed


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
    assert wide.splitlines()[0] == "pipeline-partition: transfer-bounded in cycles"
    assert wide.splitlines()[2].split() == (
        ["instance", "method", "status", "objective", "bound", "proof", "gap", "time", "ratio"]
    )
    assert wide.count("pipeline/network-12-layers  ") == 1
    assert narrow.splitlines()[2] == "pipeline/network-12-layers"
    assert "ratio" in narrow
    assert "bound" in narrow
    assert " bound " not in tiny
    assert render(compared, 200).count("\n") < render(compared, 80).count("\n")


def test_long_names_are_shortened_in_the_middle() -> None:
    compared = comparison()
    label = "pipeline/" + "very-" * 30 + "long-name"
    first = compared.cells[0].instance
    compared.instances = {
        label if name == first else name: instance for name, instance in compared.instances.items()
    }
    swap: dict[tuple[str, str, int], Cell] = {
        cell: cell._replace(instance=label) for cell in compared.cells if cell[0] == first
    }
    compared.cells = [swap.get(cell, cell) for cell in compared.cells]
    compared.results = {swap.get(c, c): r for c, r in compared.results.items()}
    compared.failures = {swap.get(c, c): f for c, f in compared.failures.items()}
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


def test_is_a_renderable() -> None:
    assert "equal-layers" in printed(comparison_table(comparison(), 80), 80)


def test_what_decides_between_equal_objectives_has_a_column() -> None:
    """Pairs of buffers in one bank, of layer groups; what fits no narrow terminal is given up."""
    whole = sp.load("groups/alexnet", chip="cv184x")
    other = sp.load("packing/random/pinwheel")
    methods = {"alexnet": ["layerwise", "seed-order"], "other": ["first-fit-size"]}
    instances: dict[str, Instance] = {"alexnet": whole, "other": other}
    compared = sp.compare(instances, methods, jobs=0)
    for row in compared.rows:
        if row["problem"] == whole.kind:
            result = compared.results[row["instance"], row["method"], 0]
            assert isinstance(result.solution, sp.GroupingSolution)
            assert row["secondary"] == whole.secondary(result.solution)
    heads = [line.split() for line in render(compared, 120).splitlines() if "ratio" in line]
    assert [head[-1] for head in heads[:2]] == ["conflicts", "ratio"], "where there are any"
    assert "conflicts" not in render(compared, 60)
    assert "secondary" in compared.to_csv().splitlines()[0]
    assert ">Conflicts</button></th>" in to_html(compared)
    assert all(row["secondary"] is None for row in comparison().rows)
