"""numpy on the operations of the engine, into preallocated outputs."""

from timing import arguments, report

options = arguments(seconds=0.01)

import numpy as np

import engine


def operations(name, a, b):
    out = np.empty_like(a)
    calls = {
        "add": lambda: np.add(a, b, out=out),
        "mul": lambda: np.multiply(a, b, out=out),
        "relu": lambda: np.maximum(a, np.float32(0), out=out),
        "exp": lambda: np.exp(a, out=out),
        "tanh": lambda: np.tanh(a, out=out),
        "sigmoid": lambda: sigmoid(a, out),
        "gelu_tanh": lambda: gelu_tanh(a, out),
        "sum": lambda: a.sum(),
        "dot": lambda: a.dot(b),
        "softmax": lambda: softmax(a, out),
    }
    return calls.get(name)


def sigmoid(a, out):
    np.negative(a, out=out)
    np.exp(out, out=out)
    np.add(out, np.float32(1), out=out)
    return np.reciprocal(out, out=out)


def gelu_tanh(a, out):
    # x / 2 (1 + tanh(sqrt(2 / pi) x (1 + 0.044715 x^2)))
    np.multiply(a, a, out=out)
    np.multiply(out, np.float32(0.044715), out=out)
    np.add(out, np.float32(1), out=out)
    np.multiply(out, a, out=out)
    np.multiply(out, np.float32(0.7978845608), out=out)
    np.tanh(out, out=out)
    np.add(out, np.float32(1), out=out)
    np.multiply(out, a, out=out)
    return np.multiply(out, np.float32(0.5), out=out)


def softmax(a, out):
    np.subtract(a, a.max(), out=out)
    np.exp(out, out=out)
    return np.divide(out, out.sum(), out=out)


def product(a, b):
    out = np.empty((a.shape[0], b.shape[1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


rows = engine.measure(options, operations, product)
report("engine", "numpy", np.__version__, rows, "outputs preallocated; threads of its BLAS")
