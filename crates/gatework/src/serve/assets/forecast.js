"use strict";
(() => {
  const { make, ask, api_path, number, percent, ticks, chart_width } = Gatework;
  const $ = id => document.getElementById(id);
  const api = api_path(JSON.parse($("run").textContent).run.name);
  const height = 380, left = 64, right = 16, top = 16, bottom = 40;
  let width = chart_width();
  let uploaded = null, shown = null, view = null, asked = 0;
  const say = text => { $("chart-problem").textContent = text; };

  // The points of a forecast in the order of time: history, then the steps of the horizon.
  function points({ history, values, intervals, times, actual }) {
    const past = history.times.map((time, i) => ({ time, past: history.values[i] }));
    const future = values.map((value, i) => ({
      time: times[i], value, actual: actual?.[i] ?? null, bands: intervals.map(({ level, low, high }) => [level, low[i], high[i]]),
    }));
    return [...past, ...future];
  }

  function draw() {
    width = chart_width();
    const all = points(shown), horizon = shown.values.length, keep = Number($("shown").value) * horizon;
    const list = keep > 0 ? all.slice(Math.max(0, all.length - horizon - keep)) : all;
    const seen = list.flatMap(p => [p.past, p.value, p.actual, ...(p.bands ?? []).flatMap(([, low, high]) => [low, high])]).filter(Number.isFinite);
    let [low, high] = [Math.min(...seen), Math.max(...seen)];
    if (!(high > low)) [low, high] = [low - 1, high + 1];
    const margin = (high - low) * .05;
    [low, high] = [low - margin, high + margin];
    const px = i => left + i / Math.max(1, list.length - 1) * (width - left - right);
    const py = y => height - bottom - (y - low) / (high - low) * (height - top - bottom);
    const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", "aria-hidden": true });
    for (const tick of ticks(low, high, 5)) {
      svg.append(make("svg:path", { class: "axis", d: `M${left} ${py(tick)}H${width - right}` }), make("svg:text", { x: left - 8, y: py(tick) + 4, "text-anchor": "end" }, number(tick, 6)));
    }
    const marks = width < 600 ? 3 : 5;
    for (let k = 0; k < marks; k++) {
      const i = Math.round(k * (list.length - 1) / (marks - 1));
      svg.append(make("svg:text", { x: px(i), y: height - 12, "text-anchor": k === 0 ? "start" : k === marks - 1 ? "end" : "middle" }, list[i].time));
    }
    const line = (kind, value) => {
      let path = "", pen = "M";
      list.forEach((p, i) => {
        const y = value(p, i);
        if (!Number.isFinite(y)) { pen = "M"; return; }
        path += `${pen}${px(i).toFixed(1)} ${py(y).toFixed(1)}`;
        pen = "L";
      });
      svg.append(make("svg:path", { class: kind, d: path }));
    };
    const begin = list.findIndex(p => p.value !== undefined), ahead = list.slice(begin);
    shown.intervals.forEach((_, level) => {
      const edge = side => ahead.map((p, i) => `${px(begin + i).toFixed(1)} ${py(p.bands[level][side]).toFixed(1)}`);
      svg.append(make("svg:path", { class: "band", d: `M${edge(1).join("L")}L${edge(2).reverse().join("L")}Z` }));
    });
    line("past", p => p.past);
    // The lines of the future begin at the last known value.
    line("actual", (p, i) => i === begin - 1 ? p.past : p.actual);
    line("soft", (p, i) => i === begin - 1 ? p.past : p.value);
    const cursor = make("svg:path", { class: "cursor" }), dot = make("svg:circle", { class: "dot", r: 4, visibility: "hidden" });
    svg.append(cursor, dot);
    const entries = [["past", "history"], ["soft", "forecast"]];
    if (ahead.some(p => Number.isFinite(p.actual))) entries.push(["actual", "actual"]);
    const legend = make("ul", { class: "legend" }, ...entries.map(([kind, name]) => make("li", { class: kind }, make("i"), name)));
    if (shown.intervals.length > 0) legend.append(make("li", {}, `bands: ${shown.intervals.map(({ level }) => percent(level)).join(", ")}`));
    $("chart").replaceChildren(svg, legend);
    view = { list, px, py, cursor, dot, svg, at: null };
    const last = ahead.at(-1);
    $("readout").textContent = `${shown.is_new ? "A series that was not in the training data. " : ""}Move over the chart to read values; the last step, ${last.time}, is forecast as ${number(last.value, 6)}.`;
  }
  function read(at) {
    const { list, px, py, cursor, dot } = view;
    at = Math.min(list.length - 1, Math.max(0, at));
    const p = list[at], y = p.value ?? p.past;
    view.at = at;
    cursor.setAttribute("d", `M${px(at)} ${top}V${height - bottom}`);
    dot.setAttribute("visibility", Number.isFinite(y) ? "visible" : "hidden");
    if (Number.isFinite(y)) { dot.setAttribute("cx", px(at)); dot.setAttribute("cy", py(y)); }
    const words = p.value === undefined ? [`value ${number(p.past, 6)}`] : [`forecast ${number(p.value, 6)}`, ...p.bands.map(([level, low, high]) => `${percent(level)} between ${number(low, 6)} and ${number(high, 6)}`)];
    if (Number.isFinite(p.actual)) words.push(`actual ${number(p.actual, 6)}`);
    $("readout").textContent = `${p.time}: ${words.join(", ")}`;
  }
  $("chart").addEventListener("pointermove", event => {
    if (!view) return;
    const box = view.svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    read(Math.round((x - left) / (width - left - right) * (view.list.length - 1)));
  });
  $("chart").addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (!step || !view) return;
    event.preventDefault();
    read((view.at ?? view.list.length - 1 - shown.values.length) + step);
  });

  function choose(ids, id) {
    $("series").replaceChildren(...ids.map(id => new Option(id, id)));
    $("series").value = id;
  }
  async function load(series, origin) {
    const number_of_call = ++asked, query = new URLSearchParams();
    if (series !== undefined) query.set("series", series);
    if (origin !== undefined) query.set("origin", origin);
    try {
      const answer = await ask(`${api}/forecast?${query}`);
      if (number_of_call !== asked) return;
      if ($("series").options.length === 0 || uploaded) choose(answer.ids, answer.forecast.id);
      uploaded = null;
      Object.assign($("origin"), { min: answer.first, max: answer.last, step: 1, disabled: false });
      $("origin").value = answer.origin;
      $("origin-text").textContent = answer.forecast.times[0];
      shown = answer.forecast;
      say("");
      draw();
    } catch (error) {
      if (number_of_call === asked) say(error.message);
    }
  }
  $("series").addEventListener("change", () => {
    if (!uploaded) { load($("series").value); return; }
    shown = uploaded.find(one => one.id === $("series").value);
    draw();
  });
  $("origin").addEventListener("input", () => load($("series").value, $("origin").value));
  $("shown").addEventListener("change", () => shown && draw());
  addEventListener("resize", () => shown && draw());
  async function upload(file) {
    say("");
    try {
      const answer = await ask(`${api}/predict?history=5000`, await file.text(), "text/csv");
      if (answer.forecasts.length === 0) throw new Error("the file has no series");
      asked++;
      uploaded = answer.forecasts;
      shown = uploaded[0];
      choose(uploaded.map(one => one.id), shown.id);
      $("origin").disabled = true;
      $("origin-text").textContent = shown.times[0];
      draw();
    } catch (error) {
      say(error.message);
    }
    $("file").value = "";
  }
  $("file").addEventListener("change", () => $("file").files[0] && upload($("file").files[0]));
  const drop = $("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, event => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
    });
  }
  load();
})();
