"""The style sheet and the script of the page."""

from __future__ import annotations

from stagepack.report import painting

CSS = """
:root { --ink: #1f2933; --muted: #5f6b7a; --line: #dfe3e8; --soft: #f5f7f9; --accent: #2f5f8f; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; color: var(--ink); background: #fff; line-height: 1.45; font-size: 15px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main, header, footer { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 28px; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 0 0 10px; overflow-wrap: anywhere; }
h3 { font-size: 14.5px; margin: 16px 0 0; }
footer h3 { margin-bottom: 6px; }
p { margin: 6px 0; }
a { color: var(--accent); }
.muted { color: var(--muted); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th { text-align: left; font-weight: 600; color: var(--muted); border-bottom: 2px solid var(--line);
  white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; vertical-align: baseline; }
td.method { white-space: nowrap; }
td { border-bottom: 1px solid var(--soft); }
tr.first td { border-top: 1px solid var(--line); }
tr.kind th { color: var(--ink); padding-top: 18px; border-bottom: 1px solid var(--line); }
tr.over td { color: #a3123a; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.number { text-align: right; }
td.best { font-weight: 700; color: #1b6e3c; }
.status { display: inline-block; padding: 1px 8px; border-radius: 10px; font-size: 12px;
  font-weight: 600; white-space: nowrap; border: 1px solid; }
.OPTIMAL, .fits { color: #1b6e3c; background: #e7f4ec; border-color: #a9d6ba; }
.FEASIBLE { color: #7a5300; background: #fdf3da; border-color: #e8cf8d; }
.INFEASIBLE { color: #7d2363; background: #f8e8f3; border-color: #dcaccc; }
.UNKNOWN, .error { color: #9c1c1c; background: #fdeaea; border-color: #ecb3b3; }
.na, .skipped { color: #55606e; background: #eef1f4; border-color: #cfd6dd; }
section.instance { border-top: 1px solid var(--line); margin-top: 34px; padding-top: 22px; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr));
  gap: 8px 22px; margin: 0 0 12px; }
dl.facts.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); }
dl.facts div { min-width: 0; }
dl.facts dt { font-size: 12px; color: var(--muted); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 0 22px; }
.pair > * { min-width: 0; }
.figure { width: 100%; }
.note { background: var(--soft); border-left: 3px solid #b58900; padding: 8px 12px; margin: 10px 0;
  overflow-wrap: anywhere; }
.note.bad { border-left-color: #b3123a; background: #fdeaea; }
.choose { margin: 16px 0 4px; font-weight: 600; }
select { font: inherit; font-weight: 400; padding: 3px 6px; border: 1px solid #b9c2cc;
  border-radius: 5px; background: #fff; max-width: 100%; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
pre { background: var(--soft); padding: 10px 12px; margin: 6px 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--accent); }
footer { border-top: 1px solid var(--line); margin-top: 36px; padding-top: 18px;
  padding-bottom: 40px; }
.tip { position: fixed; z-index: 10; pointer-events: none; white-space: pre-line; background: #fff;
  border: 1px solid #8a929c; border-radius: 4px; padding: 5px 9px; font-size: 12.5px;
  box-shadow: 0 2px 8px rgba(0, 0, 0, 0.18); font-variant-numeric: tabular-nums; }
.tip::first-line { font-weight: 700; }
[hidden] { display: none; }
@media (max-width: 800px) {
  table, .status { font-size: 11.5px; }
  th.number { white-space: normal; }
  th, td { padding-right: 7px; }
  .status { padding: 1px 6px; }
}
@media (max-width: 640px) {
  main, header, footer { padding-left: 14px; padding-right: 14px; }
}
@media print {
  body { font-size: 11pt; }
  main, header, footer { max-width: none; padding: 0; }
  table { font-size: 9pt; }
  .panel, tr, dl.facts div, .note { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  select { border: none; appearance: none; padding: 0; }
  .updatemenu-container, .modebar { display: none; }
}
"""

SCRIPT = (
    painting.SCRIPT
    + """
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("figures").textContent);
  var config = { displaylogo: false, responsive: true, displayModeBar: false };
  var painter = paintings(), repaint = {};
  var waiting = Array.prototype.slice.call(document.querySelectorAll(".figure"));
  function draw(node) {
    var at = waiting.indexOf(node);
    if (at < 0) { return; }
    waiting.splice(at, 1);
    var figure = data[node.id];
    Plotly.newPlot(node, figure.data, figure.layout, config);
    if (figure.painting) { repaint[node.id] = painter.attach(node, figure); }
  }
  function drawAll() { waiting.slice().forEach(draw); }
  if ("IntersectionObserver" in window) {
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) { if (entry.isIntersecting) { draw(entry.target); } });
    }, { rootMargin: "400px" });
    waiting.forEach(function (node) { seen.observe(node); });
    (function rest() {
      if (!waiting.length) { return; }
      draw(waiting[0]);
      setTimeout(rest, 30);
    })();
  } else { drawAll(); }
  window.addEventListener("beforeprint", drawAll);
  Array.prototype.forEach.call(document.querySelectorAll("select.method"), function (select) {
    select.addEventListener("change", function () {
      var section = select.closest("section");
      Array.prototype.forEach.call(section.querySelectorAll("[data-choice]"), function (part) {
        part.hidden = part.getAttribute("data-choice") !== select.value;
      });
      Array.prototype.forEach.call(section.querySelectorAll("[data-choices]"), function (node) {
        draw(node);
        var figure = data[node.id], choice = Number(select.value);
        Plotly.react(node, figure.choices[choice], figure.layout, config);
        if (repaint[node.id]) { repaint[node.id](choice); }
      });
    });
  });
})();
"""
)
