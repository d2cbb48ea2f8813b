"""From a run as asked for to a run as it will be: recipes, shrinking, mistakes found before a file is written."""

import dataclasses

import numpy as np
import pytest

import pictures
import toy
from labeltrace.control import Coupled, Trace, TraceConfig
from labeltrace.data import from_arrays
from labeltrace.engine import RunConfig, plan, train
from labeltrace.errors import InputError
from labeltrace.learners import learners
from labeltrace.models import Staged, models

RECIPES = [(name, preset) for name in learners for preset in learners[name].presets]


def planned(**asked):
    return plan(RunConfig.model_validate({"device": "cpu", **asked}), toy.blobs())


def epoch_valued(learner):
    return [f.name for f in dataclasses.fields(learners[learner].settings_type) if f.metadata["epochs"]]


def test_a_fifth_of_the_recipe_has_a_fifth_of_its_epochs():
    """RoLR's 515 epochs: 15 of warm-up, a drop after 401 more; TRACE starts 30 after warm-up and takes 20."""
    short = planned(learner="rolr", preset="cifar", epochs=103)
    assert (short.settings.epochs, short.settings.warmup, short.settings.lr_drop) == (103, 3, 80)
    assert (short.trace.start, short.trace.ramp) == (6, 4)
    assert (short.config.epochs, short.config.settings["warmup"], short.config.trace["start"]) == (103, 3, 6)


def test_the_recipe_itself_is_not_shrunk():
    whole = planned(learner="rolr", preset="cifar")
    assert (whole.settings.epochs, whole.settings.warmup, whole.settings.lr_drop) == (515, 15, 401)
    assert (whole.trace.start, whole.trace.ramp) == (30, 20)


def test_what_is_given_explicitly_is_not_shrunk():
    given = planned(learner="rolr", preset="cifar", epochs=103, settings={"warmup": 15}, trace={"ramp": 20})
    assert (given.settings.warmup, given.trace.ramp) == (15, 20)
    assert (given.settings.lr_drop, given.trace.start) == (80, 6)  # the others are


def test_the_length_may_be_given_among_the_settings():
    short = planned(learner="rolr", preset="cifar", settings={"epochs": 103})
    assert (short.config.epochs, short.settings.warmup, short.trace.start) == (103, 3, 6)


def test_only_epochs_shrink():
    whole, short = (planned(learner="rolr", preset="cifar", epochs=epochs) for epochs in (None, 103))
    changed = {name for name in whole.config.settings if whole.config.settings[name] != short.config.settings[name]}
    assert changed == {"epochs", "warmup", "lr_drop"}
    assert {name for name in whole.config.trace if whole.config.trace[name] != short.config.trace[name]} == {
        "start",
        "ramp",
    }


@pytest.mark.parametrize(("learner", "preset"), RECIPES)
@pytest.mark.parametrize("share", [0.001, 0.03, 0.2, 0.5, 0.77, 0.999, 1.0, 1.3, 10.0])
def test_epochs_shrink_in_proportion_and_never_grow(learner, preset, share):
    recipe = planned(learner=learner, preset=preset)
    epochs = max(1, int(share * recipe.settings.epochs))
    run = planned(learner=learner, preset=preset, epochs=epochs)
    pairs = [(getattr(recipe.settings, name), getattr(run.settings, name)) for name in epoch_valued(learner)]
    pairs += [(recipe.trace.start, run.trace.start), (recipe.trace.ramp, run.trace.ramp)]
    for whole, found in pairs:
        expected = whole * min(1.0, epochs / recipe.settings.epochs)
        assert abs(found - expected) <= 0.5 or found == 1  # to the nearest epoch, but not away altogether
        assert min(1, whole) <= found <= whole


@pytest.mark.parametrize("learner", list(learners))
@pytest.mark.parametrize("epochs", [None, 7])
def test_a_resolved_run_resolves_to_itself(learner, epochs):
    once = planned(learner=learner, epochs=epochs)
    twice = plan(once.config, toy.blobs())
    assert twice.config == once.config
    assert (twice.settings, twice.trace) == (once.settings, once.trace)


def images(side, channels=3):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (6, side, side, channels), dtype=np.uint8)
    return from_arrays(pixels, [0, 1] * 3, layout="NHWC")


@pytest.mark.parametrize("learner", list(learners))
@pytest.mark.parametrize(
    ("data", "preset", "model"),
    [
        (toy.blobs(), "small", "mlp"),
        (toy.pictures(), "small", "small_cnn"),
        (images(28), "small", "small_cnn"),
        (images(32), "cifar", "preact_resnet18"),
    ],
    ids=["features", "8 pixels", "28 pixels", "32 pixels"],
)
def test_recipe_and_network_follow_the_kind_of_data(learner, data, preset, model):
    found = plan(RunConfig(learner=learner), data)
    assert (found.config.preset, found.config.model) == (preset, model)
    assert found.settings.epochs == found.config.epochs
    for name, (value, _) in learners[learner].presets[preset].values.items():
        assert getattr(found.settings, name) == value


def test_what_is_asked_for_goes_before_the_kind_of_data():
    found = plan(RunConfig(learner="rolr", preset="cifar", model="resnet18"), toy.pictures())
    assert (found.config.preset, found.config.model) == ("cifar", "resnet18")


@pytest.mark.parametrize("learner", [name for name in learners if learners[name].refurbishes])
def test_controllers(learner):
    assert isinstance(planned(learner=learner).controller, Trace)
    assert isinstance(planned(learner=learner, controller="coupled").controller, Coupled)
    traced = planned(learner=learner, controller="trace", trace={"alpha": 0.25, "structure": False})
    assert (traced.controller.config.alpha, traced.controller.config.structure) == (0.25, False)


@pytest.mark.parametrize("asked", [{}, {"controller": "trace"}])
def test_a_run_has_the_papers_trace_but_structure_only_on_request(asked):
    found = planned(learner="rolr", preset="cifar", **asked).trace
    assert found == dataclasses.replace(TraceConfig(), structure=False)
    assert planned(learner="rolr", preset="cifar", trace={"structure": True}, **asked).trace == TraceConfig()
    assert not planned(learner="rolr", preset="small", **asked).trace.structure


def test_a_users_own_network_is_taken():
    def make():
        return Staged(models["mlp"](3, (6,), "gap"), ["layers.0", "layers.1"])

    assert plan(RunConfig(), toy.blobs(), make).make_network is make


def test_noise_is_drawn_by_its_own_seed_or_the_runs():
    clean = toy.blobs(noise=0)
    shared = {"noise": "symmetric", "rate": 0.5}
    by_run = plan(RunConfig(seed=4, **shared), clean)
    by_itself = plan(RunConfig(seed=1, noise_seed=4, **shared), clean)
    other = plan(RunConfig(seed=1, **shared), clean)
    assert by_run.noise.sha256 == by_itself.noise.sha256 != other.noise.sha256
    assert by_run.config.noise_seed == 4
    assert by_run.dataset.train.truth.equal(clean.train.labels)


def test_a_subset_is_drawn_before_the_noise():
    found = plan(RunConfig(subset=30, noise="symmetric-exact", rate=0.5), toy.blobs(noise=0))
    assert len(found.dataset.train) == 30
    assert found.noise.flipped == 15


MISTAKES = {
    "learner": ({"learner": "rollr"}, "did you mean 'rolr'"),
    "learner, none near": ({"learner": "zzz"}, "known: .*cross_entropy.*rolr"),
    "preset": ({"preset": "smal"}, "preset 'smal' of rolr: did you mean 'small'"),
    "controller": ({"controller": "trase"}, "did you mean 'trace'"),
    "model": ({"model": "resnet81"}, "did you mean 'resnet18'"),
    "noise": ({"noise": "symetric", "rate": 0.2}, "did you mean 'symmetric'"),
    "setting": ({"settings": {"batchsize": 4}}, "did you mean 'batch_size'"),
    "setting of another learner": ({"learner": "cross_entropy", "settings": {"lambda_p": 1}}, "unknown key 'lambda_p'"),
    "type of a setting": ({"settings": {"lr": "fast"}}, "lr.*'fast'"),
    "range of a setting": ({"settings": {"batch_size": 0}}, "batch_size: 0, expected ≥ 1"),
    "setting of TRACE": ({"trace": {"alpa": 0.5}}, "did you mean 'alpha'"),
    "range of a setting of TRACE": ({"trace": {"alpha": 2}}, "alpha: 2.0, expected"),
    "TRACE's settings without it": ({"controller": "coupled", "trace": {"alpha": 0.5}}, "controller is 'coupled'"),
    "TRACE's settings where none applies": ({"learner": "cross_entropy", "trace": {"alpha": 0.5}}, "no controller"),
    "pooling of own features": ({"learner": "anne", "trace": {"pooling": "flatten"}}, "would change anne too"),
    "pooling of its heads": ({"learner": "crosssplit", "trace": {"pooling": "flatten"}}, "would change crosssplit too"),
    "controller where none applies": ({"learner": "cross_entropy", "controller": "coupled"}, "no controller"),
    "rate without noise": ({"rate": 0.4}, "rate: 0.4 given without a noise.*symmetric"),
    "rate too large": ({"noise": "symmetric", "rate": 1.0}, r"rate 1.0 is outside \[0, 1\)"),
    "noise file": ({"noise_file": "absent.npz"}, "no noise file absent.npz"),
    "rate below 0": ({"noise": "symmetric", "rate": -0.1}, "rate -0.1 is outside"),
    "subset too large": ({"subset": 97}, "97 samples from 96"),
    "model that does not fit": ({"model": "small_cnn"}, "takes images.*'mlp'"),
    "device": ({"device": "tpu"}, "'tpu', expected auto, cpu, cuda"),
    "number of a device": ({"device": "cuda:first"}, "'cuda:first', expected"),
    "precision": ({"precision": "fp8"}, "'fp8', expected auto, fp32 or bf16"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_and_nothing_is_written(tmp_path, mistake):
    asked, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words) as caught:
        train(RunConfig.model_validate({"device": "cpu", **asked}), tmp_path / "run", dataset=toy.blobs(noise=0))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


WITHOUT_DATA = ["preset", "setting", "type of a setting", "range of a setting", "setting of TRACE"]
WITHOUT_DATA += ["rate too large", "rate below 0", "noise file", "pooling of its heads"]


@pytest.mark.parametrize("mistake", WITHOUT_DATA)
def test_what_does_not_depend_on_the_data_is_refused_before_it_is_looked_for(tmp_path, mistake):
    asked, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words):
        plan(RunConfig.model_validate({"data": str(tmp_path / "nowhere"), **asked}))


@pytest.mark.parametrize("asked", [{"model": "mlp"}, {"weights": "missing.pt"}], ids=str)
def test_what_does_not_fit_the_images_is_refused_before_they_are_read(tmp_path, asked):
    for path in pictures.write(tmp_path, count=4):
        pictures.spoil(path, "empty")
    with pytest.raises(InputError, match=r"mlp|missing\.pt"):
        plan(RunConfig.model_validate({"data": str(tmp_path), **asked}))
    with pytest.raises(InputError, match="empty file"):
        plan(RunConfig(data=str(tmp_path)))


def test_a_folder_that_is_taken_is_refused_before_images_are_read(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(InputError, match="not empty and not a run"):
        train(RunConfig(data=str(tmp_path / "nowhere")), tmp_path / "run")


def test_noise_on_labels_that_are_wrong_already_is_refused(tmp_path):
    with pytest.raises(InputError, match="differ from the truth already"):
        train(RunConfig(noise="symmetric", rate=0.2), tmp_path / "run", dataset=toy.blobs(noise=0.25))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_dataset_is_named_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="did you mean 'digits'"):
        train(RunConfig(data="digit"), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_controller_keeps_no_settings_of_trace():
    for asked in ({"learner": "cross_entropy"}, {"learner": "rolr", "controller": "coupled"}):
        assert planned(**asked).config.trace == {}
    assert planned(learner="rolr").config.trace.keys() == {f.name for f in dataclasses.fields(TraceConfig)}
