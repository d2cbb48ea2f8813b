"""A noise file on a dataset: our own files, and those of other codes."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.apply import apply_noise_file
from labeltrace.data.noise.formats import read_labels
from labeltrace.data.noise.kinds import add_noise, symmetric_inclusive
from labeltrace.data.noise.record import label_hash, save_noise
from labeltrace.errors import InputError

CLEAN = np.arange(100) % 10
NOISY = symmetric_inclusive(CLEAN, 10, 0.5, seed=0)


def dataset(labels: np.ndarray = CLEAN, name: str = "toy", classes: int = 10) -> Dataset:
    return from_arrays(np.zeros((len(labels), 1, 1), np.uint8), labels, classes=range(classes), name=name)


# Our own files


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    noisy, record = add_noise(dataset(), "symmetric", 0.3, seed=1)
    save_noise(tmp_path / "noise.npz", noisy.train.labels, record)
    return tmp_path / "noise.npz"


def test_our_file(ours: Path) -> None:
    clean = dataset()
    noisy, record = apply_noise_file(clean, ours)
    expected, expected_record = add_noise(clean, "symmetric", 0.3, seed=1)
    assert noisy.train.labels.equal(expected.train.labels) and record == expected_record
    assert noisy.train.truth is not None and noisy.train.truth.equal(clean.train.labels)
    assert clean.train.truth is None and noisy.train.inputs is clean.train.inputs
    known = clean.with_labels(clean.train.labels, truth=clean.train.labels)
    assert apply_noise_file(known, str(ours))[1] == record


def test_our_file_on_another_dataset(ours: Path) -> None:
    with pytest.raises(InputError, match="has 100 labels but the dataset has 90 training samples"):
        apply_noise_file(dataset(CLEAN[:90]), ours)
    with pytest.raises(InputError, match=r"made for the classes 10: 0, 1, 2, 3, 4, …, but toy has 12: 0, 1, 2, 3, 4"):
        apply_noise_file(dataset(classes=12), ours)
    for other in (CLEAN[::-1].copy(), np.roll(CLEAN, 1), np.where(np.arange(100) == 99, 0, CLEAN)):
        with pytest.raises(InputError, match=r"noise.npz: made for other labels or another order: .* of toy"):
            apply_noise_file(dataset(other), ours)
    with pytest.raises(InputError, match="training labels differ from the truth already"):
        apply_noise_file(apply_noise_file(dataset(), ours)[0], ours)


def test_renamed_classes_are_other_classes(ours: Path) -> None:
    names = tuple("abcdefghij")
    data = from_arrays(np.zeros((100, 1, 1), np.uint8), [names[i] for i in CLEAN])
    with pytest.raises(InputError, match="made for the classes 10: 0, 1, 2, 3, 4, …, but arrays has 10: a, b, c"):
        apply_noise_file(data, ours)


def test_damaged_and_absent_files(ours: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no noise file .*absent.npz"):
        apply_noise_file(dataset(), tmp_path / "absent.npz")
    with pytest.raises(InputError, match="no noise file"):
        apply_noise_file(dataset(), tmp_path / "absent.json")
    with pytest.raises(InputError, match=r"expected a noise file that ends in .json, .npy, .npz, .pt, .pth, .csv"):
        apply_noise_file(dataset(), tmp_path)
    ours.write_bytes(ours.read_bytes()[:300])
    with pytest.raises(InputError, match="cannot be read"):
        apply_noise_file(dataset(), ours)
    np.savez(ours, something=np.arange(3))
    with pytest.raises(InputError, match="cannot be read"):
        apply_noise_file(dataset(), ours)


def test_a_changed_byte_is_noticed_or_harmless(ours: Path) -> None:
    whole, (noisy, record) = ours.read_bytes(), apply_noise_file(dataset(), ours)
    for position in np.random.default_rng(1).integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[position] ^= 0x80
        ours.write_bytes(bytes(damaged))
        try:
            found, found_record = apply_noise_file(dataset(), ours)
        except InputError:
            continue
        assert found.train.labels.equal(noisy.train.labels) and found_record == record


@settings(deadline=None, max_examples=40)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=50),
    rate=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["symmetric", "symmetric-exact", "symmetric-inclusive", "pair", "instance"]),
)
def test_what_is_made_is_what_is_applied(labels: list[int], rate: float, seed: int, kind: str) -> None:
    data = dataset(np.array(labels), classes=5)
    noisy, record = add_noise(data, kind, rate, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "noise.npz")
        save_noise(path, noisy.train.labels, record)
        applied, applied_record = apply_noise_file(data, path)
    assert applied_record == record and applied.train.labels.equal(noisy.train.labels)
    assert applied.train.truth is not None and applied.train.truth.equal(data.train.labels)


# Files of others


def write_csv(path: Path, noisy: np.ndarray, clean: np.ndarray = CLEAN) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["label", "label_noisy"])
        table.writerows(zip(clean.tolist(), noisy.tolist(), strict=True))


def write_cross_split(path: Path, noisy: np.ndarray) -> None:
    # `index` is what was drawn for noise; the labels may come from another draw, so it need not fit them
    np.savez(path, label=noisy.tolist(), index=np.arange(7))


WRITERS: dict[str, Callable[[Path, np.ndarray], object]] = {
    "0.5_sym.json": lambda path, noisy: path.write_text(json.dumps(noisy.tolist())),
    "a.npy": lambda path, noisy: np.save(path, noisy.astype(np.int32)),
    "label.npz": lambda path, noisy: np.savez(path, label=noisy),
    "crosssplit.npz": write_cross_split,
    "tensor.pt": lambda path, noisy: torch.save(torch.from_numpy(noisy), path),
    "list.pth": lambda path, noisy: torch.save(noisy.tolist(), path),
    "old.pt": lambda path, noisy: torch.save(torch.from_numpy(noisy), path, _use_new_zipfile_serialization=False),
    "idn.csv": write_csv,
}
FORMATS = {".json": "JSON list", ".npy": "npy array", ".npz": "npz label", ".csv": "CSV label,label_noisy"}
ALL = pytest.mark.parametrize("name", WRITERS)


@ALL
def test_files_of_others(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path, NOISY)
    noisy, record = apply_noise_file(dataset(), path)
    assert (noisy.train.labels.numpy() == NOISY).all() and noisy.train.labels.dtype == torch.int64
    assert noisy.train.truth is not None and (noisy.train.truth.numpy() == CLEAN).all()
    assert (record.kind, record.nominal, record.seed, record.count) == ("file", None, None, 100)
    assert record.convention == f"{FORMATS.get(path.suffix, 'PyTorch tensor')} {name}"
    assert record.actual == (NOISY != CLEAN).mean() and record.clean_sha256 == label_hash(CLEAN)
    save_noise(tmp_path / "ours.npz", noisy.train.labels, record)  # as a run keeps it
    assert apply_noise_file(dataset(), tmp_path / "ours.npz")[1] == record


@ALL
def test_a_wrong_length_is_refused(name: str, tmp_path: Path) -> None:
    writer = WRITERS[name]
    if name == "idn.csv":
        write_csv(tmp_path / name, NOISY[:99], CLEAN[:99])
    else:
        writer(tmp_path / name, NOISY[:99])
    with pytest.raises(InputError, match=f"{name} has 99 labels but toy has 100 training samples"):
        apply_noise_file(dataset(), tmp_path / name)


@ALL
@pytest.mark.parametrize("value", [10, -1, 255])
def test_a_class_that_is_none_is_named(name: str, value: int, tmp_path: Path) -> None:
    wrong = NOISY.copy()
    wrong[[5, 8]] = value
    WRITERS[name](tmp_path / name, wrong)
    with pytest.raises(InputError, match=rf"{name}: label {value} at index 5 is not one of the 10 classes 0..9 of toy"):
        apply_noise_file(dataset(), tmp_path / name)


@ALL
def test_a_file_cut_short_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    WRITERS[name](path, NOISY)
    whole = path.read_bytes()
    for size in {0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 30}:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError):
            apply_noise_file(dataset(), path)


def test_the_clean_column_of_a_csv_must_agree(tmp_path: Path) -> None:
    other = CLEAN.copy()
    other[[3, 4]] = other[[4, 3]]
    write_csv(tmp_path / "idn.csv", NOISY, other)
    with pytest.raises(InputError, match=r"row 3 has the clean label 4, but sample 3 of toy has 3: made for other"):
        apply_noise_file(dataset(), tmp_path / "idn.csv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", b"label,noisy\n0,1\n", "expected columns label and label_noisy, found label, noisy"),
        ("x.csv", b"", "expected columns label and label_noisy, found nothing"),
        ("x.csv", b"label,label_noisy\n0,1\n0,dog\n", "line 3: label_noisy 'dog' is no whole number"),
        ("x.csv", b"label,label_noisy\n0\n", "line 2: label_noisy None is no whole number"),
        ("x.csv", b"label,label_noisy\n0,1.0\n", "'1.0' is no whole number"),
        ("x.json", b"{}", "expected whole numbers .* found dict"),
        ("x.json", b"3", "found int"),
        ("x.json", b"[1, 2", "not a readable file of labels, JSON list"),
        ("x.json", b"\xff\xff", "not a readable file of labels, JSON list"),
        ("x.json", b"[1.5, 2]", r"found float64 \[2\]"),
        ("x.json", b"[true, false]", r"found bool \[2\]"),
        ("x.json", b'["1", "2"]', r"found <U1 \[2\]"),
        ("x.json", b"[[1, 2]]", r"found int64 \[1, 2\]"),
        ("x.json", b"[[1, 2], [3]]", "lists of different lengths"),
        ("x.json", b"[10000000000000000000]", "10000000000000000000 is no label"),
        ("x.json", b"[100000000000000000000000]", r"found object \[1\]"),
        ("x.json", b"[]", "has 0 labels but toy has 100"),
        ("x.npy", b"\x93NUMPY", "not a readable file of labels, npy array"),
        ("x.pt", b"hello", "not a readable file of labels, PyTorch tensor"),
    ],
)
def test_content_that_is_no_list_of_labels(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        apply_noise_file(dataset(), tmp_path / name)
    assert "\n" not in str(caught.value)


def test_archives_without_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", labels=NOISY)
    with pytest.raises(InputError, match="expected labels under 'label', found labels"):
        read_labels(tmp_path / "x.npz")
    torch.save({"label": 1}, tmp_path / "x.pt")
    with pytest.raises(InputError, match="found dict"):
        read_labels(tmp_path / "x.pt")
    torch.save(torch.zeros(3), tmp_path / "x.pt")
    with pytest.raises(InputError, match=r"found float32 \[3\]"):
        read_labels(tmp_path / "x.pt")


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("name", ["x.pt", "x.npy", "x.npz"])
def test_a_file_that_runs_code_is_refused(name: str, tmp_path: Path) -> None:
    marker, bad = tmp_path / "ran", np.array([Evil(tmp_path / "ran")], dtype=object)
    if name == "x.pt":
        torch.save([Evil(marker)], tmp_path / name)
    elif name == "x.npy":
        np.save(tmp_path / name, bad, allow_pickle=True)
    else:
        np.savez(tmp_path / name, label=bad)
    with pytest.raises(InputError, match="not a readable file of labels"):
        apply_noise_file(dataset(), tmp_path / name)
    assert not marker.exists()


def test_a_dividemix_file_for_the_real_labels(cifar10_labels: np.ndarray, tmp_path: Path) -> None:
    noisy = symmetric_inclusive(cifar10_labels, 10, 0.5, seed=123)
    (tmp_path / "0.5_sym.json").write_text(json.dumps(noisy.tolist()))
    data, record = apply_noise_file(dataset(cifar10_labels, "cifar10"), tmp_path / "0.5_sym.json")
    assert abs(record.actual - 0.45) < 4.5 * np.sqrt(0.5 * 0.1 * 0.9 / 50_000)
    assert (data.train.labels.numpy() == noisy).all()
