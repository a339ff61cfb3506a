// Draws the figures of a page when they come into sight, and shows the solution that is chosen.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("figures").textContent);
  var config = { displaylogo: false, responsive: true, displayModeBar: false };
  var painter = rectanglePainter(), repaint = {};
  var waiting = Array.prototype.slice.call(document.querySelectorAll(".figure"));
  var scheme = window.matchMedia("(prefers-color-scheme: dark)"), dark = scheme.matches, chosen = {};
  function traces(node) {
    var figure = data[node.id];
    if (!figure.choices) { return figure.data; }
    return figure.choices[node.id in chosen ? chosen[node.id] : figure.start];
  }
  var smallest = 8;  // pixels of a font
  // Gives the text in each bar the largest size that fits, or hides it; in traces whose labels stay together, all.
  function fitLabels(node) {
    var sizes = [];
    node.querySelectorAll(".barlayer .trace").forEach(function (trace) {
      var own = Array.from(trace.querySelectorAll("text.bartext"), function (text) {
        var size = text.dataset.size = text.dataset.size || parseFloat(text.style.fontSize);
        var bar = text.parentNode.querySelector("path").getBBox(), length = text.getBBox().width;
        // The length is that at the size which the text has now.
        var wide = (bar.width - 2) / length * parseFloat(text.style.fontSize);
        return { text: text, size: Math.min(size, Math.floor(wide), Math.floor(bar.height / 1.2)) };
      });
      if (own.length && (trace.__data__[0].trace.meta || {}).together) {
        var least = own.reduce(function (size, one) { return Math.min(size, one.size); }, Infinity);
        own.forEach(function (one) { one.size = least; });
      }
      sizes = sizes.concat(own);
    });
    sizes.forEach(function (one) {
      one.text.style.visibility = one.size < smallest ? "hidden" : "";
      if (one.size >= smallest) { one.text.style.fontSize = one.size + "px"; }
    });
  }
  function dress(call, node) {
    var layout = data[node.id].layout;
    // Plotly.js changes the layout that it is given.
    layout = dark ? darkLayout(layout) : JSON.parse(JSON.stringify(layout));
    Plotly[call](node, dark ? traces(node).map(darkTrace) : traces(node), layout, config);
    fitLabels(node);
    if (repaint[node.id]) { repaint[node.id](chosen[node.id], dark); }
  }
  function draw(node) {
    var at = waiting.indexOf(node);
    if (at < 0) { return; }
    waiting.splice(at, 1);
    dress("newPlot", node);
    node.on("plotly_afterplot", function () { fitLabels(node); });
    if (data[node.id].rectangles) { repaint[node.id] = painter.attach(node, data[node.id], dark); }
  }
  function turn(to) {
    dark = to;
    document.querySelectorAll(".figure").forEach(function (node) {
      if (waiting.indexOf(node) < 0) { dress("react", node); }
    });
  }
  scheme.addEventListener("change", function () { turn(scheme.matches); });
  function drawAll() { waiting.slice().forEach(draw); }
  if ("IntersectionObserver" in window) {
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) { if (entry.isIntersecting) { draw(entry.target); } });
    }, { rootMargin: "400px" });
    waiting.forEach(function (node) { seen.observe(node); });
    (function rest() {  // those in folded cards wait until these are opened: they have no width yet
      var next = waiting.find(function (node) { return node.offsetWidth > 0; });
      if (!next) { return; }
      draw(next);
      setTimeout(rest, 30);
    })();
  } else { drawAll(); }
  function open(card) { if (card && card.matches("details.card")) { card.open = true; } }
  function opened() { open(document.getElementById(location.hash.slice(1))); }
  window.addEventListener("hashchange", opened);
  opened();
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a[href^='#']");
    if (link) { open(document.getElementById(link.getAttribute("href").slice(1))); }
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details.card").forEach(open);
    drawAll();
    if (dark) { turn(false); }  // paper is white
  });
  window.addEventListener("afterprint", function () { turn(scheme.matches); });
  document.querySelectorAll("table.runs").forEach(function (table) {
    var body = table.tBodies[0], rows = Array.from(body.rows);
    function key(row, at) {
      var cell = row.cells[at], value = cell.dataset.value;
      if (value === undefined) { return cell.textContent.trim(); }
      return value === "" ? Infinity : Number(value);
    }
    table.querySelectorAll(".sort").forEach(function (button) {
      var head = button.parentNode;
      button.addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") === "ascending", at = head.cellIndex;
        table.querySelectorAll("th").forEach(function (th) { th.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        rows.sort(function (one, other) {
          var a = key(one, at), b = key(other, at);
          if (a === Infinity || b === Infinity) { return (a === Infinity) - (b === Infinity); }
          return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
        });
        rows.forEach(function (row) {
          row.cells[0].className = ""; row.className = "";
          body.appendChild(row);
        });
      });
    });
    var filter = (table.closest("section") || document).querySelector("input.filter");
    filter.addEventListener("input", function () {
      var words = filter.value.toLowerCase().split(/\s+/);
      rows.forEach(function (row) {
        var text = (row.textContent + " " + row.dataset.kind).toLowerCase();
        row.hidden = !words.every(function (word) { return text.includes(word); });
      });
    });
  });
  Array.prototype.forEach.call(document.querySelectorAll("select.method"), function (select) {
    select.addEventListener("change", function () {
      var section = select.closest("section");
      Array.prototype.forEach.call(section.querySelectorAll("[data-choice]"), function (part) {
        part.hidden = part.getAttribute("data-choice") !== select.value;
      });
      Array.prototype.forEach.call(section.querySelectorAll("[data-choices]"), function (node) {
        draw(node);
        chosen[node.id] = Number(select.value);
        dress("react", node);
      });
    });
  });
})();
