from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labeltrace.data.dataset import DatasetError
from labeltrace.data.load import load_dataset
from labeltrace.data.sets.cifar import _CIFAR10, _CIFAR100, cifar100_coarse, load_cifar10, load_cifar100
from labeltrace.data.views import ImageViews

LOADERS: dict[str, Callable[..., Any]] = {"cifar10": load_cifar10, "cifar100": load_cifar100}
BOTH = pytest.mark.parametrize("name", list(LOADERS))


@BOTH
@pytest.mark.parametrize("writer", ["python 2", "protocol 2", "protocol 4", "protocol 5"])
def test_pixels_labels_and_order(name: str, writer: str, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar(name, writer)
    data = LOADERS[name](fake.root, strict=False)
    assert data.name == name and data.test is not None and data.train.truth is None and data.train.ids is None
    for split, files in ((data.train, fake.train_files), (data.test, fake.test_files)):
        assert split.labels.tolist() == [y for file in files for y in fake.content[file][fake.label_key]]
        position = 0
        for file in files:
            for row in fake.content[file]["data"]:
                # red, green and blue planes of 32 rows, one after the other
                assert split.inputs[position, 1, 2, 3] == row[1024 + 2 * 32 + 3]
                assert (split.inputs[position].numpy().ravel() == row).all()
                position += 1
        assert position == len(split)


@BOTH
def test_root_may_be_the_inner_folder_under_any_name(name: str, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar(name)
    outer = LOADERS[name](fake.root, strict=False)
    inner = LOADERS[name](fake.folder, strict=False)
    moved = LOADERS[name](fake.folder.rename(fake.root / "elsewhere"), strict=False)
    assert outer.train.inputs.equal(inner.train.inputs) and outer.train.inputs.equal(moved.train.inputs)


def test_constants(fake_cifar: Callable[..., Any]) -> None:
    data = load_cifar10(fake_cifar().root, strict=False)
    assert data.views == ImageViews((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    names = data.classes
    assert data.pair_map is not None
    moved = {names[a]: names[b] for a, b in enumerate(data.pair_map) if a != b}
    assert moved == {
        "truck": "automobile", "bird": "airplane", "cat": "dog", "dog": "cat", "deer": "horse",
    }  # fmt: skip


def test_constants_of_cifar100(fake_cifar: Callable[..., Any]) -> None:
    data = load_cifar100(fake_cifar("cifar100").root, strict=False)
    assert data.views == ImageViews((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)) and data.pair_map is None
    assert len(set(data.classes)) == 100 and list(data.classes) == sorted(data.classes)
    assert torch.bincount(cifar100_coarse(torch.arange(100))).tolist() == [5] * 20


@BOTH
def test_names_come_from_the_meta_file(name: str, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar(name, "python 2")
    official = _CIFAR10 if name == "cifar10" else _CIFAR100
    assert LOADERS[name](fake.root, strict=False).classes == official.classes
    names = [f"class {i}" for i in range(len(official.classes))]
    fake.write(official.meta, {official.names_key: names})
    assert LOADERS[name](fake.root, strict=False).classes == tuple(names)
    for wrong, found in ((names[:-1], f"{len(names) - 1} entries"), ("text", "str"), (None, "NoneType")):
        fake.write(official.meta, {official.names_key: wrong})
        with pytest.raises(DatasetError, match=f"class names: .*{official.meta}: {len(names)} names .*{found} found"):
            LOADERS[name](fake.root, strict=False)


# What is refused, and what the message says


def test_no_root() -> None:
    with pytest.raises(DatasetError, match=r"CIFAR-10 train and test: expected ROOT.cifar-10-batches-py, found no"):
        load_dataset("cifar10")


def test_missing_folder_names_path_finding_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_cifar10(tmp_path / "data")
    message = str(caught.value)
    assert f"expected {tmp_path / 'data' / 'cifar-10-batches-py'}, found no folder {tmp_path / 'data'}" in message
    assert "Get cifar-10-python.tar.gz from https://" in message and "cifar-10-batches-py/" in message
    (tmp_path / "cifar-10-python.tar.gz").touch()
    with pytest.raises(DatasetError, match=r"found cifar-10-python\.tar\.gz in "):
        load_cifar10(tmp_path)
    with pytest.raises(DatasetError, match="found a file at "):
        load_cifar10(tmp_path / "cifar-10-python.tar.gz")
    with pytest.raises(DatasetError) as caught:
        load_cifar10(tmp_path / "cifar-10-batches-py")  # not expected twice in a row
    assert f"expected {tmp_path / 'cifar-10-batches-py'}, found no folder" in str(caught.value)


def test_an_empty_folder_and_a_crowded_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"CIFAR-100 train and test: .* found nothing in "):
        load_cifar100(tmp_path)
    for i in range(12):
        (tmp_path / f"{i:02}").touch()
    with pytest.raises(DatasetError, match=r"found 00, 01, 02, 03, 04, 05, 06, 07, … in "):
        load_cifar100(tmp_path)
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(DatasetError, match=r"CIFAR-100 train: expected .*train, found nothing in "):
        load_cifar100(tmp_path)


@pytest.mark.parametrize(("file", "part"), [("data_batch_3", "train"), ("test_batch", "test")])
def test_a_missing_file_is_named(file: str, part: str, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar()
    (fake.folder / file).unlink()
    with pytest.raises(DatasetError) as caught:
        load_cifar10(fake.root, strict=False)
    assert str(caught.value).startswith(f"CIFAR-10 {part}: expected {fake.folder / file}, found data_batch_1, ")


def test_a_wrong_count_gives_both_numbers(fake_cifar: Callable[..., Any]) -> None:
    with pytest.raises(DatasetError, match=r"CIFAR-10 train: .*data_batch_1: 10,000 images expected, 6 found"):
        load_cifar10(fake_cifar().root)


def test_a_wrong_count_of_cifar100(fake_cifar: Callable[..., Any]) -> None:
    with pytest.raises(DatasetError, match=r"CIFAR-100 train: .*train: 50,000 images expected, 6 found"):
        load_dataset("cifar100", fake_cifar("cifar100").root)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, r"key 'labels' expected, found \['batch_label', 'data', 'filenames'\]"),
        ({"data": None}, "key 'data' expected"),
        ({"data": np.zeros((6, 3071), np.uint8)}, r"data uint8 \[n, 3072\] expected, uint8 \[6, 3071\] found"),
        ({"data": np.zeros((6, 3072), np.int64)}, r"data .* expected, int64 \[6, 3072\] found"),
        ({"data": [1, 2]}, "data .* expected, list found"),
        ({"labels": [0] * 5}, r"6 integer labels expected, int64 \[5\] found"),
        ({"labels": [0.5] * 6}, r"6 integer labels expected, float64 \[6\] found"),
        ({"labels": [0, 1, 10, 1, 2, 3]}, "labels 0..9 expected, 10 found at index 2"),
        ({"labels": [0, -1, 10, 1, 2, 3]}, "labels 0..9 expected, -1 found at index 1"),
    ],
)
def test_a_bad_file_is_refused(changes: dict[str, Any], message: str, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar()
    fake.change("data_batch_2", **changes)
    with pytest.raises(DatasetError, match=f"CIFAR-10 train: .*data_batch_2: {message}"):
        load_cifar10(fake.root, strict=False)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04\x95", pickle.dumps([1]), b"K\x01Q."])
def test_bytes_that_are_no_batch(content: bytes, fake_cifar: Callable[..., Any]) -> None:
    fake = fake_cifar()
    (fake.folder / "test_batch").write_bytes(content)
    with pytest.raises(DatasetError, match=r"CIFAR-10 test: .*test_batch: (not a readable pickle|a dictionary exp)"):
        load_cifar10(fake.root, strict=False)


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("file", ["data_batch_1", "batches.meta"])
def test_a_pickle_that_runs_code_is_refused(
    protocol: int, file: str, fake_cifar: Callable[..., Any], tmp_path: Path
) -> None:
    fake = fake_cifar()
    marker = tmp_path / "ran"
    (fake.folder / file).write_bytes(pickle.dumps({"labels": [Evil(marker)]}, protocol=protocol))
    with pytest.raises(DatasetError, match=rf"{file}: refused to read {os.system.__module__}\.system"):
        load_cifar10(fake.root, strict=False)
    assert not marker.exists()


@pytest.mark.parametrize(
    "reference",
    ["builtins eval", "builtins getattr", "numpy load", "numpy.core.multiarray scalar", "numpy ndarray.tofile"],
)
def test_only_what_arrays_need_is_let_through(reference: str, fake_cifar: Callable[..., Any]) -> None:
    module, name = reference.split()
    fake = fake_cifar()
    call = f"c{module}\n{name}\n(S'1'\ntR.".encode()
    (fake.folder / "data_batch_1").write_bytes(call)
    with pytest.raises(DatasetError, match=f"refused to read {module}.{name}"):
        load_cifar10(fake.root, strict=False)


# Real data


def test_real_labels_and_names(shared_data: Path, cifar100_labels: tuple[np.ndarray, np.ndarray]) -> None:
    fine, coarse = cifar100_labels
    assert fine[:10].tolist() == [19, 29, 0, 11, 1, 86, 90, 28, 23, 31]
    assert coarse[:10].tolist() == [11, 15, 4, 14, 1, 5, 18, 3, 10, 11]
    assert (cifar100_coarse(torch.from_numpy(fine)).numpy() == coarse).all()
    names = json.loads((shared_data / "cifar100" / "classes.json").read_text())
    assert _CIFAR100.classes == tuple(names["fine"])


@pytest.mark.slow
def test_real_cifar100(shared_data: Path, tmp_path: Path, cifar100_labels: tuple[np.ndarray, np.ndarray]) -> None:
    script = [sys.executable, str(shared_data / "cifar.py"), "layout", "cifar100", str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    data = load_dataset("cifar100", tmp_path)
    assert data.test is not None and (len(data.train), len(data.test)) == (50_000, 10_000)
    assert (data.train.labels.numpy() == cifar100_labels[0]).all()
    assert torch.bincount(data.train.labels).tolist() == [500] * 100
    assert torch.bincount(data.test.labels).tolist() == [100] * 100
    assert isinstance(data.views, ImageViews)
    for channel, (mean, std) in enumerate(zip(data.views.mean, data.views.std, strict=True)):
        plane = data.train.inputs[:, channel].double() / 255
        assert plane.mean().item() == pytest.approx(mean, abs=1e-3)
        assert plane.std().item() == pytest.approx(std, abs=1e-3)
