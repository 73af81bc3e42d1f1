"use strict";
// The circuit of a run: schematics of the learned and the minimised one. What is chosen shows its fan-in cone; of an automaton, the
// wires have the values of one cell of the player.
Gatework.circuit = (() => {
  const { make, number } = Gatework;
  const most = 400, many = 60;  // The gates that are drawn; those that are easy to follow.
  const about = "Choose a gate, an input or an output to see what it depends on.";

  // Draws a circuit, or the cone of one of its outputs; the error says why it cannot. `live` gives the value of an input, or null.
  async function schematic(place, hint, path, label, live) {
    const response = await fetch(path).catch(() => null);
    if (!response) throw new Error("the server does not answer");
    if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? "it cannot be drawn");
    // The page has styles of its own, and its policy allows no others.
    const text = (await response.text()).replace(/<style>[^]*?<\/style>/, "");
    const svg = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
    svg.setAttribute("class", "schematic");
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", label);
    // The heading of the file is that of the page.
    const [width, whole] = ["width", "height"].map(side => Number(svg.getAttribute(side))), head = 52, height = whole - head;
    svg.setAttribute("viewBox", `0 ${head} ${width} ${height}`);
    const lines = [...svg.querySelectorAll("[data-to]")], items = [...svg.querySelectorAll("[data-id]")];
    let chosen = null;
    const choose = id => {
      chosen = id === chosen ? null : id;
      const cone = new Set(chosen === null ? [] : [chosen]);
      for (const end of cone) lines.filter(line => line.dataset.to === end).forEach(line => cone.add(line.dataset.from));
      svg.classList.toggle("chosen", chosen !== null);
      for (const item of items) {
        item.classList.toggle("cone", cone.has(item.dataset.id));
        item.setAttribute("aria-pressed", item.dataset.id === chosen);
      }
      lines.forEach(line => line.classList.toggle("cone", cone.has(line.dataset.to)));
      const count = (letter, name) => { const n = [...cone].filter(end => end[0] === letter).length; return `${n} ${name}${n === 1 ? "" : "s"}`; };
      hint.textContent = chosen === null ? about : `Fan-in cone: ${count("g", "gate")}, ${count("i", "input")}.`;
    };
    // One item can be reached with the tab key; arrow keys go on from there.
    items.forEach((item, at) => {
      item.setAttribute("role", "button");
      item.setAttribute("tabindex", at === 0 ? "0" : "-1");
      item.setAttribute("aria-label", item.textContent.trim() || item.dataset.id);
      item.addEventListener("click", () => choose(item.dataset.id));
      item.addEventListener("keydown", event => {
        const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key], next = items[at + step];
        if (event.key === "Enter" || event.key === " ") choose(item.dataset.id);
        else if (next) { item.setAttribute("tabindex", "-1"); next.setAttribute("tabindex", "0"); next.focus(); }
        else if (!step) return;
        event.preventDefault();
        event.stopPropagation();
      });
    });
    let scale = Math.min(1, Math.max(.3, place.clientWidth / width));
    const zoom = factor => {
      scale = Math.min(4, Math.max(.1, scale * factor));
      svg.setAttribute("width", width * scale);
      svg.setAttribute("height", height * scale);
    };
    zoom(1);

    // Gates are in topological order; bit 3 of a gate is its value for (0, 0), bit 0 that for (1, 1).
    const gates = items.filter(item => item.dataset.gate).map(item => [item.dataset.id, Number(item.dataset.gate), ...item.dataset.operands.split(" ")]);
    const inputs = items.map(item => item.dataset.id).filter(id => id[0] === "i");
    const show = () => {
      const values = new Map(inputs.map(id => [id, live(Number(id.slice(1)))]));
      for (const [id, gate, a, b] of gates) {
        const [x, y] = [a, b].map(id => values.get(id) ?? null);
        // A gate that does not depend on an unknown operand has a value all the same.
        const possible = new Set((x === null ? [0, 1] : [x]).flatMap(x => (y === null ? [0, 1] : [y]).map(y => gate >> (3 - 2 * x - y) & 1)));
        values.set(id, possible.size === 1 ? [...possible][0] : null);
      }
      for (const line of lines) {
        const value = values.get(line.dataset.from) ?? null;
        line.classList.toggle("one", value === 1);
        line.classList.toggle("zero", value === 0);
        if (line.dataset.to[0] === "o") values.set(line.dataset.to, value);
      }
      for (const item of items) {
        const value = values.get(item.dataset.id) ?? null;
        item.classList.toggle("one", value === 1);
        item.classList.toggle("zero", value === 0);
      }
      return values;
    };
    const hide = () => [...lines, ...items].forEach(item => item.classList.remove("one", "zero"));
    return { svg, zoom, show, hide };
  }

  // A drawing with its choice of outputs and its zoom. `channels` says which channel of the player each channel of the circuit is.
  function drawing({ name, api, query, gates, outputs, channels }) {
    const place = Gatework.scroll(`${name} circuit`), hint = make("p", { class: "muted", role: "status" });
    const select = make("select", { "aria-label": `Output that is drawn: ${name}` });
    if (gates <= most) select.add(new Option("All outputs", ""));
    outputs.forEach((output, at) => select.add(new Option(`${output} only`, at, false, at === 0 && gates > many)));
    const button = (text, label, factor) => {
      const element = make("button", { type: "button", class: "button", "aria-label": `${label}: ${name}` }, text);
      element.addEventListener("click", () => drawn?.zoom(factor));
      return element;
    };
    const input = at => {
      const channel = channels?.[Math.floor(at / 9)];
      return channel === undefined || !rule.live.includes(channel) ? null : neighbour(channel, Math.floor(at % 9 / 3) - 1, at % 3 - 1);
    };
    let drawn = null, is_live = false, calls = 0;
    const show = () => { if (is_live && drawn) drawn.show(); else drawn?.hide(); };
    const load = async () => {
      const call = ++calls, parameters = new URLSearchParams(query);
      if (select.value !== "") parameters.set("output", select.value);
      let next = null, text = about;
      try {
        next = await schematic(place, hint, `${api}/export/svg?${parameters}`, `${name} circuit`, input);
      } catch (error) {
        text = error.message;
      }
      if (call !== calls) return;  // Another output was chosen meanwhile.
      drawn = next;
      hint.textContent = text;
      place.replaceChildren(...(drawn ? [drawn.svg] : []));
      show();
    };
    select.addEventListener("change", load);
    const count = `${number(gates, 9)} gate${gates === 1 ? "" : "s"}`;
    const figure = make("figure", { "data-query": query }, make("figcaption", {}, `${name}, ${count}`),
      make("div", { class: "buttons" }, select, button("+", "Zoom in", 1.25), button("\u2212", "Zoom out", .8)), hint, place);
    return { figure, load, can_live: Boolean(channels), live: on => { is_live = on; show(); } };
  }

  // The value of a neighbour of the cell that is watched.
  function neighbour(channel, dy, dx) {
    let [y, x] = [watched[0] + dy, watched[1] + dx];
    if (rule.boundary === "torus") [y, x] = [(y + height) % height, (x + width) % width];
    return y < 0 || x < 0 || y >= height || x >= width ? 0 : get(channel, y, x);
  }

  // The fields for the cell whose values are shown, and the tool of the player that chooses it.
  function cell(drawings) {
    const on = make("input", { type: "checkbox", id: "live-values" });
    const field = name => make("input", { type: "number", min: 0, step: 1, id: `cell-${name}` });
    const row = field("row"), column = field("column"), values = make("p", { class: "muted", id: "cell-values" });
    // What screen readers say: while the automaton runs, only the values of a cell that was just chosen.
    const spoken = make("p", { class: "spoken", role: "status" });
    let last = "";
    const tool = make("input", { type: "radio", name: "tool", value: "inspect" });
    document.querySelector(".tools").append(make("label", {}, tool, make("span", {}, "Inspect")));
    const show = () => {
      drawings.forEach(one => one.live(on.checked));
      if (!on.checked || !watched) { values.textContent = spoken.textContent = last = ""; return; }
      if (document.activeElement !== row) row.value = watched[0];
      if (document.activeElement !== column) column.value = watched[1];
      values.textContent = `Step ${step}, cell (${watched.join(", ")}): ${rule.live.map(channel => `c${channel} = ${get(channel, ...watched)}`).slice(0, 16).join(", ")}${rule.live.length > 16 ? ", …" : "."}`;
      if ((playing && last === watched.join()) || spoken.textContent === values.textContent) return;
      spoken.textContent = values.textContent;
      last = watched.join();
    };
    const choose = () => { watch(row.value, column.value); on.checked = true; };
    row.addEventListener("change", choose);
    column.addEventListener("change", choose);
    tool.addEventListener("change", () => { if (!watched) watch(height >> 1, width >> 1); on.checked = true; });
    on.addEventListener("change", () => { if (on.checked) watch(...(watched ?? [height >> 1, width >> 1])); else { watched = null; dirty = true; } });
    canvas.addEventListener("drawn", () => { if (watched) on.checked = true; show(); });
    return make("div", {}, make("div", { class: "live" }, make("label", { class: "check" }, on, "Values of a cell as it runs"),
      make("label", {}, "Row ", row), make("label", {}, "Column ", column)), values, spoken);
  }

  return { drawing, cell };
})();
