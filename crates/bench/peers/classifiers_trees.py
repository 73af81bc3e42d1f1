"""Gradient-boosted trees on the tables of `gatework-bench classifiers`: XGBoost, LightGBM and scikit-learn, at their defaults.

The splits are those of `gatework-bench classifiers --cases`. A model is trained on all rows that are not test rows: what Gatework holds
back of them to select the epoch, trees train on. Categories are passed as such. The rows have the names of ours; XGBoost's are
compared in time, and the others are in the fields `lightgbm` and `scikit_learn`.
"""

import json
import time

from timing import arguments, ensure, fastest, report, wanted

options = arguments(seconds=1.0)

import pickle

import lightgbm
import numpy as np
import pandas
import sklearn
import xgboost
from sklearn.ensemble import HistGradientBoostingClassifier

# Samples of a batch.
BATCH = 1 << 14


def table(case):
    """The columns as a data frame: categories are of type `category`, missing values NaN."""
    columns = {}
    for number, column in enumerate(case["columns"]):
        values = np.array(column["values"], np.float32)
        if column["categories"]:
            codes = np.where(np.isnan(values), -1, values).astype(int)
            columns[f"f{number}"] = pandas.Categorical.from_codes(codes, categories=range(column["categories"]))
        else:
            columns[f"f{number}"] = values
    return pandas.DataFrame(columns), np.array(case["labels"])


class Xgboost:
    name = "xgboost"

    def __init__(self):
        self.model = xgboost.XGBClassifier(n_jobs=options.threads, enable_categorical=True)

    def size(self):
        return len(self.model.get_booster().save_raw("ubj"))


class LightGbm:
    name = "lightgbm"

    def __init__(self):
        self.model = lightgbm.LGBMClassifier(n_jobs=options.threads, verbose=-1)

    def size(self):
        return len(self.model.booster_.model_to_string())


class ScikitLearn:
    name = "scikit_learn"

    def __init__(self):
        self.model = HistGradientBoostingClassifier(categorical_features="from_dtype")

    def size(self):
        return len(pickle.dumps(self.model))


def measure(make, x, labels, splits):
    """Accuracy over the splits; size and times of the last model."""
    accuracies, seconds = [], 0.0
    for split in splits:
        held = np.zeros(len(labels), bool)
        held[split] = True
        # Labels without a gap: a class may have no row that is trained on.
        classes, known = np.unique(labels[~held], return_inverse=True)
        learner = make()
        begin = time.process_time()
        learner.model.fit(x[~held], known)
        seconds += time.process_time() - begin
        predicted = classes[learner.model.predict(x[held]).astype(int)]
        accuracies.append(float(np.mean(predicted == labels[held])))
    one = x[held].iloc[:1]
    batch = pandas.concat([x[held]] * -(-BATCH // int(held.sum()))).iloc[:BATCH]
    limit = 0.001 if options.quick else options.seconds
    return {
        "accuracy": float(np.mean(accuracies)),
        "deviation": float(np.std(accuracies, ddof=1)) if len(splits) > 1 else 0.0,
        "accuracies": accuracies,
        "file_kb": learner.size() / 1e3,
        "train_seconds": seconds / len(splits),
        "one_ns": fastest(lambda: learner.model.predict(one), limit),
        "batch_ns": fastest(lambda: learner.model.predict(batch), limit) / len(batch),
    }


rows = []
for name, case in json.loads((options.cases / "classifiers.json").read_text()).items():
    if not wanted(options, name):
        continue
    x, labels = table(case)
    ensure(len(x) == len(labels) and max(labels) < case["classes"], f"the rows of {name}")
    results = {learner.name: measure(learner, x, labels, case["test_rows"]) for learner in (Xgboost, LightGbm, ScikitLearn)}
    rows.append({"table": name, "threads": options.threads, **results.pop("xgboost"), **results})
versions = f"{xgboost.__version__}, LightGBM {lightgbm.__version__}, scikit-learn {sklearn.__version__}"
report("classifiers", "xgboost", versions, rows, "defaults; categories as such; predict() on data frames")
