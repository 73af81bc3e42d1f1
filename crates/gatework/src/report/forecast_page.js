"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const canvas = get("chart"), tip = get("tip"), select = get("series");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let current = 0, view = [0, 1], hover = null, drag = null;

const series = () => data.series[current];
const times = (one) => data.times[one.times];
const steps = (one) => one.history.length + one.forecast.length;

// Numbers with as many digits as tell the values of a series apart.
function format(value, range) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const digits = Math.max(0, Math.min(8, 2 - Math.floor(Math.log10(range || Math.abs(value) || 1))));
  if (Math.abs(value) >= 1e9 || (range && range < 1e-6)) return value.toPrecision(5);
  return value.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits });
}

function range(one, from, to) {
  let low = Infinity, high = -Infinity;
  const add = (value) => {
    if (value !== null && isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  };
  const begin = one.history.length;
  for (let i = Math.max(0, Math.floor(from)); i <= Math.min(steps(one) - 1, Math.ceil(to)); i++) {
    if (i < begin) add(one.history[i]);
    else {
      add(one.forecast[i - begin]);
      for (const interval of one.intervals) { add(interval.low[i - begin]); add(interval.high[i - begin]); }
    }
  }
  if (low > high) return [0, 1];
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; return [low - room, high + room]; }
  const room = (high - low) * 0.05;
  return [low - room, high + room];
}

function ticksOf(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step + 0);
  return ticks;
}

// Positions where a year, a month, a day or an hour begins: the finest that has room.
// `room` is the width in pixels.
function datesOf(labels, from, to, room) {
  const first = Math.max(0, Math.ceil(from)), last = Math.min(labels.length - 1, Math.floor(to));
  const calendar = /^\d{4}-\d\d/.test(labels[first] || "");
  let best = null;
  for (const length of calendar ? [16, 13, 10, 7, 4] : []) {
    const most = Math.max(2, Math.floor(room / (7 * length + 16)));
    for (const every of length === 7 ? [1, 3] : length === 4 ? [1, 2, 5, 10, 20, 50, 100] : length === 13 ? [1, 6] : [1, 7]) {
      const found = [];
      for (let i = first; i <= last; i++) {
        const now = labels[i].slice(0, length), before = i > 0 ? labels[i - 1].slice(0, length) : "";
        if (now === before || labels[i].length < length && length !== 4) continue;
        const number = parseInt(now.slice(length === 16 ? 14 : length === 13 ? 11 : length === 10 ? 8 : length === 7 ? 5 : 0), 10);
        const round = length === 4 || length === 13 ? number % every === 0 : length === 10 ? every === 1 || (number - 1) % every === 0 && number < 29 : (number - 1) % every === 0;
        if (round) found.push([i, now]);
      }
      if (found.length <= most && found.length >= 2 && (!best || found.length > best.length)) best = found;
    }
    if (best) return best;
  }
  const widest = Math.max(40, 7 * (labels[last] || "").length + 16);
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, Math.floor(room / widest))));
  const found = [];
  for (let i = first; i <= last; i += every) found.push([i, labels[i]]);
  return found;
}

function prepare(canvas) {
  const scale = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = Math.round(box.width * scale);
  canvas.height = Math.round(box.height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.clearRect(0, 0, box.width, box.height);
  return [context, box.width, box.height];
}

function plot(context, one, area, from, to, low, high) {
  const x = (i) => area.left + (i - from) / Math.max(to - from, 1e-9) * (area.right - area.left);
  const y = (value) => area.bottom - (value - low) / (high - low) * (area.bottom - area.top);
  const begin = one.history.length;
  context.save();
  context.beginPath();
  context.rect(area.left, area.top - 2, area.right - area.left, area.bottom - area.top + 4);
  context.clip();
  const last = one.history[begin - 1];
  for (const interval of [...one.intervals].sort((a, b) => b.level - a.level)) {
    context.beginPath();
    // From the last value, so that the forecast follows the history.
    context.moveTo(x(begin - 1), y(last));
    interval.high.forEach((value, i) => context.lineTo(x(begin + i), y(value)));
    for (let i = interval.low.length - 1; i >= 0; i--) context.lineTo(x(begin + i), y(interval.low[i]));
    context.closePath();
    context.globalAlpha = 0.18;
    context.fillStyle = style("--accent");
    context.fill();
    context.globalAlpha = 1;
  }
  const line = (values, offset, colour, width) => {
    context.beginPath();
    let pen = false;
    const first = Math.max(0, Math.floor(from) - offset - 1), end = Math.min(values.length, Math.ceil(to) - offset + 2);
    for (let i = first; i < end; i++) {
      if (values[i] === null) { pen = false; continue; }
      if (pen) context.lineTo(x(i + offset), y(values[i])); else context.moveTo(x(i + offset), y(values[i]));
      pen = true;
    }
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.stroke();
  };
  line(one.history, 0, style("--text"), 1.4);
  line([last, ...one.forecast], begin - 1, style("--accent"), 2.2);
  context.restore();
  return [x, y];
}

function draw() {
  const one = series(), labels = times(one), [from, to] = view;
  const [low, high] = range(one, from, to);
  const [context, width, height] = prepare(canvas);
  context.font = "12px system-ui, sans-serif";
  const values = ticksOf(low, high, Math.max(3, Math.floor(height / 60)));
  const written = values.map((value) => format(value, high - low));
  const margin = Math.max(...written.map((text) => context.measureText(text).width)) + 12;
  const area = { left: margin, right: width - 10, top: 10, bottom: height - 26 };
  context.strokeStyle = style("--line");
  context.fillStyle = style("--muted");
  context.lineWidth = 1;
  values.forEach((value, i) => {
    const row = Math.round(area.bottom - (value - low) / (high - low) * (area.bottom - area.top)) + 0.5;
    context.beginPath(); context.moveTo(area.left, row); context.lineTo(area.right, row); context.stroke();
    context.textAlign = "right"; context.textBaseline = "middle";
    context.fillText(written[i], margin - 7, row);
  });
  const [x, y] = plot(context, one, area, from, to, low, high);
  context.textBaseline = "top";
  for (const [i, text] of datesOf(labels, from, to, area.right - area.left)) {
    const column = Math.round(x(i)) + 0.5, half = context.measureText(text).width / 2;
    context.beginPath(); context.moveTo(column, area.bottom); context.lineTo(column, area.bottom + 5); context.stroke();
    context.textAlign = "center";
    context.fillText(text, Math.min(Math.max(column, half + 2), width - half - 2), area.bottom + 8);
  }
  const origin = x(one.history.length - 0.5);
  if (origin >= area.left && origin <= area.right) {
    context.setLineDash([4, 4]);
    context.beginPath(); context.moveTo(origin, area.top); context.lineTo(origin, area.bottom); context.stroke();
    context.setLineDash([]);
  }
  if (drag && drag.moved) {
    context.globalAlpha = 0.15; context.fillStyle = style("--text");
    context.fillRect(Math.min(drag.from, drag.to), area.top, Math.abs(drag.to - drag.from), area.bottom - area.top);
    context.globalAlpha = 1;
  }
  canvas.frame = { area, low, high };
  if (hover !== null) {
    const begin = one.history.length;
    const value = hover < begin ? one.history[hover] : one.forecast[hover - begin];
    context.beginPath(); context.moveTo(x(hover), area.top); context.lineTo(x(hover), area.bottom); context.stroke();
    if (value !== null) {
      context.beginPath(); context.arc(x(hover), y(value), 4, 0, 7);
      context.fillStyle = style(hover < begin ? "--text" : "--accent"); context.fill();
    }
    tip.replaceChildren();
    const row = (text) => { const line = document.createElement("div"); line.textContent = text; tip.append(line); };
    const spread = one.range;
    row(labels[hover]);
    row((hover < begin ? "actual " : "forecast ") + format(value, spread));
    if (hover >= begin) for (const interval of one.intervals) {
      row(`${percent(interval.level)} %: ${format(interval.low[hover - begin], spread)} to ${format(interval.high[hover - begin], spread)}`);
    }
    tip.hidden = false;
    const left = x(hover) + 14 + tip.offsetWidth > width ? x(hover) - 14 - tip.offsetWidth : x(hover) + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${area.top + 6}px`;
  } else tip.hidden = true;
}

const percent = (level) => String(Math.round(level * 1e6) / 1e4);

function setView(from, to) {
  const count = steps(series());
  const size = Math.min(Math.max(to - from, 4), count - 1 || 1);
  const begin = Math.min(Math.max(from, 0), Math.max(0, count - 1 - size));
  view = [begin, begin + size];
  draw();
}
const showAll = () => setView(0, steps(series()) - 1);
function showRecent() {
  const count = steps(series()), horizon = series().forecast.length;
  setView(count - 1 - Math.max(6 * horizon, 60), count - 1);
}
function zoom(factor, around) {
  const [from, to] = view, centre = around === undefined ? (from + to) / 2 : around;
  setView(centre - (centre - from) * factor, centre + (to - centre) * factor);
}
const at = (event) => {
  const box = canvas.getBoundingClientRect(), { area } = canvas.frame;
  const share = (event.clientX - box.left - area.left) / (area.right - area.left);
  return view[0] + share * (view[1] - view[0]);
};

function choose(number) {
  current = number;
  hover = null;
  select.value = String(number);
  const one = series();
  get("about-series").textContent = one.about;
  const table = get("numbers");
  table.replaceChildren();
  const add = (cells, kind) => {
    const row = document.createElement("tr");
    for (const text of cells) { const cell = document.createElement(kind); cell.textContent = text; row.append(cell); }
    table.append(row);
  };
  add(["time", "forecast", ...one.intervals.flatMap((i) => [`low ${percent(i.level)} %`, `high ${percent(i.level)} %`])], "th");
  one.forecast.forEach((value, i) => add([times(one)[one.history.length + i], format(value, one.range),
    ...one.intervals.flatMap((interval) => [format(interval.low[i], one.range), format(interval.high[i], one.range)])], "td"));
  document.querySelectorAll("#mini button").forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
  showRecent();
}

data.series.forEach((one, number) => {
  const option = document.createElement("option");
  option.value = String(number);
  option.textContent = one.id;
  select.append(option);
});
const legend = (text, colour, opacity) => {
  const entry = document.createElement("li"), sample = document.createElement("i");
  sample.style.background = `var(${colour})`;
  sample.style.opacity = opacity;
  entry.append(sample, text);
  get("legend").append(entry);
};
legend("history", "--text", 1);
legend("forecast", "--accent", 1);
const levels = data.series[0].intervals.map((interval) => interval.level);
levels.forEach((level, i) => legend(`${percent(level)} % interval`, "--accent", 1 - 0.82 ** (levels.length - i)));

select.addEventListener("change", () => choose(Number(select.value)));
get("all").addEventListener("click", showAll);
get("recent").addEventListener("click", showRecent);
get("in").addEventListener("click", () => zoom(0.5, view[1]));
get("out").addEventListener("click", () => zoom(2, view[1]));
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event)); }, { passive: false });
canvas.addEventListener("dblclick", showAll);
canvas.addEventListener("pointerdown", (event) => {
  const box = canvas.getBoundingClientRect();
  if (event.pointerType === "mouse") { drag = { from: event.clientX - box.left, to: event.clientX - box.left, begin: at(event), moved: false }; canvas.setPointerCapture(event.pointerId); }
});
canvas.addEventListener("pointermove", (event) => {
  const box = canvas.getBoundingClientRect(), place = Math.round(at(event));
  hover = place >= 0 && place < steps(series()) ? place : null;
  if (drag) { drag.to = event.clientX - box.left; drag.moved = Math.abs(drag.to - drag.from) > 5; }
  draw();
});
canvas.addEventListener("pointerup", (event) => {
  const finished = drag;
  drag = null;
  if (finished && finished.moved) { const end = at(event); setView(Math.min(finished.begin, end), Math.max(finished.begin, end)); }
});
canvas.addEventListener("pointerleave", () => { hover = null; draw(); });
canvas.addEventListener("keydown", (event) => {
  const size = (view[1] - view[0]) / 5;
  const action = { ArrowLeft: () => setView(view[0] - size, view[1] - size), ArrowRight: () => setView(view[0] + size, view[1] + size), "+": () => zoom(0.5), "-": () => zoom(2), Home: showAll }[event.key];
  if (action) { event.preventDefault(); action(); }
});

// Small pictures of all series.
const MOST = 60;
if (data.series.length > 1) {
  get("overview").hidden = false;
  data.series.slice(0, MOST).forEach((one, number) => {
    const button = document.createElement("button"), picture = document.createElement("canvas");
    button.type = "button";
    button.title = one.id;
    button.append(one.id, picture);
    button.addEventListener("click", () => { choose(number); canvas.scrollIntoView({ behavior: "smooth", block: "center" }); });
    get("mini").append(button);
  });
}
function drawSmall() {
  document.querySelectorAll("#mini canvas").forEach((picture, number) => {
    const one = data.series[number], count = steps(one);
    const from = Math.max(0, count - 1 - Math.max(4 * one.forecast.length, 60)), to = count - 1;
    const [context, width, height] = prepare(picture), [low, high] = range(one, from, to);
    plot(context, one, { left: 0, right: width, top: 2, bottom: height - 2 }, from, to, low, high);
  });
}
choose(0);
drawSmall();
window.addEventListener("resize", () => { draw(); drawSmall(); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); drawSmall(); });
