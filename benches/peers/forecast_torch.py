"""The models of `gatework bench forecast` in PyTorch: the same layers, the same numbers of parameters, the same windows.

Eager mode, as people train; PyTorch's own GRU, LSTM, Transformer encoder and fused Adam. A model is checked before it is
timed: a batch gives what its windows give one by one, and training steps lower the loss. `gatework bench all` refuses
models whose number of parameters is not ours.
"""

from timing import arguments, ensure, quantile, report, times, wanted

options = arguments(seconds=1.0)

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(options.threads)


def dense(inputs, width, layers):
    """Linear layers, each followed by relu."""
    sizes = [inputs] + [width] * layers
    return nn.Sequential(*(part for i, o in zip(sizes, sizes[1:]) for part in (nn.Linear(i, o), nn.ReLU())))


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


def trainer(model, x, y):
    """A call that takes one training step and returns the loss before it."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def check(name, build, x, y):
    model = build().eval()
    with torch.inference_mode():
        one_by_one = torch.cat([model(window) for window in x.split(1)])
        ensure(torch.allclose(model(x), one_by_one, rtol=1e-3, atol=1e-4), f"{name}: a batch is not its windows")
    step = trainer(model, x, y)
    first = step().item()
    for _ in range(20):
        last = step().item()
    ensure(last < first, f"{name}: training leaves the loss at {last} from {first}")


def measure(name, input, horizon, columns, model):
    torch.manual_seed(1)
    build = lambda: model(input, horizon)
    check(name, build, wave(8, input), wave(8, horizon, 5))
    seconds = 0.001 if options.quick else options.seconds
    row = {"model": name, "threads": options.threads, "parameters": sum(p.numel() for p in build().parameters())}
    network = build().eval()
    with torch.inference_mode():
        for samples in (1, 32, 256):
            x = wave(samples * columns, input)
            measured = times(lambda: network(x), seconds)
            if samples == 1:
                row["predict_p50_us"] = quantile(measured, 0.5) * 1e6
                row["predict_p99_us"] = quantile(measured, 0.99) * 1e6
            else:
                row[f"predict_{samples}_ms"] = quantile(measured, 0.5) * 1e3
    for samples in (32, 256):
        step = trainer(build(), wave(samples * columns, input), wave(samples * columns, horizon, 5))
        row[f"train_{samples}_ms"] = quantile(times(step, seconds), 0.5) * 1e3
    return row


rows = [measure(*entry) for entry in MODELS if wanted(options, entry[0])]
report("forecast", "torch", torch.__version__, rows, "eager, inference mode, fused Adam")
