"""TraceClassifier: scikit-learn's contract, and what it finds out about labels."""

import builtins
import pickle
import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import labeltrace
import pictures
from labeltrace import TraceClassifier
from labeltrace.audit import class_names, read_samples
from labeltrace.errors import InputError
from labeltrace.models import build_model

EXAMPLES = Path(__file__).parent.parent / "examples"
QUICK = {"epochs": 6, "device": "cpu"}
ANIMALS = np.array(["bee", "cat", "dog"])
# The design, section 6; truth only where it is known.
COLUMNS = [
    "index", "id", "observed", "suggested", "clean", "structure", "agreement", "observed_reliability",
    "pseudo_reliability", "a", "b", "weight", "decision",
]  # fmt: skip


def clusters(rows=300, classes=3, features=8, wrong=0.3, seed=0):
    """Clear clusters (centres 6 deviations apart and more), the labels of a share of them flipped; X, y, truth."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(rows) % classes)
    X = rng.normal(size=(rows, features))
    X[np.arange(rows), truth] += 6
    y = truth.copy()
    flipped = rng.choice(rows, int(wrong * rows), replace=False)
    y[flipped] = (y[flipped] + rng.integers(1, classes, len(flipped))) % classes
    return X, y, truth


def column(report, name):
    return np.asarray(report[name])


@pytest.fixture(scope="module")
def fitted():
    X, y, truth = clusters()
    return TraceClassifier(epochs=10, device="cpu").fit(X, ANIMALS[y]), X, ANIMALS[y], ANIMALS[truth]


@parametrize_with_checks([TraceClassifier(epochs=4, device="cpu")])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_flipped_labels_are_found(fitted):
    model, _, y, truth = fitted
    wrong = y != truth
    assert wrong.sum() == 90
    doubted = column(model.label_report_, "decision") != "keep"
    assert doubted[wrong].mean() > 0.9 and wrong[doubted].mean() > 0.9  # chance: 0.3
    assert (column(model.label_report_, "suggested") == truth).mean() > 0.95  # the given labels: 0.7
    reliability = column(model.label_report_, "observed_reliability")
    assert reliability[wrong].mean() < reliability[~wrong].mean() - 0.3


def test_the_report_has_the_columns_of_the_samples_table(fitted):
    report, y = fitted[0].label_report_, fitted[2]
    names = list(report.column_names if isinstance(report, pa.Table) else report.columns)
    assert [name for name in names if name in COLUMNS] == COLUMNS
    assert "truth" not in names
    assert column(report, "observed").tolist() == y.tolist()
    assert column(report, "index").tolist() == list(range(300))


def test_string_labels_come_back_as_strings(fitted):
    model, X, _, truth = fitted
    assert model.classes_.tolist() == ["bee", "cat", "dog"]
    assert model.score(X, truth) > 0.95
    assert {type(label) for label in model.predict(X[:9]).tolist()} == {str}
    assert set(column(model.label_report_, "suggested").tolist()) <= set(ANIMALS.tolist())


def test_what_it_predicts_of_the_training_set_is_what_it_suggested(fitted):
    model, X, _, _ = fitted
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (300, 3)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert model.predict(X).tolist() == column(model.label_report_, "suggested").tolist()
    # RoLR's pseudo target is the mean of both networks' probabilities.
    assert np.allclose(probabilities.max(1), column(model.label_report_, "confidence"), atol=1e-5)


def test_a_prediction_does_not_depend_on_the_other_samples(fitted):
    model, X, _, _ = fitted
    assert np.allclose(model.predict_proba(X)[[7, 3]], model.predict_proba(X[[7, 3]]), atol=1e-6)


def test_features_are_standardised_inside():
    """Scale and place of a column carry nothing: powers of two, so that rounding carries nothing either."""
    X, y, _ = clusters(120)
    X = X.astype(np.float32)
    shifted = X * np.float32(1024)
    first, second = TraceClassifier(**QUICK).fit(X, y), TraceClassifier(**QUICK).fit(shifted, y)
    assert np.allclose(first.predict_proba(X), second.predict_proba(shifted), atol=1e-3)


def test_pickles_predict_identically_before_and_after(fitted):
    model, X, _, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert column(again.label_report_, "decision").tolist() == column(model.label_report_, "decision").tolist()
    fresh = pickle.loads(pickle.dumps(TraceClassifier(epochs=3)))
    assert fresh.get_params() == TraceClassifier(epochs=3).get_params()


def test_the_seed_decides():
    X, y, _ = clusters(90)
    one, same, other = (TraceClassifier(**QUICK, random_state=seed).fit(X, y).predict_proba(X) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
    drawn = [TraceClassifier(**QUICK, random_state=np.random.RandomState(5)).fit(X, y).predict_proba(X) for _ in "ab"]
    assert (drawn[0] == drawn[1]).all()


def test_the_random_state_of_the_caller_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    X, y, _ = clusters(60)
    TraceClassifier(epochs=2, device="cpu").fit(X, y)
    assert torch.equal(torch.rand(2), expected)


def test_clones_and_parameters():
    model = TraceClassifier(learner="dividemix", epochs=7, settings={"lr": 0.01})
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(controller="coupled").controller == "coupled"
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=3)


def test_a_pipeline_and_a_grid_search():
    X, y, truth = clusters(150)
    pipeline = make_pipeline(StandardScaler(), TraceClassifier(**QUICK)).fit(X, y)
    assert pipeline.score(X, truth) > 0.9
    grid = {"traceclassifier__epochs": [1, 6], "traceclassifier__controller": ["coupled", "trace"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert search.score(X, truth) > 0.9
    assert len(search.best_estimator_[-1].label_report_) == 150


def test_cross_val_predict_gives_probabilities_of_samples_that_were_left_out():
    X, y, truth = clusters(150)
    probabilities = cross_val_predict(TraceClassifier(**QUICK), X, y, cv=3, method="predict_proba")
    assert probabilities.shape == (150, 3)
    assert (probabilities.argmax(1) == truth).mean() > 0.9


@pytest.mark.parametrize("learner", ["cross_entropy", "dividemix"])
def test_other_learners(learner):
    X, y, truth = clusters(150, wrong=0.1)
    controller = None if learner == "cross_entropy" else "trace"
    model = TraceClassifier(learner, controller, **QUICK).fit(X, y)
    assert model.score(X, truth) > 0.85


def test_a_learner_without_a_refurbishment_step_refuses_trace():
    with pytest.raises(InputError, match=r"cross_entropy has no refurbishment step .* pass controller=None"):
        TraceClassifier("cross_entropy", **QUICK).fit(*clusters(60)[:2])


def test_images_in_either_order_of_channels(tmp_path):
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    images = rng.integers(0, 60, (60, 12, 12, 3), dtype=np.uint8)
    for i, label in enumerate(truth):
        images[i, :, 6 * label : 6 * label + 6] += 150
    model = TraceClassifier(epochs=8, device="cpu", flip=False).fit(images, truth)
    assert model.score(images, truth) > 0.9
    assert (model.predict(images.transpose(0, 3, 1, 2)) == model.predict(images)).all()
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(InputError, match=r"\(3, 9, 12\).*\(3, 12, 12\)"):
        model.predict(images[:, 3:])
    with pytest.raises(InputError, match="trained on uint8 images"):
        model.predict(np.zeros((2, 5)))
    with pytest.raises(InputError, match="uint8"):
        TraceClassifier(**QUICK).fit(images / 255, truth)


def test_a_folder_of_images(tmp_path):
    pictures.write(tmp_path / "pets")
    model = TraceClassifier(epochs=2, device="cpu").fit(str(tmp_path / "pets"))
    assert model.classes_.tolist() == ["class0", "class1"]
    assert column(model.label_report_, "id").tolist()[0] == "class0/0000.png"
    assert column(model.label_report_, "observed").tolist() == ["class0"] * 6 + ["class1"] * 6
    predicted = model.predict(tmp_path / "pets")
    assert predicted.tolist() == column(model.label_report_, "suggested").tolist()
    with pytest.raises(InputError, match="carries its own labels"):
        TraceClassifier(**QUICK).fit(tmp_path / "pets", ["cat"] * 12)


def test_a_network_of_ones_own():
    X, y, truth = clusters(150)
    model = TraceClassifier(**QUICK, model=own_network).fit(X, y)
    assert sum(p.numel() for p in model.networks_[0].parameters()) == sum(p.numel() for p in own_network().parameters())
    assert pickle.loads(pickle.dumps(clone(model))).model is own_network
    assert model.score(X, truth) > 0.9


def own_network():
    return build_model("mlp", num_classes=3, input_shape=(8,))


def test_read_only_float16_and_mapped_arrays_are_taken_as_they_are(tmp_path):
    X, y, _ = clusters(90)
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    copied = np.array(mapped, np.float32)
    models = [TraceClassifier(**QUICK).fit(given, y) for given in (mapped, copied)]
    assert (models[0].predict_proba(mapped) == models[1].predict_proba(copied)).all()
    assert not mapped.flags.writeable and copied.dtype == np.float32


def test_the_run_stays_where_it_is_asked_to(tmp_path, capfd):
    X, y, _ = clusters(60)
    model = TraceClassifier(epochs=2, device="cpu", run_dir=tmp_path / "run").fit(X, ANIMALS[y])
    table = read_samples(tmp_path / "run")
    assert class_names(table) == ANIMALS.tolist()
    assert table["decision"].to_pylist() == column(model.label_report_, "decision").tolist()
    with pytest.raises(InputError, match="holds a run; choose another"):
        model.fit(X, y)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    model.set_params(run_dir=None, verbose=True).fit(X, y)
    assert "rolr + trace" in capfd.readouterr().err


def test_no_temporary_folder_is_left(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X, y, _ = clusters(24)  # fewer than a group of neighbours
    TraceClassifier(epochs=2, device="cpu").fit(X, y)
    assert list(tmp_path.iterdir()) == []
    assert [w for w in recwarn if "labeltrace" in str(w.filename)] == []


def test_refusals():
    X, y, _ = clusters(60)
    model = TraceClassifier(epochs=1, device="cpu")
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="one class, 1; a classifier needs two"):
        model.fit(X, np.ones(60, int))
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, X[:, 0])
    hole = X.copy()
    hole[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(hole, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    model.fit(X, y)
    with pytest.raises(ValueError, match="has 7 features, but TraceClassifier is expecting 8"):
        model.predict(X[:, :7])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(hole)
    with pytest.raises(InputError, match="did you mean 'rolr'"):
        TraceClassifier("rollr", **QUICK).fit(X, y)
    with pytest.raises(InputError, match="TraceClassifier: epochs"):
        TraceClassifier(epochs=0, device="cpu").fit(X, y)


@pytest.mark.parametrize("odd", [None, 3])
def test_labels_that_do_not_go_together_are_named(odd):
    X, _, _ = clusters(6)
    with pytest.raises(ValueError, match=f"y mixes .*{type(odd).__name__}.*; expected a number, or a word"):
        TraceClassifier(device="cpu").fit(X, np.array(["ox", "cat", odd, "ox", "cat", "ox"], object))


def test_images_and_labels_are_as_many():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        TraceClassifier(device="cpu").fit(np.zeros((6, 8, 8), np.uint8), [0, 0, 0])


def test_ctrl_c_ends_a_search_and_is_not_a_failed_fit(monkeypatch):
    def stop(*_, **__):
        raise labeltrace.sklearn.Interrupted(None, 0)

    monkeypatch.setattr("labeltrace.sklearn.run", stop)
    with pytest.raises(KeyboardInterrupt):
        GridSearchCV(TraceClassifier(), {"epochs": [1]}, cv=2).fit(*clusters(30)[:2])


def test_data_frames_keep_names_and_index():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X, y, _ = clusters(60)
    index = [f"row {i}" for i in range(60)]
    frame = pandas.DataFrame(X, index=index, columns=[f"x{i}" for i in range(8)])
    model = TraceClassifier(epochs=2, device="cpu").fit(frame, pandas.Series(ANIMALS[y], index=index))
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.label_report_.index.tolist() == index
    assert len(frame[model.label_report_["decision"] != "keep"]) <= 60  # aligned: no error
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


def test_the_report_is_a_pyarrow_table_without_pandas(monkeypatch):
    importing = builtins.__import__

    def without_pandas(name, *rest):
        if name == "pandas":
            raise ImportError(name)
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    table = pa.table({"observed": [1, 0], "suggested": [0, 0], "truth": [-1, 1], "clean": [0.5, 1.0]})
    report = labeltrace.sklearn._report(table, np.array(["a", "b"]), (None, None))
    assert isinstance(report, pa.Table)
    assert report.to_pydict() == {
        "observed": ["b", "a"], "suggested": ["a", "a"], "truth": [None, "b"], "clean": [0.5, 1.0]
    }  # fmt: skip


def test_the_example_of_a_pipeline(capsys):
    accuracy, suggested = runpy.run_path(str(EXAMPLES / "pipeline.py"))["main"](2)
    assert accuracy > 0.85 and suggested > 0.85  # seven in ten of the given labels are right
    assert "best: {'traceclassifier__controller'" in capsys.readouterr().out
