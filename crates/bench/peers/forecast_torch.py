"""The models of `gatework-bench forecast` in PyTorch: the same layers, the same numbers of parameters, the same windows.

Eager mode, with PyTorch's own GRU, LSTM, Transformer encoder and fused Adam. Before a model is timed, it is given our parameters
and must reproduce our forecast and our losses in a few training steps. `gatework-bench all` rejects models whose number of
parameters differs from ours.
"""

from timing import arguments, ensure, quantile, report, times, wanted

options = arguments(seconds=1.0)

import torch
from torch.nn import functional as F
from torch_models import MODELS, cases, matches, prediction_row, samples, wave, with_our_parameters

torch.set_num_threads(options.threads)


def trainer(model, x, y, rate=1e-4):
    """A call that takes one training step and returns the loss before it."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def check(name, build, case):
    """Our parameters give our forecast, and our losses."""
    model = with_our_parameters(name, build(), case, options.cases)
    ensure(matches(model, case), f"the forecast of {name}")
    x, y = (torch.tensor(case[key]).reshape(case["windows"], -1) for key in ("past", "target"))
    step = trainer(model, x, y, case["rate"])
    losses = case["losses"]
    # What training changes has to be the same, not only the loss that it starts from.
    tolerance = 0.02 * abs(losses[0] - losses[-1]) + 1e-6
    for number, right in enumerate(losses):
        loss = step().item()
        ensure(abs(loss - right) < tolerance, f"{name}, step {number}: loss {loss} for {right}")


def measure(name, input, horizon, columns, model):
    torch.manual_seed(1)
    build = lambda: model(input, horizon)
    check(name, build, CASES[name])
    network = build().eval()
    parameters = sum(p.numel() for p in network.parameters())
    with torch.inference_mode():
        predict = lambda x: lambda: network(x)
        row = prediction_row(options, name, columns, input, parameters, predict, samples(options))
    for count in samples(options)[1:]:
        step = trainer(build(), wave(count * columns, input), wave(count * columns, horizon, 5))
        row[f"train_{count}_ms"] = quantile(times(step, 0.001 if options.quick else options.seconds), 0.5) * 1e3
    return row


CASES = cases(options)
rows = [measure(*entry) for entry in MODELS if wanted(options, entry[0])]
report("forecast", "torch", torch.__version__, rows, "eager, inference mode, fused Adam")
