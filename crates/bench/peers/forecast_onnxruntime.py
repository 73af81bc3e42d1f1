"""Prediction of the models of `gatework-bench forecast` by ONNX Runtime, which runs the ONNX files that we export.

A model must reproduce our forecast before it is timed. All graph optimisations are on.
"""

import json

from timing import arguments, ensure, quantile, report, times, wanted

options = arguments(seconds=1.0)

import numpy as np
import onnxruntime

# Name, values of a window, windows of a sample (one for each column).
MODELS = [
    ("nhits 4x512", 168, 1),
    ("nhits 2x512", 168, 1),
    ("nbeats 3 blocks", 168, 1),
    ("gru 2x128", 168, 1),
    ("lstm 2x128", 168, 1),
    ("tcn 32,64,128", 168, 1),
    ("transformer d64", 168, 1),
    ("dlinear 336-96, 7", 336, 7),
]


def wave(rows, steps):
    """The windows of our benchmark."""
    i = np.arange(rows * steps, dtype=np.int64)
    return (((i * 37 % 101) * 0.01 + np.sin(i * 0.26)) * 0.5).astype(np.float32).reshape(rows, steps)


def session(path):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


def measure(name, input, columns):
    case = CASES[name]
    model = session(options.cases / case["onnx"])
    predict = lambda x: model.run(["forecast"], {"past": x})[0]
    rows = case["windows"]
    past, right = (np.array(case[key], np.float32).reshape(rows, -1) for key in ("past", "forecast"))
    ensure(np.allclose(predict(past).reshape(rows, -1), right, rtol=1e-3, atol=1e-4), f"the forecast of {name}")
    seconds = 0.001 if options.quick else options.seconds
    row = {"model": name, "threads": options.threads, "parameters": case["parameters"]}
    for samples in (1, 32) if options.quick else (1, 32, 256):
        x = wave(samples * columns, input)
        measured = times(lambda: predict(x), seconds)
        if samples == 1:
            row["predict_p50_us"] = quantile(measured, 0.5) * 1e6
            row["predict_p99_us"] = quantile(measured, 0.99) * 1e6
        else:
            row[f"predict_{samples}_ms"] = quantile(measured, 0.5) * 1e3
    return row


CASES = json.loads((options.cases / "forecast.json").read_text())
rows = [measure(*entry) for entry in MODELS if wanted(options, entry[0])]
report("forecast", "onnxruntime", onnxruntime.__version__, rows, "our ONNX files, all graph optimisations, one session")
