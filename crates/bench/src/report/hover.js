// Values under the pointer. Everything that is seen without it is already in the page.
"use strict";
const tip = document.getElementById("tip");

const digits = v => v >= 99.95 ? Math.round(v).toLocaleString("en") : v.toFixed(v >= 9.995 ? 1 : 2);
const withUnit = (v, axis) => digits(v) + (axis.unit ? " " + axis.unit : "");

function row(parent, className, name, value) {
  const line = document.createElement("div");
  if (className) line.append(Object.assign(document.createElement("i"), { className }));
  line.append(name + " ", Object.assign(document.createElement("b"), { textContent: value }));
  parent.append(line);
}

// The last point at or before x, moved on towards the next.
function valueAt(points, x) {
  if (!points.length || x < points[0][0] || x > points[points.length - 1][0]) return null;
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle; else high = middle;
  }
  const [a, b] = [points[low], points[high]];
  return b[0] === a[0] ? b[1] : a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]);
}

function nearest(points, x) {
  return points.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best, points[0]);
}

function tellPlot(data, share, cursor) {
  const { x: axis } = data;
  const x = axis.logarithmic ? axis.from * (axis.to / axis.from) ** share : axis.from + (axis.to - axis.from) * share;
  cursor.style.left = share * 100 + "%";
  row(tip, "", axis.title, withUnit(x, axis));
  for (const line of data.lines) {
    if (!line.points.length) continue;
    let y = line.style === "dots" ? nearest(line.points, x)[1] : valueAt(line.points, x);
    // A distribution is 0 before its first value and 100 % after its last.
    if (y === null && data.y.unit === "%") y = x < line.points[0][0] ? 0 : 100;
    if (y !== null) row(tip, "c" + line.colour, line.name, withUnit(y, data.y));
  }
}

function tellTimeline(data, share, cursor) {
  const at = Math.min(data.rows.length - 1, Math.max(0, Math.floor(share * data.rows.length)));
  const request = data.rows[at];
  cursor.classList.add("row");
  cursor.style.top = at / data.rows.length * 100 + "%";
  cursor.style.height = 100 / data.rows.length + "%";
  row(tip, "", "due at", digits(request.at_s) + " s");
  for (const [phase, ms] of request.phases) row(tip, data.phases[phase][0], data.phases[phase][1], digits(ms) + " ms");
  row(tip, "", "tokens", request.input + " in, " + request.output + " out");
}

for (const figure of document.querySelectorAll(".plot")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const area = figure.querySelector(".area"), cursor = figure.querySelector(".cursor");
  const move = event => {
    const box = area.getBoundingClientRect();
    const clamp = v => Math.min(1, Math.max(0, v));
    tip.replaceChildren();
    if (data.rows) tellTimeline(data, clamp((event.clientY - box.top) / box.height), cursor);
    else tellPlot(data, clamp((event.clientX - box.left) / box.width), cursor);
    cursor.style.display = "block";
    tip.hidden = false;
    const left = event.clientX + 14 + tip.offsetWidth > innerWidth ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4)) + "px";
  };
  const leave = () => { tip.hidden = true; cursor.style.display = "none"; };
  area.addEventListener("pointermove", move);
  area.addEventListener("pointerdown", move);
  area.addEventListener("pointerleave", leave);
}

