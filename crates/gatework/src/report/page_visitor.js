// Uses the page as a visitor would and records the cells of the grid: two channels of 30x40 cells that keep their bits.
setTimeout(() => {
    const instance_init = machine.init;
    const notes = [], ones = () => [0, 1].map(channel => {
        let count = 0;
        for (let y = 0; y < 30; y++) for (let x = 0; x < 40; x++) count += get(channel, y, x);
        return count;
    });
    const note = (name, ...values) => notes.push([name, ...values].join(" "));
    canvas.setPointerCapture = () => {};  // Made-up pointers cannot be captured.
    const point = (kind, y, x, button) => {
        const box = canvas.getBoundingClientRect();
        const clientX = box.left + (x + .5) * box.width / picture.width;
        const clientY = box.top + (y + .5) * box.height / picture.height;
        canvas.dispatchEvent(new PointerEvent(kind, { clientX, clientY, button }));
    };
    const drag = (y, from, to, button = 0) => {
        point("pointerdown", y, from, button); point("pointermove", y, to, button); point("pointerup", y, to, button);
    };
    const tool = name => document.querySelector(`input[value=${name}]`).click();
    const key = (key, target = document.body) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    $("brush").value = 1;
    drag(5, 7, 7);
    note("a dot", get(0, 5, 7), ones()[0] + ones()[1]);
    drag(5, 7, 15);
    note("a line", ones()[0], ones()[0] + ones()[1]);
    drag(5, 15, 15, 2);
    note("erased", get(0, 5, 15), ones()[0] + ones()[1]);
    tool("damage");
    $("brush").value = 3;
    drag(5, 11, 30);
    note("damaged", ...ones());
    key("s"); key("s");
    note("stepped", step);
    key("r");
    note("reset", step);
    key(" ");
    note("playing", playing);
    key(" ", $("height"));
    note("not while typing", playing);
    tool("draw");
    $("brush").value = 1;
    $("view").value = "all"; look();
    // The second panel is below or to the right of the first, after a gap of one cell.
    if (columns() === 1) drag(31 + 6, 6, 6); else drag(6, 41 + 6, 41 + 6);
    note("one channel", ...ones());
    $("view").value = "observed"; look();
    key("ArrowLeft", canvas); key("Enter", canvas);
    note("typed", get(0, 15, 19), ...ones());
    resize("7", "-3");
    note("resized", height, width, $("width").value, picture.height);
    machine = { ...machine, init: (h, w) => h < 100 && instance_init(h, w) };
    resize(2000, 2000);
    note("too large", height, width);
    $("check").textContent = notes.join("|");
}, 500);
