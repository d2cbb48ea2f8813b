"""What is asked of every learner in the registry; a new one is tested without writing a test."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import toy
from labeltrace.audit import samples_table
from labeltrace.control.trace import VARIANTS
from labeltrace.data import from_arrays
from labeltrace.engine import train
from labeltrace.errors import InputError
from labeltrace.learners import learners
from labeltrace.learners.settings import sources
from labeltrace.models import Staged
from labeltrace.scoring import Scores

EVERY = list(learners)
REFURBISHING = [name for name in EVERY if learners[name].refurbishes]


def controllers(name):
    return ["coupled", "trace"] if learners[name].refurbishes else [None]


CASES = [(name, controller) for name in EVERY for controller in controllers(name)]


def run(tmp_path, name, controller=None, dataset=None, folder="run", **changes):
    changes.setdefault("trace", {"start": 1, "ramp": 1, "k": 5, "score_batch": 16} if controller == "trace" else {})
    config = toy.config(name, controller=controller, **changes)
    return train(config, tmp_path / folder, dataset=dataset or toy.blobs(), overwrite=True)


@pytest.mark.parametrize(("name", "controller"), CASES)
def test_lowers_its_loss_and_learns(tmp_path, name, controller):
    trained = run(tmp_path, name, controller, epochs=12)
    first, last = trained.metrics[0]["loss"], trained.metrics[-1]["loss"]
    assert last < first
    assert trained.summary["last"] > 0.8


@pytest.mark.parametrize(("name", "controller"), CASES)
def test_same_seed_same_verdicts(tmp_path, name, controller):
    one, two = (run(tmp_path, name, controller, folder=f) for f in ("one", "two"))
    assert torch.equal(toy.weights(one), toy.weights(two))
    assert samples_table(one).equals(samples_table(two))
    other = run(tmp_path, name, controller, folder="three", seed=1)
    assert not torch.equal(toy.weights(one), toy.weights(other))


@pytest.mark.parametrize(("name", "controller"), CASES)
def test_resumes_bit_for_bit(tmp_path, name, controller):
    whole = run(tmp_path, name, controller, folder="whole")
    # Stop during the third epoch, as a kill would: what is on disk is the end of the second.
    with toy.killed_in(learners[name], 2):
        run(tmp_path, name, controller, folder="cut", checkpoint_seconds=0.0)
    resumed = train(toy.config(name), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))
    assert samples_table(whole).equals(samples_table(resumed))
    drop = {"seconds"}
    for a, b in zip(whole.metrics, resumed.metrics, strict=True):
        assert {k: v for k, v in a.items() if k not in drop} == {k: v for k, v in b.items() if k not in drop}


@pytest.mark.parametrize(("name", "controller"), CASES)
@pytest.mark.parametrize("posterior", [0.0, 1.0])
def test_finite_when_none_or_all_are_held_clean(tmp_path, name, controller, posterior, monkeypatch):
    """An empty clean set, and an empty noisy set."""
    from labeltrace.scoring import ScorePass

    finish = ScorePass.finish

    def rigged(self, *args, **kwargs) -> Scores:
        scores = finish(self, *args, **kwargs)
        return dataclasses.replace(scores, posterior=torch.full_like(scores.posterior, posterior))

    monkeypatch.setattr(ScorePass, "finish", rigged)
    trained = run(tmp_path, name, controller)
    assert torch.isfinite(toy.weights(trained)).all()
    assert all(np.isfinite(record["loss"]) for record in trained.metrics)


@pytest.mark.parametrize(("name", "controller"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_finite_with_batches_of_one_and_batches_of_one_class(tmp_path, name, controller):
    small = {"batch_size": 1}
    if hasattr(learners[name].settings_type, "warmup_batch_size"):
        small["warmup_batch_size"] = 1
    data = toy.pictures(count=12)
    trained = run(tmp_path, name, controller, dataset=data, epochs=2, settings=small)
    assert torch.isfinite(toy.weights(trained)).all()
    one_class = data.with_labels(torch.zeros(12, dtype=torch.int64), truth=None)
    trained = run(tmp_path, name, controller, dataset=one_class, epochs=2)
    assert torch.isfinite(toy.weights(trained)).all()


@pytest.mark.parametrize(("name", "controller"), CASES)
def test_takes_any_module_that_returns_stage_features(tmp_path, name, controller):
    def network():
        body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
        return Staged(body, ["1", "3"])

    config = toy.config(name, controller=controller)
    trained = train(config, tmp_path / "own", dataset=toy.blobs(), make_network=network)
    assert torch.isfinite(toy.weights(trained)).all()


@pytest.mark.parametrize(("name", "controller"), CASES)
def test_a_run_that_ended_holds_no_data(tmp_path, name, controller):
    with toy.let_go() as data:
        run(tmp_path, name, controller, dataset=data, epochs=2)
        del data


@pytest.mark.parametrize("name", REFURBISHING)
@pytest.mark.parametrize("variant", VARIANTS)
def test_trace_before_its_start_is_the_learner_without_it(tmp_path, name, variant):
    late = dataclasses.asdict(VARIANTS[variant]) | {"start": 1000, "ramp": 1}
    base, traced = (
        run(tmp_path, name, "coupled", folder="base"),
        run(tmp_path, name, "trace", folder="trace", trace=late),
    )
    assert torch.equal(toy.weights(base), toy.weights(traced))
    for a, b in zip(base.metrics, traced.metrics, strict=True):
        assert a["loss"] == b["loss"] and a["phases"] == b["phases"]


@pytest.mark.parametrize("name", REFURBISHING)
@pytest.mark.parametrize(
    "options", [{"structure": False}, {"scope": "batch"}, {"reweight": False}, {"pseudo_gate": False}]
)
def test_trace_after_its_start_changes_training(tmp_path, name, options):
    base = run(tmp_path, name, "coupled", folder="base")
    traced = run(tmp_path, name, "trace", folder="trace", trace={"start": 0, "ramp": 0, "k": 5, **options})
    assert not torch.equal(toy.weights(base), toy.weights(traced))


@pytest.mark.parametrize("name", [name for name in EVERY if name not in REFURBISHING])
def test_a_method_without_refurbishment_refuses_a_controller(tmp_path, name):
    with pytest.raises(InputError, match="takes no controller"):
        run(tmp_path, name, "trace")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", EVERY)
def test_every_setting_has_a_source(name):
    learner = learners[name]
    for preset in learner.presets.values():
        found = sources(learner.settings_type, preset)
        assert all(len(source) > 8 and source != "declared by each learner" for source in found.values()), found
        assert all(len(source) > 8 for _, source in preset.trace.values())
    assert {"cifar", "small", "large"} <= set(learner.presets)


@pytest.mark.parametrize("name", EVERY)
def test_knows_no_dataset(name, tmp_path):
    """Sizes and classes come from the data: an odd one works."""
    rng = np.random.default_rng(0)
    data = from_arrays(rng.normal(size=(37, 5)), rng.integers(0, 7, 37), classes=range(7))
    trained = run(tmp_path, name, controllers(name)[-1], dataset=data, epochs=2, settings={"batch_size": 10})
    assert len(trained.judgement.clean) == 37
    assert copy.copy(trained.summary) == {}  # no test set, so no accuracy is claimed
