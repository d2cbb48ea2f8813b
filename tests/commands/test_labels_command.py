"""labeltrace labels apply and revert: files in, files out; on a mistake one line and nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest

import layouts
from ending import check_refusal, command, contents
from labeltrace.audit import class_names, read_samples
from labeltrace.commands.labels import apply_command
from labeltrace.data import ReadOptions
from labeltrace.data.own.load import load_own

MANIFEST = "id,x,label\na,1,cat\nb,2,dog\nc,3,cat\nd,4,dog\n"
DIFF = 'id,from,to,why\n"b","dog","cat","seen"\nc,cat,dog,\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m.csv").write_text(MANIFEST)
    (tmp_path / "d.csv").write_text(DIFF)
    return tmp_path


def ran(folder, *words):
    outcome = command(["labels", *words], folder)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def test_there_and_back(folder):
    assert ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "n.csv") == "2 of 4 labels changed\nn.csv\n"
    assert (folder / "n.csv").read_text() == "id,x,label\na,1,cat\nb,2,cat\nc,3,dog\nd,4,dog\n"
    assert ran(folder, "revert", "n.csv", "--diff", "d.csv", "--out", "o.csv").startswith("2 of 4 labels taken back")
    assert (folder / "o.csv").read_text() == MANIFEST
    assert load_own(folder / "n.csv", ReadOptions()).train.labels.tolist() == [0, 0, 1, 1]


def test_in_place_when_asked(folder):
    check_refusal(command(["labels", "apply", "m.csv", "--diff", "d.csv", "--out", "m.csv"], folder))
    ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "m.csv", "--overwrite")
    ran(folder, "revert", "m.csv", "--diff", "d.csv", "--out", "m.csv", "--overwrite")
    assert (folder / "m.csv").read_text() == MANIFEST and sorted(contents(folder)) == ["d.csv", "m.csv"]


def test_json(folder):
    found = json.loads(ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "n.csv", "--json"))
    assert found == {"data": "m.csv", "diff": "d.csv", "out": "n.csv", "changed": 2, "reverted": False, "emptied": []}


def test_a_class_left_without_samples_is_told(folder):
    (folder / "d.csv").write_text("id,from,to\nb,dog,cat\nd,dog,cat\n")
    out = ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "n.csv")
    assert out.splitlines()[1] == "no sample is labelled 'dog' any more"
    found = json.loads(ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "o.csv", "--json"))
    assert found["emptied"] == ["dog"]
    ran(folder, "revert", "n.csv", "--diff", "d.csv", "--out", "p.csv")
    assert (folder / "p.csv").read_text() == MANIFEST


def test_columns_by_name(folder):
    (folder / "m.csv").write_text("key,x,kind,label\na,1,cat,u\nb,2,dog,v\nc,3,cat,w\n")
    ran(folder, "apply", "m.csv", "--diff", "d.csv", "--out", "n.csv", "--id-column", "key", "--label-column", "kind")
    assert (folder / "n.csv").read_text() == "key,x,kind,label\na,1,cat,u\nb,2,cat,v\nc,3,dog,w\n"


@pytest.mark.parametrize(
    ("data", "diff", "out", "message"),
    [
        ("none.csv", DIFF, "n.csv", "none.csv: no such file or folder"),
        ("m.csv", None, "n.csv", "--diff d.csv: expected a .csv file"),
        ("m.csv", "id,from,to\nz,dog,cat\n", "n.csv", "d.csv, line 2: m.csv has no sample 'z'"),
        ("m.csv", "id,from,to\nb,cat,dog\n", "n.csv", "m.csv: 'b' is labelled 'dog', d.csv expects 'cat'"),
        ("m.csv", "id,from,to\nb,dog,cow\n", "n.csv", "d.csv, line 2: m.csv has no class 'cow': known: cat, dog"),
        ("m.csv", DIFF + "b,dog,cat,\n", "n.csv", "d.csv, line 2: id 'b' comes 2 times"),
        ("m.csv", DIFF, "n.parquet", "--out n.parquet: expected a name that ends in .csv"),
        ("m.csv", DIFF, "d.csv", "--out d.csv exists"),
        (".", DIFF, "n.csv", "one folder per class"),
        ("m.csv", DIFF, "m.csv/n.csv", "--out m.csv/n.csv"),
    ],
)
def test_refusals_write_nothing(folder, data, diff, out, message):
    (folder / "d.csv").unlink() if diff is None else (folder / "d.csv").write_text(diff)
    before = contents(folder)
    outcome = command(["labels", "apply", data, "--diff", "d.csv", "--out", out], folder)
    check_refusal(outcome)
    assert message in outcome.err
    assert contents(folder) == before


def test_nothing_is_taken_back_that_was_not_put_in(folder):
    before = contents(folder)
    outcome = command(["labels", "revert", "m.csv", "--diff", "d.csv", "--out", "n.csv"], folder)
    check_refusal(outcome)
    assert "m.csv: 'b' is labelled 'dog', d.csv expects 'cat'" in outcome.err
    assert contents(folder) == before


def make_folder(root):
    for split, count in (("train", 6), ("test", 2)):
        for kind in ("cat", "dog"):
            for i in range(count):
                layouts.picture(root / "data" / split / kind / f"{i} {kind}.png", 40 * i)
    return "data", "new.csv"


def make_manifest(root):
    rows = [f"{i % 5},{i % 3},{'cat' if i % 2 else 'dog'},{'test' if i > 13 else 'train'}" for i in range(18)]
    (root / "data.csv").write_text("\n".join(["x,y,label,split", *rows]))
    return "data.csv", "new.csv"


def make_arrays(root):
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(16, 4)), np.array(["cat", "dog"] * 8)
    np.savez(root / "data.npz", x=inputs, y=labels, ids=np.array([f"n{i}" for i in range(16)]))
    return "data.npz", "new.npz"


@pytest.mark.parametrize("make", [make_folder, make_manifest, make_arrays])
def test_from_a_run_to_new_labels_and_back(tmp_path, make):
    """The ids of a run are those of its files, whatever the files are."""
    data, new = make(tmp_path)
    assert command(["train", "--data", data, "--epochs", 1, "--out", "run"], tmp_path).code == 0
    # whatever differs is relabelled, as no label is trusted and every suggestion is; three of them are taken
    anew = ["--trust-label", 1.01, "--trust-suggestion", 0, "--decision", "relabel", "--limit", 3]
    assert command(["audit", "run", *anew, "--diff", "d.csv", "--out", "q.jsonl"], tmp_path).code == 0
    table = read_samples(tmp_path / "run")
    names, ids = class_names(table), table["id"].to_pylist()
    expected = dict(zip(ids, (names[code] for code in table["observed"].to_pylist()), strict=True))
    queue = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(queue) == 3 and all(row["suggested_class"] != expected[row["id"]] for row in queue)
    ran(tmp_path, "apply", data, "--diff", "d.csv", "--out", new)
    changed = load_own(tmp_path / new, ReadOptions())
    found = {changed.train.id_of(i): changed.classes[label] for i, label in enumerate(changed.train.labels.tolist())}
    assert found == {**expected, **{row["id"]: row["suggested_class"] for row in queue}}
    ran(tmp_path, "revert", new, "--diff", "d.csv", "--out", f"back-{new}")
    before, after = (load_own(tmp_path / path, ReadOptions()).train for path in (data, f"back-{new}"))
    assert after.labels.equal(before.labels)
    assert [after.id_of(i) for i in range(len(after))] == [before.id_of(i) for i in range(len(before))] == ids


def test_no_command_is_named_that_would_be_refused(tmp_path):
    """A saved Hugging Face dataset keeps its labels; what a run on one suggests is put in by other means."""
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(f"data: {tmp_path / 'saved'}\n")
    told = apply_command(tmp_path / "run", Path("d.csv"))
    assert "labels apply" not in told and "its own map()" in told and str(tmp_path / "saved") in told
    (tmp_path / "saved" / "state.json").unlink()
    assert apply_command(tmp_path / "run", Path("d.csv")).startswith("labeltrace labels apply")
