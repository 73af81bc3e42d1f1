"""Requests per second of `gatework serve`, compared with FastAPI and MLServer serving the same forecaster as an ONNX file.

    serve_fastapi.py GATEWORK RUN [--seconds 5] [--rounds 3] [--connections 32] [--workers 2]

RUN is the folder of a forecaster of one series without covariates. Both servers get the same requests, one window each, in turn, on this
machine, from `wrk` (Debian: `apt install wrk`), which has to be installed. The forecasts are compared first. FastAPI has as many
worker processes as given, each with one thread of ONNX Runtime, which is faster than one process with several. MLServer takes part if it
is installed (PyPI: mlserver), with a model of a few lines on ONNX Runtime in its own process; its requests are those of its protocol.
"""

import argparse
import importlib.util
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

MLSERVER = '''
import os
import numpy, onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Forecaster(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options)
        return True

    async def predict(self, payload):
        history = NumpyCodec.decode_input(payload.inputs[0])
        forecast = self.session.run(None, {"history": history})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("forecast", forecast)])
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
    for _ in range(600):
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


def forecast_of(answer):
    """The values of the first forecast."""
    return answer["forecasts"][0]["values"] if "forecasts" in answer else answer["outputs"][0]["data"]


def start_mlserver(folder, port, environment):
    settings = {
        "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2, "host": "127.0.0.1", "parallel_workers": 0,
        "debug": False, "root_path": "",
    }
    os.mkdir(f"{folder}/mlserver")
    for name, content in [
        ("settings.json", json.dumps(settings)),
        ("model-settings.json", json.dumps({"name": "forecaster", "implementation": "runtime.Forecaster"})),
        ("runtime.py", MLSERVER),
    ]:
        with open(f"{folder}/mlserver/{name}", "w") as file:
            file.write(content)
    command = [os.path.join(os.path.dirname(sys.executable), "mlserver"), "start", "."]
    return subprocess.Popen(
        command, cwd=f"{folder}/mlserver", env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def load(url, bodies, options, folder):
    command = ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency"]
    command += ["-s", f"{folder}/wrk.lua", url]
    environment = dict(os.environ, BODIES=f"{folder}/{bodies}")
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
        def inputs(body):
            values = json.loads(body)["series"][0]["values"]
            return json.dumps({"inputs": [{"name": "history", "shape": [1, length], "datatype": "FP64", "data": values}]})

        tensors = [inputs(body) for body in bodies]
        for name, content in [
            ("bodies", "\n".join(bodies)), ("tensors", "\n".join(tensors)), ("wrk.lua", SCRIPT), ("server.py", SERVER),
        ]:
            with open(f"{folder}/{name}", "w") as file:
                file.write(content)
        ours = subprocess.Popen(
            [options.gatework, "serve", options.run, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        port = 8990
        command = [sys.executable, "-m", "uvicorn", "server:app", "--port", str(port), "--log-level", "error"]
        command += ["--workers", str(options.workers), "--no-access-log"]
        environment = dict(os.environ, MODEL=model)
        processes = [ours, subprocess.Popen(command, cwd=folder, env=environment)]
        try:
            address = json.loads(ours.stdout.readline())
            name = os.path.basename(os.path.normpath(options.run))
            base = address["url"]
            servers = {
                "gatework": (f"{base.rstrip('/')}/api/runs/{name}/predict", "bodies", ours),
                "fastapi": (f"http://127.0.0.1:{port}/predict", "bodies", processes[1]),
            }
            if importlib.util.find_spec("mlserver"):
                processes.append(start_mlserver(folder, port + 1, environment))
                url = f"http://127.0.0.1:{port + 1}/v2/models/forecaster/infer"
                servers["mlserver"] = (url, "tensors", processes[2])
            first = {"bodies": bodies[0], "tensors": tensors[0]}
            answers = [forecast_of(wait_for(url, first[kind])) for url, kind, _ in servers.values()]
            pairs = [pair for other in answers[1:] for pair in zip(answers[0], other, strict=True)]
            differ = [(a, b) for a, b in pairs if not abs(a - b) / max(1.0, abs(b)) <= 1e-4]  # also if one is NaN
            if differ:
                sys.exit(f"the forecasts differ: {differ[0]}")
            results = {server: [] for server in servers}
            for _ in range(options.rounds):
                for server, (url, kind, _) in servers.items():
                    results[server].append(load(url, kind, options, folder))
            rows = {}
            for server, measured in results.items():
                rows[server] = {
                    "requests_per_second": round(statistics.median(rate for rate, _ in measured)),
                    "p99_ms": statistics.median(latency for _, latency in measured),
                    "memory_mb": memory(servers[server][2]),
                }
            print(json.dumps({"bench": "serve", "connections": options.connections, "results": rows}))
        finally:
            for process in processes:
                process.terminate()


main()
