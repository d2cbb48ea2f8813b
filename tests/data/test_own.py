from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labeltrace.data import DatasetError, ReadOptions, load_dataset
from labeltrace.data.own.load import load_own, safe_name
from labeltrace.data.own.part import class_order, words


def test_a_path_is_a_dataset(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=["p", "q"] * 2)
    for path in (tmp_path / "a.npz", str(tmp_path / "a.npz")):
        data = load_dataset(path)
        assert data.name == "a" and data.classes == ("p", "q")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "missing: no such file or folder; expected a folder with one folder of images per class, a table"),
        ("missing.csv", r"missing\.csv: no such file or folder"),
        ("a.zip", r"a\.zip: files of this kind are not read; expected a folder"),
        ("picture.jpg", r"picture\.jpg: files of this kind are not read"),
    ],
)
def test_what_cannot_be_read_is_told(name: str, message: str, tmp_path: Path) -> None:
    for there in ("a.zip", "picture.jpg"):
        (tmp_path / there).touch()
    with pytest.raises(DatasetError, match=message):
        load_own(tmp_path / name, ReadOptions())


def test_labels_beside_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="--labels goes with arrays and features; a folder carries its own labels"):
        load_own(tmp_path, ReadOptions(labels=Path("y.npy")))


def test_image_files_and_arrays_do_not_mix(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=["p", "q"] * 2)
    for label in "pq":
        (tmp_path / "f" / label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "f" / label / "1.png")
    for train, test in (("a.npz", "f"), ("f", "a.npz")):
        with pytest.raises(DatasetError, match="one holds image files and one holds arrays; use one kind"):
            load_own(tmp_path / train, ReadOptions(test=tmp_path / test))
    manifest = tmp_path / "m.csv"
    manifest.write_text("path,label\nf/p/1.png,p\nf/q/1.png,q\n")
    mixed = load_own(manifest, ReadOptions(test=tmp_path / "f"))
    assert mixed.test is not None and list(mixed.test.ids or ()) == ["p/1.png", "q/1.png"]


@pytest.mark.parametrize(
    ("path", "name"), [("a/my set.csv", "my-set"), ("x/é_1.v2.parquet", "é_1.v2"), ("/", "data"), ("a/....npz", "data")]
)
def test_names_are_safe_for_folders(path: str, name: str) -> None:
    assert safe_name(Path(path)) == name


def test_the_name_of_a_folder_keeps_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v1.2").mkdir()
    assert safe_name(tmp_path / "v1.2") == "v1.2"
    monkeypatch.chdir(tmp_path / "v1.2")
    assert safe_name(Path()) == "v1.2"


def test_numbers_are_in_their_order() -> None:
    assert class_order(["3", "-2", "10"]) == ["-2", "3", "10"]
    assert class_order(["3", "+2", "10"]) == ["+2", "10", "3"] and class_order(["1_0", "2"]) == ["1_0", "2"]
    assert words(np.array([3, 7], np.uint8), "labels").to_pylist() == ["3", "7"]


def test_no_reader_is_loaded_before_it_is_used() -> None:
    code = "import sys, labeltrace.data; sys.exit('pyarrow' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
