"""The row `gate network` of `gatework-bench automata` in PyTorch: the reference case, the check and the timing. Peers provide the network."""

import json

import torch

from timing import ensure, quantile, times


class Case:
    """The network that `gatework-bench automata --cases` wrote: wires, logits, bits, targets, our losses."""

    def __init__(self, options):
        case = json.loads((options.cases / "automata.json").read_text())
        wires = lambda key: [torch.tensor(layer[key], dtype=torch.long) for layer in case["layers"]]
        self.wires = list(zip(wires("a"), wires("b")))
        logits = torch.tensor(case["logits"]).reshape(-1, 16)
        # One tensor for each layer, [gates, 16].
        self.logits = list(logits.split([len(a) for a, _ in self.wires]))
        # [samples, rows]
        self.inputs = torch.tensor(case["inputs"], dtype=torch.float32)
        self.targets = torch.tensor(case["targets"], dtype=torch.float32)
        self.rate, self.losses = case["rate"], case["losses"]


def updater(case, parameters, outputs, targets):
    """A call that makes one update and returns the loss before it; `outputs` is the network on the whole batch."""
    optimizer = torch.optim.AdamW(parameters, lr=case.rate, weight_decay=0.01, fused=True)

    def update():
        optimizer.zero_grad(set_to_none=True)
        loss = ((outputs() - targets) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return update


def milliseconds(case, name, make, options):
    """The median of updates, after some of them gave our losses; `make()` is a fresh network's `updater`."""
    update = make()
    for number, right in enumerate(case.losses):
        loss = update().item()
        ensure(abs(loss / right - 1) < 1e-4, f"{name}, update {number}: loss {loss} for {right}")
    return quantile(times(update, 0.01 if options.quick else options.seconds), 0.5) * 1e3
