"""Automatic forecasts: `gatework forecast` compared with statsforecast and Prophet, run by hand.

    python automatic_forecasts.py --gatework target/release/gatework [--origins 3] [--only NAME,NAME]

Each library forecasts six tables from several points of time, the last values held back, each time in a new process: mean
absolute scaled error, coverage of 80 % intervals, processor time and peak memory, imports and compilation included. Three tables
are read from `$GATEWORK_DATA/forecast/small`, three are generated. statsforecast runs AutoETS, AutoARIMA, AutoTheta and MSTL with
their own intervals, each row being one model, and their median with the median of their bounds; Prophet has its defaults.
"""

import argparse
import csv
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

LEVEL = 80


def generated():
    """Three tables from fixed seeds: hourly load, daily sales of shops, short monthly series."""
    import numpy as np
    import pandas as pd

    def table(series, frequency):
        frames = [
            pd.DataFrame({"unique_id": name, "ds": pd.date_range("2020-01-01", periods=len(y), freq=frequency), "y": y})
            for name, y in series
        ]
        return pd.concat(frames)

    random = np.random.default_rng(101)
    hours = np.arange(24 * 56)
    load = 100 + 20 * np.sin(hours * np.pi / 12) + 10 * np.sin(hours * np.pi / 84) + random.normal(0, 4, len(hours))
    days = np.arange(365)
    shops = [
        (f"shop{k}", random.poisson(20 + 4 * k + 8 * np.sin((days + k) * 2 * np.pi / 7) + 0.02 * days)) for k in range(10)
    ]
    months = np.arange(40)
    short = [
        (f"m{k}", 100 + random.normal() * months + random.uniform(5, 20) * np.sin((months + k) * np.pi / 6)
         + random.normal(0, 5, 40))
        for k in range(20)
    ]
    yield "hourly load", table([("load", load)], "h"), "h", 24, 48
    yield "daily shops", table(shops, "D"), "D", 7, 14
    yield "short monthly", table(short, "MS"), "MS", 12, 6


def stored():
    """Three tables of files."""
    import pandas as pd

    folder = pathlib.Path(os.environ["GATEWORK_DATA"]) / "forecast" / "small"
    for name, file, frequency, season, horizon in [
        ("AirPassengers", "AirPassengers.csv", "MS", 12, 12),
        ("temperatures", "daily-min-temperatures.csv", "D", 7, 14),
        ("sunspots", "statsmodels_sunspots.csv", "YS", 1, 11),
    ]:
        data = pd.read_csv(folder / file)
        data.columns = ["ds", "y"]
        data["ds"] = pd.to_datetime(data["ds"].astype(str))
        yield name, data.assign(unique_id="a")[["unique_id", "ds", "y"]], frequency, season, horizon


def statsforecast(known, frequency, season, horizon):
    from statsforecast import StatsForecast
    from statsforecast.models import MSTL, AutoARIMA, AutoETS, AutoTheta

    models = [AutoETS(season_length=season), AutoARIMA(season_length=season), AutoTheta(season_length=season)]
    if season > 1:
        models.append(MSTL(season_length=season))
    found = StatsForecast(models=models, freq=frequency).forecast(df=known, h=horizon, level=[LEVEL])
    names = [str(model) for model in models]
    parts = {"": names, f"-lo-{LEVEL}": [], f"-hi-{LEVEL}": []}
    for ending in parts:
        found["median" + ending] = found[[name + ending for name in names]].median(axis=1)
    for name in names + ["median"]:
        columns = found[["unique_id", "ds", name, f"{name}-lo-{LEVEL}", f"{name}-hi-{LEVEL}"]]
        columns.columns = ["unique_id", "ds", "y", "low", "high"]
        yield f"statsforecast {name}", columns


def prophet(known, frequency, season, horizon):
    import logging

    import pandas as pd
    from prophet import Prophet

    logging.getLogger("cmdstanpy").disabled = True
    frames = []
    for name, own in known.groupby("unique_id"):
        model = Prophet(interval_width=LEVEL / 100)
        model.fit(own[["ds", "y"]])
        found = model.predict(model.make_future_dataframe(horizon, freq=frequency, include_history=False))
        frames.append(
            pd.DataFrame({"unique_id": name, "ds": found.ds, "y": found.yhat, "low": found.yhat_lower, "high": found.yhat_upper})
        )
    yield "Prophet", pd.concat(frames)


def measured(command):
    """Runs a command; returns its output (None if it fails), the processor seconds and the peak megabytes of its process."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        output.seek(0)
        if status != 0:
            return None, 0.0, 0.0
        return output.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def score(known, held, season, rows):
    """Mean absolute scaled error and coverage over all series."""
    errors, inside = [], []
    for name, actual in held.groupby("unique_id", sort=False):
        history = known[known.unique_id == name].y.to_numpy(float)
        scale = abs(history[season:] - history[:-season]).mean()
        own = [row for row in rows if row[0] == name]
        y = actual.y.to_numpy(float)
        assert len(own) == len(y), (name, len(own), len(y))
        errors.append(sum(abs(a - float(row[2])) for a, row in zip(y, own)) / len(y) / scale)
        inside.append(sum(float(row[3]) <= a <= float(row[4]) for a, row in zip(y, own)) / len(y))
    return sum(errors) / len(errors), sum(inside) / len(inside)


def peer(name, path, frequency, season, horizon):
    """Forecasts in this process; prints one JSON object."""
    import pandas as pd

    known = pd.read_csv(path, parse_dates=["ds"])
    models = {"statsforecast": statsforecast, "prophet": prophet}[name](known, frequency, season, horizon)
    rows = {
        model: [[row.unique_id, str(row.ds), row.y, row.low, row.high] for row in found.itertuples()]
        for model, found in models
    }
    json.dump(rows, sys.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gatework", required=True)
    parser.add_argument("--origins", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--peer", nargs=5)
    if "--peer" in sys.argv:
        name, path, frequency, season, horizon = sys.argv[sys.argv.index("--peer") + 1 :]
        return peer(name, path, frequency, int(season), int(horizon))
    options = parser.parse_args()
    print("| table | | MASE | coverage of 80 % | processor time | memory |")
    print("|---|---|---|---|---|---|", flush=True)
    for table, data, frequency, season, horizon in [*stored(), *generated()]:
        if options.only and table not in options.only.split(","):
            continue
        results = {}

        def add(model, scores, seconds, megabytes):
            results.setdefault(model, []).append((*scores, seconds, megabytes))

        for origin in range(1, options.origins + 1):
            rank = data.groupby("unique_id").cumcount(ascending=False)
            known = data[rank >= origin * horizon]
            held = data[(rank < origin * horizon) & (rank >= (origin - 1) * horizon)]
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "data.csv")
                known.to_csv(path, index=False)
                command = [options.gatework, "forecast", path, "--horizon", str(horizon), "--levels", str(LEVEL)]
                text, seconds, megabytes = measured(command)
                if text is None:
                    raise SystemExit(f"{command} failed")
                rows = list(csv.reader(text.splitlines()))[1:]
                add("Gatework", score(known, held, season, rows), seconds, megabytes)
                for name in ["statsforecast", "prophet"]:
                    arguments = ["--gatework", "", "--peer", name, path, frequency, str(season), str(horizon)]
                    text, seconds, megabytes = measured([sys.executable, __file__, *arguments])
                    if text is None:
                        print(f"| {table} | {name} | failed | | | |", flush=True)
                        continue
                    for model, rows in json.loads(text).items():
                        add(model, score(known, held, season, rows), seconds, megabytes)
        for model, found in results.items():
            # Of a model that failed at some origins, the means of the others.
            error, inside, seconds = (sum(values) / len(found) for values in list(zip(*found))[:3])
            megabytes = max(one[3] for one in found)
            if len(found) < options.origins:
                model = f"{model}, {len(found)} of {options.origins} points of time"
            print(f"| {table} | {model} | {error:.3f} | {100 * inside:.0f} % | {seconds:.1f} s | {megabytes:.0f} MB |", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
