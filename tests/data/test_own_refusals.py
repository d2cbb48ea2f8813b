"""What fuzzing found in people's files: each was a traceback, or a line too many."""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from labeltrace.data import BadImage, DatasetError, ReadOptions, apply_noise_file, from_arrays, load_dataset, prepare
from labeltrace.data.cache import open_cache
from labeltrace.data.decode import decode, image_size
from labeltrace.data.noise.formats import read_labels
from labeltrace.data.own.load import safe_name
from labeltrace.data.own.part import words
from labeltrace.errors import InputError


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.array([0, 1], ">i4"), ["0", "1"]),
        (np.array([0, 1], "longdouble"), ["0", "1"]),
        (np.array([0, 1e300]), "too large to be whole, such as 1e\\+300"),
        (np.array(["\ud800", "b"]), "no text"),
        (pa.Array.from_buffers(pa.string(), 1, pa.array([b"a\xff"]).buffers()), "not UTF-8"),
    ],
)
def test_labels_that_numpy_has_and_arrow_has_not(labels: Any, found: Any) -> None:
    if isinstance(found, list):
        assert words(labels, "labels").to_pylist() == found
        return
    with pytest.raises(DatasetError, match=found):
        words(labels, "labels")


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_an_archive_that_is_locked_or_promises_too_much(tmp_path: Path) -> None:
    np.save(array := io.BytesIO(), np.eye(2))
    content = bytearray(archive(tmp_path / "a.npz", {"x.npy": array.getvalue()}).read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.find(mark) + place
        content[start : start + 2] = struct.pack("<H", 1)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DatasetError, match="encrypted"):
        load_dataset(tmp_path / "a.npz")
    head = {"descr": "<f4", "fortran_order": False, "shape": (10**13, 4)}
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), head)
    with pytest.raises(DatasetError, match="damaged"):
        load_dataset(archive(tmp_path / "b.npz", {"x.npy": file.getvalue(), "y.npy": array.getvalue()}))
    with pytest.raises(DatasetError, match="'x' in it is no array"):
        load_dataset(archive(tmp_path / "c.npz", {"x": b"bytes", "y.npy": array.getvalue()}))


@pytest.mark.filterwarnings("error")
def test_numbers_too_large_are_refused_without_a_warning(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([[1e300], [0]]), y=["a", "b"])
    (tmp_path / "b.csv").write_text("f,label\n1e300,a\n0,b\n")
    pq.write_table(pa.table({"f": [[1e300], [0.0]], "label": ["a", "b"]}), tmp_path / "c.parquet")
    for name in ("a.npz", "b.csv", "c.parquet"):
        with pytest.raises(DatasetError, match="NaN or infinite"):
            load_dataset(tmp_path / name)


@pytest.mark.filterwarnings("error")
def test_features_of_no_column_are_refused_without_a_warning(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 0)), y=["a", "b"] * 2)
    with pytest.raises(DatasetError, match="empty"):
        load_dataset(tmp_path / "a.npz")


def test_paths_that_no_file_can_have(tmp_path: Path) -> None:
    long = "x" * 300
    with pytest.raises(DatasetError, match="too long"):
        load_dataset(long)
    with pytest.raises(InputError, match="home folder of ~nobody-of-this-name"):
        load_dataset("~nobody-of-this-name/photos")
    np.savez(tmp_path / "a.npz", x=np.eye(2), y=["a", "b"])
    with pytest.raises(DatasetError, match="too long"):
        load_dataset(tmp_path / "a.npz", read=ReadOptions(test=Path(long)))
    data = load_dataset(tmp_path / "a.npz")
    for name in (f"{long}.npz", f"{long}.json"):
        with pytest.raises(InputError, match="no noise file"):
            apply_noise_file(data, name)
    assert safe_name(Path(f"{long}.csv")) == "x" * 60 and safe_name(Path("a\nb 🐱.csv")) == "a-b"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    assert image_size(tmp_path / "a.png") is None
    with pytest.raises(BadImage, match="no regular file"):
        decode(tmp_path / "a.png", 8)
    with pytest.raises(BadImage, match="a folder"):
        decode(tmp_path, 8)


def test_libtiff_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.tif"
    Image.effect_noise((64, 64), 50).save(file, compression="tiff_adobe_deflate")
    content = bytearray(file.read_bytes())
    content[20:-400] = bytes(len(content) - 420)
    file.write_bytes(content)
    with pytest.raises(BadImage):
        decode(file, 8)
    assert capfd.readouterr().err == ""
    assert logging.getLogger("PIL").handlers


def test_a_cache_without_a_limit(own_cache: Path) -> None:
    cache = open_cache("k", 3, 8, float("inf"))
    assert cache is not None and cache.slots == 3


def test_when_no_image_can_be_used_nobody_is_told_to_skip(tmp_path: Path) -> None:
    for label in "ab":
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"no train image can be used.*empty file$"):
        prepare(load_dataset(tmp_path), ReadOptions(workers=0, cache_gb=0, bad_images="skip"))


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("state.json", {"_data_files": ["a"]}, "_data_files"),
        ("state.json", {"_data_files": 3}, "_data_files"),
        ("dataset_info.json", {"features": []}, "no columns of images|which column|none of vectors|labels"),
        ("dataset_info.json", {"features": [1]}, "features"),
        ("dataset_info.json", {"features": {"label": {"names": [1]}}}, "no list of names"),
        ("dataset_info.json", {"features": {"label": {"names": ["a", "b"]}}}, "expected integers"),
        ("dataset_dict.json", {"splits": None}, "list of splits"),
    ],
)
def test_damaged_records_of_a_saved_dataset(tmp_path: Path, file: str, value: Any, message: str) -> None:
    table = pa.table({"v": [["x"]], "label": ["a"]})
    with pa.OSFile(str(tmp_path / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / file).write_text(json.dumps(value))
    with pytest.raises(DatasetError, match=message):
        load_dataset(tmp_path)


def test_tensors_that_numpy_has_no_form_for(tmp_path: Path) -> None:
    for tensor in (torch.eye(2).to_sparse(), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, requires_grad=True)):
        torch.save(tensor, tmp_path / "a.pt")
        with pytest.raises(InputError, match="expected whole numbers"):
            read_labels(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": None}, "count in its record is None"),
        ({"sha256": 3}, "sha256 in its record is 3"),
        ({"classes": [1, 2]}, "no words"),
        ({"num_classes": []}, "num_classes in its record"),
    ],
)
def test_a_noise_record_of_other_types(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    from labeltrace.data import add_noise, save_noise

    data = from_arrays(np.eye(4), ["a", "b"] * 2)
    noisy, record = add_noise(data, "symmetric", 0.5, 0)
    save_noise(tmp_path / "n.npz", noisy.train.labels, record)
    with np.load(tmp_path / "n.npz") as content:
        arrays = dict(content)
    arrays["record"] = np.array(json.dumps(json.loads(arrays["record"].item()) | change))
    np.savez(tmp_path / "n.npz", **arrays)
    with pytest.raises(InputError, match=message):
        apply_noise_file(data, tmp_path / "n.npz")
    del arrays["labels"]
    np.savez(tmp_path / "n.npz", **arrays)
    with pytest.raises(InputError, match="no 'labels"):
        apply_noise_file(data, tmp_path / "n.npz")
