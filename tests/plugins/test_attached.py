"""What every plug-in does with every learner that it attaches to: train, resume, stay finite at the edges."""

from dataclasses import replace

import pytest
import torch

import toy
from labeltrace.audit import samples_table
from labeltrace.engine import train
from labeltrace.learners import learners
from labeltrace.plugins import plugins
from labeltrace.scoring import ScorePass

PAIRS = [(plugin, name) for plugin in plugins for name in plugins[plugin].attached]
SMALL = {"snscl": {"width": 8, "slots": 4}}
EPOCHS = 7  # Confidence Tracking is certain of nothing with fewer


def run(folder, plugin, name, dataset=None, **changes):
    changes = {"controller": "coupled", "plugin": plugin, "plugin_settings": SMALL.get(plugin, {})} | changes
    return train(toy.config(name, **changes), folder, dataset=dataset or toy.blobs(), overwrite=True)


@pytest.mark.parametrize(("plugin", "name"), PAIRS)
def test_trains_and_resumes_bit_for_bit(tmp_path, plugin, name):
    whole = run(tmp_path / "whole", plugin, name, epochs=EPOCHS)
    with toy.killed_in(learners[name], EPOCHS - 2):
        run(tmp_path / "cut", plugin, name, epochs=EPOCHS, checkpoint_seconds=0.0)
    resumed = train(toy.config(name), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))
    assert samples_table(whole).equals(samples_table(resumed))


@pytest.mark.parametrize("posterior", [0.0, 1.0])
@pytest.mark.parametrize(("plugin", "name"), PAIRS)
def test_finite_when_none_or_all_are_held_clean(tmp_path, plugin, name, posterior, monkeypatch):
    finish = ScorePass.finish

    def rigged(self, *args, **kwargs):
        scores = finish(self, *args, **kwargs)
        return replace(scores, posterior=torch.full_like(scores.posterior, posterior))

    monkeypatch.setattr(ScorePass, "finish", rigged)
    assert torch.isfinite(toy.weights(run(tmp_path / "run", plugin, name))).all()


@pytest.mark.parametrize(("plugin", "name"), PAIRS)
def test_with_images_batches_of_two_and_one_class(tmp_path, plugin, name):
    data = toy.pictures(count=12)
    data = data.with_labels(torch.zeros(12, dtype=torch.int64), truth=None)
    asked = {"controller": "coupled", "plugin": plugin, "epochs": 2, "settings": {"batch_size": 2}}
    trained = train(toy.config(name, **asked), tmp_path / "run", dataset=data)
    assert torch.isfinite(toy.weights(trained)).all()


@pytest.mark.parametrize(("plugin", "name"), PAIRS)
def test_a_run_that_ended_holds_no_data(tmp_path, plugin, name):
    with toy.let_go() as data:
        run(tmp_path / "run", plugin, name, data)
        del data
