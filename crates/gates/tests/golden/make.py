#!/usr/bin/env python3
"""Golden files of soft automata: makes new ones from a seed, or checks existing ones.

    make.py make FOLDER [--seed N]    writes one file for each case
    make.py check FILE...             recomputes every result from the inputs in the file and compares

A plain reimplementation of the rules in README.md in double precision, with no dependencies but the standard library. The
committed files were computed by the authors' JAX notebook in single precision; `check` shows that both agree.
"""

import argparse
import json
import math
import pathlib
import random
import struct
import sys

FUNCTIONS = 16
CENTRE = 4
OPTIMIZER = {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.01, "clip_value": 100.0}

# name, channels, height, width, batch, steps, periodic, asynchronous, loss channels, kernels, perceive, update, rate, start
CASES = [
    ("gol_init", 1, 3, 3, 20, 1, True, False, 1, 16, [9, 8, 4, 2, 1], [17] + [128] * 17 + [64, 32, 16, 8, 4, 2, 1], 0.05, "wires"),
    ("gol_random", 1, 3, 3, 8, 1, True, False, 1, 16, [9, 8, 4, 2, 1], [17, 32, 32, 16, 8, 4, 2, 1], 0.05, "random"),
    ("checker_init", 8, 8, 8, 2, 3, False, False, 1, 4, [9, 8, 4, 2], [72, 64, 64, 32, 16, 8, 8], 0.05, "wires"),
    ("checker_small", 8, 6, 6, 2, 4, False, False, 1, 4, [9, 8, 4, 2], [72, 64, 64, 32, 16, 8, 8], 0.05, "random"),
    ("async_small", 8, 7, 7, 2, 6, False, True, 1, 3, [9, 8, 4, 2], [56, 32, 32, 16, 8, 8], 0.05, "random"),
    ("rgb_small", 16, 5, 5, 1, 3, False, False, 3, 4, [9, 8, 4, 2], [144, 128, 64, 32, 16], 0.06, "random"),
    ("torus_tall", 12, 5, 9, 3, 3, True, False, 1, 2, [9, 8, 4, 2, 1], [36, 48, 32, 16, 12], 0.06, "random"),
]


# Files: {name: (shape, numbers)}, wires as i32 and everything else as f32.


def read(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = "f" if entry["dtype"] == "F32" else "i"
        tensors[name] = (entry["shape"], list(struct.unpack(f"<{(end - begin) // 4}{kind}", body[begin:end])))
    return metadata, tensors


def write(path, metadata, tensors):
    header, body = {"__metadata__": metadata}, b""
    for name, (shape, numbers) in sorted(tensors.items()):
        kind, dtype = ("i", "I32") if name.startswith("wires.") else ("f", "F32")
        data = struct.pack(f"<{len(numbers)}{kind}", *numbers)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


# Soft gates. Bits 0 to 3 of a function's index are f(1,1), f(1,0), f(0,1), f(0,0); a gate is c0 + c1 a + c2 b + c3 ab.


def softmax(logits):
    most = max(logits)
    powers = [math.exp(x - most) for x in logits]
    total = sum(powers)
    return [x / total for x in powers]


def coefficients(probabilities):
    t11, t10, t01, t00 = (sum(p for i, p in enumerate(probabilities) if i >> bit & 1) for bit in range(4))
    return t00, t10 - t00, t01 - t00, t11 - t10 - t01 + t00


def logit_gradients(probabilities, sums):
    """Gradients of 16 logits from those of c0 to c3: the sums of g, ga, gb, gab."""
    g, ga, gb, gab = sums
    table = [gab, ga - gab, gb - gab, g - ga - gb + gab]
    values = [sum(t for bit, t in enumerate(table) if i >> bit & 1) for i in range(FUNCTIONS)]
    mean = sum(p * v for p, v in zip(probabilities, values))
    return [p * (v - mean) for p, v in zip(probabilities, values)]


class Network:
    """A layered network. `layers` holds (a, b) of each layer; the coefficients are set by `set`."""

    def __init__(self, layers):
        self.layers = layers

    def set(self, logits, hard):
        """`logits` holds those of each layer, gate by gate."""
        if hard:
            one_hot = lambda l: [float(i == l.index(max(l))) for i in range(FUNCTIONS)]
            self.probabilities = [[one_hot(l) for l in layer] for layer in logits]
        else:
            self.probabilities = [[softmax(l) for l in layer] for layer in logits]
        self.c = [[coefficients(p) for p in layer] for layer in self.probabilities]
        self.sums = [[[0.0] * 4 for _ in layer] for layer in logits]

    def forward(self, inputs):
        """Values of all rows, layer by layer, the inputs first."""
        values = [inputs]
        for (wires_a, wires_b), layer in zip(self.layers, self.c):
            x = values[-1]
            values.append(
                [c0 + c1 * x[a] + c2 * x[b] + c3 * x[a] * x[b] for a, b, (c0, c1, c2, c3) in zip(wires_a, wires_b, layer)]
            )
        return values

    def backward(self, values, grads):
        """Adds to the sums of all gates and returns the gradients of the inputs."""
        for (wires_a, wires_b), layer, sums, x in zip(
            reversed(self.layers), reversed(self.c), reversed(self.sums), reversed(values[:-1])
        ):
            before = [0.0] * len(x)
            for a, b, (_, c1, c2, c3), s, g in zip(wires_a, wires_b, layer, sums, grads):
                if g == 0.0:
                    continue
                xa, xb = x[a], x[b]
                before[a] += g * (c1 + c3 * xb)
                before[b] += g * (c2 + c3 * xa)
                s[0] += g
                s[1] += g * xa
                s[2] += g * xb
                s[3] += g * xa * xb
            grads = before
        return grads

    def gradients(self):
        return [[logit_gradients(p, s) for p, s in zip(*layer)] for layer in zip(self.probabilities, self.sums)]


class Automaton:
    def __init__(self, metadata, tensors):
        number = lambda key: json.loads(metadata[key])
        self.channels, self.kernels = number("channels"), number("n_kernels")
        self.height, self.width = number("height"), number("width")
        self.batch, self.steps, self.loss_channels = number("batch"), number("steps"), number("loss_channels")
        self.sizes = {"perceive": number("perceive_layers"), "update": number("update_layers")}
        wires = {
            network: [
                [tensors[f"wires.{network}.{i}.{operand}"][1] for operand in "ab"] for i in range(len(sizes) - 1)
            ]
            for network, sizes in self.sizes.items()
        }
        self.perceive = [Network(wires["perceive"]) for _ in range(self.kernels)]
        self.update = Network(wires["update"])
        periodic = metadata["periodic"] == "true"
        self.patches = [self.patch(y, x, periodic) for y in range(self.height) for x in range(self.width)]
        cells = self.height * self.width
        self.fires = [[True] * cells for _ in range(self.steps)]
        if "masks" in tensors:
            masks = tensors["masks"][1]
            self.fires = [[m != 0.0 for m in masks[t * cells : (t + 1) * cells]] for t in range(self.steps)]
        self.start, self.target = (self.grids(tensors[name][1]) for name in "xy")

    def patch(self, y, x, periodic):
        """Cells of the 3x3 neighbourhood, row by row; None outside the grid."""
        cells = []
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                at = (y + dy, x + dx)
                if periodic:
                    at = (at[0] % self.height, at[1] % self.width)
                inside = 0 <= at[0] < self.height and 0 <= at[1] < self.width
                cells.append(at[0] * self.width + at[1] if inside else None)
        return cells

    def grids(self, numbers):
        """[batch][cell][channel]"""
        cells, size = self.height * self.width, self.channels
        flat = [numbers[i * size : (i + 1) * size] for i in range(self.batch * cells)]
        return [flat[i * cells : (i + 1) * cells] for i in range(self.batch)]

    def set(self, params, hard):
        for k, kernel in enumerate(self.perceive):
            kernel.set([layer[k] for layer in params["perceive"]], hard)
        self.update.set(params["update"], hard)

    def cell(self, state, cell):
        """Perception (by channel and kernel) and update of one cell."""
        outputs = self.sizes["perceive"][-1]
        perceived = [0.0] * (self.channels * outputs * self.kernels)
        values = []
        for c in range(self.channels):
            inputs = [0.0 if at is None else state[at][c] for at in self.patches[cell]]
            values.append([kernel.forward(inputs) for kernel in self.perceive])
            for k, rows in enumerate(values[-1]):
                for s, value in enumerate(rows[-1]):
                    perceived[(c * outputs + s) * self.kernels + k] = value
        return values, self.update.forward(list(state[cell]) + perceived)

    def rollout(self, start):
        states = [start]
        for t in range(self.steps):
            state = states[-1]
            states.append([
                self.cell(state, cell)[1][-1] if self.fires[t][cell] else row for cell, row in enumerate(state)
            ])
        return states

    def backward(self, states, grads):
        outputs = self.sizes["perceive"][-1]
        for t in reversed(range(self.steps)):
            state = states[t]
            before = [[0.0] * self.channels for _ in state]
            for cell, g in enumerate(grads):
                if not self.fires[t][cell]:
                    before[cell] = [b + x for b, x in zip(before[cell], g)]
                    continue
                values, rows = self.cell(state, cell)
                d = self.update.backward(rows, g)
                before[cell] = [b + x for b, x in zip(before[cell], d)]
                for c in range(self.channels):
                    for k, kernel in enumerate(self.perceive):
                        first = self.channels + c * outputs * self.kernels + k
                        dk = kernel.backward(values[c][k], [d[first + s * self.kernels] for s in range(outputs)])
                        for at, x in zip(self.patches[cell], dk):
                            if at is not None:
                                before[at][c] += x
            grads = before

    def run(self, params, hard=False, gradient=False):
        """Final states, the loss and, if asked for, the gradients of all logits."""
        self.set(params, hard)
        finals, loss = [], 0.0
        for start, target in zip(self.start, self.target):
            states = self.rollout(start)
            finals.append(states[-1])
            off = [
                [x - y if c < self.loss_channels else 0.0 for c, (x, y) in enumerate(zip(*cells))]
                for cells in zip(states[-1], target)
            ]
            loss += sum(x * x for cell in off for x in cell)
            if gradient:
                self.backward(states, [[2.0 * x for x in cell] for cell in off])
        if not gradient:
            return finals, loss, None
        kernels = [kernel.gradients() for kernel in self.perceive]
        perceive = [[kernel[layer] for kernel in kernels] for layer in range(len(self.sizes["perceive"]) - 1)]
        return finals, loss, {"perceive": perceive, "update": self.update.gradients()}


# Parameters: {"perceive": [layer][kernel][gate][16], "update": [layer][gate][16]}, and as named tensors.


def to_tensors(prefix, params):
    tensors = {}
    for network, layers in params.items():
        for i, layer in enumerate(layers):
            gates = [gate for kernel in layer for gate in kernel] if network == "perceive" else layer
            shape = [len(layer), len(layer[0]), FUNCTIONS] if network == "perceive" else [len(layer), FUNCTIONS]
            flat = [x for gate in gates for x in gate]
            tensors[f"{prefix}.{network}.{i}"] = (shape, flat)
    return tensors


def from_tensors(prefix, sizes, tensors):
    def split(numbers, size):
        return [numbers[i : i + size] for i in range(0, len(numbers), size)]

    params = {"perceive": [], "update": []}
    for network, layers in sizes.items():
        for i, gates in enumerate(layers[1:]):
            logits = split(tensors[f"{prefix}.{network}.{i}"][1], FUNCTIONS)
            params[network].append(split(logits, gates) if network == "perceive" else logits)
    return params


def adamw(values, grads, state, step, rate):
    """One step on lists of numbers; each gradient element is clipped first."""
    o = OPTIMIZER
    for i, (p, g) in enumerate(zip(values, grads)):
        g = max(-o["clip_value"], min(o["clip_value"], g))
        m = o["beta1"] * state[0][i] + (1 - o["beta1"]) * g
        v = o["beta2"] * state[1][i] + (1 - o["beta2"]) * g * g
        state[0][i], state[1][i] = m, v
        m_hat, v_hat = m / (1 - o["beta1"] ** step), v / (1 - o["beta2"] ** step)
        values[i] = p - rate * (m_hat / (math.sqrt(v_hat) + o["epsilon"]) + o["weight_decay"] * p)


def results(metadata, tensors):
    """Everything that follows from wires, params.0, x, y and masks."""
    automaton = Automaton(metadata, tensors)
    params = from_tensors("params.0", automaton.sizes, tensors)
    shape = tensors["x"][0]
    flat = lambda grids: [x for grid in grids for cell in grid for x in cell]
    hard, hard_loss, _ = automaton.run(params, hard=True)
    out = {"hard.final": (shape, flat(hard)), "hard.loss": ([1], [hard_loss])}
    steps, losses = json.loads(metadata["optimizer_steps"]), []
    moments = {}
    for step in range(steps):
        finals, loss, grads = automaton.run(params, gradient=True)
        losses.append(loss)
        named = to_tensors("params", params)
        gradients = to_tensors("params", grads)
        if step == 0:
            out["soft.final"] = (shape, flat(finals))
            out.update({name.replace("params", "grads.0", 1): tensor for name, tensor in gradients.items()})
        for name, (_, values) in named.items():
            state = moments.setdefault(name, [[0.0] * len(values), [0.0] * len(values)])
            adamw(values, gradients[name][1], state, step + 1, json.loads(metadata["learning_rate"]))
        params = from_tensors("params", automaton.sizes, named)
        out.update(to_tensors(f"params.{step + 1}", params))
    out["soft.losses"] = ([steps], losses)
    return out


# New cases.


def unique_wires(inputs, outputs, rng):
    """Pairs (0,1), (2,3), ..., (1,2), (3,4), ..., then pairs at distance 2, 3, ..., in random order."""
    pairs = [(i, i + 1) for i in range(0, inputs - 1, 2)] + [(i, i + 1) for i in range(1, inputs - 1, 2)]
    for distance in range(2, inputs):
        pairs += [(i, i + distance) for i in range(inputs - distance)]
    pairs = pairs[:outputs]
    rng.shuffle(pairs)
    return [a for a, _ in pairs], [b for _, b in pairs]


def new_case(case, rng):
    (name, channels, height, width, batch, steps, periodic, asynchronous, loss_channels, kernels, perceive, update, rate, start) = case
    metadata = {
        "case": name, "channels": channels, "height": height, "width": width, "batch": batch, "steps": steps,
        "periodic": periodic, "asynchronous": asynchronous, "loss_channels": loss_channels, "n_kernels": kernels,
        "perceive_layers": perceive, "update_layers": update, "learning_rate": rate, "optimizer_steps": 3, **OPTIMIZER,
    }  # fmt: skip
    metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    tensors = {}
    for network, sizes in (("perceive", perceive), ("update", update)):
        for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            a, b = unique_wires(inputs, outputs, rng)
            if network == "perceive" and i == 0:
                a, b = rng.sample([n for n in range(9) if n != CENTRE], 8), [CENTRE] * 8
            tensors[f"wires.{network}.{i}.a"], tensors[f"wires.{network}.{i}.b"] = ([outputs], a), ([outputs], b)
            shape = [kernels, outputs, FUNCTIONS] if network == "perceive" else [outputs, FUNCTIONS]
            logit = lambda i: (10.0 if i % FUNCTIONS == 3 else 0.0)
            if start == "random":
                logit = lambda i: rng.gauss(2.0 if i % FUNCTIONS == 3 else 0.0, 1.0)
            tensors[f"params.0.{network}.{i}"] = (shape, [logit(i) for i in range(math.prod(shape))])
    cells = batch * height * width
    shape = [batch, height, width, channels]
    tensors["x"] = (shape, [float(rng.random() < 0.5) for _ in range(cells * channels)])
    observed = lambda i: i % channels < loss_channels and rng.random() < 0.5
    tensors["y"] = (shape, [float(observed(i)) for i in range(cells * channels)])
    if asynchronous:
        fires = [float(rng.random() < 0.6) for _ in range(steps * height * width)]
        tensors["masks"] = ([steps, height, width, 1], fires)
    # Files hold single precision: the results belong to the rounded logits.
    for name, (shape, numbers) in tensors.items():
        if name.startswith("params."):
            rounded = struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers))
            tensors[name] = (shape, list(rounded))
    return metadata, tensors


def make(folder, seed):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        metadata, tensors = new_case(case, random.Random(f"{seed} {case[0]}"))
        tensors.update(results(metadata, tensors))
        write(folder / f"{case[0]}.safetensors", metadata, tensors)
        print(folder / f"{case[0]}.safetensors")


def check(path):
    """Compares all results with the file's, with the tolerances of tests/golden.rs. Returns true if they agree."""
    metadata, tensors = read(path)
    agrees = True
    for name, (shape, numbers) in sorted(results(metadata, tensors).items()):
        expected_shape, expected = tensors[name]
        off = [abs(x - y) for x, y in zip(numbers, expected)]
        scale = max(abs(x) for x in expected)
        if name.startswith("params."):
            fits = max(off) <= 1e-2 and sum(x <= 2e-3 for x in off) >= 0.999 * len(off)
        else:
            limit = {"soft.final": 1e-4, "soft.losses": 1e-4 * scale, "hard.final": 0.0, "hard.loss": 0.0}
            fits = max(off) <= limit.get(name, 2e-3 * scale)
        if shape != expected_shape or len(numbers) != len(expected) or not fits:
            print(f"{path}: {name} differs by {max(off):g}, the largest number is {scale:g}")
            agrees = False
    if agrees:
        print(f"{path}: agrees")
    return agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("make")
    verb.add_argument("folder")
    verb.add_argument("--seed", type=int, default=1)
    verb = verbs.add_parser("check")
    verb.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    if arguments.verb == "make":
        make(arguments.folder, arguments.seed)
    elif not all([check(file) for file in arguments.files]):
        sys.exit(1)


if __name__ == "__main__":
    main()
