"use strict";
(() => {
  const { make, ask, api_path, result, chart, number, plain, run_path } = Gatework;
  const $ = id => document.getElementById(id);
  const most = 6, colours = ["#3566c8", "#c8531d", "#2a8c5f", "#8a4fc4", "#b58a00", "#c83a74"];
  const details = new Map(), chosen = new Set(new URLSearchParams(location.hash.slice(1)).getAll("run"));

  // The losses of the first seed: columns by name, thinned to what a screen shows.
  async function losses(name) {
    const response = await fetch(`${api_path(name)}/files/metrics.csv`);
    if (!response.ok) return null;
    const [head, ...lines] = (await response.text()).trim().split("\n").map(line => line.split(","));
    const column = names => head.findIndex(name => names.some(part => name.includes(part)));
    const update = column(["update"]), loss = column(["soft", "loss"]), seed = column(["seed"]);
    const own = lines.filter(line => seed < 0 || line[seed] === lines[0][seed]);
    const stride = Math.ceil(own.length / 300), points = [];
    for (let i = 0; i < own.length; i += stride) {
      // The mean of each piece: single losses of small batches are noise.
      const piece = own.slice(i, i + stride).map(line => line[loss] === "" ? NaN : Number(line[loss]));
      points.push([Number(own[i][update]), piece.reduce((sum, x) => sum + x, 0) / piece.length]);
    }
    return points;
  }
  async function load(name) {
    if (!details.has(name)) {
      const found = Promise.all([ask(api_path(name)), losses(name)]), forget = () => details.delete(name);
      details.set(name, found);
      // What failed, or is still in training, is asked for again.
      found.then(([run]) => { if (run.state !== "finished") forget(); }, forget);
    }
    const [run, points] = await details.get(name);
    // A run in training has no losses on file yet.
    return { run, points: points ?? run.progress?.seeds?.at(-1)?.curve.map(([x, y]) => [x, y]) ?? [] };
  }
  let calls = 0;
  async function show() {
    const names = [...chosen], call = ++calls;
    history.replaceState(null, "", "#" + new URLSearchParams(names.map(name => ["run", name])));
    $("status").textContent = names.length < 2 ? `Choose two to ${most} runs.` : "";
    $("curves").hidden = $("settings").hidden = names.length < 2;
    if (names.length < 2) return;
    let loaded;
    try {
      loaded = await Promise.all(names.map(load));
    } catch (error) {
      if (call === calls) $("status").textContent = error.message;
      return;
    }
    if (call !== calls) return;  // Other runs were chosen meanwhile.
    const lines = loaded.map(({ points }, i) => ({ points, kind: "soft", colour: colours[i] }));
    const legend = make("ul", { class: "legend" }, ...names.map((name, i) => {
      const mark = make("i");
      mark.style.color = colours[i];
      return make("li", {}, mark, name);
    }));
    $("figure").replaceChildren(chart(lines, { logarithmic: true, label: "losses of the runs over their updates", x_label: "update" }), legend);
    const settings = loaded.map(({ run }) => plain(run.settings));
    const keys = [...new Set(settings.flatMap(Object.keys))]
      .filter(key => !/^(about|expected|name|evaluate\b.*)$/.test(key) && new Set(settings.map(one => one[key])).size > 1);
    const row = (name, cells) => make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(cell => make("td", {}, cell ?? "–")));
    $("table").replaceChildren(
      make("thead", {}, make("tr", {}, make("td"), ...names.map(name => make("th", { scope: "col" }, make("a", { href: run_path(name) }, name))))),
      make("tbody", {}, row("result", loaded.map(({ run }) => result(run)[0])), row("seconds", loaded.map(({ run }) => number(run.seconds, 3))),
        ...keys.map(key => row(key, settings.map(one => one[key])))));
  }
  ask("/api/runs").then(({ runs }) => {
    const known = runs.map(run => run.name);
    for (const name of [...chosen]) if (!known.includes(name)) chosen.delete(name);
    $("choice").append(...known.map(name => {
      const box = make("input", { type: "checkbox" });
      box.checked = chosen.has(name);
      box.addEventListener("change", () => {
        if (!box.checked) chosen.delete(name);
        else if (chosen.size < most) chosen.add(name);
        else { box.checked = false; $("status").textContent = `At most ${most} runs can be compared.`; return; }
        show();
      });
      return make("li", {}, make("label", { class: "check" }, box, name));
    }));
    show();
  }, error => { $("status").textContent = error.message; });
})();
