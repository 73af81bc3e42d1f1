// Uses the page of a classifier as a visitor would, and records the classes.
ready.then(() => {
    const notes = [], note = name => notes.push(name + " " + element("answer").textContent);
    note("start");
    const canvas = element("image");
    if (!canvas.hidden) {
        const point = (kind, y, x, button = 0) => {
            const box = canvas.getBoundingClientRect();
            const clientX = box.left + x * box.width, clientY = box.top + y * box.height;
            canvas.dispatchEvent(new PointerEvent(kind, { clientX, clientY, button, bubbles: true }));
        };
        const drag = (from, to, button) => {
            point("pointerdown", ...from, button); point("pointermove", ...to); point("pointerup", ...to);
        };
        drag([.1, .25], [.9, .25]);
        note("left stroke");
        element("clear").click();
        note("cleared");
        drag([.1, .75], [.9, .75]);
        note("right stroke");
        element("pen").value = element("pen").max;
        drag([.1, .75], [.9, .75], 2);
        note("erased");
        element("invert").click();
        note("inverted");
    } else {
        const set = (input, value) => { input.value = value; input.dispatchEvent(new Event("input")); };
        set(document.querySelector("input[type=range]"), 9);
        note("slider");
        document.querySelector("input[type=checkbox]").click();
        note("missing");
        set(document.querySelector("select"), 1);
        note("category");
    }
    element("check").textContent = notes.join("|") + (element("time").textContent > 0 ? "" : " not measured");
});
