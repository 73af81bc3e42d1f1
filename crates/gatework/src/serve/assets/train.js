"use strict";
(() => {
  const { make, ask, post, run_path } = Gatework;
  const $ = id => document.getElementById(id);
  const canvas = $("drawing"), context = canvas.getContext("2d");
  const palette = [["black", "#1b1f3b"], ["red", "#d63a2f"], ["orange", "#e88a1a"], ["yellow", "#f2c928"], ["green", "#2f9e57"], ["blue", "#2f6fd6"], ["purple", "#8a4fc4"], ["background", "#ffffff"]];
  const example = ["............", "..##....##..", ".####..####.", ".##########.", ".##########.", ".##########.", "..########..", "...######...", "....####....", ".....##.....", "............", "............"];
  const paper = palette.length - 1;
  let side = 12, cells = [], cursor = [0, 0], last = null, colour = 0;

  for (const [index, [name, value]] of palette.entries()) {
    const swatch = make("span", { title: name });
    swatch.style.background = value;
    const input = make("input", { type: "radio", name: "colour", value: index, "aria-label": name });
    input.checked = index === 0;
    input.addEventListener("change", () => { colour = index; });
    $("palette").append(make("label", {}, input, swatch));
  }

  function resize(wanted) {
    const before = cells, old = side;
    side = wanted;
    // The drawing stays in the middle.
    const shift = Math.floor((side - old) / 2);
    cells = Array.from({ length: side * side }, (_, at) => {
      const y = Math.floor(at / side) - shift, x = at % side - shift;
      return y >= 0 && x >= 0 && y < old && x < old ? before[y * old + x] ?? paper : paper;
    });
    cursor = [side >> 1, side >> 1];
    draw();
  }
  function draw() {
    const pixels = Math.round(26 * 16 * (devicePixelRatio || 1) / side), size = pixels * side;
    canvas.width = canvas.height = size;
    for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) {
      context.fillStyle = palette[cells[y * side + x]][1];
      context.fillRect(x * pixels, y * pixels, pixels, pixels);
    }
    context.fillStyle = "rgba(128, 128, 140, .25)";
    for (let i = 1; i < side; i++) {
      context.fillRect(i * pixels, 0, 1, size);
      context.fillRect(0, i * pixels, size, 1);
    }
    if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
      context.strokeStyle = "#3566c8";
      context.lineWidth = Math.max(2, pixels / 10);
      context.strokeRect(cursor[1] * pixels + 1, cursor[0] * pixels + 1, pixels - 2, pixels - 2);
    }
    const count = cells.filter(cell => cell !== paper).length;
    $("draw-status").textContent = count === 0 ? "Draw here. White and the right button erase." : `${side} × ${side} cells, ${count} drawn.`;
  }
  function paint(y, x, value) {
    if (y >= 0 && x >= 0 && y < side && x < side) cells[y * side + x] = value;
  }
  function place(event) {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / box.height * side), Math.floor((event.clientX - box.left) / box.width * side)];
  }
  function stroke(event) {
    const to = place(event), from = last.at ?? to, hops = Math.max(1, Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]));
    for (let i = 0; i <= hops; i++) paint(Math.round(from[0] + (to[0] - from[0]) * i / hops), Math.round(from[1] + (to[1] - from[1]) * i / hops), last.value);
    last.at = to;
    draw();
  }
  canvas.addEventListener("pointerdown", event => {
    try { canvas.setPointerCapture(event.pointerId); } catch { /* A made-up pointer cannot be captured. */ }
    last = { value: event.button === 2 || event.shiftKey ? paper : colour };
    stroke(event);
  });
  canvas.addEventListener("pointermove", event => last && stroke(event));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { last = null; });
  canvas.addEventListener("contextmenu", event => event.preventDefault());
  for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, draw);
  canvas.addEventListener("keydown", event => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (move) cursor = [Math.min(side - 1, Math.max(0, cursor[0] + move[0])), Math.min(side - 1, Math.max(0, cursor[1] + move[1]))];
    else if (event.key === " ") paint(...cursor, colour);
    else if (event.key === "Delete" || event.key === "Backspace") paint(...cursor, paper);
    else return;
    event.preventDefault();
    draw();
  });
  $("size").addEventListener("change", () => resize(Number($("size").value)));
  $("clear").addEventListener("click", () => { cells.fill(paper); draw(); });
  $("heart").addEventListener("click", () => {
    $("size").value = 12;
    resize(12);
    cells = example.join("").split("").map(letter => letter === "#" ? 1 : paper);
    draw();
  });

  // The drawing as a PNG image with a pixel for a cell; the background is transparent.
  function picture() {
    const small = document.createElement("canvas"), pen = small.getContext("2d");
    small.width = small.height = side;
    cells.forEach((cell, at) => {
      if (cell === paper) return;
      pen.fillStyle = palette[cell][1];
      pen.fillRect(at % side, Math.floor(at / side), 1, 1);
    });
    return small.toDataURL("image/png");
  }
  function seed(field) {
    return field.value === "" ? {} : { seed: Math.max(0, Math.floor(Number(field.value)) || 0) };
  }
  async function train(request, button, problem, field = $("seed")) {
    button.disabled = true;
    problem.textContent = "";
    try {
      const { name } = await post("/api/train", { ...request, ...seed(field) });
      location.assign(run_path(name));
    } catch (error) {
      problem.textContent = error.message;
      button.disabled = false;
    }
  }
  $("draw-form").addEventListener("submit", event => {
    event.preventDefault();
    train({ picture: picture(), name: $("name").value.trim() || "drawing", repeat: $("repeat").checked }, $("grow"), $("draw-problem"), $("draw-seed"));
  });
  $("rule-form").addEventListener("submit", event => {
    event.preventDefault();
    train({ experiment: $("rule").value.trim() }, $("train-rule"), $("problem"));
  });
  ask("/api/experiments").then(({ experiments }) => {
    $("experiments").append(...experiments.map(({ name, kind, expected, about }) => {
      const button = make("button", { type: "button", "aria-label": `Train ${name}` }, "Train");
      button.addEventListener("click", () => train({ experiment: name }, button, $("problem")));
      return make("li", {}, make("div", {}, make("strong", {}, name), make("span", {}, about), make("span", {}, `${kind}, ${expected}`)), button);
    }));
  }, error => { $("problem").textContent = error.message; });
  resize(12);
})();
