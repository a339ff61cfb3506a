from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.compare import Cell
from stagepack.compare.page import to_html, write_html
from stagepack.errors import InputError, StagepackError
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.estimate import estimate
from stagepack.report.pipeline import figure as pipeline_figures
from stagepack.report.search import trace_figure
from stagepack.report.templating import part
from stagepack.result import Event, Trace
from tests.compare.sample import METHODS, comparison


class Page(HTMLParser):
    """Tags, their attributes, text outside scripts, and the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input", "img"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.text += data


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(to_html(comparison()))


def embedded(page: Page) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(page.scripts[0])
    return data


def test_the_first_screen_answers(page: Page) -> None:
    text = " ".join(page.text.split())
    compared = comparison()
    assert text.index(compared.verdict) < text.index("Methods, over") < text.index("All runs")
    for row in compared.summary:
        assert f"{row['method']} {row['solved']} of {row['cells']}" in text


def test_every_row_of_the_runs_is_whole(page: Page) -> None:
    """So that rows can be sorted: each names its instance, each number says what it is."""
    rows = comparison().rows
    values = [a["data-value"] for tag, a in page.tags if tag == "td" and "data-value" in a]
    assert len(values) == 5 * len(rows)
    assert values[::5] == [
        "" if row["objective"] is None else str(row["objective"]) for row in rows
    ]
    assert not any("rowspan" in given for _, given in page.tags)


def test_tables_and_pictures_say_what_they_are(page: Page) -> None:
    heads = [given for tag, given in page.tags if tag == "th"]
    assert all(given.get("scope") for given in heads)
    figures = [given for _, given in page.tags if given.get("class") == "figure"]
    assert all(given["role"] == "img" and given["aria-label"] for given in figures)
    assert "noscript" in {tag for tag, _ in page.tags}


def test_numbers_have_room() -> None:
    facts = part("facts", [("Cycles", "12,000,000,000,000,066"), ("Layers", "12")])
    assert '<div class="long"><dt>Cycles</dt>' in facts
    assert "<div><dt>Layers</dt>" in facts


def test_needs_no_network(page: Page) -> None:
    for _, attributes in page.tags:
        for name in ("src", "href", "action", "data", "srcset"):
            assert not re.match(r"\s*(https?:)?//", attributes.get(name) or "")
        assert "url(" not in (attributes.get("style") or "")
    policies = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert len(policies) == 1
    assert (policies[0] or "").startswith("default-src 'none'")
    assert not any(tag in ("link", "iframe", "img") for tag, _ in page.tags)


def test_fifty_instances_weigh_less_than_five_megabytes(page: Page) -> None:
    figures = embedded(page)
    looks = sum(len(json.dumps(figure["layout"]["template"])) for figure in figures.values())
    assert looks < 3_000 * len(figures)  # plotly's own say what its other plots look like
    sections = sum(tag == "section" for tag, _ in page.tags)
    own = sum(len(script) for script in page.scripts if "plotly.js (basic" not in script[:300])
    assert own + len(page.text) < 100_000 * sections


def test_is_whole(page: Page) -> None:
    assert page.open == []
    assert len(page.scripts) == 3
    assert sum("plotly.js (basic" in script[:300] for script in page.scripts) == 1
    anchors = {a["href"] for tag, a in page.tags if tag == "a"}
    ids = ["#" + (a["id"] or "") for _, a in page.tags if a.get("class") == "card"]
    assert anchors == set(ids)


def test_pictures_come_first(page: Page) -> None:
    text = " ".join(page.text.split())
    places = [
        text.index(word) for word in ("Stages over the layers", "Mean ratio", "Ratio to best")
    ]
    assert places == sorted(places)
    assert " less than equal-layers: transfer-bounded " in text
    for status in ("OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN", "n/a", "error"):
        assert status in text
    for row in comparison().rows:
        if row["objective"] is not None:
            assert f"{row['objective']:,}" in text


def test_says_why_and_how(page: Page) -> None:
    text = " ".join(page.text.split())
    assert "INFEASIBLE (dp, milp-assignment, cp-sat): layer 7 needs 14,680,064 bytes" in text
    assert "transfer-bounded · INFEASIBLE by dp" in text  # of its folded card
    assert "stagepack.compare(instances, methods=" in text
    assert "numpy 2.4" in text
    assert "time_limit = 10" in text
    assert "<b>" in text  # the name of an instance, as it is written


def test_every_figure_has_its_place(page: Page) -> None:
    places = {a["id"]: a for _, a in page.tags if a.get("class") == "figure"}
    drawn = embedded(page)
    assert set(places) == set(drawn)
    assert len(drawn) == 2 * 5  # pair, map, cycles, memory, trace; nothing of the infeasible one
    for name, figure in drawn.items():
        assert figure["layout"]["yaxis"]["title"]["text"], name
        assert figure["layout"]["xaxis"]["title"]["text"], name
        assert len(figure.get("data") or figure["choices"][figure["start"]]) <= 2 * len(METHODS)
    assert len(drawn["i0-map"]["data"]) == 1
    assert "choices" in drawn["i0-cycles"]


def test_choices_match_the_selection(page: Page) -> None:
    drawn = embedded(page)
    options = [a for tag, a in page.tags if tag == "option"]
    choices = len(drawn["i0-cycles"]["choices"]) + len(drawn["i1-cycles"]["choices"])
    assert len(options) == choices
    assert sum("selected" in a for a in options) == 2
    start = next(int(a["value"] or 0) for a in options if "selected" in a)
    assert drawn["i0-cycles"]["start"] == start
    hidden = [a for _, a in page.tags if "data-choice" in a and "hidden" not in a]
    assert len(hidden) == 2


def test_writes_atomically_into_new_directories(tmp_path: Path) -> None:
    path = write_html(comparison(((12, 4),)), tmp_path / "a" / "b")
    assert path == tmp_path / "a" / "b" / "index.html"
    assert [p.name for p in path.parent.iterdir()] == ["index.html"]
    assert path.read_text().endswith("</html>\n")


def test_refuses_a_place_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        write_html(comparison(((12, 4),)), tmp_path / "file")


def test_names_cannot_break_out(page: Page) -> None:
    compared = comparison(((12, 4),))
    label = '</script><img src="http://x.y/z">'
    name = next(iter(compared.instances))
    compared.instances = {label if k == name else k: v for k, v in compared.instances.items()}
    swap: dict[tuple[str, str, int], Cell] = {
        c: c._replace(instance=label) for c in compared.cells if c.instance == name
    }
    compared.cells = [swap.get(c, c) for c in compared.cells]
    compared.results = {swap.get(c, c): r for c, r in compared.results.items()}
    compared.failures = {swap.get(c, c): f for c, f in compared.failures.items()}
    hostile = Page(to_html(compared))
    assert len(hostile.scripts) == 3
    assert not [tag for tag, _ in hostile.tags if tag == "img"]


def test_contradictions_are_loud() -> None:
    compared = comparison(((12, 4),))
    result = next(r for r in compared.results.values() if r.method == "dp")
    result.bound = 10**9
    text = " ".join(Page(to_html(compared)).text.split())
    assert "Contradiction, a bug in Stagepack:" in text
    assert "claims the bound 1,000,000,000" in text


def test_without_plotly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(StagepackError, match=r"pip install 'stagepack\[report\]'"):
        write_html(comparison(((12, 4),)), tmp_path / "report")
    assert not (tmp_path / "report").exists()
    with pytest.raises(StagepackError, match=r"pip install 'stagepack\[report\]'"):
        trace_figure({})


def test_choices_share_a_unit() -> None:
    instance = PipelinePartition.from_arrays([1, 1, 1], devices=2, exclusive=[600, 600, 10])
    ends = [estimate(instance, PipelineSolution.in_order([0, cut, 3])) for cut in (1, 2)]
    drawn = [pipeline_figures.memory_bars(one, ends) for one in ends]
    assert {figure.layout.yaxis.title.text for figure in drawn} == {"Memory (KiB)"}
    assert drawn[0].data[0].y[0] == pytest.approx(600 / 1024)


def test_few_whole_values_have_a_tick_each() -> None:
    compared = comparison(((12, 4),))
    result = next(r for r in compared.results.values() if r.method == "dp")
    assert trace_figure(result).layout.yaxis.dtick is None
    result.trace = Trace([Event(0.1, "bound", 7, "dp"), Event(0.2, "incumbent", 8, "dp")])
    result.bound = result.objective = 8
    assert trace_figure(result).layout.yaxis.dtick == 1


def test_values_are_followed_by_their_unit_once() -> None:
    buffers = sp.LmemPacking.from_arrays([64, 32], [0, 1], [2, 3], objective="peak")
    text = to_html(sp.compare({"two": buffers}, methods=["exact"], jobs=1))
    assert "96 bytes · OPTIMAL by exact" in text
