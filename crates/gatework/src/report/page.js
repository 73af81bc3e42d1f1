"use strict";
// The page of an automaton. `rule` says what it is; `module` is its WebAssembly, which gatework_logic::formats::wasm
// describes.
const $ = id => document.getElementById(id);
const rule = JSON.parse($("rule").textContent);
const link = new URLSearchParams(location.hash.slice(1));  // #step=12 stops there; #check writes the cells out
const most = 11, canvas = $("board"), context = canvas.getContext("2d");
const picture = document.createElement("canvas"), painter = picture.getContext("2d");
let module, machine, height = rule.height, width = rule.width, step = 0, seed = 1, playing = false, rested = false;
let pixels, image, colours, shades = [], dirty = true, due = 0, before = 0, step_time;
let origin = [], fire_seed = 1, watched = null;  // The start state and its seed; the cell that is inspected.

// The grid: bit x % 8 of byte plane + y * row + x / 8 is cell (y, x).
const bytes = () => new Uint8Array(machine.memory.buffer);
const get = (channel, y, x) => bytes()[machine.plane(channel) + y * machine.row_bytes() + (x >> 3)] >> (x & 7) & 1;
function set(channels, y, x, value) {
  const memory = bytes(), row = machine.row_bytes(), bit = 1 << (x & 7);
  for (const channel of channels) {
    const at = machine.plane(channel) + y * row + (x >> 3);
    memory[at] = value ? memory[at] | bit : memory[at] & ~bit;
  }
}
function mix(x) {
  x = Math.imul(x ^ x >>> 16, 0x85ebca6b);
  x = Math.imul(x ^ x >>> 13, 0xc2b2ae35);
  return x ^ x >>> 16;
}
const firing = () => $("async").checked ? Math.round($("rate").value / 100 * 65536) : 65536;
function randomise(machine, seed) {
  const memory = new Uint8Array(machine.memory.buffer), row = machine.row_bytes();
  for (const channel of rule.live) {
    const plane = machine.plane(channel), key = mix(mix(seed) + channel);
    for (let cell = 0; cell < height * width; cell++) {
      const y = Math.floor(cell / width), x = cell % width;
      if (mix(key + cell) < 0) memory[plane + y * row + (x >> 3)] |= 1 << (x & 7);
    }
  }
}
function place(rows) {
  const letters = { "#": [0], "1": [0], R: [0], G: [1], B: [2], Y: [0, 1] };
  const top = (height - rows.length) >> 1, left = (width - rows[0].length) >> 1;
  rows.forEach((line, y) => [...line].forEach((letter, x) => {
    const inside = top + y >= 0 && top + y < height && left + x >= 0 && left + x < width;
    const channels = (letters[letter.toUpperCase()] || []).filter(channel => rule.live.includes(channel));
    if (inside) set(channels, top + y, left + x, true);
  }));
}
function restart() {
  if (!machine.init(height, width)) return false;
  const start = $("start").value;
  if (start === "random") randomise(machine, seed++);
  if (start === "seed") set(rule.live, height >> 1, width >> 1, true);
  if (start === "grid") place(rule.start.rows);
  origin = planes(machine).map(plane => plane.slice());
  fire_seed = seed;
  machine.fire(firing(), fire_seed);
  step = due = 0;
  film_soon();
  step_time = 4;  // In milliseconds; until it is known, one step at a time.
  say("");
  return dirty = true;
}
// The bits of all live channels.
function planes(machine) {
  const bytes = height * machine.row_bytes();
  return rule.live.map(channel => new Uint8Array(machine.memory.buffer, machine.plane(channel), bytes));
}
// Sets a machine to a step after the start state.
function rerun(machine, to) {
  if (!machine.init(height, width)) return false;
  planes(machine).forEach((plane, i) => plane.set(origin[i]));
  machine.fire(firing(), fire_seed);
  machine.step(to);
  return true;
}
function advance(steps) {
  machine.step(steps);
  step += steps;
  dirty = true;
}

// Time: as many steps as are due, in batches that leave the page responsive.
function frame(now) {
  if (playing) {
    const rate = speed(), end = performance.now() + 12;
    due = Math.min(due + (now - before) / 1000 * rate, Math.max(1, rate / 10));
    const stop = $("pauses").checked && step < $("pause-at").value ? +$("pause-at").value : Infinity;
    while (due >= 1 && performance.now() < end && step < stop) {
      const batch = Math.floor(Math.min(due, stop - step, Math.max(1, 4 / step_time)));
      const from = performance.now();
      advance(batch);
      step_time = 0.7 * step_time + 0.3 * Math.max(1e-4, (performance.now() - from) / batch);
      due -= batch;
    }
    if (step === stop) {
      play(false);
      rested = true;
      say(`Paused at step ${step}. Reset to see it again, or play on.`);
    }
  }
  before = now;
  if (dirty) draw();
  requestAnimationFrame(frame);
}
const speed = () => +$("speed").value < most ? 2 ** $("speed").value : 1e9;
function play(on) {
  playing = on;
  rested = false;
  dirty = true;
  due = on ? 1 : 0;
  $("play").textContent = on ? "Pause" : "Play";
  if (on) say("");
}
function say(text) { $("status").textContent = text; }

// The film strip: the growth from the start state, computed on a grid of its own. A frame takes the player to its step.
const frames = 8;
let film_timer = 0;  // 0 if the strip is that of the start state.
function film_soon() {
  clearTimeout(film_timer);
  film_timer = setTimeout(film, 150);
}
async function film() {
  const timer = film_timer;
  const wanted = $("pauses").checked ? +$("pause-at").value : rule.steps * Math.max(1, Math.round(Math.max(height / rule.grid[0], width / rule.grid[1])));
  const last = Math.max(1, Math.min(wanted, 1e5)), stride = Math.ceil(last / frames);
  $("film").hidden = last * height * Math.ceil(width / 128) * (rule.gates + 20) > 2 ** 28;
  if ($("film").hidden) {
    film_timer = 0;
    return;
  }
  const other = await WebAssembly.instantiate(module, {}).then(instance => instance.exports, () => null), own = machine;
  if (timer !== film_timer) return;  // Another strip is due.
  if (!other || !rerun(other, 0)) {  // There is no memory for another grid.
    $("film").hidden = true;
    film_timer = 0;
    return;
  }
  const strip = [];
  for (let at = 0; ; at = Math.min(last, at + stride)) {
    const frame = document.createElement("button"), view = document.createElement("canvas");
    machine = other;
    render();
    machine = own;
    const scale = Math.min(1, 256 / Math.max(picture.width, picture.height));
    view.width = Math.max(1, Math.round(picture.width * scale));
    view.height = Math.max(1, Math.round(picture.height * scale));
    view.getContext("2d").drawImage(picture, 0, 0, view.width, view.height);
    frame.type = "button";
    frame.append(view, `step ${at}`);
    frame.addEventListener("click", () => {
      play(false);
      if (!rerun(machine, at)) {
        say("There is not enough memory to go to that step.");
        return;
      }
      step = at;
      say(`Step ${at}.`);
    });
    strip.push(frame);
    if (at === last) break;
    other.step(Math.min(stride, last - at));
  }
  $("film").replaceChildren(...strip);
  film_timer = 0;
  dirty = true;
}

// Cells per second of the rule alone, on a separate grid.
async function measure() {
  const other = (await WebAssembly.instantiate(module, {})).exports;
  if (!other.init(height, width)) return;
  randomise(other, 1);
  other.fire(firing(), 1);
  // At most about 0.1 s, also where the clock stands still.
  const work = height * Math.ceil(width / 128) * (rule.gates + 20);
  let steps = 1, time = 0;
  while (time < 25 && steps * work < 2 ** 28) {
    steps *= 2;
    const from = performance.now();
    other.step(steps);
    time = performance.now() - from;
  }
  const units = ["", " k", " M", " G", " T"];
  let rate = height * width * steps / time * 1000, unit = 0;
  for (; rate >= 1000 && unit < 4; unit++) rate /= 1000;
  $("cells-per-second").textContent = time > 2 ? rate.toPrecision(3) + units[unit] : "–";
}

// The picture: ink on paper, red-green-blue, or a mosaic of all live channels.
const mosaic = () => $("view").value === "all";
function columns() {
  const square = Math.round(Math.sqrt(rule.live.length * (height + 1) / (width + 1)));
  return Math.max(1, Math.min(rule.live.length, square));
}
function look() {
  const style = getComputedStyle(document.documentElement);
  const packed = name => {
    const [r, g, b] = style.getPropertyValue(name).match(/[0-9a-f]{2}/gi).map(digits => parseInt(digits, 16));
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  };
  shades = rule.palette.map(([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);
  colours = { paper: packed("--paper"), ink: packed("--ink"), gap: packed("--gap"), night: packed("--night") };
  const rows = Math.ceil(rule.live.length / columns());
  picture.width = mosaic() ? columns() * (width + 1) + 1 : width;
  picture.height = mosaic() ? rows * (height + 1) + 1 : height;
  image = painter.createImageData(picture.width, picture.height);
  pixels = new Uint32Array(image.data.buffer);
  const room = Math.min($("stage").clientWidth - 34, 1400), tall = Math.max(320, innerHeight - 340);
  const ratio = devicePixelRatio || 1, scale = Math.min(room / picture.width, tall / picture.height, 40) * ratio;
  const cell = scale >= 1 ? Math.floor(scale) : scale;
  canvas.width = Math.max(1, Math.round(picture.width * cell));
  canvas.height = Math.max(1, Math.round(picture.height * cell));
  canvas.style.width = canvas.width / ratio + "px";
  $("cells").textContent = `${height} × ${width}`;
  film_soon();
  dirty = true;
}
function plot(channel, top, left) {
  const memory = bytes(), row = machine.row_bytes(), plane = machine.plane(channel), { paper, ink } = colours;
  for (let y = 0; y < height; y++) {
    const line = plane + y * row, out = (top + y) * picture.width + left;
    for (let x = 0; x < width; x++) pixels[out + x] = memory[line + (x >> 3)] >> (x & 7) & 1 ? ink : paper;
  }
}
function plot_colours() {
  const memory = bytes(), row = machine.row_bytes(), planes = [0, 1, 2].map(channel => machine.plane(channel));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const bit = plane => memory[plane + y * row + (x >> 3)] >> (x & 7) & 1;
      const colour = bit(planes[0]) * 0xff | bit(planes[1]) * 0xff00 | bit(planes[2]) * 0xff0000;
      pixels[y * width + x] = colour ? (colour | 0xff000000) >>> 0 : colours.night;
    }
  }
}
function plot_palette() {
  const memory = bytes(), row = machine.row_bytes(), strange = 0xff94989a;
  const planes = Array.from({ length: rule.observed }, (_, channel) => machine.plane(channel));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const at = y * row + (x >> 3);
      let code = 0;
      planes.forEach((plane, channel) => code |= (memory[plane + at] >> (x & 7) & 1) << channel);
      pixels[y * width + x] = shades[code] ?? strange;
    }
  }
}
// The target as small squares in the cells that differ from it.
function target_colour(code) {
  if (shades.length > 0) return shades[code];
  if (rule.observed < 3) return code & 1 ? colours.ink : colours.paper;
  const colour = (code & 1) * 0xff | (code >> 1 & 1) * 0xff00 | (code >> 2 & 1) * 0xff0000;
  return colour ? (colour | 0xff000000) >>> 0 : colours.night;
}
function mark() {
  const { codes, rows, columns } = rule.target ?? {}, top = (height - rows) >> 1, left = (width - columns) >> 1;
  if (!codes || !$("marks").checked || mosaic() || top < 0 || left < 0) return;
  const cell = canvas.width / picture.width, side = Math.max(1, Math.round(cell * .4)), inset = (cell - side) / 2;
  codes.forEach((code, i) => {
    const y = top + Math.floor(i / columns), x = left + i % columns, colour = target_colour(code);
    if (pixels[y * width + x] === colour) return;
    context.fillStyle = `rgb(${colour & 255}, ${colour >> 8 & 255}, ${colour >> 16 & 255})`;
    context.fillRect(x * cell + inset, y * cell + inset, side, side);
  });
}
// Draws the cells of the machine, a pixel each.
function render() {
  if (mosaic()) {
    pixels.fill(colours.gap);
    rule.live.forEach((channel, i) =>
      plot(channel, Math.floor(i / columns()) * (height + 1) + 1, i % columns() * (width + 1) + 1));
  } else if (shades.length > 0) plot_palette();
  else if (rule.observed < 3) plot(0, 0, 0);
  else plot_colours();
  painter.putImageData(image, 0, 0);
}
function outline([y, x], colour, cell) {
  context.strokeStyle = colour;
  context.lineWidth = Math.max(2, cell / 8);
  context.strokeRect(x * cell, y * cell, cell, cell);
}
function draw() {
  dirty = false;
  render();
  context.imageSmoothingEnabled = canvas.width < picture.width;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const cell = canvas.width / picture.width;
  if (cell >= 12) {  // Fine lines between large cells.
    context.fillStyle = "rgba(128, 128, 140, .22)";
    for (let x = 1; x < picture.width; x++) context.fillRect(x * cell, 0, 1, canvas.height);
    for (let y = 1; y < picture.height; y++) context.fillRect(0, y * cell, canvas.width, 1);
  }
  mark();
  if (watched && !mosaic()) outline(watched, "#e0483a", cell);
  if (pen && document.activeElement === canvas) outline(pen, "#3566c8", cell);
  canvas.dispatchEvent(new Event("drawn"));
  $("step-count").textContent = step.toLocaleString("en");
}

// The pointer: a line of discs from the last place to this one.
let stroke = null, pen = null;  // The pen is the cell that the keyboard has moved to.
function touch(event) {
  const box = canvas.getBoundingClientRect();
  use({ x: (event.clientX - box.left) / box.width * picture.width, y: (event.clientY - box.top) / box.height * picture.height });
}
function use(to) {
  const tool = document.querySelector("input[name=tool]:checked").value;
  const damage = tool === "damage" && !stroke.erase;
  if (damage && stroke.last) return;
  if (tool === "inspect" && !stroke.erase) {
    if (mosaic()) [to.y, to.x] = [to.y % (height + 1) - 1, to.x % (width + 1) - 1];
    watch(to.y, to.x);
    return;
  }
  const size = +$("brush").value;
  const from = stroke.last ?? to, hops = Math.ceil(Math.max(Math.abs(to.x - from.x), Math.abs(to.y - from.y), 1));
  for (let i = 1; i <= hops; i++) {
    disc(from.x + (to.x - from.x) * i / hops, from.y + (to.y - from.y) * i / hops, size, tool === "draw" && !stroke.erase);
  }
  stroke.last = to;
  dirty = true;
}
function watch(y, x) {
  const inside = (at, end) => Math.min(end - 1, Math.max(0, Math.floor(at) || 0));
  watched = [inside(y, height), inside(x, width)];
  dirty = true;
}
function disc(px, py, size, value) {
  let channels = rule.live;
  if (mosaic()) {  // Only the channel of the panel.
    const panel = Math.floor(py / (height + 1)) * columns() + Math.floor(px / (width + 1));
    if (panel < 0 || panel >= rule.live.length) return;
    channels = [rule.live[panel]];
    px = px % (width + 1) - 1;
    py = py % (height + 1) - 1;
  }
  // An odd disc has a cell in its middle, an even one a corner of cells.
  const middle = p => size % 2 === 1 ? Math.floor(p) : Math.round(p) - .5, cx = middle(px), cy = middle(py);
  const from = c => Math.max(0, Math.floor(c - size / 2)), to = (c, end) => Math.min(end - 1, Math.ceil(c + size / 2));
  for (let y = from(cy); y <= to(cy, height); y++) {
    for (let x = from(cx); x <= to(cx, width); x++) {
      if ((x - cx) ** 2 + (y - cy) ** 2 < size * size / 4) set(channels, y, x, value);
    }
  }
}
canvas.addEventListener("pointerdown", event => {
  if (event.button !== 0 && event.button !== 2) return;
  canvas.setPointerCapture(event.pointerId);
  stroke = { erase: event.button === 2, last: null };
  touch(event);
});
canvas.addEventListener("pointermove", event => stroke && touch(event));
for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => stroke = null);
canvas.addEventListener("contextmenu", event => event.preventDefault());

canvas.addEventListener("keydown", event => {
  const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!move && event.key !== "Enter") return;
  event.preventDefault();
  const [y, x] = pen ?? [picture.height >> 1, picture.width >> 1];
  if (move) pen = [Math.min(picture.height - 1, Math.max(0, y + move[0])), Math.min(picture.width - 1, Math.max(0, x + move[1]))];
  else {
    stroke = { erase: false, last: null };
    use({ x: x + .5, y: y + .5 });
    stroke = null;
  }
  dirty = true;
});
for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, () => dirty = true);

// Buttons, sliders and keys.
const actions = {
  play: () => play(!playing),
  step: () => { play(false); advance(1); say(""); },
  reset: () => { const again = playing || rested; restart(); play(again); },
};
for (const name in actions) $(name).addEventListener("click", actions[name]);
addEventListener("keydown", event => {
  const action = { " ": "play", s: "step", r: "reset" }[event.key];
  const typing = event.target.closest("input[type=number], select"), pressing = event.target.closest("button, input, summary, a, [tabindex]:not(#board)");
  if (!action || typing || (pressing && action === "play") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  actions[action]();
});
function texts() {
  $("speed-text").textContent = speed() === 1e9 ? "as fast as possible" : `${speed()} step${speed() > 1 ? "s" : ""} a second`;
  $("brush-text").textContent = `${$("brush").value} cell${$("brush").value > 1 ? "s" : ""}`;
  $("rate-text").textContent = `${$("rate").value} %`;
  $("rate").disabled = !$("async").checked;
}
for (const name of ["speed", "brush", "rate", "async"]) $(name).addEventListener("input", texts);
for (const name of ["async", "rate"]) $(name).addEventListener("change", () => {
  fire_seed = seed;
  machine.fire(firing(), fire_seed);
  measure();
  film_soon();
});
for (const name of ["pauses", "pause-at"]) $(name).addEventListener("change", film_soon);
function resize(new_height, new_width) {
  const old = [height, width], side = text => Math.min(2048, Math.max(1, Math.round(+text) || 1));
  [height, width] = [side(new_height), side(new_width)];
  if (!restart()) {
    [height, width] = old;
    restart();
    say("There is not enough memory for a grid of that size.");
  }
  [$("height").value, $("width").value] = [height, width];
  if (watched) watch(...watched);
  look();
  measure();
}
for (const name of ["height", "width"]) $(name).addEventListener("change", () => resize($("height").value, $("width").value));
$("start").addEventListener("change", actions.reset);
$("view").addEventListener("change", look);
$("marks").addEventListener("change", () => dirty = true);
document.forms[0].addEventListener("submit", event => event.preventDefault());
addEventListener("resize", look);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);

function prepare() {
  const option = (list, value, text) => list.add(new Option(text, value));
  if (rule.start.kind === "grid") option($("start"), "grid", "As in training");
  for (const [value, text] of [["random", "Random"], ["seed", "One cell"], ["zeros", "Empty"]]) option($("start"), value, text);
  option($("view"), "observed", "Picture");
  if (rule.live.length > 1) option($("view"), "all", "Channels");
  $("start").value = rule.start.kind;
  $("height").value = height;
  $("width").value = width;
  $("speed").value = rule.speed;
  $("async").checked = rule.fire_rate !== null;
  $("rate").value = Math.round((rule.fire_rate ?? 0.6) * 100);
  $("pauses").checked = rule.pause_at !== null;
  $("pause-at").value = rule.pause_at ?? 100;
  $("gates").textContent = rule.gates.toLocaleString("en");
  $("view").value = link.has("all") && rule.live.length > 1 ? "all" : "observed";
  const outside = rule.boundary === "torus" ? "Opposite edges of the grid are joined." : "Outside the grid all cells are 0.";
  const hidden = rule.live.length - rule.observed, idle = rule.channels - rule.live.length;
  $("about-rule").textContent = `A cell has ${rule.channels} bit${rule.channels > 1 ? "s" : ""}: ${rule.observed} shown`
    + `${hidden ? `, ${hidden} hidden` : ""}${idle ? `, ${idle} without effect` : ""}. ${outside}`;
  $("marks-row").hidden = !rule.target;
  $("marks").checked = link.has("marks");
  texts();
}
async function begin() {
  prepare();
  module = await WebAssembly.compile(Uint8Array.from(atob($("module").textContent), c => c.charCodeAt(0)));
  machine = (await WebAssembly.instantiate(module, {})).exports;
  restart();
  look();
  advance(Math.min(1e6, Math.max(0, +link.get("step") || 0)));
  draw();  // At once: a page that is looked at only once may never get a frame.
  if (link.has("check")) {
    const count = (n, f) => Array.from({ length: n }, (_, i) => f(i));
    const line = channel => count(height * width, cell => get(channel, Math.floor(cell / width), cell % width)).join("");
    $("check").textContent = count(rule.observed, line).join("\n");
  }
  if (!link.has("step") && !matchMedia("(prefers-reduced-motion: reduce)").matches) play(true);
  requestAnimationFrame(frame);
  setTimeout(measure, 300);
}
begin().catch(error => say(`This page needs WebAssembly with SIMD, which current browsers have (${error.message}).`));
