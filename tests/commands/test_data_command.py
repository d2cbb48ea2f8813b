"""labeltrace data show and check, and bench data: what they print, what they leave, how they end."""

import json

import numpy as np
import pytest
from PIL import Image

import pictures
from labeltrace import cli


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        code = cli._main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    pictures.write(folder, count=9, classes=3)
    return folder


def test_show_counts_classes_and_draws(command, photos, tmp_path):
    code, out, err = command("data", "show", photos)
    assert (code, err) == (0, "")
    assert "3 classes" in out and "9 samples" in out and "12×12" in out
    assert out.count("class0") == 1
    with Image.open(tmp_path / "photos-sheet.png") as sheet:
        assert sheet.format == "PNG" and min(sheet.size) > 300


def test_show_says_what_is_not_reported_without_a_test_set(command, photos):
    assert "accuracy will not be reported" in command("data", "show", photos)[1]
    assert "accuracy will not be reported" not in command("data", "show", photos, "--test", photos)[1]


def test_show_says_what_was_looked_at_and_what_looks_at_all(command, photos, monkeypatch):
    out = command("data", "show", photos)[1]
    assert "looked at" not in out and f"labeltrace data check {photos} decodes all" in out
    monkeypatch.setattr("labeltrace.data.overview.HEADS", 2)
    out = command("data", "show", photos)[1]
    assert "9 samples" in out and "of 2 files looked at: 12×12 (smallest)" in out and "unreadable" not in out
    pictures.spoil(min(photos.rglob("*.png")), "empty")
    assert (
        "of 2 files looked at: 12×12 (smallest) … 12×12 (median) … 12×12 (largest), 1 unreadable"
        in command("data", "show", photos)[1]
    )


def test_show_wraps_nothing_in_a_pipe(command, tmp_path):
    name = "a class whose name is long enough to be broken " * 2
    np.savez(tmp_path / f"{'long' * 15}.npz", x=np.eye(4, dtype=np.float32), y=[f"{name}0", f"{name}1"] * 2)
    lines = [line.rstrip() for line in command("data", "show", f"{'long' * 15}.npz")[1].splitlines()]
    assert f"{'long' * 15}: 2 classes; a network sees [4]" in lines
    assert [line.split()[-1] for line in lines if line.startswith(f"  {name}")] == ["2", "2"]


def test_show_says_nothing_of_files_where_there_are_none(command):
    out = command("data", "show", "digits")[1]
    assert "files" not in out and "data check" not in out


def test_show_prints_json(command, photos, tmp_path):
    code, out, _ = command("data", "show", photos, "--json", "--sheet", tmp_path / "sheet.png")
    found = json.loads(out)
    assert code == 0
    assert found["classes"] == ["class0", "class1", "class2"]
    assert found["train"]["counts"] == [3, 3, 3] and found["test"] is None
    assert found["train"]["sizes"] == ["12×12"] * 3
    assert (tmp_path / "sheet.png").exists()


def test_show_draws_features_and_images_that_cannot_be_read(command, photos, tmp_path):
    np.savez(tmp_path / "vectors.npz", x=np.random.default_rng(0).normal(size=(30, 5)), y=np.arange(30) % 3)
    assert command("data", "show", "vectors.npz")[0] == 0
    assert (tmp_path / "vectors-sheet.png").exists()
    pictures.spoil(next(photos.rglob("*.png")))
    assert command("data", "show", photos)[0] == 0


@pytest.mark.parametrize("words", [["nowhere/"], ["digits", "--sheet", "no/such/folder.png"], ["digit"]])
def test_show_refuses_in_one_line(command, photos, words, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = command("data", "show", *words)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_check_finds_nothing_wrong(command, photos):
    code, out, err = command("data", "check", photos, "--workers", 0)
    assert (code, err) == (0, "") and "as expected" in out
    assert command("data", "check", "digits")[0] == 0


def test_check_lists_every_bad_file(command, photos):
    bad = [pictures.spoil(path, how) for path, how in zip(sorted(photos.rglob("*.png")), pictures.WAYS, strict=False)]
    code, out, _ = command("data", "check", photos, "--workers", 0)
    assert code == 1
    # the missing one is no longer in the folder, so nobody can know of it
    listed = [path for path in bad if path.exists()]
    assert all(path.name in out for path in listed)
    assert f"{len(listed)} problems" in out
    found = json.loads(command("data", "check", photos, "--workers", 0, "--json")[1])
    assert {entry["path"] for entry in found} == {str(path) for path in listed}


def test_check_tells_what_is_missing_of_a_named_set(command, tmp_path):
    code, out, _ = command("data", "check", "clothing1m", tmp_path)
    assert code == 1 and "noisy_train_key_list.txt" in out
    code, out, _ = command("data", "check", "cifar10", tmp_path)
    assert code == 1 and "cifar-10-batches-py" in out


@pytest.mark.slow
def test_bench_measures_both_ways(command, tmp_path):
    code, out, _ = command(
        "bench", "data", "--files", 20, "--repeats", 1, "--workers", 1, "--size", "64x48", "--out", "bench.json"
    )
    assert code == 0 and "Pillow" in out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [record["way"] for record in found["records"]] == ["pillow", "decode", "first", "cached"]
    assert all(record["images_per_second"] > 0 for record in found["records"])
    assert found["environment"]["cores"] >= 1


@pytest.mark.parametrize("words", [["--size", "big"], ["--files", "0"], ["--size", "0x5"]])
def test_bench_refuses_in_one_line(command, words):
    code, _, err = command("bench", "data", *words)
    assert code == 2 and err.count("\n") == 1
