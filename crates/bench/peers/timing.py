"""Shared by the scripts: arguments, timing, JSON output.

A script first limits the threads of its library (`arguments` sets the environment variables that libraries read when they are
imported), then checks its answers, then times them in the same way as `gatework-bench`, and prints one JSON object.
"""

import argparse
import json
import os
import struct
import sys
import time
from pathlib import Path

# Minimum duration of a batch in seconds, so that reading the clock does not count.
BATCH = 2e-5


def arguments(seconds):
    """Reads the command line and limits the threads. Call it before the library is imported."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=seconds, help="for each measurement")
    parser.add_argument("--quick", action="store_true", help="small sizes and short measurements")
    parser.add_argument("--only", action="append", default=[], help="only rows whose name contains this")
    cases = Path(__file__).resolve().parent / "cases"
    parser.add_argument("--cases", type=Path, default=cases, help="output of `gatework-bench BENCH --cases DIR`")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    # XLA uses as many threads as there are processors in the affinity mask.
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if options.threads < len(processors):
        os.sched_setaffinity(0, processors[-options.threads :])
    return options


def wanted(options, name):
    return not options.only or any(only in name for only in options.only)


def fastest(call, seconds):
    """Returns the minimum time of a call in nanoseconds, over batches of calls."""

    def batch(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    batch(1)
    calls = int(min(max(BATCH / batch(1), 1), 10_000))
    best, rounds, begin = float("inf"), 0, time.perf_counter()
    while rounds < 3 or time.perf_counter() - begin < seconds:
        best, rounds = min(best, batch(calls)), rounds + 1
    return best * 1e9


def times(call, seconds):
    """Returns the sorted times of calls in seconds, at least five unless --quick, after two calls that warm up."""
    least = 5 if seconds > 0.01 else 1
    call()
    call()
    measured, begin = [], time.perf_counter()
    while len(measured) < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        measured.append(time.perf_counter() - start)
    return sorted(measured)


def quantile(ordered, share):
    return ordered[round((len(ordered) - 1) * share)]


def ensure(right, what):
    """Exits if an answer is wrong, before anything is timed."""
    if not right:
        sys.exit(f"wrong answer: {what}")


def read_safetensors(path):
    """Returns the tensors of a file as numpy arrays, and its metadata."""
    import numpy as np

    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    attached = header.pop("__metadata__", {})
    kinds = {"F32": "<f4", "I32": "<i4", "I64": "<i8", "U32": "<u4"}
    tensors = {}
    for key, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[key] = np.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors, attached


def report(bench, peer, version, results, how):
    """Prints the object that `gatework-bench all` reads; `how` describes how the library is used."""
    print(json.dumps({"bench": bench, "peer": peer, "version": version, "how": how, "results": results}))
