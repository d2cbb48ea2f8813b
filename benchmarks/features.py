"""How long to train on features, and how much noise their strong view gets: recipes against one another.

Run: python benchmarks/features.py
Writes results/features.json. The recipe in labeltrace/features.py was set on iris, breast cancer and digits; the other
sets here were not looked at for it. Labels are made wrong at two rates, three seeds each; a recipe is judged by the
average precision of the queue and by the share of suggestions that are right.
"""

from __future__ import annotations

import statistics
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from shared import RESULTS, parser_of, side_by_side
from sklearn import datasets

from labeltrace.audit import measure
from labeltrace.bench.environment import environment, write_result
from labeltrace.data import add_noise, from_arrays
from labeltrace.engine import RunConfig
from labeltrace.features import feature_recipe
from labeltrace.runs import run

SEEDS, RATES = (0, 42, 1027), (0.2, 0.4)
SEEN = ("iris", "breast_cancer", "digits")
RECIPES = {
    "10 epochs, noise 0.5": (10, 0.5),
    "10 epochs, noise 0.1": (10, 0.1),
    "40 epochs, noise 0.5": (40, 0.5),
    "40 epochs, noise 0.1": (40, 0.1),
}


def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features and labels by name."""
    found = {
        name: getattr(datasets, f"load_{name}")(return_X_y=True) for name in ("iris", "breast_cancer", "digits", "wine")
    }
    shape = {"n_samples": 2000, "n_features": 40, "n_informative": 12, "n_classes": 5, "class_sep": 1.5}
    found["tangled"] = datasets.make_classification(**shape, random_state=7)
    found["blobs"] = datasets.make_blobs(1500, 16, centers=8, cluster_std=4.0, random_state=7)
    return {name: (x.astype(np.float32), y) for name, (x, y) in found.items()}


def main() -> None:
    """Run every recipe on every set and write what came out."""
    parser_of(__doc__).parse_args()
    todo = [(s, rate, seed, recipe) for s in sets() for rate in RATES for seed in SEEDS for recipe in RECIPES]
    records = list(side_by_side(one, todo, None, "runs", lambda r: f"{r['set']} {r['recipe']}", quiet))
    write_result(
        {"command": "python benchmarks/features.py", "runs": records, "environment": environment()},
        RESULTS / "features.json",
    )
    for held_out in (True, False):
        print("sets not looked at before" if held_out else "sets the recipe was set on")
        for recipe in RECIPES:
            mine = [r for r in records if r["recipe"] == recipe and r["held_out"] == held_out]
            means = {
                key: statistics.mean(r[key] for r in mine)
                for key in ("average_precision", "suggestion_accuracy", "precision", "recall")
            }
            print(f"  {recipe}: " + "  ".join(f"{key} {100 * value:.1f}" for key, value in means.items()))


def one(asked: tuple[str, float, int, str]) -> dict[str, object]:
    """Return how well wrong labels were found in one run."""
    name, rate, seed, recipe = asked
    (x, y), (epochs, noise) = sets()[name], RECIPES[recipe]
    data, _ = add_noise(from_arrays(x, y, name="features"), "symmetric", rate, seed)
    data = replace(data, views=replace(data.views, noise=noise))
    changes = {"epochs": epochs, "seed": seed, "device": "cpu", "checkpoint_seconds": 1e6}
    config = RunConfig.model_validate({**feature_recipe(len(x)), **changes})
    with tempfile.TemporaryDirectory() as folder:
        found = measure(run(config, Path(folder) / "run", dataset=data)[1])
    return {"set": name, "held_out": name not in SEEN, "rate": rate, "seed": seed, "recipe": recipe, **found}


def quiet() -> None:
    """One thread for each process; no word of neighbours that a small set does not have."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


if __name__ == "__main__":
    main()
