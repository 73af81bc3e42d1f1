"""Writes classical.json: reference values of statistical models, by statsmodels and statsforecast.

    pip install statsmodels==0.15.0 statsforecast==2.1.1
    python classical.py > classical.json
"""

import json
import sys
import warnings

import numpy as np
from statsforecast._lib import ets as _ets
from statsforecast.models import TSB, CrostonSBA
from statsmodels.tsa.seasonal import STL

warnings.filterwarnings("ignore")

season = [1.1, 0.9, 0.95, 1.05]
values = [100 + 1.5 * i + 12 * ((i * 7919 % 101) / 101 - 0.5) for i in range(40)]
values = [y * season[i % 4] for i, y in enumerate(values)]

seasonal_states = {"N": [], "A": [8.0, -9.0, -4.0, 5.0], "M": [1.08, 0.91, 0.96, 1.05]}
kinds = {"N": _ets.Component.Nothing, "A": _ets.Component.Additive, "M": _ets.Component.Multiplicative}
y = np.array(values)
ets = []
for error in "AM":
    for trend, damped in [("N", False), ("A", False), ("A", True)]:
        for season in "NAM":
            # Level, trend, and the seasonal states with the next one last.
            states = np.array([95.0] + ([1.2] if trend == "A" else []) + seasonal_states[season][::-1])
            phi, m = 0.9 if damped else 1.0, max(len(seasonal_states[season]), 1)
            all_states = np.zeros(len(states) * (len(y) + 1))
            all_states[: len(states)] = states
            likelihood = _ets.calc(
                all_states, np.zeros(len(y)), np.zeros(1), 1, y, kinds[error], kinds[trend], kinds[season],
                0.4, 0.1 if trend == "A" else 0.0, 0.2 if season != "N" else 0.0, phi, m,
            )
            last = list(all_states[-len(states):])
            ets.append({
                "error": error, "trend": trend == "A", "damped": damped, "season": season,
                "likelihood": float(likelihood), "level": last[0], "slope": last[1] if trend == "A" else 0.0,
                "seasonal": last[1 + (trend == "A"):][::-1],
            })

stl = STL(np.array(values), period=4, seasonal=7).fit(inner_iter=2, outer_iter=0)
demand = [0, 0, 3, 0, 2, 0, 0, 0, 5, 1, 0, 0, 0, 4, 0, 0, 2, 0]
sba = CrostonSBA().forecast(y=np.array(demand, dtype=float), h=1)["mean"][0]
tsb = TSB(alpha_d=0.2, alpha_p=0.3).forecast(y=np.array(demand, dtype=float), h=1)["mean"][0]
json.dump({
    "values": values, "ets": ets, "trend": list(stl.trend), "seasonal": list(stl.seasonal),
    "demand": demand, "croston_sba": float(sba), "tsb": float(tsb),
}, sys.stdout, indent=1)
