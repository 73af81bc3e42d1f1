"use strict";
(() => {
  const { make, ask, follow, api_path, number, percent, bytes, result, progress_text, chart, post, run_path } = Gatework;
  const $ = id => document.getElementById(id);
  const given = JSON.parse($("run").textContent), run = given.run, details = $("details"), api = api_path(run.name);
  const say = text => { $("problem").textContent = text; };
  if (given.error) say(JSON.parse(given.error).detail);
  if (run.state === "damaged" && run.error) say(run.error);

  // A training: its losses, live, and buttons to stop and resume it.
  function live() {
    const status = make("p", { role: "status" }), bar = make("progress", { "aria-label": "progress of the training" });
    const figure = make("figure"), lines = make("pre");
    const stop = make("button", { type: "button", class: "button" }, "Stop");
    const resume = make("button", { type: "button", class: "button primary" }, "Resume");
    const again = make("a", { class: "button", href: "/train" }, "Back to training");
    const buttons = make("div", { class: "buttons" });
    details.append(make("section", { class: "card", id: "live" }, make("h2", {}, "Training"), status, bar, figure, buttons,
      make("details", {}, make("summary", {}, "Output"), lines)));
    stop.addEventListener("click", () => post(`${api}/stop`, {}).then(() => { stop.disabled = true; status.textContent = "Stopping …"; }, error => say(error.message)));
    resume.addEventListener("click", () => {
      resume.disabled = true;
      post("/api/train", { resume: run.name }).then(() => location.reload(), error => { resume.disabled = false; say(error.message); });
    });
    function show(now) {
      const seed = now.progress?.seeds?.at(-1), stage = seed?.stage;
      status.textContent = now.state === "training" ? `${progress_text(now.progress)}${seed ? `, seed ${seed.seed}` : ""}` : result(now)[0];
      bar.hidden = now.state !== "training";
      bar.max = (stage ? stage.total : now.progress?.updates) || 1;
      const done = stage ? stage.done : seed?.update;
      if (done === undefined) bar.removeAttribute("value"); else bar.value = done;
      if (seed?.curve?.length > 1) {
        const soft = seed.curve.map(([x, y]) => [x, y]), hard = seed.curve.map(([x, , y]) => [x, y]);
        const legend = make("ul", { class: "legend" }, make("li", { class: "soft" }, make("i"), `loss ${number(soft.at(-1)[1])}`),
          make("li", { class: "hard" }, make("i"), `${(now.kind ?? run.kind) === "automaton" ? "wrong bits" : "validation"} ${number(hard.at(-1)[1])}`));
        figure.replaceChildren(chart([{ points: soft, kind: "soft" }, { points: hard, kind: "hard" }], { logarithmic: true, label: "losses over the updates", x_label: "update" }), legend);
      }
      lines.textContent = (now.training?.lines ?? []).join("\n");
      lines.parentElement.hidden = lines.textContent === "";
      const own = now.training?.is_running, shown = [];
      if (now.state === "training" && own) shown.push(stop);
      if (now.state === "interrupted") shown.push(resume);
      if (now.state === "failed") shown.push(again);
      buttons.replaceChildren(...shown);
      if (now.state !== run.state && now.state === "finished") location.reload();
      else run.state = now.state;
    }
    show(run);
    if (run.state === "training") follow(`${api}/events`, "run", show, () => ask(api).then(show, error => say(error.message)));
  }

  function facts(pairs) {
    return make("dl", { class: "facts left" }, ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }
  function summary() {
    const told = run.summary, pairs = [];
    const [text, verdict] = result(run);
    const add = (name, value) => { if (value !== undefined && value !== null) pairs.push([name, value]); };
    add("seed", told.seed);
    add("updates", told.updates && number(told.updates, 9));
    if (told.moves) add("search moves", number(told.moves, 9));
    add("seconds", number(told.seconds, 3));
    if (run.kind === "classifier") add("soft network", percent(told.soft_accuracy));
    if (run.kind === "forecaster") add("parameters", number(told.parameters, 9));
    const card = make("section", { class: "card" }, make("h2", {}, "Result"), make("p", { class: `badge ${verdict}` }, text), facts(pairs));
    if (told.scores) card.append(scores(told.scores));
    details.append(card);
  }
  function scores(list) {
    const columns = [["mae", "MAE"], ["rmse", "RMSE"], ["smape", "sMAPE %"], ["mase", "MASE"]].filter(([key]) => list.some(row => Number.isFinite(row[key])));
    const head = make("tr", {}, make("th", { scope: "col" }, "forecaster"), ...columns.map(([, name]) => make("th", { scope: "col", class: "number" }, name)));
    const rows = list.map(row => make("tr", {}, make("td", {}, row.name), ...columns.map(([key]) => make("td", { class: "number" }, number(row[key])))));
    return make("div", { class: "scroll" }, make("table", {}, make("caption", { class: "muted" }, "Errors on the test period; the first row is this model"), make("thead", {}, head), make("tbody", {}, ...rows)));
  }
  function pictures() {
    const captions = { "rollout.gif": "A simulation", "loss.svg": "Losses", "gates.svg": "Learned gate functions", "forecast.svg": "The last forecast of the test period", "confusion.svg": "Confusion matrix" };
    const skip = run.kind === "automaton" ? ["rollout.gif"] : run.kind === "forecaster" ? ["forecast.svg"] : [];
    const found = run.files.files.filter(file => captions[file.name] && !skip.includes(file.name));
    if (found.length === 0) return;
    details.append(make("section", { class: "card" }, make("h2", {}, "Charts"), make("div", { class: "charts" },
      ...found.map(file => make("figure", {}, make("img", { src: `${api}/files/${file.name}?${run.modified}`, alt: captions[file.name], loading: "lazy" }), make("figcaption", {}, captions[file.name]))))));
  }
  // The minimised circuit: a button to make it, its gates, and a choice for the downloads.
  const small = make("input", { type: "checkbox", id: "small" });
  function circuit() {
    if (!run.files.files.some(file => file.name === "circuit.json")) return;
    const status = make("p", { role: "status" }), button = make("button", { type: "button", class: "button", id: "minimize" }, "Minimise");
    const drawings = make("div", { class: "drawings" });
    const told = now => {
      if (now.training?.is_running) status.textContent = "Minimising, and proving the result equivalent …";
      else if (now.training?.error) status.textContent = now.training.error;
      else if (now.minimized !== null) status.textContent = `Minimised to ${number(now.minimized, 9)} gates, proved equivalent.`;
      else status.textContent = "Fewer gates with the same behaviour, proved.";
      button.disabled = Boolean(now.training?.is_running);
      button.hidden = now.minimized !== null;
      small.disabled = now.minimized === null;
      if (now.minimized !== null && now.minimized <= DRAWN && !drawings.querySelector('[data-query="?minimized=true"]')) draw(drawings, "Minimised", "?minimized=true");
      if (small.disabled) small.checked = false;
    };
    const wait = () => ask(api).then(now => {
      told(now);
      if (now.training?.is_running) setTimeout(wait, 500);
      else if (now.minimized !== null) { small.checked = true; small.dispatchEvent(new Event("change")); }
    }, error => say(error.message));
    button.addEventListener("click", () => {
      button.disabled = true;
      post("/api/train", { minimize: run.name }).then(wait, error => { button.disabled = false; say(error.message); });
    });
    details.append(make("section", { class: "card" }, make("h2", {}, "Circuit"), status, make("div", { class: "buttons" }, button), drawings));
    draw(drawings, "Learned", "");
    told(run);
    if (run.training?.is_running) wait();
  }
  const DRAWN = 400;
  // A schematic that can be zoomed; a gate, input or output that is chosen shows its fan-in cone.
  async function draw(parent, name, query) {
    const place = make("div", { class: "scroll" }), hint = make("span", { class: "muted", role: "status" });
    const figure = make("figure", { "data-query": query }, make("figcaption", {}, name), hint, place);
    parent.append(figure);
    if (query === "" && run.gates > DRAWN) {
      hint.textContent = `${number(run.gates, 9)} gates are too many to draw; at most ${DRAWN} are.`;
      return;
    }
    const response = await fetch(`${api}/export/svg${query}`).catch(() => null);
    if (!response?.ok) {
      hint.textContent = response ? (await response.json().catch(() => ({}))).detail ?? "it cannot be drawn" : "the server does not answer";
      return;
    }
    // The page has styles of its own, and its policy allows no others.
    const text = (await response.text()).replace(/<style>[^]*?<\/style>/, "");
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const svg = document.importNode(parsed, true);
    svg.setAttribute("class", "schematic");
    svg.setAttribute("aria-label", `${name} circuit of ${run.name}`);
    const lines = [...svg.querySelectorAll("[data-to]")], items = [...svg.querySelectorAll("[data-id]")];
    const about = "Choose a gate, an input or an output to see what it depends on.";
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
      const count = letter => [...cone].filter(end => end[0] === letter).length;
      hint.textContent = chosen === null ? about : `Fan-in cone: ${count("g")} gates, ${count("i")} inputs.`;
    };
    for (const item of items) {
      item.setAttribute("role", "button");
      item.setAttribute("tabindex", item.dataset.id[0] === "o" ? "0" : "-1");
      item.setAttribute("aria-label", item.textContent.trim() || item.dataset.id);
      item.addEventListener("click", () => choose(item.dataset.id));
      item.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(item.dataset.id); }
      });
    }
    const [width, height] = ["width", "height"].map(side => Number(svg.getAttribute(side)));
    let scale = Math.min(1, Math.max(.3, place.clientWidth / width));
    const zoom = factor => {
      scale = Math.min(4, Math.max(.1, scale * factor));
      svg.setAttribute("width", width * scale);
      svg.setAttribute("height", height * scale);
    };
    const button = (text, label, factor) => {
      const element = make("button", { type: "button", class: "button", "aria-label": `${label}: ${name}` }, text);
      element.addEventListener("click", () => zoom(factor));
      return element;
    };
    zoom(1);
    hint.textContent = about;
    place.append(svg);
    figure.append(make("div", { class: "buttons" }, button("+", "Zoom in", 1.25), button("\u2212", "Zoom out", .8)));
  }
  function downloads() {
    const file = ({ name, bytes: size }) => make("li", {}, make("a", { href: `${api}/files/${encodeURIComponent(name)}`, download: `${run.name}-${name}` }, name), " ", make("span", {}, bytes(size)));
    const link = format => `${api}/export/${encodeURIComponent(format)}${small.checked ? "?minimized=true" : ""}`;
    const links = [];
    const other = ({ format, about }) => {
      const anchor = make("a", { href: link(format), download: true }, format);
      links.push(() => { anchor.href = link(format); });
      return make("li", {}, anchor, " ", make("span", {}, about));
    };
    small.addEventListener("change", () => links.forEach(renew => renew()));
    const { files, exports } = run.files;
    const card = make("section", { class: "card" }, make("h2", {}, "Downloads"));
    if (files.some(file => file.name === "circuit.json")) card.append(make("label", { class: "check" }, small, "The minimised circuit"));
    if (exports.length > 0) card.append(make("ul", { class: "downloads", "aria-label": "Exports" }, ...exports.map(other)));
    card.append(make("details", {}, make("summary", {}, "Files of the run"), make("ul", { class: "downloads" }, ...files.map(file))));
    details.append(card);
  }
  function settings() {
    if (!run.settings) return;
    const rows = [];
    const walk = (value, path) => {
      if (value !== null && typeof value === "object" && !Array.isArray(value)) for (const key of Object.keys(value)) walk(value[key], [...path, key]);
      else if (value !== null) rows.push(make("tr", {}, make("td", {}, path.join(".")), make("td", {}, JSON.stringify(value))));
    };
    walk(run.settings, []);
    details.append(make("section", { class: "card" }, make("details", {}, make("summary", {}, "Settings"), make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, ...rows))))));
  }

  if (run.state !== "finished") live();
  if (run.summary) summary();
  if (run.files) { circuit(); pictures(); downloads(); }
  settings();
})();
