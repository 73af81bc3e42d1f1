"""The operations of `gatework-bench engine` that peers also have: sizes, operands, expected answers."""

import math

import numpy as np

LENGTHS = [256, 1024, 3072, 4096, 16_384, 65_536, 262_144, 1 << 20, 1 << 22, 1 << 24]
# Sizes m, n and k of the matrix multiplications.
PRODUCTS = [(32, 512, 168), (256, 512, 512), (1, 512, 512), (128, 128, 128)]
CHAIN = "sum(gelu(x * w + b)), 1M"


def wave(n, shift=0):
    """Multiples of 1/8 whose sums are exact in any order, as in our benchmark."""
    i = np.arange(shift, shift + n, dtype=np.int64)
    return ((i * 37 % 61) / 8.0 - 3.75).astype(np.float32)


def right_chain(x):
    """The sum of gelu(x * x + x) in double precision."""
    x = x.astype(np.float64)
    return gelu(x * x + x).sum()


def gelu(x):
    """For numbers of which there are few different ones: numpy has no error function."""
    values, places = np.unique(x, return_inverse=True)
    return (values / 2 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in values])))[places]


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(a):
    e = np.exp(a.astype(np.float64) - a.max())
    return e / e.sum()


# The answers that every peer has to give, in double precision.
RIGHT = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "relu": lambda a, b: np.maximum(a, 0),
    "exp": lambda a, b: np.exp(a.astype(np.float64)),
    "tanh": lambda a, b: np.tanh(a.astype(np.float64)),
    "sigmoid": lambda a, b: 1 / (1 + np.exp(-a.astype(np.float64))),
    "gelu": lambda a, b: gelu(a.astype(np.float64)),
    "gelu_tanh": lambda a, b: gelu_tanh(a.astype(np.float64)),
    "sum": lambda a, b: a.astype(np.float64).sum(),
    "dot": lambda a, b: a.astype(np.float64) @ b.astype(np.float64),
    "softmax": lambda a, b: softmax(a),
}


# What the rounding errors of a sum are relative to: the sum of the magnitudes, which cancel in the sum itself. Of 16 million
# numbers they reach some 1e-4 of it where nothing is done against them.
MAGNITUDE = {
    "sum": lambda a, b: np.abs(a.astype(np.float64)).sum(),
    "dot": lambda a, b: np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)),
}


def measure(options, operations, product, chain=None):
    """All rows. `operations(name, a, b)`, `product(a, b)` and `chain(x)` return what to call, or None for what a peer lacks;
    the call returns the answer as something numpy can read."""
    from timing import ensure, fastest, wanted

    seconds = 0.0005 if options.quick else options.seconds
    rows = []
    for name, right in RIGHT.items():
        for n in LENGTHS[: 4 if options.quick else None]:
            a, b = wave(n), wave(n, 501)
            call = operations(name, a, b) if wanted(options, name) else None
            if call is None:
                continue
            room = 1e-3 * MAGNITUDE[name](a, b) if name in MAGNITUDE else 1e-5
            ensure(np.allclose(np.asarray(call()), right(a, b), rtol=1e-4, atol=room), f"{name} of {n}")
            rows.append({"op": name, "dtype": "f32", "n": n, "threads": options.threads, "ns": fastest(call, seconds)})
    graphs = []
    # Our products and chains are measured with one thread.
    if options.threads == 1 and wanted(options, "graphs"):
        for m, n, k in PRODUCTS:
            numbers = (np.arange(max(m * k, k * n)) % 13 * 0.25 - 1.5).astype(np.float32)
            a, b = numbers[: m * k].reshape(m, k), numbers[: k * n].reshape(k, n)
            call = product(a, b)
            ensure(np.allclose(np.asarray(call()), a.astype(np.float64) @ b, rtol=1e-4), f"product of {m}x{k}x{n}")
            graphs.append({"name": f"product {m}x{k}x{n}", "threads": 1, "ns": fastest(call, seconds * 10)})
        if chain is not None:
            x = (np.arange(1 << 20) % 61 / 16.0 - 1.75).astype(np.float32)
            call = chain(x)
            ensure(np.allclose(np.asarray(call()), right_chain(x), rtol=1e-4), CHAIN)
            graphs.append({"name": CHAIN, "threads": 1, "ns": fastest(call, seconds * 10)})
    return rows + graphs
