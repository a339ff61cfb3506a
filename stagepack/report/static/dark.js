// Dresses figures, which are made for white pages (report/style.py), for dark ones. Areas keep their
// colours, and dark text on them; lines, axes and text beside areas become light. Buttons have their
// colours from page.css: plotly.js gives the one that is pressed a light background of its own.
function darkLayout(value) {
  "use strict";
  if (typeof value === "string") { return DARK[value] || value; }
  if (Array.isArray(value)) { return value.map(darkLayout); }
  if (value === null || typeof value !== "object") { return value; }
  var made = {};
  Object.keys(value).forEach(function (key) { made[key] = darkLayout(value[key]); });
  return made;
}
function darkTrace(trace) {
  "use strict";
  var made = Object.assign({}, trace);
  if (trace.line) { made.line = darkLayout(trace.line); }
  if (trace.marker) {
    made.marker = Object.assign({}, trace.marker);
    if (trace.marker.line) { made.marker.line = darkLayout(trace.marker.line); }
    if (["#e3e6ea", "#f3f4f6"].includes(trace.marker.color)) {  // the palest, without text
      made.marker.color = DARK[trace.marker.color];
    }
  }
  var beside = trace.type === "scatter" && (trace.textposition || "").indexOf("top") === 0;
  if (beside && trace.textfont) { made.textfont = darkLayout(trace.textfont); }
  return made;
}
