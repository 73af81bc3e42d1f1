"""Requests per second of `gatework serve`, compared with FastAPI and ONNX Runtime serving the same forecaster as an ONNX file.

    serve_fastapi.py GATEWORK RUN [--seconds 5] [--rounds 3] [--connections 32] [--workers 2]

RUN is the folder of a forecaster of one series without covariates. Both servers get the same requests, one window each, in turn, on this
machine, from `wrk` (Debian: `apt install wrk`), which has to be installed. The forecasts are compared first. FastAPI has as many
worker processes as given, each with one thread of ONNX Runtime, which is faster than one process with several.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

SERVER = '''
import os
import numpy, onnxruntime, orjson
from fastapi import FastAPI, Request, Response

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(os.environ["MODEL"], options)
app = FastAPI()


@app.post("/predict")
async def predict(request: Request):
    series = orjson.loads(await request.body())["series"]
    history = numpy.array([one["values"] for one in series], numpy.float64)
    forecast = session.run(None, {"history": history})[0]
    answer = {"forecasts": [{"values": values.tolist()} for values in forecast]}
    return Response(orjson.dumps(answer), media_type="application/json")
'''

SCRIPT = '''
local bodies = {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local next = 0
request = function()
  next = next % #bodies + 1
  return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, bodies[next])
end
'''


def post(url, body):
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def wait_for(url, body):
    for _ in range(100):
        try:
            return post(url, body)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{url} does not answer")


def memory(process):
    """Resident memory of a process and its children in MB."""
    pids, total = [process.pid], 0
    while pids:
        pid = pids.pop()
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                pids += map(int, file.read().split())
        except FileNotFoundError:
            pass
    return round(total / 1e6)


def load(url, options, folder):
    command = ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency"]
    command += ["-s", f"{folder}/wrk.lua", url]
    environment = dict(os.environ, BODIES=f"{folder}/bodies")
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text:
        sys.exit(text)
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    number, name = re.search(r"99%\s+([\d.]+)(us|ms|s)", text).groups()
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)), float(number) * unit[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gatework")
    parser.add_argument("run")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.onnx"
        subprocess.run([options.gatework, "export", options.run, "-o", model], check=True, capture_output=True)
        import onnxruntime

        length = onnxruntime.InferenceSession(model).get_inputs()[0].shape[1]
        draw = random.Random(1)
        bodies = [
            json.dumps({"series": [{"values": [round(draw.gauss(10, 2), 3) for _ in range(length)]}]}) for _ in range(512)
        ]
        for name, content in [("bodies", "\n".join(bodies)), ("wrk.lua", SCRIPT), ("server.py", SERVER)]:
            with open(f"{folder}/{name}", "w") as file:
                file.write(content)
        ours = subprocess.Popen(
            [options.gatework, "serve", options.run, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        port = 8990
        command = [sys.executable, "-m", "uvicorn", "server:app", "--port", str(port), "--log-level", "error"]
        command += ["--workers", str(options.workers), "--no-access-log"]
        theirs = subprocess.Popen(command, cwd=folder, env=dict(os.environ, MODEL=model))
        try:
            address = json.loads(ours.stdout.readline())
            name = os.path.basename(os.path.normpath(options.run))
            base = address["url"]
            servers = {
                "gatework": (f"{base.rstrip('/')}/api/runs/{name}/predict", ours),
                "fastapi": (f"http://127.0.0.1:{port}/predict", theirs),
            }
            answers = [wait_for(url, bodies[0])["forecasts"][0]["values"] for url, _ in servers.values()]
            error = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(*answers))
            if error > 1e-4:
                sys.exit(f"the forecasts differ by {error}")
            results = {server: [] for server in servers}
            for _ in range(options.rounds):
                for server, (url, _) in servers.items():
                    results[server].append(load(url, options, folder))
            rows = {}
            for server, measured in results.items():
                rows[server] = {
                    "requests_per_second": round(statistics.median(rate for rate, _ in measured)),
                    "p99_ms": statistics.median(latency for _, latency in measured),
                    "memory_mb": memory(servers[server][1]),
                }
            print(json.dumps({"bench": "serve", "connections": options.connections, "results": rows}))
        finally:
            for process in (ours, theirs):
                process.terminate()


main()
