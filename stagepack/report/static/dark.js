// Dresses figures, which are made for white pages (report/style.py), for dark ones. Areas keep their
// colours, and dark text on them; lines, axes and text beside areas become light. Buttons have their
// colours from page.css: plotly.js gives the one that is pressed a light background of its own.
var DARK = {
  "white": "#171c21", "#222222": "#e4e7eb", "#6b7280": "#a3adb9", "#e3e6ea": "#3a434d",
  "#2f6fb0": "#7db4ea", "#aa3377": "#e07ab4", "#4477aa": "#77aadd",
  "#228833": "#55bb66", "#555555": "#b0b0b0", "#f3f4f6": "#2b333c"
};
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
