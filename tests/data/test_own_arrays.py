from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from labeltrace.data import Dataset, DatasetError, FeatureViews, ImageViews, ReadOptions
from labeltrace.data.own.load import load_own

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
FEATURES = np.arange(8, dtype=np.float64).reshape(4, 2)
LABELS = np.array([3, 1, 3, 10])


def load(path: Path, **options: Any) -> Dataset:
    return load_own(path, ReadOptions(**options))


def npz(folder: Path, name: str = "a.npz", **arrays: Any) -> Path:
    np.savez(folder / name, **arrays)
    return folder / name


def npy(folder: Path, array: Any, name: str = "x.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


@pytest.mark.parametrize("x", ["x", "X", "images", "inputs", "x_train", "train_images"])
@pytest.mark.parametrize("y", ["y", "labels", "Label", "y_train", "train_labels"])
def test_images_and_labels_under_their_usual_names(x: str, y: str, tmp_path: Path) -> None:
    data = load(npz(tmp_path, **{x: IMAGES, y: LABELS, "other": np.zeros(3)}), flip=False)
    assert data.name == "a" and data.classes == ("1", "3", "10") and data.train.labels.tolist() == [1, 0, 1, 2]
    assert data.train.inputs.equal(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)) and data.test is None
    assert isinstance(data.views, ImageViews) and data.views.padding == 2 and not data.views.flip


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_features_become_float32(kind: type, tmp_path: Path) -> None:
    data = load(npz(tmp_path, embeddings=FEATURES.astype(kind), y=LABELS))
    assert data.train.inputs.dtype == torch.float32 and data.train.inputs.tolist() == FEATURES.tolist()
    assert isinstance(data.views, FeatureViews)


def test_test_truth_and_ids(tmp_path: Path) -> None:
    path = npz(
        tmp_path,
        x=FEATURES,
        y=LABELS[:, None].astype(np.uint8),
        x_test=FEATURES[:2],
        y_test=LABELS[:2],
        truth=np.array([-1, 1, 10, 10]),
        ids=np.array(["a", "b", "c", "d"]),
    )
    data = load(path)
    assert data.test is not None and data.test.labels.tolist() == [1, 0]
    assert data.train.truth is not None and data.train.truth.tolist() == [-1, 0, 2, 2]
    assert list(data.train.ids or ()) == ["a", "b", "c", "d"]


def test_minus_one_may_be_a_class(tmp_path: Path) -> None:
    data = load(npz(tmp_path, x=FEATURES, y=np.array([-1, 1, 1, -1]), truth=np.array([-1, -1, 1, 1])))
    assert data.train.truth is not None and data.train.truth.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["b", "a", "b", "a"]), ("a", "b")),
        (np.array([b"b", b"a", b"b", b"a"]), ("a", "b")),
        (np.array([1.0, 0.0, 1.0, 0.0]), ("0", "1")),
        (np.array([True, False, True, False]), ("false", "true")),
    ],
)
def test_labels_of_any_kind(labels: Any, classes: tuple[str, ...], tmp_path: Path) -> None:
    data = load(npz(tmp_path, x=FEATURES, y=labels))
    assert data.classes == classes and data.train.labels.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".csv", ".tsv", ".parquet"])
def test_labels_in_a_file_of_their_own(suffix: str, tmp_path: Path) -> None:
    words = ["dog", "cat", "dog", "a, b"]
    path = tmp_path / f"labels{suffix}"
    if suffix == ".npy":
        np.save(path, np.array(words))
    elif suffix == ".parquet":
        pq.write_table(pa.table({"label": words, "more": [1, 2, 3, 4]}), path)
    else:
        lines = words if suffix == ".txt" else ["label", *(f'"{word}"' for word in words)]
        path.write_text("\n".join(lines) + "\n\n", "utf-8")
    data = load(npy(tmp_path, FEATURES), labels=path)
    assert data.classes == ("a, b", "cat", "dog") and data.train.labels.tolist() == [2, 1, 2, 0]
    assert load(npz(tmp_path, x=IMAGES), labels=path).train.labels.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize("shape", [(4, 9, 8), (4, 9, 8, 1), (4, 1, 9, 8), (4, 3, 9, 8)])
def test_images_in_any_layout(shape: tuple[int, ...], tmp_path: Path) -> None:
    data = load(npy(tmp_path, np.zeros(shape, np.uint8)), labels=npy(tmp_path, LABELS, "y.npy"))
    assert data.input_shape == (3 if 3 in shape else 1, 9, 8)


def test_a_test_set_in_an_npz(tmp_path: Path) -> None:
    labels = npy(tmp_path, LABELS, "y.npy")
    data = load(npy(tmp_path, FEATURES), labels=labels, test=npz(tmp_path, x=FEATURES[:1], y=LABELS[:1]))
    assert data.test is not None and data.test.labels.tolist() == [1]
    with pytest.raises(DatasetError, match=r"x.npy: an .npy file carries no labels; put the test set into an .npz"):
        load(npy(tmp_path, FEATURES), labels=labels, test=npy(tmp_path, FEATURES))


def test_the_file_can_go_once_it_is_read(tmp_path: Path) -> None:
    path = npy(tmp_path, FEATURES.astype(np.float32))
    data = load(path, labels=npy(tmp_path, LABELS, "y.npy"))
    path.write_bytes(bytes(path.stat().st_size))
    assert data.train.inputs.tolist() == FEATURES.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": FEATURES, "y": LABELS}, r"no inputs \(x, images, .*\); it holds a, y"),
        ({"x": FEATURES, "b": LABELS}, r"no labels \(y, labels, .*\); it holds x, b"),
        ({"x": FEATURES, "y": LABELS[:3]}, "4 inputs but 3 labels"),
        ({"x": FEATURES, "y": LABELS, "truth": LABELS[:3]}, "4 inputs but 3 true labels"),
        ({"x": FEATURES, "y": LABELS, "ids": LABELS}, "id '3' names more than one sample"),
        ({"x": FEATURES, "y": LABELS, "x_test": FEATURES}, r"a test set without its labels \(y_test"),
        ({"x": FEATURES, "y": LABELS, "y_test": LABELS}, r"a test set without its inputs \(x_test"),
        ({"x": FEATURES, "y": LABELS, "x_test": FEATURES, "y_test": LABELS + 1}, "row 0: '4' is the label of no train"),
        ({"x": FEATURES, "y": LABELS, "x_test": FEATURES[:, :1], "y_test": LABELS}, "shapes must agree"),
        ({"x": FEATURES, "y": np.array([0.5, 1, 2, 3])}, "labels are numbers with a fraction, such as 0.5"),
        ({"x": FEATURES, "y": np.array([np.nan, 1, 2, 3])}, "row 0: no label"),
        ({"x": FEATURES, "y": np.eye(4)}, r"labels have shape \[4, 4\]; expected \[N\]"),
        ({"x": FEATURES, "y": np.array(["a", None, "b", "c"], object)}, "holds Python objects; save plain arrays"),
        (
            {"x": np.zeros((4, 8, 8, 3)), "y": LABELS},
            r"a\.npz: inputs are float64 \[4, 8, 8, 3\]; pass images as uint8",
        ),
        ({"x": FEATURES, "y": np.ones(4, int)}, "two classes or more"),
    ],
)
def test_arrays_that_are_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load(npz(tmp_path, **arrays))


def test_objects_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    path = npy(tmp_path, np.array([Trap()], object))
    with pytest.raises(DatasetError, match="holds Python objects"):
        load(path, labels=path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04" + bytes(30)])
def test_damaged_files_are_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{name}: "):
        load(tmp_path / name, labels=npy(tmp_path, LABELS, "y.npy"))


def test_files_cut_short_are_named(tmp_path: Path) -> None:
    path, other = npy(tmp_path, FEATURES), npz(tmp_path, x=FEATURES, y=LABELS)
    for file in (path, other):
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(DatasetError, match="not a file of numpy arrays, or damaged"):
            load(file, labels=npy(tmp_path, LABELS, "y.npy"))


def test_files_under_a_wrong_name_are_told(tmp_path: Path) -> None:
    npy(tmp_path, FEATURES).rename(tmp_path / "z.npz")
    with pytest.raises(DatasetError, match=r"an .npy array under the name of an .npz file"):
        load(tmp_path / "z.npz")
    npz(tmp_path, x=FEATURES).rename(tmp_path / "z.npy")
    with pytest.raises(DatasetError, match=r"a .npz archive under the name of an .npy file"):
        load(tmp_path / "z.npy", labels=tmp_path / "z.npy")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.txt", "a\nb\n", r"x\.npy has 4 rows, but .*l\.txt has 2 labels"),
        ("l.txt", "a\n\nb\nc\n", r"l\.txt, line 2: no label"),
        ("l.csv", "dog\ncat\ndog\ncat\n", "no column of labels .* call the file .txt"),
        ("l.json", "[]", "labels are read from .npy, .txt, .csv, .tsv and .parquet files"),
        ("l.npz", None, r"l\.npz: no such file \(--labels\)"),
    ],
)
def test_label_files_that_are_refused(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=message):
        load(npy(tmp_path, FEATURES), labels=tmp_path / name)


def test_npy_without_labels_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"an .npy file carries no labels; pass --labels FILE"):
        load(npy(tmp_path, FEATURES))
