"""Samples tables made by hand, for tests that need no run."""

import json

import numpy as np
import pyarrow as pa


def table(classes=("cat", "dog", "owl"), **columns):
    """A samples table with the columns that are given, and an id and an index for each row; the rest is made up."""
    count = len(columns["observed"])
    usual = {
        "index": np.arange(count),
        "id": [f"s{i}" for i in range(count)],
        "observed": columns["observed"],
        "suggested": columns["observed"],
        "clean": np.full(count, 0.5),
        "observed_reliability": np.full(count, 0.5),
        "pseudo_reliability": np.full(count, 0.5),
        "decision": ["keep"] * count,
        "confidence": np.full(count, 0.5),
        "observed_probability": np.full(count, 0.5),
        "loss": np.full(count, np.log(2)),
    }
    kinds = {"observed": pa.int32(), "suggested": pa.int32(), "truth": pa.int32()}
    made = {name: pa.array(values, kinds.get(name)) for name, values in {**usual, **columns}.items()}
    return pa.table(made).replace_schema_metadata({"labeltrace.classes": json.dumps(list(classes))})


def drawn(count, transition, spread, seed=0):
    """A table whose networks are calibrated: truth drawn from their probabilities, labels from the truth through T."""
    rng = np.random.default_rng(seed)
    classes = len(transition)
    p = rng.dirichlet(np.full(classes, spread), size=count)

    def draw(rows):
        return np.minimum((rng.random((count, 1)) > rows.cumsum(1)).sum(1), classes - 1)

    truth = draw(p)
    observed = draw(transition[truth])
    return table(
        [str(c) for c in range(classes)],
        observed=observed,
        suggested=p.argmax(1),
        truth=truth,
        confidence=p.max(1),
        observed_probability=p[np.arange(count), observed],
    )
