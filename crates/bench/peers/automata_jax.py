"""One update of the checkerboard automaton in JAX: forward through all steps, backward, AdamW.

The model of the paper (arXiv 2506.04912), written to be fast in JAX: the gate axis is first and the cell axis last, so that a
wire selects a row; a soft gate is c0 + c1 a + c2 b + c3 ab, where the notebook of the paper sums sixteen operations; the steps
are a `scan`; the whole update is one compiled function. Before it is timed, it must reproduce the losses of golden cases.
"""

import json
from functools import partial
from pathlib import Path

from timing import arguments, ensure, quantile, read_safetensors, report, times, wanted

options = arguments(seconds=2.0)

import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "gates" / "tests" / "golden"
# c0, c1, c2, c3 of FALSE, AND, A&!B, A, !A&B, B, XOR, OR, NOR, XNOR, !B, A|!B, !A, !A|B, NAND, TRUE.
OPERATIONS = np.array(
    [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1], [0, 1, 0, 0], [0, 0, 1, -1], [0, 0, 1, 0], [0, 1, 1, -2], [0, 1, 1, -1],
     [1, -1, -1, 1], [1, -1, -1, 2], [1, 0, -1, 0], [1, 0, -1, 1], [1, -1, 0, 0], [1, -1, 0, 1], [1, 0, 0, -1], [1, 0, 0, 0]],
    np.float32,
)  # fmt: skip
PASS_THROUGH = 3


def gates(logits, a, b):
    """Soft gates: logits [..., gates, 16] on operands [..., gates, cells]."""
    c = jax.nn.softmax(logits) @ OPERATIONS
    c0, c1, c2, c3 = (c[..., i, None] for i in range(4))
    return c0 + c1 * a + (c2 + c3 * a) * b


def network(layers, wires, x):
    """Layers of gates on rows [..., rows, cells]."""
    for logits, (a, b) in zip(layers, wires):
        x = gates(logits, x[..., a, :], x[..., b, :])
    return x


def step(params, wires, periodic, state):
    """One step of every cell; the state is [channels, batch, height, width]."""
    channels, batch, height, width = state.shape
    edges = ((0, 0), (0, 0), (1, 1), (1, 1))
    padded = jnp.pad(state, edges, mode="wrap" if periodic else "constant")
    # [9, channels * cells]
    patches = jnp.stack([padded[:, :, y : y + height, x : x + width].reshape(-1) for y in range(3) for x in range(3)])
    kernels = params["perceive"][0].shape[0]
    seen = network(params["perceive"], wires["perceive"], jnp.broadcast_to(patches, (kernels, *patches.shape)))
    # [kernels, outputs, channels, cells] to [channels, outputs, kernels, cells]
    seen = seen.reshape(kernels, seen.shape[1], channels, -1).transpose(2, 1, 0, 3)
    inputs = jnp.concatenate([state.reshape(channels, -1), seen.reshape(-1, seen.shape[-1])])
    return network(params["update"], wires["update"], inputs).reshape(state.shape)


def loss(params, wires, case, x, y):
    steps, periodic, loss_channels = case
    final, _ = jax.lax.scan(lambda state, _: (step(params, wires, periodic, state), None), x, length=steps)
    return jnp.sum((final - y)[:loss_channels] ** 2)


def make_update(wires, case, rate, clip=100.0, beta1=0.9, beta2=0.99, epsilon=1e-8, decay=1e-2):
    """Parameters, moments and the update's number to the next ones and the loss before."""

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(params, m, v, number, x, y):
        value, grads = jax.value_and_grad(loss)(params, wires, case, x, y)
        grads = jax.tree.map(lambda g: jnp.clip(g, -clip, clip), grads)
        m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, m, grads)
        v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, v, grads)
        first, second = 1 - beta1**number, 1 - beta2**number
        moved = lambda p, m, v: p - rate * (m / first / (jnp.sqrt(v / second) + epsilon) + decay * p)
        return jax.tree.map(moved, params, m, v), m, v, value

    return update


def zeros(params):
    return jax.tree.map(jnp.zeros_like, params)


def check(name):
    """The losses of a golden case, before each of its updates."""
    tensors, settings = read_safetensors(GOLDEN / f"{name}.safetensors")
    counts = {part: len(json.loads(settings[f"{part}_layers"])) - 1 for part in ("perceive", "update")}
    wires = {p: [(tensors[f"wires.{p}.{i}.a"], tensors[f"wires.{p}.{i}.b"]) for i in range(n)] for p, n in counts.items()}
    params = {p: [jnp.array(tensors[f"params.0.{p}.{i}"]) for i in range(n)] for p, n in counts.items()}
    # [batch, height, width, channels] to channels first
    x, y = (jnp.array(tensors[key].transpose(3, 0, 1, 2)) for key in ("x", "y"))
    case = (int(settings["steps"]), settings["periodic"] == "true", int(settings["loss_channels"]))
    update = make_update(wires, case, float(settings["learning_rate"]))
    m, v = zeros(params), zeros(params)
    for number, right in enumerate(tensors["soft.losses"]):
        params, m, v, value = update(params, m, v, number + 1.0, x, y)
        ensure(abs(float(value) / right - 1) < 1e-4, f"{name}, update {number}: loss {value} for {right}")


def unique(inputs, outputs, random):
    """Pairs at distance 1, then 2, and so on, in a random order."""
    pairs = [(i, i + 1) for i in range(0, inputs - 1, 2)] + [(i, i + 1) for i in range(1, inputs - 1, 2)]
    distance = 2
    while len(pairs) < outputs:
        pairs += [(i, i + distance) for i in range(inputs - distance)]
        distance += 1
    pairs = np.array(pairs[:outputs], np.int32)[random.permutation(outputs)]
    return pairs[:, 0], pairs[:, 1]


def checkerboard():
    """Milliseconds of one update of the checkerboard experiment."""
    random = np.random.default_rng(1)
    channels, kernels, side, batch, steps = 8, 16, 16, 2, 20
    around = random.permutation([i for i in range(9) if i != 4]).astype(np.int32)
    perceive, update_layers = [8, 4, 2], [264] + [256] * 10 + [128, 64, 32, 16, 8, 8]
    wires = {
        "perceive": [(around, np.full(8, 4, np.int32))] + [unique(i, o, random) for i, o in zip(perceive, perceive[1:])],
        "update": [unique(i, o, random) for i, o in zip(update_layers, update_layers[1:])],
    }
    start = lambda *shape: jnp.zeros((*shape, 16)).at[..., PASS_THROUGH].set(10.0)
    params = {"perceive": [start(kernels, n) for n in perceive], "update": [start(n) for n in update_layers[1:]]}
    x = jnp.array(random.integers(0, 2, (channels, batch, side, side)), jnp.float32)
    board = (np.add.outer(np.arange(side) // 2, np.arange(side) // 2) % 2).astype(np.float32)
    y = jnp.array(np.broadcast_to(board, x.shape))
    update = make_update(wires, (steps, False, 1), 0.05)
    state = [params, zeros(params), zeros(params)]

    def one():
        *state[:], value = update(*state, 1.0, x, y)
        value.block_until_ready()

    return quantile(times(one, 0.01 if options.quick else options.seconds), 0.5) * 1e3


for golden in ("checker_small", "torus_tall"):
    check(golden)
rows = []
if wanted(options, "checkerboard"):
    rows = [{"experiment": "checkerboard", "threads": options.threads, "update_ms": checkerboard()}]
report("automata", "jax", jax.__version__, rows, "one jit for the update, parameters donated; processors limited by affinity")
