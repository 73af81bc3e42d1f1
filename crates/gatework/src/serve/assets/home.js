"use strict";
(() => {
  const { make, follow, run_path, api_path, age, result } = Gatework;
  const $ = id => document.getElementById(id);
  const label_height = 16;
  let runs = JSON.parse($("given").textContent).runs;

  function card(run) {
    const [text, verdict] = result(run);
    const picture = make("div", { class: "picture" });
    if (run.picture) {
      const file = `${api_path(run.name)}/files/${run.picture}?${run.modified}`;
      const is_cells = run.picture.endsWith(".gif");
      const image = make("img", { src: file, alt: "", loading: "lazy", class: is_cells ? "cells" : "chart" });
      // The line below the cells, which shows the step, is too small to read here.
      image.addEventListener("load", () => image.style.setProperty("--label", `${100 * label_height / image.naturalHeight}%`));
      picture.append(image);
    } else if (run.progress?.curve?.length > 1) {
      picture.append(spark(run.progress.curve));
    } else {
      picture.append(make("span", { class: "muted" }, run.state === "training" ? "…" : "no picture"));
    }
    const words = make("div", { class: "text" },
      make("strong", {}, run.name),
      make("span", { class: `result badge ${verdict}` }, text),
      make("span", {}, [run.kind, run.modified ? age(run.modified) : ""].filter(Boolean).join(", ")));
    if (run.state === "training") {
      const bar = make("progress", { max: run.progress?.updates ?? 1, "aria-label": "progress of the training" });
      if (run.progress?.update !== undefined && !run.progress.stage) bar.value = run.progress.update;
      words.append(bar);
    }
    return make("li", { class: "card" }, make("a", { href: run_path(run.name) }, picture, words));
  }

  // The losses of a training, on a logarithmic scale.
  function spark(curve) {
    const seen = curve.map(value => Math.log(Math.max(value, 1e-30))), low = Math.min(...seen), high = Math.max(...seen);
    const at = (value, i) => `${(i / (seen.length - 1) * 100).toFixed(1)} ${((high - value) / (high - low || 1) * 44 + 3).toFixed(1)}`;
    return make("svg:svg", { viewBox: "0 0 100 50", class: "curve spark", "aria-hidden": true }, make("svg:path", { class: "soft", d: `M${seen.map(at).join("L")}` }));
  }

  function show() {
    const text = $("search").value.trim().toLowerCase(), kind = $("kind").value, order = $("order").value;
    const shown = runs.filter(run => (!kind || run.kind === kind) && run.name.toLowerCase().includes(text));
    const before = {
      modified: (a, b) => (b.modified ?? Infinity) - (a.modified ?? Infinity),
      name: (a, b) => a.name.localeCompare(b.name),
      gates: (a, b) => (a.gates ?? Infinity) - (b.gates ?? Infinity),
    };
    shown.sort(before[order]);
    $("runs").replaceChildren(...shown.map(card));
    $("status").replaceChildren();
    if (runs.length === 0) {
      $("status").append("There are no runs yet. ", make("a", { href: "/train" }, "Draw a picture and grow it"), ", or train an experiment.");
    } else if (shown.length === 0) {
      $("status").append("No run matches the search.");
    }
  }

  for (const id of ["search", "kind", "order"]) $(id).addEventListener("input", show);
  show();
  follow("/api/events", "runs", value => { runs = value.runs; show(); });
})();
