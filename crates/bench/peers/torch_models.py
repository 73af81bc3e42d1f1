"""The models of `gatework-bench forecast` in PyTorch, for the scripts that run them: eager and compiled.

Linear layers, recurrent cells, convolutions and attention are those of PyTorch. `translate` gives them our parameters.
"""

import json
import re
from collections import OrderedDict

import numpy as np
import torch
from timing import quantile, read_safetensors, times
from torch import nn
from torch.nn import functional as F


def dense(inputs, width, layers):
    """Linear layers, each followed by relu; a layer is named by its number."""
    sizes = [inputs] + [width] * layers
    parts = {}
    for number, (i, o) in enumerate(zip(sizes, sizes[1:])):
        parts |= {str(number): nn.Linear(i, o), f"relu {number}": nn.ReLU()}
    return nn.Sequential(OrderedDict(parts))


class Nhits(nn.Module):
    def __init__(self, input, horizon, layers, pooling=(2, 2, 1), downsampling=(24, 12, 1), width=512):
        super().__init__()
        self.horizon, self.pooling = horizon, pooling
        self.hidden = nn.ModuleList(dense(input // pool, width, layers) for pool in pooling)
        self.knots = nn.ModuleList(nn.Linear(width, max(horizon // down, 1)) for down in downsampling)
        # Nobody reads what the last block leaves of the window.
        self.backcast = nn.ModuleList(nn.Linear(width, input) for _ in pooling[1:])

    def forward(self, x):
        forecast = 0
        for i, pool in enumerate(self.pooling):
            hidden = self.hidden[i](F.max_pool1d(x.unsqueeze(1), pool).squeeze(1) if pool > 1 else x)
            knots = self.knots[i](hidden)
            if knots.shape[1] < self.horizon:
                knots = F.interpolate(knots.unsqueeze(1), self.horizon, mode="linear").squeeze(1)
            forecast = forecast + knots
            if i < len(self.backcast):
                x = x - self.backcast[i](hidden)
        return forecast


class NBeats(nn.Module):
    def __init__(self, input, horizon, blocks=3, layers=4, width=512):
        super().__init__()
        self.hidden = nn.ModuleList(dense(input, width, layers) for _ in range(blocks))
        self.forecast = nn.ModuleList(nn.Linear(width, horizon) for _ in range(blocks))
        self.backcast = nn.ModuleList(nn.Linear(width, input) for _ in range(blocks - 1))

    def forward(self, x):
        forecast = 0
        for i, block in enumerate(self.hidden):
            hidden = block(x)
            forecast = forecast + self.forecast[i](hidden)
            if i < len(self.backcast):
                x = x - self.backcast[i](hidden)
        return forecast


class Recurrent(nn.Module):
    def __init__(self, cell, horizon, hidden=128, layers=2):
        super().__init__()
        self.cell = cell(1, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        return self.head(self.cell(x.unsqueeze(2))[0][:, -1])


class Tcn(nn.Module):
    def __init__(self, horizon, channels=(32, 64, 128), kernel=3):
        super().__init__()
        self.blocks = nn.ModuleList()
        for i, (before, after) in enumerate(zip((1, *channels), channels)):
            convolution = lambda inputs: nn.Conv1d(inputs, after, kernel, dilation=2**i)
            self.blocks.append(nn.ModuleList([convolution(before), convolution(after), nn.Conv1d(before, after, 1)]))
        self.head = nn.Linear(channels[-1], horizon)

    def forward(self, x):
        x = x.unsqueeze(1)
        for first, second, beside in self.blocks:
            before = (first.kernel_size[0] - 1) * first.dilation[0]
            hidden = F.relu(first(F.pad(x, (before, 0))))
            hidden = F.relu(second(F.pad(hidden, (before, 0))))
            x = F.relu(hidden + beside(x))
        return self.head(x[:, :, -1])


class Transformer(nn.Module):
    def __init__(self, input, horizon, width=64, heads=4, layers=2, feed_forward=256):
        super().__init__()
        self.embedding = nn.Linear(1, width)
        self.position = nn.Parameter(torch.empty(input, width).uniform_(-0.02, 0.02))
        layer = nn.TransformerEncoderLayer(width, heads, feed_forward, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(input * width, horizon)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x.unsqueeze(2)) + self.position).flatten(1))


class DLinear(nn.Module):
    def __init__(self, input, horizon, steps=25):
        super().__init__()
        self.steps = steps
        self.season, self.trend = nn.Linear(input, horizon), nn.Linear(input, horizon)

    def forward(self, x):
        half = self.steps // 2
        trend = F.avg_pool1d(F.pad(x.unsqueeze(1), (half, half), mode="replicate"), self.steps, 1).squeeze(1)
        return self.season(x - trend) + self.trend(trend)


# Name, steps in and out, windows of a sample (one for each column), model.
MODELS = [
    ("nhits 4x512", 168, 24, 1, lambda i, h: Nhits(i, h, 4)),
    ("nhits 2x512", 168, 24, 1, lambda i, h: Nhits(i, h, 2)),
    ("nbeats 3 blocks", 168, 24, 1, NBeats),
    ("gru 2x128", 168, 24, 1, lambda i, h: Recurrent(nn.GRU, h)),
    ("lstm 2x128", 168, 24, 1, lambda i, h: Recurrent(nn.LSTM, h)),
    ("tcn 32,64,128", 168, 24, 1, lambda i, h: Tcn(h)),
    ("transformer d64", 168, 24, 1, Transformer),
    ("dlinear 336-96, 7", 336, 96, 7, DLinear),
]


def wave(rows, steps, shift=0):
    """The windows of our benchmark."""
    i = np.arange(shift, shift + rows * steps, dtype=np.int64)
    values = ((i * 37 % 101) * 0.01 + np.sin(i * 0.26)) * 0.5
    return torch.from_numpy(values.astype(np.float32).reshape(rows, steps))


# Our names of parameters, as patterns, and PyTorch's.
RENAMED = {
    "nhits": {
        r"stack\.(\d)\.0\.(\d)": r"hidden.\1.\2",
        r"stack\.(\d)\.0\.forecast": r"knots.\1",
        r"stack\.(\d)\.0\.backcast": r"backcast.\1",
    },
    "nbeats": {
        r"stack\.0\.(\d)\.(\d)": r"hidden.\1.\2",
        r"stack\.0\.(\d)\.(forecast|backcast)": r"\2.\1",
    },
    "recurrent": {
        r"layer\.(\d)\.input$": r"cell.weight_ih_l\1",
        r"layer\.(\d)\.hidden$": r"cell.weight_hh_l\1",
        r"layer\.(\d)\.input_bias": r"cell.bias_ih_l\1",
        r"layer\.(\d)\.hidden_bias": r"cell.bias_hh_l\1",
    },
    "tcn": {r"block\.(\d)\.beside": r"blocks.\1.2", r"block\.": "blocks."},
    "transformer": {
        r"attention\.(weight|bias)": r"self_attn.in_proj_\1",
        r"attention\.output": "self_attn.out_proj",
        r"feed\.0": "linear1",
        r"feed\.1": "linear2",
        r"norm\.0": "norm1",
        r"norm\.1": "norm2",
        r"gain": "weight",
        r"layer\.": "encoder.layers.",
    },
}
RENAMED |= {"gru": RENAMED["recurrent"], "lstm": RENAMED["recurrent"], "dlinear": {}}


def translate(name, ours):
    """Our parameters under PyTorch's names and in its layouts: linear weights [outputs, inputs], kernels [outputs, inputs,
    steps], the projections of an attention as one."""
    ours, theirs = dict(ours), {}
    for key in [key for key in ours if ".query." in key]:
        parts = [ours.pop(key.replace("query", part)) for part in ("query", "key", "value")]
        ours[key.replace("query.", "")] = np.concatenate(parts, -1)
    for key, array in ours.items():
        tensor = torch.from_numpy((array.T if key.endswith("weight") else array).copy())
        tensor = tensor.unsqueeze(2) if key.endswith("beside.weight") else tensor
        for pattern, replacement in RENAMED[name.split()[0]].items():
            key = re.sub(pattern, replacement, key)
        theirs[key] = tensor
    return theirs


def matches(model, case):
    """Whether a model with our parameters gives our forecast."""
    x, forecast = (torch.tensor(case[key]).reshape(case["windows"], -1) for key in ("past", "forecast"))
    with torch.inference_mode():
        return torch.allclose(model.eval()(x), forecast, rtol=1e-3, atol=1e-4)


def with_our_parameters(name, model, case, cases):
    ours, _ = read_safetensors(cases / case["file"])
    model.load_state_dict(translate(name, ours))
    return model


def prediction_row(options, name, columns, input, parameters, predict, samples):
    """The times of `predict` for one sample and for batches."""
    seconds = 0.001 if options.quick else options.seconds
    row = {"model": name, "threads": options.threads, "parameters": parameters}
    for count in samples:
        measured = times(predict(wave(count * columns, input)), seconds)
        if count == 1:
            row["predict_p50_us"] = quantile(measured, 0.5) * 1e6
            row["predict_p99_us"] = quantile(measured, 0.99) * 1e6
        else:
            row[f"predict_{count}_ms"] = quantile(measured, 0.5) * 1e3
    return row


def samples(options):
    """A moment is too short for more than the smaller batch."""
    return (1, 32) if options.quick else (1, 32, 256)


def cases(options):
    return json.loads((options.cases / "forecast.json").read_text())
