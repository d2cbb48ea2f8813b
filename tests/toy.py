"""Small problems and runs that many tests share."""

import numpy as np
import torch

from labeltrace.data import add_noise, from_arrays
from labeltrace.data.draws import Draws
from labeltrace.engine import RunConfig
from labeltrace.learners.base import Batch


def blobs(count=96, classes=3, features=6, spread=0.4, seed=0, noise=0.25):
    """Well separated clusters with symmetric label noise, 24 clean test samples; truth is known."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, features)) * 2
    labels = np.arange(count + 24) % classes
    inputs = (centres[labels] + spread * rng.normal(size=(count + 24, features))).astype(np.float32)
    data = from_arrays(inputs[:count], labels[:count], test=(inputs[count:], labels[count:]), name="blobs")
    return add_noise(data, "symmetric-exact", noise, seed)[0] if noise else data


def pictures(count=48, seed=0, noise=0.25):
    """8×8 images of two classes (bright left or right half), with label noise; truth is known."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count + 16) % 2
    images = rng.integers(0, 60, size=(count + 16, 8, 8), dtype=np.uint8)
    for i, label in enumerate(labels):
        images[i, :, 4 * label : 4 * label + 4] += 150
    data = from_arrays(images[:count], labels[:count], test=(images[count:], labels[count:]), name="halves")
    return add_noise(data, "symmetric-exact", noise, seed)[0]


def config(learner="rolr", **changes):
    """A run of a few quick epochs; `settings` and `trace` are merged into quick defaults."""
    quick = {"epochs": 4, "device": "cpu", "checkpoint_seconds": 1000.0, "learner": learner}
    quick["settings"] = {
        "batch_size": 16,
        **({"warmup": 1} if learner != "cross_entropy" else {}),
        **({"history": 2} if learner == "selfie" else {}),  # so that a few epochs reach every part of the method
        **changes.pop("settings", {}),
    }
    return RunConfig.model_validate({**quick, **changes})


def batch(index, inputs, observed, beside=None, progress=0.0, seed=0):
    """A batch as the engine would make it."""
    draws, once = Draws.at(index, seed), Draws.at(torch.zeros(1, dtype=torch.int64), seed, 1)
    return Batch(index, inputs, observed, draws, once, torch.tensor(progress), beside)


def weights(trained):
    """All weights and buffers of a run's networks, in one vector."""
    return torch.cat([v.flatten().double() for n in trained.networks for v in n.state_dict().values()])
