"""The models of `gatework-bench forecast`, prediction by `torch.compile`: one compiled function for each batch size.

A model is given our parameters and must reproduce our forecast before it is timed.
"""

from timing import arguments, ensure, report, wanted

options = arguments(seconds=1.0)

import torch
from torch_models import MODELS, cases, matches, prediction_row, samples, with_our_parameters

torch.set_num_threads(options.threads)


def measure(name, input, horizon, columns, model):
    case = CASES[name]
    network = with_our_parameters(name, model(input, horizon), case, options.cases).eval()
    parameters = sum(p.numel() for p in network.parameters())
    compiled = torch.compile(network, dynamic=False)
    ensure(matches(compiled, case), f"the forecast of {name}")
    with torch.inference_mode():
        predict = lambda x: lambda: compiled(x)
        return prediction_row(options, name, columns, input, parameters, predict, samples(options))


CASES = cases(options)
rows = [measure(*entry) for entry in MODELS if wanted(options, entry[0])]
report("forecast", "torch_compile", torch.__version__, rows, "torch.compile with static shapes, inference mode")
