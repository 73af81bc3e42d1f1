// The page of a classifier: draws or takes the values of a sample, runs the module, shows the scores.
"use strict";
const element = id => document.getElementById(id);
const model = JSON.parse(element("model").textContent);
const fail = error => { element("status").textContent = "The page failed: " + error.message; };
let machine, row, bars = [];

// Computes the scores of the sample and shows them.
function update() {
    if (!machine) return;
    const label = machine.predict();
    const scores = new Int32Array(machine.memory.buffer, machine.scores(), model.classes.length);
    const low = Math.min(...scores), high = Math.max(...scores);
    bars.forEach(({ item, bar, number }, i) => {
        item.className = i === label ? "best" : "";
        // The differences decide, so the bars start a little below the lowest score.
        bar.style.width = (high > low ? 4 + 96 * (scores[i] - low) / (high - low) : 4) + "%";
        number.textContent = scores[i];
    });
    element("answer").textContent = model.classes[label];
    if (bars.length > 12) bars[label].item.scrollIntoView({ block: "nearest" });
}

// Measures the time of a sample.
function measure() {
    const begin = performance.now();
    let count = 0;
    do { machine.predict(); count++; } while (performance.now() - begin < 20);
    element("time").textContent = Number(((performance.now() - begin) * 1000 / count).toPrecision(2));
}

function showScores() {
    element("scores").style.setProperty("--longest", Math.max(2, ...model.classes.map(name => name.length)));
    for (const name of model.classes) {
        const item = document.createElement("li"), label = document.createElement("span");
        const bar = document.createElement("i"), number = document.createElement("em"), track = document.createElement("div");
        label.textContent = label.title = name;
        track.append(bar);
        item.append(label, track, number);
        element("scores").append(item);
        bars.push({ item, bar, number });
    }
}

// Images: a pen with soft edges on a canvas of one pixel per feature.
function drawing([channels, height, width]) {
    const canvas = element("image"), context = canvas.getContext("2d"), pen = element("pen");
    canvas.width = width;
    canvas.height = height;
    canvas.hidden = element("tools").hidden = false;
    element("colour-label").hidden = channels !== 3;
    const side = Math.max(height, width);
    pen.min = 0.5;
    pen.max = Math.max(1, side / 6).toFixed(1);
    pen.value = Math.max(0.7, side / 22).toFixed(1);
    const showPen = () => { element("pen-text").textContent = pen.value + " px"; };
    const at = (c, y, x) => row[(c * height + y) * width + x];
    const show = () => {
        const picture = context.createImageData(width, height);
        for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
            for (let c = 0; c < 3; c++) picture.data[4 * (y * width + x) + c] = at(channels === 3 ? c : 0, y, x);
            picture.data[4 * (y * width + x) + 3] = 255;
        }
        context.putImageData(picture, 0, 0);
        update();
    };
    const ink = erase => {
        if (erase) return [0, 0, 0];
        const number = channels === 3 ? parseInt(element("colour").value.slice(1), 16) : 0xffffff;
        return [number >> 16, number >> 8 & 255, number & 255];
    };
    const dot = (py, px, color) => {
        const radius = Number(pen.value);
        for (let y = Math.max(0, Math.floor(py - radius - 1)); y <= Math.min(height - 1, py + radius + 1); y++)
            for (let x = Math.max(0, Math.floor(px - radius - 1)); x <= Math.min(width - 1, px + radius + 1); x++) {
                const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(y + 0.5 - py, x + 0.5 - px)));
                for (let c = 0; c < channels; c++) {
                    const index = (c * height + y) * width + x, wanted = channels === 3 ? color[c] : color[0];
                    const mixed = Math.round(row[index] + (wanted - row[index]) * cover);
                    // A stroke does not fade where it overlaps itself.
                    row[index] = channels === 3 || wanted === 0 ? mixed : Math.max(row[index], mixed);
                }
            }
    };
    let last = null, color = null;
    const place = event => {
        const box = canvas.getBoundingClientRect();
        return [(event.clientY - box.top) * height / box.height, (event.clientX - box.left) * width / box.width];
    };
    const stroke = to => {
        const steps = Math.max(1, Math.ceil(3 * Math.hypot(to[0] - last[0], to[1] - last[1])));
        for (let i = 1; i <= steps; i++)
            dot(last[0] + (to[0] - last[0]) * i / steps, last[1] + (to[1] - last[1]) * i / steps, color);
        last = to;
        show();
    };
    canvas.addEventListener("pointerdown", event => {
        event.preventDefault();
        try { canvas.setPointerCapture(event.pointerId); } catch { /* A made-up pointer cannot be captured. */ }
        color = ink(event.button === 2 || event.shiftKey);
        last = place(event);
        stroke(last);
    });
    canvas.addEventListener("pointermove", event => {
        if (!last) return;
        for (const step of event.getCoalescedEvents?.().length ? event.getCoalescedEvents() : [event]) stroke(place(step));
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { last = null; });
    canvas.addEventListener("contextmenu", event => event.preventDefault());
    // The keyboard moves a pen that is seen while the canvas has the focus.
    let [top, left] = [height >> 1, width >> 1];
    canvas.addEventListener("keydown", event => {
        const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        const erase = event.key === "Delete" || event.key === "Backspace";
        if (!move && !erase && event.key !== " ") return;
        event.preventDefault();
        if (move) [top, left] = [Math.min(height - 1, Math.max(0, top + move[0])), Math.min(width - 1, Math.max(0, left + move[1]))];
        else { color = ink(erase); dot(top + .5, left + .5, color); }
        show();
        context.fillStyle = "#3566c8";
        context.fillRect(left, top, 1, 1);
    });
    canvas.addEventListener("blur", () => show());
    element("clear").addEventListener("click", () => { row.fill(0); show(); });
    element("invert").addEventListener("click", () => { row.forEach((value, i) => { row[i] = 255 - value; }); show(); });
    pen.addEventListener("input", showPen);
    element("status").textContent = "Draw here. The right button or Shift erases.";
    showPen();
    show();
}

// Tables: a slider for each number, a list for each category.
function sliders(features) {
    const form = element("table");
    form.hidden = false;
    form.addEventListener("submit", event => event.preventDefault());
    features.forEach((feature, i) => {
        const label = document.createElement("label"), name = document.createElement("b");
        name.textContent = feature.name;
        label.append(name);
        const missing = document.createElement("input");
        let read;
        if (feature.categories) {
            const select = document.createElement("select");
            // With a missing bit, an unknown category is a missing value, as for `gatework predict`.
            const texts = feature.missing ? feature.categories : [...feature.categories, "(other)"];
            texts.forEach((text, value) => select.add(new Option(text, value)));
            label.append(select);
            read = () => Number(select.value);
            select.addEventListener("input", () => take());
        } else {
            const slider = document.createElement("input"), output = document.createElement("output");
            const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(feature.high - feature.low))));
            Object.assign(slider, { type: "range", min: feature.low, max: feature.high, step: "any", value: (feature.low + feature.high) / 2 });
            label.append(output, slider);
            read = () => { output.textContent = Number(slider.value).toFixed(digits); return Number(slider.value); };
            slider.addEventListener("input", () => take());
        }
        const take = () => { row[i] = missing.checked ? NaN : read(); update(); };
        form.append(label);
        if (feature.missing) {
            const check = document.createElement("label");
            check.className = "check";
            missing.type = "checkbox";
            missing.addEventListener("input", take);
            check.append(missing, " missing");
            label.append(check);
        }
        row[i] = read();
    });
    update();
}

async function start() {
    const bytes = Uint8Array.from(atob(element("module").textContent), character => character.charCodeAt(0));
    machine = (await WebAssembly.instantiate(bytes, {})).instance.exports;
    row = new Float32Array(machine.memory.buffer, machine.row(), model.features.length);
    element("gates").textContent = model.gates.toLocaleString("en");
    element("depth").textContent = model.depth;
    element("about-model").textContent =
        `${model.features.length} features, ${model.bits} input bits, ${model.classes.length} classes.`;
    showScores();
    if (model.shape) drawing(model.shape); else sliders(model.features);
    measure();
}
const ready = start().catch(fail);
