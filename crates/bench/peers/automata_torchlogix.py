"""A network of soft gates with torchlogix, one update: forward, backward, AdamW."""

from timing import arguments, report, wanted

options = arguments(seconds=2.0)

from importlib.metadata import version

import torch
from torchlogix.layers import LogicDense

import gate_network

torch.set_num_threads(options.threads)


def make(case):
    """A fresh network with our wires and logits, and its update."""
    layers = []
    for (a, b), logits in zip(case.wires, case.logits):
        inputs = layers[-1].out_dim if layers else case.inputs.shape[1]
        layer = LogicDense(inputs, len(a), parametrization="raw", connections="fixed")
        layer.connections.indices.copy_(torch.stack([a, b]))
        layer.weight.data.copy_(logits)
        layers.append(layer)
    network = torch.nn.Sequential(*layers).train()
    return gate_network.updater(case, list(network.parameters()), lambda: network(case.inputs), case.targets)


rows = []
if wanted(options, "gate network"):
    case = gate_network.Case(options)
    time = gate_network.milliseconds(case, "torchlogix", lambda: make(case), options)
    rows = [{"experiment": "gate network", "threads": options.threads, "update_ms": time}]
report("automata", "torchlogix", version("torchlogix"), rows, "LogicDense, raw parametrization, soft sampling; fused AdamW")
