"""PyTorch on the operations of the engine: eager, without gradients, into preallocated outputs where possible."""

from timing import arguments, ensure, report

options = arguments(seconds=0.01)

import torch

import engine

torch.set_num_threads(options.threads)
torch.set_grad_enabled(False)


def gelu(a, form, out):
    return torch.ops.aten.gelu.out(a, approximate=form, out=out)


def operations(name, a, b):
    a, b = torch.from_numpy(a), torch.from_numpy(b)
    out = torch.empty_like(a)
    calls = {
        "add": lambda: torch.add(a, b, out=out),
        "mul": lambda: torch.mul(a, b, out=out),
        "relu": lambda: torch.clamp_min(a, 0, out=out),
        "exp": lambda: torch.exp(a, out=out),
        "tanh": lambda: torch.tanh(a, out=out),
        "sigmoid": lambda: torch.sigmoid(a, out=out),
        "gelu": lambda: gelu(a, "none", out=out),
        "gelu_tanh": lambda: gelu(a, "tanh", out=out),
        "sum": lambda: torch.sum(a),
        "dot": lambda: torch.dot(a, b),
        "softmax": lambda: torch.softmax(a, 0, out=out),
    }
    return calls.get(name)


def product(a, b):
    a, b = torch.from_numpy(a.copy()), torch.from_numpy(b.copy())
    out = torch.empty(a.shape[0], b.shape[1])
    return lambda: torch.matmul(a, b, out=out)


def chain(x):
    x, w, b = (torch.from_numpy(x.copy()) for _ in range(3))
    return lambda: torch.nn.functional.gelu(torch.addcmul(b, x, w), approximate="none").sum()


ensure(torch.get_num_threads() == options.threads, "the number of threads")
rows = engine.measure(options, operations, product, chain)
report("engine", "torch", torch.__version__, rows, "eager; outputs preallocated where there is an out argument")
