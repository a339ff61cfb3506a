// Paints the rectangles of a memory map, and tells what lies below the pointer.
//
// A figure with a `rectangles` (see packing/figure.py) gets an image behind its lines, as sharp as the
// screen; every zoom paints a new one, so that small buffers get borders and names when they are
// large enough.
function rectanglePainter() {
  "use strict";
  var arrays = { i4: Int32Array, f8: Float64Array };
  function unpack(packed) {
    var text = atob(packed[1]), bytes = new Uint8Array(text.length);
    for (var i = 0; i < text.length; i++) { bytes[i] = text.charCodeAt(i); }
    return new arrays[packed[0]](bytes.buffer);
  }
  function unpacked(figure, choice) {
    var p = figure.rectangles;
    if (!p.ready) {
      ["number", "size", "buffer", "left", "right", "start", "end", "low", "high", "previous"]
        .forEach(function (name) { if (p[name]) { p[name] = unpack(p[name]); } });
      p.choices.forEach(function (c) { c.offset = unpack(c.offset); });
      p.marks = { fixed: new Set(p.fixed) };
      p.ready = true;
    }
    var c = p.choices[choice];
    if (!c.marked) { c.marked = new Set(c.clashing); }
    return c;
  }
  function low(p, c, k) { return c.offset[p.buffer[k]] + (p.low ? p.low[k] : 0); }
  function high(p, c, k) {
    return c.offset[p.buffer[k]] + (p.high ? p.high[k] : p.size[p.buffer[k]]);
  }
  function view(node) {
    var x = node._fullLayout.xaxis, y = node._fullLayout.yaxis;
    return { x: x, y: y, x0: x.range[0], x1: x.range[1], y0: y.range[0], y1: y.range[1] };
  }
  function label(p, b) { return p.ids ? p.ids[b] : String(p.number[b]); }

  function paint(node, figure, choice, dark) {
    var p = figure.rectangles, c = unpacked(figure, choice), v = view(node);
    var sharp = Math.max(1, Math.min(2, window.devicePixelRatio || 1));
    var width = Math.round(v.x._length * sharp), height = Math.round(v.y._length * sharp);
    if (!(width > 0 && height > 0)) { return; }
    var canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    canvas.width = width; canvas.height = height;
    var wide = width / (v.x1 - v.x0), tall = height / (v.y1 - v.y0) / p.factor;
    function across(x) { return Math.round((x - v.x0) * wide); }
    function down(a) { return Math.round(height - (a - v.y0 * p.factor) * tall); }
    if (p.banks) {
      for (var bank = 0; bank < p.banks[0]; bank++) {
        var top = down((bank + 1) * p.banks[1]), foot = down(bank * p.banks[1]);
        pen.fillStyle = bank % 2 ? (dark ? "#232a32" : "#eef0f2") : (dark ? "#171c21" : "#ffffff");
        pen.fillRect(0, top, width, foot - top);
        pen.fillStyle = dark ? "#5f6b7a" : "#b4bac2";
        pen.fillRect(0, top, width, 1);
      }
    }
    pen.textAlign = "center"; pen.textBaseline = "middle";
    pen.font = Math.round(11 * sharp) + "px system-ui, sans-serif";
    var borders = p.buffer.length <= 3000, marked = [];
    for (var k = 0; k < p.buffer.length; k++) {
      var b = p.buffer[k];
      if (p.right[k] <= v.x0 || p.left[k] >= v.x1) { continue; }
      var x = across(p.left[k]), y = down(high(p, c, k));
      var w = Math.max(1, across(p.right[k]) - x), h = Math.max(1, down(low(p, c, k)) - y);
      if (y > height || y + h < 0) { continue; }
      pen.fillStyle = p.colours[p.number[b] % p.colours.length];
      pen.fillRect(x, y, w, h);
      if (w > 3 && h > 3 && (borders || (w > 9 && h > 6))) {
        pen.strokeStyle = "#6b7280"; pen.lineWidth = 1;
        pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      }
      if (p.marks.fixed.has(b) || c.marked.has(b)) { marked.push([x, y, w, h, b]); }
      // Names stand in the middle of what can be seen.
      var from = Math.max(x, 0), to = Math.min(x + w, width);
      var head = Math.max(y, 0), end = Math.min(y + h, height);
      if (end - head > 12 * sharp && to - from > 12 * sharp) {
        var name = label(p, b);
        if (pen.measureText(name).width < to - from - 4) {
          pen.fillStyle = "#222222";
          pen.fillText(name, (from + to) / 2, (head + end) / 2 + 1);
        }
      }
    }
    marked.forEach(function (r) {
      pen.lineWidth = 2 * sharp;
      pen.strokeStyle = c.marked.has(r[4]) ? "#c1121f" : "#222222";
      pen.strokeRect(r[0] + 1, r[1] + 1, Math.max(1, r[2] - 2), Math.max(1, r[3] - 2));
    });
    p.reserved.forEach(function (span) {
      var top = down(span[1]), foot = down(span[0]);
      pen.save();
      pen.beginPath(); pen.rect(0, top, width, foot - top); pen.clip();
      pen.strokeStyle = "#8a929c"; pen.lineWidth = 1.2 * sharp;
      pen.beginPath();
      for (var at = -(foot - top); at < width; at += 9 * sharp) {
        pen.moveTo(at, foot); pen.lineTo(at + foot - top, top);
      }
      pen.stroke();
      pen.restore();
    });
    var change = { images: [{
      source: canvas.toDataURL(), xref: "x", yref: "y", x: v.x0, y: v.y1,
      sizex: v.x1 - v.x0, sizey: v.y1 - v.y0, sizing: "stretch", layer: "below"
    }] };
    if (v.y.tickmode !== "array") {
      var step = Math.pow(2, Math.round(Math.log2((v.y1 - v.y0) * p.factor / 8)));
      change["yaxis.dtick"] = Math.max(1, step) / p.factor;
    }
    Plotly.relayout(node, change);
  }

  function found(node, figure, choice, event) {
    var p = figure.rectangles, c = unpacked(figure, choice), v = view(node);
    var box = node.getBoundingClientRect();
    var px = event.clientX - box.left - v.x._offset, py = event.clientY - box.top - v.y._offset;
    if (px < 0 || py < 0 || px > v.x._length || py > v.y._length) { return -1; }
    var wide = (v.x1 - v.x0) / v.x._length, tall = (v.y1 - v.y0) * p.factor / v.y._length;
    var x = v.x0 + px * wide, a = v.y1 * p.factor - py * tall, near = -1, least = 2.5;
    for (var k = p.buffer.length - 1; k >= 0; k--) {
      var dx = Math.max(p.left[k] - x, x - p.right[k], 0) / wide;
      if (dx > least) { continue; }
      var dy = Math.max(low(p, c, k) - a, a - high(p, c, k), 0) / tall;
      if (dx + dy < least) {
        near = k; least = dx + dy;
        if (least === 0) { break; }
      }
    }
    return near;
  }

  function describe(figure, choice, k) {
    var p = figure.rectangles, c = unpacked(figure, choice), b = p.buffer[k];
    var n = function (value) { return value.toLocaleString("en-US"); };
    var base = 0, memory = "";
    c.memories.forEach(function (m) { if (m[0] <= c.offset[b]) { base = m[0]; memory = m[1]; } });
    var offset = c.offset[b] - base, top = offset + p.size[b];
    var lines = ["buffer " + label(p, b) + (memory ? " in " + memory : ""),
      n(p.size[b]) + " bytes",
      "addresses [" + n(offset) + ", " + n(top) + ")"];
    if (p.start) {
      lines.push("alive [" + n(p.start[b]) + ", " + n(p.end[b]) + ")" +
        (p.period ? " modulo " + n(p.period) : ""));
    }
    if (p.low && p.high[k] - p.low[k] < p.size[b]) {
      lines.push("here only bytes [" + n(p.low[k]) + ", " + n(p.high[k]) + ") of it");
    }
    if (p.banks) {
      var one = Math.floor(offset / p.banks[1]), other = Math.floor((top - 1) / p.banks[1]);
      lines.push((one === other ? "bank " + one : "banks " + one + " to " + other) +
        (c.marked.has(b) ? ", in conflict" : ""));
    }
    if (p.marks.fixed.has(b)) { lines.push("fixed"); }
    if (p.previous && p.previous[b] >= 0 && p.previous[b] !== offset) {
      lines.push("moved from " + n(p.previous[b]));
    }
    return lines;
  }

  var tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true;
  document.body.appendChild(tip);
  function attach(node, figure, dark) {
    var choice = figure.rectangles.choice;
    function again() { paint(node, figure, choice, dark); }
    node.on("plotly_relayout", function (change) { if (!("images" in change)) { again(); } });
    node.addEventListener("mousemove", function (event) {
      var k = event.buttons ? -1 : found(node, figure, choice, event);
      tip.hidden = k < 0;
      if (k < 0) { return; }
      tip.textContent = describe(figure, choice, k).join("\n");
      var left = event.clientX + 14, top = event.clientY + 14;
      if (left + tip.offsetWidth > window.innerWidth) { left -= tip.offsetWidth + 28; }
      if (top + tip.offsetHeight > window.innerHeight) { top -= tip.offsetHeight + 28; }
      tip.style.left = left + "px"; tip.style.top = top + "px";
    });
    node.addEventListener("mouseleave", function () { tip.hidden = true; });
    var waiting = 0;
    window.addEventListener("resize", function () {
      clearTimeout(waiting); waiting = setTimeout(again, 200);
    });
    again();
    return function (other, darkened) {
      if (other !== undefined) { choice = other; }
      dark = darkened;
      again();
    };
  }
  return { attach: attach };
}
