"use strict";
(() => {
  const { make, scroll, ask, follow, api_path, number, percent, count, plain, bytes, result, progress_text, chart, post } = Gatework;
  const $ = id => document.getElementById(id);
  const given = JSON.parse($("run").textContent), run = given.run, details = $("details"), api = api_path(run.name);
  const say = text => { $("problem").textContent = text; };
  if (given.error) say(given.error);
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
      // Without a known total, the progress bar is indeterminate.
      if (done === undefined || stage?.total === 0) bar.removeAttribute("value"); else bar.value = done;
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
    if (run.title !== run.name) add("experiment", run.title);
    add("seed", told.seed);
    add("updates", told.updates && number(told.updates, 9));
    if (told.moves) add("search moves", number(told.moves, 9));
    add("seconds", number(told.seconds, 3));
    if (run.kind === "classifier") add("soft network", percent(told.soft_accuracy));
    if (run.kind === "forecaster") add("parameters", number(told.parameters, 9));
    const card = make("section", { class: "card" }, make("h2", {}, "Result"), make("p", { class: `badge ${verdict}` }, text), facts(pairs));
    if (told.properties?.length) card.append(make("ul", { class: "properties" }, ...told.properties.map(one => make("li", {}, one.text))));
    if (told.scores) card.append(scores(told.scores));
    details.append(card);
  }
  function scores(list) {
    const columns = [["mae", "MAE"], ["rmse", "RMSE"], ["smape", "sMAPE %"], ["mase", "MASE"]].filter(([key]) => list.some(row => Number.isFinite(row[key])));
    const rows = list.map(row => [row.name, ...columns.map(([key]) => number(row[key]))]);
    return scroll("Scores", table("Errors on the test period; the first row is this model", ["forecaster", ...columns.map(([, name]) => name)], rows));
  }
  function pictures() {
    const captions = { "rollout.gif": "A simulation", "loss.svg": "Losses", "gates.svg": "Learned gate functions", "forecast.svg": "The last forecast of the test period", "confusion.svg": "Confusion matrix" };
    const skip = run.kind === "automaton" ? ["rollout.gif"] : run.kind === "forecaster" ? ["forecast.svg"] : [];
    const found = run.files.files.filter(file => captions[file.name] && !skip.includes(file.name));
    if (found.length === 0) return;
    details.append(make("section", { class: "card" }, make("h2", {}, "Charts"), make("div", { class: "charts" },
      ...found.map(file => {
        const src = `${api}/files/${file.name}?${run.modified}`;
        return make("figure", {}, make("figcaption", {}, captions[file.name]), make("a", { href: src }, make("img", { src, alt: `${captions[file.name]}, larger`, loading: "lazy" })));
      }))));
  }
  // The circuits, and a button that makes the minimised one, which downloads are then of.
  const small = make("input", { type: "checkbox", id: "small" });
  function circuit() {
    if (given.outputs.length === 0) return;
    const { drawing, cell } = Gatework.circuit;
    const status = make("p", { role: "status" }), button = make("button", { type: "button", class: "button", id: "minimize" }, "Minimise");
    const drawings = make("div", { class: "drawings" }), shown = [], controls = make("div");
    const is_played = run.kind === "automaton" && given.outputs.length > 0;
    const add = (name, query, gates, outputs) => {
      // Channels keep their names.
      const channels = is_played ? outputs.map(output => given.outputs.indexOf(output)) : null;
      const one = drawing({ name, api, query, gates, outputs, channels });
      if (is_played) one.live(Boolean(watched));
      drawings.append(one.figure);
      shown.push(one);
      one.load();
    };
    const told = now => {
      const gates = now.minimized?.gates;
      if (now.training?.is_running) status.textContent = "Minimising, and proving the result equivalent …";
      else if (now.training?.error) status.textContent = now.training.error;
      else if (now.minimized) status.textContent = `Minimised from ${count(run.gates, "gate")} to ${count(gates, "gate")}, proved equivalent.`;
      else status.textContent = "Minimise finds a circuit of fewer gates with the same behaviour, and proves that it is the same.";
      button.disabled = Boolean(now.training?.is_running);
      button.hidden = Boolean(now.minimized);
      small.disabled = !now.minimized;
      if (small.disabled) small.checked = false;
      if (!now.minimized || shown.length === 2) return;
      add("Minimised", "minimized=true", gates, now.minimized.outputs);
    };
    const wait = () => ask(api).then(now => {
      say("");
      told(now);
      list_files(now.files.files);
      if (now.training?.is_running) setTimeout(wait, 500);
      else if (now.minimized) { small.checked = true; small.dispatchEvent(new Event("change")); }
    }, error => {
      say(error.message);
      // The minimisation goes on if the server is only busy or cannot be reached.
      if (error.status === undefined || error.status >= 500) { setTimeout(wait, 1000); return; }
      status.textContent = "";
      button.disabled = false;
    });
    button.addEventListener("click", () => {
      button.disabled = true;
      post("/api/train", { minimize: run.name }).then(wait, error => { button.disabled = false; say(error.message); });
    });
    details.append(make("section", { class: "card" }, make("h2", {}, "Circuit"), status, make("div", { class: "buttons" }, button), controls, drawings));
    add("Learned", "", run.gates, given.outputs);
    if (is_played) controls.append(cell(shown));
    told(run);
    if (run.training?.is_running) wait();
  }
  // The evaluation, which takes processor time and so has a button.
  function evaluation() {
    if (run.kind === "forecaster" || given.outputs.length === 0) return;
    const about = run.kind === "automaton" ? "How the automaton does in the protocols of its experiment: larger grids, more steps, damage, asynchronous updates."
      : "How the circuit does on rows that were not used in training.";
    const status = make("p", { role: "status" }, about), button = make("button", { type: "button", class: "button", id: "evaluate" }, "Evaluate"), place = make("div", { id: "evaluation" });
    const go = () => ask(`${api}/evaluation`).then(found => {
      status.textContent = about;
      button.hidden = true;
      place.replaceChildren(...(found.protocols ? protocols(found.protocols) : classes(found)));
    }, error => {
      if (error.status === 503) { setTimeout(go, 1000); return; }
      status.textContent = error.message;
      button.disabled = false;
    });
    button.addEventListener("click", () => {
      button.disabled = true;
      status.textContent = "Evaluating …";
      go();
    });
    details.append(make("section", { class: "card" }, make("h2", {}, "Evaluation"), status, make("div", { class: "buttons" }, button), place));
  }
  // A table: the head, and rows of texts; columns from `first` on are numbers.
  function table(caption, head, rows, first = 1) {
    const kind = at => at >= first ? "number" : null;
    return make("table", {}, make("caption", { class: "muted" }, caption),
      make("thead", {}, make("tr", {}, ...head.map((text, at) => make(text ? "th" : "td", { scope: text ? "col" : null, class: kind(at) }, text)))),
      make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map((text, at) => make(at ? "td" : "th", { scope: at ? null : "row", class: kind(at) }, text))))));
  }
  function protocols(list) {
    if (list.length === 0) return [make("p", {}, "The experiment has no protocols.")];
    const rows = list.map(one => [one.name, one.grid.join(" × "), number(one.steps, 9), number(one.samples, 9),
      `${number(one.wrong, 9)} of ${number(one.bits, 9)}`, number(one.late_wrong, 4), one.settled === null ? "never" : number(one.settled, 9)]);
    return [scroll("Protocols", table("Wrong bits after the last step; on average in the last quarter of the steps; and the first step from which none is wrong",
      ["protocol", "grid", "steps", "grids", "wrong bits", "late, per step", "settled at"], rows))];
  }
  function classes(found) {
    const share = value => value === null ? "–" : percent(value), names = found.classes.map(one => one.name);
    const scores = found.classes.map(one => [one.name, number(one.samples, 9), share(one.precision), share(one.recall)]);
    const shown = [make("p", { class: "badge" }, `${percent(found.accuracy)} of ${number(found.samples, 9)} ${found.data} are right.`),
      scroll("Scores of the classes", table("Precision: how many of the predictions are right; recall: how many of the class are found", ["class", "samples", "precision", "recall"], scores))];
    if (names.length <= 40) {
      const matrix = table("Confusion matrix: a row has the samples of a class, a column those with a prediction", ["class", ...names], found.confusion.map((row, at) => [names[at], ...row.map(String)]));
      matrix.classList.add("confusion");
      [...matrix.tBodies[0].rows].forEach((row, at) => [...row.cells].slice(1).forEach((cell, to) => {
        const part = found.confusion[at][to] / Math.max(1, found.classes[at].samples);
        if (part > 0) { cell.classList.add(at === to ? "right" : "wrong"); cell.style.setProperty("--part", `${Math.round(15 + 40 * part)}%`); }
      }));
      shown.push(scroll("Confusion matrix", matrix));
    }
    if (found.mistakes) shown.push(make("figure", {}, make("img", { src: `data:image/svg+xml,${encodeURIComponent(found.mistakes)}`, alt: "The images that are predicted wrongly, with class and prediction", class: "sheet" })));
    return shown;
  }
  const file_list = make("ul", { class: "downloads" });
  function list_files(files) {
    const file = ({ name, bytes: size }) => make("li", {}, make("a", { href: `${api}/files/${encodeURIComponent(name)}`, download: `${run.name}-${name}` }, name), " ", make("span", {}, bytes(size)));
    file_list.replaceChildren(...files.map(file));
  }
  function downloads() {
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
    list_files(files);
    card.append(make("details", {}, make("summary", {}, "Files of the run"), file_list));
    details.append(card);
  }
  function settings() {
    if (!run.settings) return;
    const rows = Object.entries(plain(run.settings)).map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)));
    details.append(make("section", { class: "card" }, make("details", {}, make("summary", {}, "Settings"), scroll("Settings", make("table", { class: "settings" }, make("tbody", {}, ...rows))))));
  }
  // A run that cannot be read has a sentence, and what may help.
  function damaged() {
    details.append(make("section", { class: "card" }, make("h2", {}, "This run cannot be read"),
      make("p", {}, "Its files are incomplete, or were changed. Restore them from a copy, or train the run again.")));
  }

  if (run.state === "damaged") damaged();
  else if (run.state !== "finished") live();
  if (run.summary) summary();
  if (run.files) { circuit(); evaluation(); pictures(); downloads(); }
  settings();
})();
