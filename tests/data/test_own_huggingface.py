"""Folders as `datasets` 5.2 writes them with `save_to_disk`: the same files, keys and Arrow types."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from labeltrace.data import Dataset, DatasetError, ReadOptions, prepare
from labeltrace.data.decode import BadImage
from labeltrace.data.own.huggingface import ArrowImages
from labeltrace.data.own.load import load_own

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
CLASSES = {"names": ["dog", "cat"], "_type": "ClassLabel"}
FEATURES = {"image": {"_type": "Image"}, "label": CLASSES}


def png(level: int, size: int = 8) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (size, size), (level,) * 3).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def save(folder: Path, columns: dict[str, Any], features: Any = None, shards: int = 1, batch: int = 2) -> Path:
    folder.mkdir(parents=True)
    features = FEATURES if features is None else features
    table = pa.table({name: pa.array(v, IMAGE) if name == "image" else v for name, v in columns.items()})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    names = [f"data-{i:05d}-of-{shards:05d}.arrow" for i in range(shards)]
    step = -(-len(table) // shards)
    for i, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(i * step, step), max_chunksize=batch)
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "e6cf3b5b5fec6eab",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def load(path: Path, **options: Any) -> Dataset:
    return load_own(path, ReadOptions(workers=0, cache_gb=0, **options))


def levels(data: Dataset) -> list[int]:
    ready, _ = prepare(data, ReadOptions(workers=0, cache_gb=0))
    assert isinstance(ready.train.inputs, torch.Tensor)
    return ready.train.inputs[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_are_read_in_order(shards: int, tmp_path: Path) -> None:
    path = save(
        tmp_path / "d", {"image": [png(i) for i in range(7)], "label": [i % 2 for i in range(7)]}, shards=shards
    )
    data = load(path)
    assert data.name == "d" and data.classes == ("dog", "cat") and data.train.labels.tolist() == [0, 1] * 3 + [0]
    assert levels(data) == list(range(7)) and data.input_shape == (3, 8, 8) and data.test is None
    assert data.train.id_of(3) == "3"


def test_splits(tmp_path: Path) -> None:
    for name, count in (("train", 4), ("validation", 1), ("test", 2)):
        columns = {"image": [png(i) for i in range(count)], "label": [i % 2 for i in range(count)]}
        save(tmp_path / "d" / name, columns)
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    data = load(tmp_path / "d")
    assert len(data.train) == 4 and data.test is not None and len(data.test) == 2
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    data = load(tmp_path / "d")
    assert data.test is not None and len(data.test) == 1
    assert load(tmp_path / "d" / "train", test=tmp_path / "d" / "test").test is not None
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["all"]}')
    with pytest.raises(DatasetError, match="no split named train; it holds all"):
        load(tmp_path / "d")


def test_images_by_path_and_labels_in_words(tmp_path: Path) -> None:
    far = tmp_path / "far.png"
    far.write_bytes(png(5)["bytes"])
    features = {"image": {"_type": "Image"}, "label": {"dtype": "string", "_type": "Value"}}
    rows = [{"bytes": None, "path": str(far)}, png(6), {"bytes": None, "path": "gone.png"}]
    path = save(tmp_path / "d", {"image": rows, "label": ["b", "a", "b"], "id": ["x", "y", "z"]}, features)
    data = load(path)
    assert data.classes == ("a", "b") and list(data.train.ids or ()) == ["x", "y", "z"]
    assert data.train.read([0, 1])[:, 0, 0, 0].tolist() == [5, 6]
    with pytest.raises(BadImage, match=r"d, row 2 \(.*gone.png\): no such file"):
        data.train.read([2])


def test_columns_of_other_names(tmp_path: Path) -> None:
    coarse = {"names": ["p", "q", "r"], "_type": "ClassLabel"}
    features = {"img": {"_type": "Image"}, "fine": CLASSES, "coarse": coarse}
    columns = {"img": pa.array([png(1), png(2)], IMAGE), "fine": [0, 1], "coarse": [2, 0]}
    path = save(tmp_path / "d", columns, features)
    with pytest.raises(DatasetError, match=r"which column holds the labels.* --label-column: 'fine', 'coarse'"):
        load(path)
    data = load(path, label_column="coarse")
    assert data.classes == ("p", "q", "r") and data.train.labels.tolist() == [2, 0] and levels(data) == [1, 2]
    with pytest.raises(DatasetError, match=r"no column 'imgs' \(--path-column\): did you mean 'img'"):
        load(path, label_column="fine", path_column="imgs")
    one = {"img": {"_type": "Image"}, "kind": CLASSES}
    assert load(save(tmp_path / "e", {"img": columns["img"], "kind": [0, 1]}, one)).classes == ("dog", "cat")


def test_vectors_are_features(tmp_path: Path) -> None:
    features = {"v": {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "List"}, "label": CLASSES}
    data = load(save(tmp_path / "d", {"v": [[1.0, 2.0], [3.0, 4.0]], "label": [1, 0]}, features))
    assert data.train.inputs.tolist() == [[1, 2], [3, 4]] and data.train.labels.tolist() == [1, 0]


def test_the_truth_has_the_same_names(tmp_path: Path) -> None:
    columns = {"image": [png(1), png(2)], "label": [0, 1], "truth": [1, -1]}
    data = load(save(tmp_path / "d", columns, {**FEATURES, "truth": CLASSES}))
    assert data.train.truth is not None and data.train.truth.tolist() == [1, -1]


def test_images_are_read_in_another_process_and_taken(tmp_path: Path) -> None:
    path = save(tmp_path / "d", {"image": [png(i) for i in range(5)], "label": [0, 1, 0, 1, 0]})
    images = load(path).train.inputs
    assert isinstance(images, ArrowImages)
    taken = images.take(torch.tensor([4, 2])).take(torch.tensor([1, 0]))
    assert taken.read_all([0, 1])[:, 0, 0, 0].tolist() == [2, 4] and taken.stamp(1) == images.stamp(4)
    copied = pickle.dumps(taken)
    assert len(copied) < 3000 and pickle.loads(copied).read(1)[0, 0, 0] == 4
    other = load(save(tmp_path / "e", {"image": [png(9)] * 5, "label": [0, 1, 0, 1, 0]})).train.inputs
    assert isinstance(other, ArrowImages) and other.stamp(0) != images.stamp(0) and other.key() != images.key()


def test_a_row_without_an_image_is_a_bad_image(tmp_path: Path) -> None:
    rows = [png(1), None, {"bytes": b"x", "path": None}]
    data = load(save(tmp_path / "d", {"image": rows, "label": [0, 1, 1]}))
    for i, reason in ((1, "no image in this row"), (2, "not an image")):
        with pytest.raises(BadImage, match=f"d, row {i}: {reason}"):
            data.train.read([i])


def columns(**changes: Any) -> dict[str, Any]:
    return {"image": [png(1), png(2)], "label": [0, 1]} | changes


@pytest.mark.parametrize(
    ("given", "features", "message"),
    [
        (columns(label=[0, -1]), None, "d, row 1: no label"),
        (columns(label=[0, 2]), None, "label 2, but 2 classes are named"),
        (columns(label=pa.array([0, 2**64 - 1], pa.uint64())), None, f"label {2**64 - 1}, but 2 classes are named"),
        ({"label": [0, 1]}, {"label": CLASSES}, "no columns of images and none of vectors; .* Columns: 'label'"),
        ({"image": [], "label": []}, None, "there are no rows"),
        (
            columns(other=pa.array([png(1)] * 2, IMAGE)),
            {**FEATURES, "other": {"_type": "Image"}},
            "2 columns of images",
        ),
    ],
)
def test_datasets_that_are_refused(given: dict[str, Any], features: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load(save(tmp_path / "d", given, features))


def test_damage_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "d", columns())
    arrow = path / "data-00000-of-00001.arrow"
    whole = arrow.read_bytes()
    for content in (b"", b"x" * 64, whole[: len(whole) // 2]):
        arrow.write_bytes(content)
        with pytest.raises(DatasetError, match="arrow: not an Arrow file, or damaged"):
            load(path)
    arrow.unlink()
    with pytest.raises(DatasetError, match="arrow: not an Arrow file, or damaged"):
        load(path)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "_indices_data_files": [{"filename": "indices.arrow"}]}))
    with pytest.raises(DatasetError, match=r"rows are kept in another order .* save it with a newer datasets"):
        load(path)
    for text in ("{", "[]"):
        (path / "state.json").write_text(text)
        with pytest.raises(DatasetError, match=r"state\.json: "):
            load(path)


def test_many_rows_take_little_memory(tmp_path: Path) -> None:
    count = 20_000
    path = save(tmp_path / "d", {"image": [png(1)] * count, "label": np.arange(count) % 2}, batch=1000)
    data = load(path)
    assert isinstance(data.train.inputs, ArrowImages) and data.train.inputs.names.nbytes < 20 * count
