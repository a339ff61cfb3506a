"""What pages do in a browser: headless Chromium, where it is installed."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagepack.compare.curves import draw
from stagepack.compare.page import to_html
from stagepack.instances.schedule import PipelineSchedule
from stagepack.report import style
from stagepack.report.html import write_figure
from stagepack.report.pages import picture
from stagepack.solve import solve
from tests.compare.sample import comparison

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
    "--virtual-time-budget=20000",
]  # fmt: skip

pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")

WATCH = """<script>window.wrong = [];
window.onerror = function (text) { window.wrong.push(String(text)); };
console.error = function (text) { window.wrong.push(String(text)); };</script>"""

STEPS = """
const frame = document.querySelector("iframe"), seen = {};
const pause = (time) => new Promise((done) => setTimeout(done, time));
async function steps() {
  const inside = frame.contentWindow, page = frame.contentDocument;
  const cells = (at) => [...page.querySelectorAll("table.runs tbody tr")]
    .map((row) => row.cells[at].dataset.value);
  const cards = [...page.querySelectorAll("details.card")];
  seen.folded = cards.every((card) => !card.open);
  cards[0].querySelector("summary").click();
  await pause(1500);
  const figure = cards[0].querySelector(".figure"), picture = figure.querySelector("svg.main-svg");
  seen.drawn = Boolean(picture);
  seen.background = inside.getComputedStyle(picture).backgroundColor;
  inside.Plotly.Fx.hover(figure, [{ curveNumber: 0, pointNumber: 0 }]);
  await pause(300);
  seen.told = figure.querySelector(".hovertext").textContent;
  const sort = [...page.querySelectorAll(".sort")]
    .find((button) => button.textContent.startsWith("Objective"));
  sort.click();
  seen.up = cells(sort.parentNode.cellIndex);
  sort.click();
  seen.down = cells(sort.parentNode.cellIndex);
  const rows = [...page.querySelectorAll("table.runs tbody tr")];
  const filter = page.querySelector("input.filter");
  filter.value = rows[0].dataset.kind;
  filter.dispatchEvent(new inside.Event("input"));
  seen.kind = rows.filter((row) => !row.hidden).length === rows.filter(
    (row) => row.dataset.kind === rows[0].dataset.kind).length;
  filter.value = "greedy";
  filter.dispatchEvent(new inside.Event("input"));
  seen.left = [...page.querySelectorAll("table.runs tbody tr")]
    .filter((row) => !row.hidden).map((row) => row.textContent);
  filter.value = "";
  filter.dispatchEvent(new inside.Event("input"));
  const row = page.querySelector("table.runs tbody tr");  // as wide as runs become
  row.querySelector(".status").textContent = "INFEASIBLE";
  row.querySelector(".number").textContent = "57,802,752";
  cards.forEach((card) => { card.open = true; });
  seen.wide = [];
  seen.cut = [];
  for (const width of [390, 1280]) {
    frame.style.width = width + "px";
    inside.dispatchEvent(new inside.Event("resize"));  // no frames are shown, so no events of them
    await pause(1000);
    seen.wide.push(page.documentElement.scrollWidth - width);
    const runs = page.querySelector("table.runs").parentNode;
    seen.cut.push(runs.scrollWidth - runs.clientWidth);
  }
  cards.forEach((card) => { card.open = false; });
  inside.dispatchEvent(new inside.Event("beforeprint"));
  await pause(500);
  seen.unfolded = cards.every((card) => card.open);
  seen.paper = inside.getComputedStyle(picture).backgroundColor;
  seen.wrong = inside.wrong;
}
frame.onload = () => pause(500).then(steps).catch((e) => { seen.failed = String(e); })
  .then(() => { document.querySelector("pre").textContent = JSON.stringify(seen); });
"""


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    page = to_html(comparison()).replace("<script", WATCH + "<script", 1)
    whole = (
        f'<!doctype html><meta charset="utf-8"><iframe style="width: 1280px; height: 900px" '
        f'srcdoc="{html.escape(page)}"></iframe><pre></pre><script>{STEPS}</script>'
    )
    folder: Path = tmp_path_factory.mktemp("browser")
    (folder / "page.html").write_text(whole, encoding="utf-8")
    assert BROWSER is not None
    scheme = f"--blink-settings=preferredColorScheme={int(request.param == 'light')}"
    done = subprocess.run(
        [BROWSER, *QUIET, scheme, f"--user-data-dir={folder}", "--dump-dom",
         (folder / "page.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r"<pre>(.*)</pre><script>", done.stdout, re.DOTALL)
    assert found, done.stderr
    return {**json.loads(html.unescape(found[1])), "scheme": request.param}


def test_a_page_works_in_a_browser(seen: dict[str, Any]) -> None:
    assert "failed" not in seen, seen["failed"]
    assert seen["wrong"] == []
    assert seen["folded"]
    assert seen["drawn"]
    assert seen["told"]
    light = seen["scheme"] == "light"
    assert seen["background"] == ("rgb(255, 255, 255)" if light else "rgb(23, 28, 33)")


def test_runs_are_sorted_and_filtered(seen: dict[str, Any]) -> None:
    assert len(set(seen["up"])) > 2
    for cells, reverse in ((seen["up"], False), (seen["down"], True)):
        known = [float(value) for value in cells if value]
        assert known == sorted(known, reverse=reverse)
        assert not any(cells[len(known) :])  # runs without an answer come last
    assert seen["left"]
    assert seen["kind"]
    assert all("greedy" in text for text in seen["left"])


def test_nothing_is_wider_than_the_screen(seen: dict[str, Any]) -> None:
    assert max(seen["wide"]) <= 0
    assert max(seen["cut"]) <= 0  # nor is a column of the runs out of sight


def test_paper_is_white_and_shows_every_card(seen: dict[str, Any]) -> None:
    assert seen["unfolded"]
    assert seen["paper"] == "rgb(255, 255, 255)"


def test_pictures_are_as_dark_as_the_page(tmp_path: Path) -> None:
    curve = {"dp": ((0.0, 0.5), (1.0, 1.0))}
    drawn = picture(draw("gap", curve))
    (tmp_path / "page.html").write_text(
        f'<meta name="color-scheme" content="light dark"><img src="{drawn}"><pre></pre><script>'
        "const image = document.images[0], canvas = document.createElement('canvas');"
        "onload = () => { const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0);"
        "document.querySelector('pre').textContent = pen.getImageData(2, 2, 1, 1).data.join(); };"
        "</script>"
    )
    for scheme, wanted in enumerate((style.DARK[style.PAGE], style.PAGE)):
        assert BROWSER is not None
        done = subprocess.run(
            [BROWSER, *QUIET, f"--blink-settings=preferredColorScheme={scheme}",
             f"--user-data-dir={tmp_path}", "--dump-dom", (tmp_path / "page.html").as_uri()],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        found = re.search(r"<pre>([\d,]+)</pre>", done.stdout)
        assert found, done.stderr
        red, green, blue, _ = map(int, found[1].split(","))
        assert f"#{red:02x}{green:02x}{blue:02x}" == wanted


LABELS = """<script>addEventListener("load", () => setTimeout(() => {
  const traces = [...document.querySelectorAll(".barlayer .trace")].map((trace) =>
    [...trace.querySelectorAll("text.bartext")].map((text) => [
      getComputedStyle(text).visibility !== "hidden" && text.getBoundingClientRect().width > 0,
      text.getBBox().width, text.parentNode.querySelector("path").getBBox().width]));
  document.body.insertAdjacentHTML("beforeend", `<pre id="seen">${JSON.stringify(traces)}</pre>`);
}, 1500));</script>"""


def test_labels_of_operations_fit_together_or_not_at_all(tmp_path: Path) -> None:
    rows = [28_500 + 40 * stage for stage in range(8)]  # of which pixels make unlike bars
    instance = PipelineSchedule.from_arrays(rows, rows, rows, microbatches=20)
    solution = solve(instance, "zb-h1", time_limit=2).solution
    assert solution is not None
    write_figure(instance, solution, tmp_path / "chart.html")
    page = (tmp_path / "chart.html").read_text().replace("</body>", f"{LABELS}</body>")
    (tmp_path / "chart.html").write_text(page)
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, *QUIET, "--window-size=1280,900", f"--user-data-dir={tmp_path}", "--dump-dom",
         (tmp_path / "chart.html").as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(\[.*?)</pre>', done.stdout)
    assert found, done.stderr
    traces = [trace for trace in json.loads(found[1]) if trace]
    assert len(traces) == 3
    for trace in traces:
        assert len({visible for visible, _, _ in trace}) == 1
        assert all(wide <= bar for visible, wide, bar in trace if visible)
