from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagepack.compare import Cell, Comparison
from stagepack.compare.page import to_html
from stagepack.compare.table import render
from stagepack.errors import InputError
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.report import summary
from stagepack.report.html import write_figure
from stagepack.report.packing import VIEW
from stagepack.report.packing.figure import memory_maps
from stagepack.report.table import methods_table
from stagepack.report.view import view
from stagepack.solve import MethodInfo
from tests.compare.sample import comparison as pipelines
from tests.compare.test_page import Page
from tests.report.packing.samples import banked, gapped, plain, result, spilling, stacked
from tests.report.printed import printed


def compared(instance: LmemPacking, *solutions: PackingSolution) -> Comparison:
    cells = [Cell(instance.name, f"method-{i}", 0) for i in range(len(solutions))]
    runs = [result(instance, s, c.method) for c, s in zip(cells, solutions, strict=True)]
    return Comparison({instance.name: instance}, cells, dict(zip(cells, runs, strict=True)))


def test_facts_for_people() -> None:
    lines = dict(summary.lines(banked()))
    assert lines["Problem"] == "lmem-packing"
    assert lines["Buffers"] == "4"
    assert lines["Load bound"] == "3,328 bytes (3.2 KiB) at time 0"
    assert lines["Capacity"] == "8,192 bytes (8.0 KiB), 4.8 KiB above the load"
    assert lines["Banks"] == "4 of 2.0 KiB, 3 pairs to keep apart"
    assert lines["Circular"] == "lifetimes modulo 4"
    lines = dict(summary.lines(gapped()))
    assert lines["Capacity"] == "no limit"
    assert lines["Gaps"] == "2 times in which buffers shrink"
    assert lines["Fixed"] == "1 buffer"
    lines = dict(summary.lines(spilling()))
    assert lines["Memory dram"] == "no limit, 10 an access"
    assert "Load bound" not in lines


def test_facts_are_json() -> None:
    for instance in (plain(), banked(), gapped(), spilling()):
        facts = summary.facts(instance)
        assert json.loads(json.dumps(facts)) == facts
        assert facts["buffers"] == instance.n
        assert facts["total_bytes"] == instance.size.sum()


@pytest.mark.parametrize(
    ("objective", "value", "text"),
    [
        ("peak", 512, "512 bytes"),
        ("peak", 1, "1 byte"),
        ("fit", 1039360, "1,039,360 bytes (1,015.0 KiB)"),
        ("bank-conflicts", 23328, "2 conflicts, peak 3,328 bytes (3.2 KiB)"),
        ("bank-conflicts", 13328, "1 conflict, peak 3,328 bytes (3.2 KiB)"),
        ("peak", None, "–"),
    ],
)
def test_values_in_words(objective: str, value: Any, text: str) -> None:
    assert VIEW.worth(banked().replace(objective=objective), value) == text


def test_what_a_solution_amounts_to() -> None:
    instance = banked().replace(previous=[0, 0, 2048, -1])
    solution = PackingSolution.of(instance, [0, 1024, 2048, 4096])
    found = VIEW.solution_facts(instance, solution)["solution"]
    assert found["peak"] == 4352
    assert found["wasted_at_peak"] == 4352 - 3328
    assert (found["bank_conflicts"], found["conflicting_pairs"]) == (1, [["a", "b"]])
    assert (found["moved"], found["moved_bytes"], found["moved_buffers"]) == (1, 512, ["b"])
    assert [row["id"] for row in found["highest"]] == ["d", "c", "b", "a"]
    assert found["highest"][1] == (
        {"id": "c", "size": 2048, "lifetime": [2, 5], "offset": 2048, "top": 4096}
    )
    instance = spilling()
    found = VIEW.solution_facts(instance, PackingSolution.of(instance, [0, 4096, 0], [0, 0, 1]))[
        "solution"
    ]
    assert found["peaks"] == {"sram": 12288, "dram": 2048}
    assert found["spill_cost"] == 4096 + 8192 + 20480


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_and_stay_short(width: int) -> None:
    instance = plain(50_000, ids=[f"a-very-long-name/{'x' * 60}/{i}" for i in range(50_000)])
    text = printed(VIEW.account(instance, stacked(instance)), width)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) < 20
    assert f"{int(instance.size.sum()):,}" in text
    assert "the 10 highest of 50,000 buffers" in text


def test_highest_are_the_highest() -> None:
    instance = plain(100)
    found = VIEW.solution_facts(instance, stacked(instance))["solution"]["highest"]
    assert [row["id"] for row in found] == [f"t{i}" for i in range(99, 89, -1)]


def unpacked(packed: list[str]) -> Any:
    return np.frombuffer(base64.b64decode(packed[1]), dtype="<" + packed[0])


def test_rectangles_hold_what_is_drawn() -> None:
    instance = gapped()
    one, other = (PackingSolution.of(instance, offsets) for offsets in ([100, 40], [0, 40]))
    figures, rectangles, _ = memory_maps(instance, [one, other])
    assert len(figures) == len(rectangles["choices"]) == 2
    assert unpacked(rectangles["choices"][0]["offset"]).tolist() == [100, 40]
    assert unpacked(rectangles["size"]).tolist() == [100, 60]
    assert unpacked(rectangles["buffer"]).tolist() == [1, 0, 0, 0, 0]
    assert unpacked(rectangles["low"]).tolist() == [0, 0, 0, 20, 0]
    assert rectangles["fixed"] == [1]
    assert rectangles["reserved"] == [[200, 220]]
    assert figures[0].layout.yaxis.range == figures[1].layout.yaxis.range
    names = [trace.name for trace in figures[1].data]
    assert "peak 100" in names


def test_numbers_in_a_legend_are_whole() -> None:
    given = plain()
    huge = given.replace(size=given.size * 10**12)
    figure = VIEW.charts(huge, [stacked(huge)])["chart"].figures[0]
    peak = f"peak {int(huge.size.sum()):,}"
    assert peak in [trace.name for trace in figure.data]


def test_offsets_beyond_32_bits() -> None:
    instance = LmemPacking.from_arrays([2**40, 3], [0, 1], [2, 3])
    _, rectangles, _ = memory_maps(instance, [PackingSolution.of(instance, [0, 2**40])])
    assert rectangles["choices"][0]["offset"][0] == "f8"
    assert unpacked(rectangles["choices"][0]["offset"]).tolist() == [0, 2**40]


def test_many_buffers_make_a_small_page() -> None:
    instance = plain(30_000)
    solutions = [stacked(instance), PackingSolution.of(instance, 2 * stacked(instance).offsets)]
    section = VIEW.section(
        instance, {f"m{i}": result(instance, s) for i, s in enumerate(solutions)}, None, "i0"
    )
    assert len(section.html) + len(json.dumps(section.figures)) < 2_500_000
    assert len(section.figures["i0-chart"]["choices"][0]) < 12  # traces


def test_report_of_both_kinds() -> None:
    instance = plain()
    doubled = PackingSolution.of(instance, 2 * stacked(instance).offsets)
    both = pipelines(((12, 4),))
    other = compared(instance, stacked(instance), doubled)
    both.instances = {**other.instances, **both.instances}
    both.cells = [both.cells[0], *other.cells, *both.cells[1:]]
    both.results.update(other.results)
    page = Page(to_html(both))
    assert page.open == []
    drawn = json.loads(page.scripts[0])
    painted = [name for name in drawn if "rectangles" in drawn[name]]
    assert len(painted) == 3, "what is worst beside what is best, and all in one"
    figure = drawn[painted[-1]]
    assert len(figure["choices"]) == 2
    assert figure["rectangles"]["choice"] == 0
    assert figure["rectangles"]["ids"][0] == "t0"
    for words in ("Memory map of", "Unused at the peak", "Stages of"):
        assert words in page.text
    rows = page.text[: page.text.index("Memory map of")]
    assert rows.index("pipeline-partition") < rows.index("plain-20")
    text = render(both, 80)
    assert max(map(len, text.splitlines())) <= 80
    titles = [line.partition(":")[0] for line in text.splitlines()]
    kinds = [title for title in titles if title in ("lmem-packing", "pipeline-partition")]
    assert kinds == ["pipeline-partition", "lmem-packing"]


def test_page_of_one_solution(tmp_path: Path) -> None:
    for instance in (plain(), banked(), gapped()):
        path = tmp_path / "map.html"
        write_figure(instance, stacked(instance), path)
        page = Page(path.read_text())
        assert page.open == []
        assert "rectangles" in json.loads(page.scripts[0])["chart"]
        assert VIEW.headline(instance) in page.text


def test_load_and_addresses_share_a_unit() -> None:
    instance = LmemPacking.from_arrays([2**20, 3 * 2**20], [0, 1], [2, 3])
    layout = VIEW.charts(instance, [stacked(instance)])["chart"].figures[0].layout
    assert layout.yaxis.title.text == "Address (MiB)"
    assert layout.yaxis2.title.text == "Load (MiB)"
    assert list(zip(layout.yaxis2.tickvals, layout.yaxis2.ticktext, strict=True))[:3] == [
        (0, "0"),
        (2**20, "1"),
        (2**21, "2"),
    ]


def test_names_cannot_break_out(tmp_path: Path) -> None:
    hostile = "</script><img src='http://x.y/z'>"
    instance = plain(2, ids=[hostile, "b"], name=hostile)
    write_figure(instance, stacked(instance), tmp_path / "map.html")
    page = Page((tmp_path / "map.html").read_text())
    assert len(page.scripts) == 3
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert json.loads(page.scripts[0])["chart"]["rectangles"]["ids"][0] == hostile


def test_nothing_is_measured() -> None:
    with pytest.raises(InputError, match="measure"):
        VIEW.against(plain(), stacked(plain()), "x.csv")


@dataclass
class Strange:
    """An instance of a kind without a face."""

    kind: str = "strange"
    name: str = "s"
    objective: str = "least"
    digest: str = ""

    def evaluate(self, solution: Any) -> int:
        return int(solution)


def test_unknown_kinds_show_what_there_is() -> None:
    instance: Any = Strange()
    kind = view(instance.kind)
    assert dict(summary.lines(instance)) == {"Problem": "strange", "Objective": "least"}
    assert kind.headline(instance) == "strange, least"
    assert printed(kind.account(instance, 7), 80).split() == ["Objective", "7"]
    assert kind.solution_facts(instance, 7) == {"objective": 7}
    with pytest.raises(InputError, match="no picture"):
        kind.picture(instance, 7)


def test_methods_are_grouped_by_kind() -> None:
    found = [
        MethodInfo(name="auto", kind=kind, exact=True, default=True, engines=(), available=True,
                        reason="", description=kind)
        for kind in ("one", "two")
    ]  # fmt: skip
    lines = [line.strip() for line in printed(methods_table(found), 80).splitlines()]
    assert lines[0] == "one"
    assert "two" in lines
