"""A network of soft gates in PyTorch, one update: forward, backward, AdamW.

A soft gate is computed in two ways: as the sum of sixteen operations weighted by their probabilities, as in the papers, or from
the four coefficients that this sum reduces to. Both must reproduce our losses; the fastest variant, eager or compiled, is
reported. The gate axis is first and the sample axis last, so that a wire selects a row.
"""

from timing import arguments, report, wanted

options = arguments(seconds=2.0)

import torch

import gate_network

torch.set_num_threads(options.threads)

# c0, c1, c2, c3 of the sixteen operations, in the order of `automata_jax.py`.
OPERATIONS = torch.tensor(
    [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1], [0, 1, 0, 0], [0, 0, 1, -1], [0, 0, 1, 0], [0, 1, 1, -2], [0, 1, 1, -1],
     [1, -1, -1, 1], [1, -1, -1, 2], [1, 0, -1, 0], [1, 0, -1, 1], [1, -1, 0, 0], [1, -1, 0, 1], [1, 0, 0, -1], [1, 0, 0, 0]],
    dtype=torch.float32,
)  # fmt: skip


def sixteen(p, a, b):
    """The sum of the operations; FALSE adds nothing."""
    ab = a * b
    operations = [
        ab, a - ab, a, b - ab, b, a + b - 2 * ab, a + b - ab, 1 - (a + b - ab), 1 - (a + b - 2 * ab), 1 - b, 1 - b + ab,
        1 - a, 1 - a + ab, 1 - ab,
    ]  # fmt: skip
    total = p[:, 15, None].expand_as(a)
    for i, operation in enumerate(operations, 1):
        total = total + p[:, i, None] * operation
    return total


def coefficients(p, a, b):
    c0, c1, c2, c3 = ((p @ OPERATIONS)[:, i, None] for i in range(4))
    return torch.addcmul(torch.addcmul(c0, c1, a), torch.addcmul(c2, c3, a), b)


def network(gate, layers, wires, x):
    for logits, (a, b) in zip(layers, wires):
        x = gate(torch.softmax(logits, 1), x.index_select(0, a), x.index_select(0, b))
    return x


def make(case, gate, compiled):
    """A fresh network and its update."""
    layers = [logits.clone().requires_grad_() for logits in case.logits]
    x, targets = case.inputs.T.contiguous(), case.targets.T.contiguous()
    run = torch.compile(network) if compiled else network
    return gate_network.updater(case, layers, lambda: run(gate, layers, case.wires, x), targets)


def measure():
    case = gate_network.Case(options)
    found = {}
    for name, gate in (("16 operations", sixteen), ("4 coefficients", coefficients)):
        for compiled in (False, True) if not options.quick else (False,):
            name = f"{name}, compiled" if compiled else name
            try:
                found[name] = gate_network.milliseconds(case, name, lambda: make(case, gate, compiled), options)
            except Exception as error:
                # No C++ compiler, for example; the eager version always counts.
                if not compiled:
                    raise
                found[f"{name}: not here ({type(error).__name__})"] = float("inf")
    return found


rows, how = [], "nothing was asked for"
if wanted(options, "gate network"):
    found = measure()
    best = min(found, key=found.get)
    rows = [{"experiment": "gate network", "threads": options.threads, "update_ms": found[best]}]
    how = f"gates first, fused AdamW; the fastest of {len(found)} ways: {best}"
report("automata", "torch", torch.__version__, rows, how)
