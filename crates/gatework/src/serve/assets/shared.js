"use strict";
// What all pages of the server use. Text is only ever inserted as text.
const Gatework = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  // Makes an element: attributes by name, children as elements or texts.
  function make(name, attributes = {}, ...children) {
    const element = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter(child => child !== null && child !== undefined));
    return element;
  }

  // A box that scrolls, also with the keyboard.
  const scroll = (label, ...children) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...children);

  // Asks the server; the error has the words of the server.
  async function ask(path, body, type = "application/json") {
    const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": type }, body };
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Error("the server does not answer; is it still running?");
    }
    const text = await response.text();
    if (!response.ok) {
      let detail = `${response.status} ${response.statusText}`;
      try { detail = JSON.parse(text).detail ?? detail; } catch { /* Not from this server. */ }
      throw Object.assign(new Error(detail), { status: response.status });
    }
    return text === "" ? null : JSON.parse(text);
  }
  const post = (path, value) => ask(path, JSON.stringify(value));

  // Follows server-sent events; `end` is called when the server has no more to say.
  function follow(path, event, show, end = () => {}) {
    const source = new EventSource(path);
    source.addEventListener(event, message => show(JSON.parse(message.data)));
    source.addEventListener("end", () => { source.close(); end(); });
    addEventListener("pagehide", () => source.close());
    return source;
  }

  const run_path = name => "/runs/" + encodeURIComponent(name);
  const api_path = name => "/api/runs/" + encodeURIComponent(name);

  function number(value, digits = 4) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const text = Number(value.toPrecision(digits));
    return Math.abs(text) >= 1e7 || (text !== 0 && Math.abs(text) < 1e-4) ? text.toExponential() : text.toLocaleString("en", { maximumSignificantDigits: digits });
  }
  const count = (value, name) => `${number(value, 9)} ${name}${value === 1 ? "" : "s"}`;
  // Settings by their path, as texts.
  function plain(value, path = "", into = {}) {
    for (const [key, inner] of Object.entries(value ?? {})) {
      const name = path ? `${path}.${key}` : key, is_list = Array.isArray(inner);
      if (inner === null) continue;
      if (typeof inner === "object" && (!is_list || inner.some(one => one !== null && typeof one === "object"))) plain(inner, name, into);
      else into[name] = is_list ? inner.join(", ") : typeof inner === "number" ? number(inner, 6) : String(inner);
    }
    return into;
  }
  const percent = value => Number((100 * value).toFixed(1)) + " %";
  function bytes(count) {
    const units = ["bytes", "KiB", "MiB", "GiB"];
    let unit = 0;
    for (; count >= 1024 && unit < 3; unit++) count /= 1024;
    return `${unit ? count.toPrecision(3) : count} ${units[unit]}`;
  }
  function age(seconds) {
    const passed = Math.max(0, Date.now() / 1000 - seconds);
    for (const [unit, length] of [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]]) {
      const count = Math.floor(passed / length);
      if (count >= 1) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
    }
    return "just now";
  }

  // What a run has reached, in a few words, and whether that is good, bad or neither.
  function result(run) {
    if (run.state === "training") return [progress_text(run.progress), ""];
    if (run.state === "interrupted") return ["interrupted; it can be resumed", "bad"];
    if (run.state === "failed") return [run.training?.error ?? "failed", "bad"];
    if (run.state === "damaged") return ["its files cannot be read", "bad"];
    if (run.kind === "automaton") {
      return run.success ? [`learned, ${count(run.gates, "gate")}`, "good"] : [`not learned, ${count(run.hard_loss, "bit")} wrong`, "bad"];
    }
    if (run.kind === "classifier") return [`${percent(run.accuracy)} right, ${count(run.gates, "gate")}`, ""];
    const beside = run.naive_mae ? `; seasonal naive ${number(run.naive_mae, 3)}` : "";
    return [`mean absolute error ${number(run.mae, 3)}${beside}`, !run.naive_mae || run.mae <= run.naive_mae ? "good" : "bad"];
  }
  function progress_text(progress) {
    if (!progress) return "being trained";
    const stage = progress.stage ?? progress.seeds?.at(-1)?.stage;
    if (stage) return `${stage.name}: ${count(stage.hard, "bit")} wrong`;
    const update = progress.update ?? progress.seeds?.at(-1)?.update;
    return `update ${number(update, 9)} of ${number(progress.updates, 9)}`;
  }

  // A chart of lines: { points: [[x, y], ...], name } each; returns an SVG element.
  function chart(lines, { logarithmic = false, label = "", x_label = "" } = {}) {
    const width = chart_width(), height = 280, left = 56, right = 12, top = 12, bottom = 38;
    const svg = make("svg:svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "img", "aria-label": label });
    const known = lines.flatMap(line => line.points).filter(([, y]) => Number.isFinite(y) && (!logarithmic || y > 0));
    if (known.length === 0) return svg;
    const scale = y => logarithmic ? Math.log10(Math.max(y, 1e-30)) : y;
    let [x0, x1] = [Math.min(...known.map(p => p[0])), Math.max(...known.map(p => p[0]))];
    let [y0, y1] = [Math.min(...known.map(p => scale(p[1]))), Math.max(...known.map(p => scale(p[1])))];
    if (x1 === x0) x1 = x0 + 1;
    if (y1 === y0) [y0, y1] = [y0 - .5, y1 + .5];
    const px = x => left + (x - x0) / (x1 - x0) * (width - left - right);
    const py = y => height - bottom - (scale(y) - y0) / (y1 - y0) * (height - top - bottom);
    for (const value of logarithmic ? log_ticks(y0, y1) : ticks(y0, y1, 5)) {
      svg.append(make("svg:path", { class: "axis", d: `M${left} ${py(value)}H${width - right}` }));
      svg.append(make("svg:text", { x: left - 8, y: py(value) + 4, "text-anchor": "end" }, number(value, 5)));
    }
    for (const tick of ticks(x0, x1, width / 120)) {
      svg.append(make("svg:text", { x: px(tick), y: height - 14, "text-anchor": "middle" }, number(tick, 6)));
    }
    svg.append(make("svg:text", { x: width - right, y: height, "text-anchor": "end" }, x_label));
    for (const line of lines) {
      let path = "", pen = "M";
      for (const [x, y] of line.points) {
        if (!Number.isFinite(y) || (logarithmic && y <= 0)) { pen = "M"; continue; }
        path += `${pen}${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
        pen = "L";
      }
      const element = make("svg:path", { class: line.kind, d: path });
      if (line.colour) element.style.stroke = line.colour;
      svg.append(element);
    }
    return svg;
  }
  // A unit of a chart is a pixel, so that its text is readable on a phone.
  const chart_width = () => Math.round(Math.min(1080, Math.max(300, document.body.clientWidth - 80)));
  // Powers of ten, with 2 and 5 times these if there is room.
  function log_ticks(low, high) {
    const list = [];
    for (let power = Math.floor(low); power <= high; power++) {
      for (const factor of high - low > 4 ? [1] : [1, 2, 5]) {
        const value = factor * 10 ** power;
        if (Math.log10(value) >= low && Math.log10(value) <= high) list.push(Number(value.toPrecision(3)));
      }
    }
    // Values that are close to each other have no such powers between them.
    if (list.length < 3) return ticks(10 ** low, 10 ** high, 4).filter(value => value > 0);
    const stride = Math.ceil(list.length / 8);
    return list.filter((_, i) => i % stride === 0);
  }
  function ticks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= raw);
    const list = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) list.push(Number(tick.toPrecision(12)));
    return list;
  }

  // Marks the link of this page.
  for (const link of document.querySelectorAll("nav a:not(.brand)")) {
    if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  }
  return { make, scroll, ask, post, follow, run_path, api_path, number, percent, bytes, age, result, progress_text, chart, chart_width, ticks, count, plain };
})();
