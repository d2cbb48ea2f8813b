"""Small problems, runs, learners and stand-ins that many tests share."""

import contextlib
import gc
import weakref
from unittest import mock

import numpy as np
import pytest
import torch

from labeltrace.data import add_noise, from_arrays
from labeltrace.data.draws import Draws
from labeltrace.data.views import FeatureViews
from labeltrace.engine import RunConfig
from labeltrace.learners import learners
from labeltrace.learners.base import Batch
from labeltrace.models import build_model
from labeltrace.models.output import Output
from labeltrace.scoring import SampleMemory


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
    """A run of a few quick epochs; `settings` and `trace` are merged into quick defaults (TRACE with structure)."""
    quick = {"epochs": 4, "device": "cpu", "checkpoint_seconds": 1000.0, "learner": learner}
    quick["settings"] = {
        "batch_size": 16,
        **({"warmup": 1} if learner != "cross_entropy" else {}),
        **({"history": 2} if learner == "selfie" else {}),  # so that a few epochs reach every part of the method
        **changes.pop("settings", {}),
    }
    if learner in learners and learners[learner].refurbishes and changes.get("controller") != "coupled":
        quick["trace"] = {"structure": True, **changes.pop("trace", {})}
    return RunConfig.model_validate({**quick, **changes})


def batch(index, inputs, observed, beside=None, progress=0.0, seed=0):
    """A batch as the engine would make it."""
    draws, once = Draws.at(index, seed), Draws.at(torch.zeros(1, dtype=torch.int64), seed, 1)
    return Batch(index, inputs, observed, draws, once, torch.tensor(progress), beside)


def random_batch(size=8, seed=0, *, first=0, classes=3, beside=None, progress=0.0, draws=0):
    """Samples of four features and random labels, numbered from `first`; `draws` seeds the batch's own randomness."""
    g = torch.Generator().manual_seed(seed)
    inputs, observed = torch.randn(size, 4, generator=g), torch.randint(classes, (size,), generator=g)
    return batch(torch.arange(first, first + size), inputs, observed, beside, progress, draws)


def learner(kind, controller=None, *, size=20, classes=3, networks=None, **settings):
    """A learner of a class `kind` for `size` samples of four features, over the same small networks each time."""
    settings = kind.settings_type(**{"batch_size": 8, **settings})
    torch.manual_seed(0)
    if networks is None:
        bodies = (build_model("mlp", num_classes=classes, input_shape=(4,)) for _ in range(kind.networks_needed))
        networks = [kind.extend(settings, body, torch.zeros(2, 4)) for body in bodies]
    memory = SampleMemory(size, kind.fields(settings, classes))
    return kind(settings, networks, FeatureViews((0.0,) * 4, (1.0,) * 4), classes, memory, controller)


def watch(learner):
    """Let a learner's controller keep what it is given and what it answers: pairs in the list returned."""
    seen = []

    class Watched(type(learner.controller)):
        def __call__(self, evidence):
            seen.append((evidence, super().__call__(evidence)))
            return seen[-1][1]

    learner.controller.__class__ = Watched
    return seen


@contextlib.contextmanager
def let_go():
    """Small data, which nothing holds any more at the end, though Python has not looked for what holds itself."""
    data = blobs()
    held = weakref.ref(data.train.inputs)
    gc.disable()
    try:
        yield data
        del data
        assert held() is None
    finally:
        gc.enable()


class Fixed(torch.nn.Module):
    """A network that says the same of every sample: logits [1, C]."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits.clone())

    def forward(self, x):
        return Output(self.logits.expand(len(x), -1), (x, x))


class Loop:
    """In place of the engine's loop: remembers what it was asked, and steps through given batches without descending.

    Args:
        batches: what every pass walks.
        scores: what a scoring pass finds.
        labels: observed classes; those of 20 samples unless told.
        some: the samples that an epoch is about; all unless told.
        seed: of the run.
    """

    def __init__(self, *batches, scores=None, labels=None, some=None, seed=0):
        self.batches, self.scores, self.seed = batches, scores, seed
        self.labels = torch.arange(20) % 3 if labels is None else labels
        self.some = torch.arange(len(self.labels)) if some is None else some
        self.calls, self.outcomes, self.views, self.restarts, self.notes = [], [], [], [], []

    def train(self, step, *, members, batch_size, label, passes=1, before=None, **more):
        assert not (self.batches and more)  # the batches are all there is to walk
        asked = {"members": members, "batch_size": batch_size, "label": label, "passes": passes}
        self.calls.append(asked | more | ({} if before is None else {"before": before}))
        steps = [step] if before is None else [before, step]
        self.outcomes += [one(b) for _ in range(passes) for b in self.batches for one in steps]

    def score(self, view="plain"):
        assert self.scores is not None, "scores were asked for, none were given"
        self.views.append(view)
        return self.scores

    def chosen(self):
        return self.some

    def restart(self, number):
        self.restarts.append(number)

    def note(self, message):
        self.notes.append(message)


@contextlib.contextmanager
def killed_in(kind, epoch):
    """Within it a run of that class of learner dies as it begins an epoch, and is expected to."""
    original = kind.epoch

    def dying(self, loop, number):
        if number == epoch:
            raise RuntimeError("killed")
        original(self, loop, number)

    with mock.patch.object(kind, "epoch", dying), pytest.raises(RuntimeError, match="killed"):
        yield


def weights(trained):
    """All weights and buffers of a run's networks, in one vector."""
    return torch.cat([v.flatten().double() for n in trained.networks for v in n.state_dict().values()])
