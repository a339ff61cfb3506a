// Draws the figures of a page when they come into sight, and shows the solution that is chosen.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("figures").textContent);
  var config = { displaylogo: false, responsive: true, displayModeBar: false };
  var painter = rectanglePainter(), repaint = {};
  var waiting = Array.prototype.slice.call(document.querySelectorAll(".figure"));
  function draw(node) {
    var at = waiting.indexOf(node);
    if (at < 0) { return; }
    waiting.splice(at, 1);
    var figure = data[node.id];
    var first = figure.choices ? figure.choices[figure.start] : figure.data;
    Plotly.newPlot(node, first, figure.layout, config);
    if (figure.rectangles) { repaint[node.id] = painter.attach(node, figure); }
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
