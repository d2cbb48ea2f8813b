"""`labeltrace.audit(X, y)`, and the audit of features in files."""

import csv
import inspect
import json
import pydoc
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeltrace
import pictures
from labeltrace.audit import class_names, detection, read_samples
from labeltrace.cli import _main
from labeltrace.data import load_dataset
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.numpy_files import load_npy
from labeltrace.engine import RunFolder, load_config
from labeltrace.errors import InputError
from labeltrace.features import LENGTHS, audit_features, feature_recipe
from labeltrace.learners import learners
from labeltrace.models import build_model

EXAMPLES = Path(__file__).parent.parent / "examples"
FRUIT = np.array(["apple", "pear", "plum"])


def clusters(rows=240, wrong=0.3, seed=0):
    """Three clear clusters in six dimensions, labels of a share of them flipped; X, y, truth."""
    rng = np.random.default_rng(seed)
    truth = np.arange(rows) % 3
    X = rng.normal(size=(rows, 6)).astype(np.float32)
    X[np.arange(rows), truth] += 6
    y = truth.copy()
    flipped = rng.choice(rows, int(wrong * rows), replace=False)
    y[flipped] = (y[flipped] + rng.integers(1, 3, len(flipped))) % 3
    return X, y, truth


@pytest.fixture
def files(tmp_path):
    X, y, _ = clusters()
    np.save(tmp_path / "emb.npy", X.astype(np.float16))
    lines = "".join(f"{word}\n" for word in FRUIT[y])
    (tmp_path / "labels.csv").write_text("label\n" + lines, encoding="utf-8")
    return tmp_path


def test_three_lines_find_the_wrong_labels():
    X, y, truth = clusters()
    report = labeltrace.audit(X, FRUIT[y], device="cpu")
    doubted, wrong = np.asarray(report["decision"]) != "keep", y != truth
    assert wrong.sum() == 72
    assert doubted[wrong].mean() > 0.9 and wrong[doubted].mean() > 0.9  # chance: 0.3
    assert (np.asarray(report["suggested"]) == FRUIT[truth]).mean() > 0.95


def test_the_call_says_what_it_takes():
    from labeltrace.auditing import audit

    assert inspect.signature(labeltrace.audit) == inspect.signature(audit)
    assert list(inspect.signature(audit).parameters)[:2] == ["X", "y"]


def test_help_shows_the_call_and_the_folder():
    words = pydoc.render_doc(labeltrace.audit, renderer=pydoc.plaintext)
    assert "labeltrace.audit(X: " in words and "read_samples(path" in words
    for name in inspect.signature(labeltrace.audit).parameters:
        assert f"\n        {name}: " in words


def test_a_folder_of_photos_with_a_bad_one(tmp_path):
    files = pictures.write(tmp_path / "photos", side=16)
    bad = pictures.spoil(files[3])
    quick = {"learner": "cross_entropy", "controller": None, "preset": "small", "epochs": 1, "device": "cpu"}
    with pytest.raises(InputError, match=rf"{bad.name}: .* pass bad_images='skip'$"):
        labeltrace.audit(tmp_path / "photos", **quick)
    run = tmp_path / "run"
    report = labeltrace.audit(tmp_path / "photos", **quick, image_size=8, bad_images="skip", run_dir=run)
    assert [Path(name).name for name in report["id"]] == [path.name for path in files if path != bad]
    config = load_config(RunFolder.open(run).config, {})
    assert config.read == {"image_size": 8, "bad_images": "skip"} and config.preset == "small"


def test_errors_name_parameters_and_not_flags(files):
    (files / "odd.csv").write_text("a,b,fruit\n1,2,pear\n3,1,plum\n", encoding="utf-8")
    with pytest.raises(InputError, match="name it with label_column"):
        labeltrace.audit(files / "odd.csv")
    with pytest.raises(InputError, match=r"no column 'x' \(label_column\): "):
        labeltrace.audit(files / "odd.csv", label_column="x")
    with pytest.raises(InputError, match="carries no labels; pass labels FILE"):
        labeltrace.audit(files / "emb.npy")
    with pytest.raises(InputError, match="bad_images: 'ignore', expected 'stop' or 'skip'"):
        labeltrace.audit(files / "odd.csv", label_column="fruit", bad_images="ignore")
    with pytest.raises(InputError, match="image_size: say how files are read; X is ndarray"):
        labeltrace.audit(np.eye(4), [0, 1, 0, 1], image_size=32)
    report = labeltrace.audit(files / "emb.npy", labels=files / "labels.csv", epochs=1, device="cpu")
    assert np.asarray(report["observed"]).tolist() == FRUIT[clusters()[1]].tolist()


@pytest.mark.parametrize("first", ["labeltrace.audit", "import labeltrace.runs"])
def test_the_folder_can_be_called_whoever_imports_it_first(first):
    code = f"""
import json, labeltrace
light = "labeltrace.audit" not in __import__("sys").modules
{first}
import labeltrace.audit as folder
from labeltrace.audit import read_samples
print(json.dumps([light, callable(labeltrace.audit), folder is labeltrace.audit, folder.read_samples is read_samples]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True] * 4


def test_names_that_are_not_there_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'TraceClasifier'"):
        labeltrace.TraceClasifier  # noqa: B018


@pytest.mark.parametrize("learner", list(learners))
def test_the_recipe_fits_every_learner(learner):
    for rows in (2, 1_000, 30_000, 30_001, 10**7):
        recipe = feature_recipe(rows, learner)
        assert set(recipe) == {"epochs", "settings"}
        learners[learner].settings_type(**recipe["settings"])  # no name that it does not have


def test_the_recipe_grows_with_the_rows():
    rows = [10, 150, 1_500, 2_000, 20_000, 10**5, 10**6, 10**7]
    recipes = [feature_recipe(n) for n in rows]
    batches = [recipe["settings"]["batch_size"] for recipe in recipes]
    assert batches == sorted(batches) and batches[0] == 16 and batches[-1] == 1024
    assert [recipe["epochs"] for recipe in recipes] == sorted((recipe["epochs"] for recipe in recipes), reverse=True)
    for n, batch in zip(rows, batches, strict=True):
        assert n / batch <= 64 or batch == next(largest for most, _, largest in LENGTHS if n <= most)
    assert LENGTHS[-1][1] >= 4  # one of warm-up, and TRACE at full strength for one


def test_a_file_of_embeddings_becomes_a_run(files):
    table = audit_features(files / "emb.npy", files / "labels.csv", files / "run", device="cpu", epochs=6)
    _, y, truth = clusters()
    assert class_names(table) == FRUIT.tolist()
    assert table["observed"].to_pylist() == y.tolist()
    assert read_samples(files / "run").equals(table)
    figures = detection(table.append_column("truth", [truth.astype(np.int32)]))
    assert figures["recall"] > 0.85 and figures["precision"] > 0.85
    # The run can be repeated from its folder: the data is a path, not an array in memory.
    config = load_config(RunFolder.open(files / "run").config, {})
    assert config.data == str(files / "emb.npy") and config.read == {"labels": str(files / "labels.csv")}
    assert (config.epochs, config.settings["batch_size"], config.model) == (6, 16, "mlp")


def test_labels_may_stand_in_the_features_own_file(tmp_path):
    X, y, _ = clusters(60)
    np.savez(tmp_path / "data.npz", features=X, labels=FRUIT[y])
    table = audit_features(tmp_path / "data.npz", None, tmp_path / "run", device="cpu", epochs=1)
    assert table.num_rows == 60 and class_names(table) == FRUIT.tolist()


def test_what_cannot_be_audited_is_refused_and_nothing_is_written(files):
    out = files / "run"
    with pytest.raises(InputError, match="no such file"):
        audit_features(files / "nothing.npy", files / "labels.csv", out)
    with pytest.raises(InputError, match="carries no labels; pass --labels"):
        audit_features(files / "emb.npy", None, out)
    with pytest.raises(InputError, match=r"240 rows, but .* has 3 labels"):
        (files / "short.txt").write_text("a\nb\na\n", encoding="utf-8")
        audit_features(files / "emb.npy", files / "short.txt", out)
    with pytest.raises(InputError, match=r"expected features \[N, D\]"):
        np.save(files / "images.npy", np.zeros((240, 8, 8, 3), np.uint8))
        audit_features(files / "images.npy", files / "labels.csv", out)
    with pytest.raises(InputError, match="did you mean 'rolr'"):
        audit_features(files / "emb.npy", files / "labels.csv", out, learner="rollr")
    assert not out.exists()
    audit_features(files / "emb.npy", files / "labels.csv", out, device="cpu", epochs=1)
    with pytest.raises(InputError, match="holds a run"):
        audit_features(files / "emb.npy", files / "labels.csv", out, device="cpu", epochs=1)


def test_the_input_is_the_shallowest_stage(files):
    """So that drift begins where the encoder, which never saw the labels, has left off."""
    import torch

    network = build_model("mlp", num_classes=3, input_shape=(6,))
    rows = torch.from_numpy(np.array(load_npy(files / "emb.npy")[:4], np.float32))
    assert torch.equal(network(rows).features[0], rows)


def test_the_example_in_three_lines(capsys):
    found, right = runpy.run_path(str(EXAMPLES / "audit_features.py"))["main"](4)
    assert found > 0.85 and right > 0.9  # eight in ten of the given labels are right
    assert "labels are doubtful" in capsys.readouterr().out


def test_the_command_trains_and_audits_in_one_go(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    features, labels = files / "emb.npy", files / "labels.csv"
    assert _main(["audit", "--features", str(features), "--labels", str(labels), "--out", "queue.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    run = Path(found["run"])
    assert read_samples(run).num_rows == found["samples"] == len(np.load(features))
    assert Path("queue.csv").exists()
    assert _main(["audit", "--features", str(features), "--labels", str(labels)]) == 2  # the run is there already
    said = capsys.readouterr().err
    assert f"labeltrace audit {run} reads it, --overwrite replaces it" in said
    assert f"labeltrace audit FOLDER --features {features}" in said


def with_ids(folder, ids):
    """Labels in a table with a column of ids; the words of each row."""
    rows = list(zip(ids, FRUIT[clusters()[1]].tolist(), strict=True))
    (folder / "named.csv").write_text("id,label\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    return rows


def test_ids_beside_the_labels_go_all_the_way_round(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    rows = with_ids(files, [f"photo-{i:03d}" for i in range(240)])
    words = ["audit", "--features", "emb.npy", "--labels", "named.csv", "--out", "q.csv", "--diff", "d.csv"]
    assert _main(words) == 0
    out = capsys.readouterr().out
    run = Path("runs/emb-audit")
    assert out.splitlines()[-1] == f"next: labeltrace review {run}, or labeltrace report {run}"
    assert read_samples(run)["id"].to_pylist() == [name for name, _ in rows]
    with Path("q.csv").open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file)} == {name for name, _ in rows}
    with Path("d.csv").open(newline="") as file:
        changes = {row["id"]: row["to"] for row in csv.DictReader(file)}
    assert len(changes) > 30
    expected = [(name, changes.get(name, label)) for name, label in rows]
    hint = shlex.split(next(line for line in out.splitlines() if line.startswith("d.csv")).partition("labeltrace ")[2])
    by_hand = ["labels", "apply", "named.csv", "--diff", "d.csv", "--out", "b.csv"]
    for command, new in ((hint, files / "named-new.csv"), (by_hand, files / "b.csv")):
        assert _main(command) == 0
        with new.open(newline="") as file:
            assert [(row["id"], row["label"]) for row in csv.DictReader(file)] == expected
    capsys.readouterr()


@pytest.mark.parametrize(
    ("change", "message"),
    [({7: "a3"}, r"named.csv, line 5 and .*named.csv, line 9: id 'a3' twice"), ({7: ""}, "named.csv, line 9: no id")],
)
def test_ids_that_name_nothing_are_refused(files, change, message):
    with_ids(files, [change.get(i, f"a{i}") for i in range(240)])
    with pytest.raises(InputError, match=message):
        audit_features(files / "emb.npy", files / "named.csv", files / "run")
    assert not (files / "run").exists()


def test_ids_of_the_features_come_first(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.eye(3, dtype=np.float32), ids=["p", "q", "r"])
    (tmp_path / "l.csv").write_text("id,label\n1,a\n1,b\n1,a\n", encoding="utf-8")
    data = load_dataset(tmp_path / "x.npz", read=ReadOptions(labels=tmp_path / "l.csv"))
    assert list(data.train.ids) == ["p", "q", "r"]


@pytest.mark.parametrize("words", [[], ["--labels", "x.csv"], ["runs/x", "--overwrite"]])
def test_the_command_says_what_is_missing(words, capsys):
    assert _main(["audit", *words]) == 2
    assert "--features" in capsys.readouterr().err
