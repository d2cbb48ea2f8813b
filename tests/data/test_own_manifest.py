from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from labeltrace.data import Dataset, DatasetError, FeatureViews, ImageFiles, ReadOptions, prepare
from labeltrace.data.own.load import load_own


def load(path: Path, **options: Any) -> Dataset:
    return load_own(path, ReadOptions(workers=0, cache_gb=0, **options))


def written(folder: Path, text: str | bytes, name: str = "m.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def parquet(folder: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), folder / "m.parquet")
    return folder / "m.parquet"


def names(data: Dataset) -> list[str]:
    assert isinstance(data.train.inputs, ImageFiles)
    return list(data.train.inputs.names)


def labels(data: Dataset) -> list[str]:
    return [data.classes[i] for i in data.train.labels.tolist()]


# Images


def test_paths_are_below_the_manifest_or_absolute(tmp_path: Path) -> None:
    far = tmp_path / "far" / "b.png"
    for i, path in enumerate((tmp_path / "set" / "im" / "a.png", far)):
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8), (i + 1,) * 3).save(path)
    data = load(written(tmp_path / "set", f"path,label\nim/a.png,x\n{far},y\n"))
    assert list(data.train.ids or ()) == ["im/a.png", str(far)] and data.name == "m" and data.classes == ("x", "y")
    ready, _ = prepare(data, ReadOptions(workers=0, cache_gb=0))
    assert isinstance(ready.train.inputs, torch.Tensor) and ready.train.inputs[:, 0, 0, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "path,label\na.jpg,cat\nb.jpg,dog\n",
        "path,label\na.jpg,cat\nb.jpg,dog",
        "\ufeffpath,label\r\na.jpg,cat\r\nb.jpg,dog\r\n",
        "path, label\na.jpg, cat\nb.jpg, dog \n",
        '"path","label"\n"a.jpg","cat"\n"b.jpg","dog"\n',
        "path;label\na.jpg;cat\nb.jpg;dog\n",
        'path, label\na.jpg, "cat"\n "b.jpg", dog\n',
        "path\tlabel\na.jpg\tcat\nb.jpg\tdog\n",
        "\n\npath,label\n\na.jpg,cat\n\nb.jpg,dog\n\n",
        ",Label,comment,FileName\n0,cat,,a.jpg\n1,dog,x,b.jpg\n",
    ],
)
def test_one_table_in_many_spellings(text: str, tmp_path: Path) -> None:
    data = load(written(tmp_path, text))
    assert names(data) == ["a.jpg", "b.jpg"] and labels(data) == ["cat", "dog"] and data.test is None


def test_quotes_keep_commas_newlines_and_quotes(tmp_path: Path) -> None:
    data = load(written(tmp_path, 'path,label\n"a, b.jpg","big\ncat"\n"say ""hi"".jpg",dög\n'))
    assert names(data) == ["a, b.jpg", 'say "hi".jpg'] and data.classes == ("big\ncat", "dög")


def test_tsv_and_parquet_are_read_alike(tmp_path: Path) -> None:
    one = load(written(tmp_path, "file\tclass\na b.jpg\tx,y\nc.jpg\tz\n", "m.tsv"))
    kinds = pa.array(["x,y", "z"]).dictionary_encode()
    other = load(parquet(tmp_path, {"file": pa.array(["a b.jpg", "c.jpg"], pa.large_string()), "class": kinds}))
    assert names(one) == names(other) and one.classes == other.classes == ("x,y", "z")
    assert one.train.labels.equal(other.train.labels)


@pytest.mark.parametrize(
    ("given", "classes"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        (["10", "9", "b"], ("10", "9", "b")),
        (["01", "1", "2"], ("01", "1", "2")),
        (["-1", "0", "1"], ("-1", "0", "1")),
        (["None", "nan", "NA"], ("NA", "None", "nan")),
        (["1.0", "1", "2"], ("1", "1.0", "2")),
    ],
)
def test_labels_are_words_in_the_order_of_numbers(given: list[str], classes: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"{i}.jpg,{label}\n" for i, label in enumerate(given))
    data = load(written(tmp_path, "path,label\n" + rows))
    assert data.classes == classes and labels(data) == given


@pytest.mark.parametrize(
    ("column", "classes"),
    [
        (pa.array([10, 9, 9]), ("9", "10")),
        (pa.array([2.0, 3.0, 3.0]), ("2", "3")),
        (pa.array([True, False, True]), ("false", "true")),
    ],
)
def test_labels_of_parquet_keep_their_order(column: Any, classes: tuple[str, ...], tmp_path: Path) -> None:
    assert load(parquet(tmp_path, {"path": ["a", "b", "c"], "label": column})).classes == classes


def test_columns_by_flag(tmp_path: Path) -> None:
    text = "path,label,f,l,s,n,t\nx,y,a.jpg,cat,train,one,dog\nx,y,b.jpg,dog,test,two,\nx,y,c.jpg,dog,train,three,\n"
    options = dict(
        zip(("path_column", "label_column", "split_column", "id_column", "truth_column"), "flsnt", strict=True)
    )
    data = load(written(tmp_path, text), **options)
    assert names(data) == ["a.jpg", "c.jpg"] and list(data.train.ids or ()) == ["one", "three"]
    assert data.train.truth is not None and data.train.truth.tolist() == [1, -1]
    assert data.test is not None and list(data.test.ids or ()) == ["two"] and data.test.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("splits", "train", "test"),
    [
        (["train", "test", "train", "TRAIN"], [0, 2, 3], [1]),
        (["train", "val", "train", "Validation"], [0, 2], [1, 3]),
        (["training", "test", "train", "dev"], [0, 2], [1]),
        (["train"] * 4, [0, 1, 2, 3], None),
    ],
)
def test_splits(splits: list[str], train: list[int], test: list[int] | None, tmp_path: Path) -> None:
    text = "".join(f"{i}.jpg,{'ab'[i // 2]},{split}\n" for i, split in enumerate(splits))
    data = load(written(tmp_path, "path,label,split\n" + text.replace("1.jpg,a", "1.jpg,b")))
    assert names(data) == [f"{i}.jpg" for i in train]
    held_out = None if data.test is None else list(data.test.ids or ())
    assert held_out == (None if test is None else [f"{i}.jpg" for i in test])


def test_a_test_manifest_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, "path,label\na.jpg,x\nb.jpg,y\n")
    data = load(path, test=written(tmp_path, "path,label\nc.jpg,y\n", "t.csv"))
    assert data.test is not None and data.test.labels.tolist() == [1]
    with pytest.raises(
        DatasetError, match=r"t\.csv, line 2: 'yy' is the label of no training sample; did you mean 'y'"
    ):
        load(path, test=written(tmp_path, "path,label\nc.jpg,yy\n", "t.csv"))


def test_an_image_may_be_listed_twice_under_two_names(tmp_path: Path) -> None:
    data = load(written(tmp_path, "id,path,label\n1,a.jpg,x\n2,a.jpg,y\n"))
    assert names(data) == ["a.jpg", "a.jpg"] and list(data.train.ids or ()) == ["1", "2"]


def test_a_class_that_is_only_true_somewhere_is_a_class(tmp_path: Path) -> None:
    data = load(written(tmp_path, "path,label,truth\na,x,z\nb,y,\n"))
    assert data.classes == ("x", "y", "z") and data.train.truth is not None and data.train.truth.tolist() == [2, -1]


GOOD = "path,label\na.jpg,x\nb.jpg,y\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "the file is empty; expected a header"),
        ("path,label\n", {}, "a header and nothing below it"),
        ("path,lable\na.jpg,x\n", {}, r"no column of labels \(label, class.* --label-column. Columns: 'path', 'lable'"),
        (GOOD, {"label_column": "lable"}, r"no column 'lable' \(--label-column\): did you mean 'label'\?"),
        (GOOD, {"path_column": "zzz"}, r"no column 'zzz' \(--path-column\): known: label, path"),
        ("path,label,label\na.jpg,x,y\n", {}, "column 'label' appears 2 times; rename one"),
        (GOOD + "c.jpg,\n", {}, r"line 4: no label \(1 such in all\); fill it in"),
        (GOOD + ",x\n", {}, "line 4: no value in column 'path'"),
        (GOOD + "a.jpg,y\n", {}, r"line 2 and line 4: path 'a.jpg' twice; remove one, or give each row a name .* id"),
        ("id,path,label\n7,a,x\n8,b,y\n7,c,x\n", {}, "line 2 and line 4: id '7' twice; make them distinct"),
        ("id,path,label\n7,a,x\n,b,y\n", {}, "line 3: no value in column 'id'"),
        (GOOD + "c.jpg\n", {}, "line 4: 1 fields for 2 columns; put quotes around a value that holds ','"),
        (GOOD + "c.jpg,x,1\n", {}, "line 4: 3 fields for 2 columns"),
        (GOOD + '"c.jpg,x\n', {}, "line 4: unexpected end of data; is a quote left open?"),
        (GOOD + '"c"d.jpg,x\n', {}, "line 4: .*quote"),
        (GOOD.encode() + b"caf\xe9.jpg,x\n", {}, "line 4: not UTF-8; save the file as UTF-8"),
        (GOOD.encode("utf-16"), {}, "line 1: not UTF-8"),
        (GOOD + "c\0.jpg,x\n", {}, "line 4: a NUL byte"),
        ("path,label,split\na,x,train\nb,y,tarin\n", {}, "line 3: split 'tarin'; expected train, test or validation"),
        ("path,label,split\na,x,train\nb,y,\n", {}, "line 3: no split"),
        ("path,label,split\na,x,test\nb,y,test\n", {}, "no row is marked train"),
        ("path,label,split\na,x,train\nb,y,train\nc,z,test\n", {}, "line 4: 'z' is the label of no training sample"),
        ("path,label\na,x\nb,x\n", {}, r"needs two classes or more, found \['x'\]"),
        ("name,label\na,x\nb,y\n", {}, "line 2, column 'name': 'a' is no number; without a column of paths every"),
        ("label\nx\ny\n", {}, r"neither a column of paths \(path, file.*; or --path-column\) nor one of features"),
    ],
)
def test_mistakes_are_told_with_their_line(
    text: str | bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DatasetError, match=message) as caught:
        load(path, **options)
    assert len(str(caught.value).splitlines()) == 1
    assert str(path) in str(caught.value) or "two classes" in message


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["a", "b"], "label": [0.5, 1.0]}, "labels are numbers with a fraction, such as 0.5"),
        ({"path": ["a", "b"], "label": [[1], [2]]}, "labels are list<.*>; expected integers or strings"),
        ({"path": ["a", None], "label": ["x", "y"]}, "row 1: no value in column 'path'"),
        ({"path": ["a", "b"], "label": ["x", None]}, "row 1: no label"),
        ({"image": [{"bytes": b"", "path": "a"}] * 2, "label": [0, 1]}, "column 'image' are struct<"),
        ({"path": pa.array([], pa.string()), "label": pa.array([], pa.string())}, "there are no rows"),
    ],
)
def test_mistakes_in_parquet_are_told_with_their_row(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load(parquet(tmp_path, columns))


@pytest.mark.parametrize("cut", [0, 3, 40, -10])
def test_a_damaged_parquet_file_is_named(cut: int, tmp_path: Path) -> None:
    path = parquet(tmp_path, {"path": ["a", "b"], "label": ["x", "y"]})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DatasetError, match=r"m\.parquet: not a Parquet file"):
        load(path)


def test_many_rows_and_classes(tmp_path: Path) -> None:
    rows = "".join(f"im/{i}.jpg,class {i % 10_000:05d}\n" for i in range(70_000))
    data = load(written(tmp_path, "path,label\n" + rows))
    assert data.num_classes == 10_000 and len(data.train) == 70_000
    assert data.train.labels.bincount().tolist() == [7] * 10_000
    assert names(data)[-1] == "im/69999.jpg" and data.train.labels[12_345] == 2_345


# Features


def test_features_in_columns(tmp_path: Path) -> None:
    data = load(written(tmp_path, ",f1,label,f2,split\n0,1.5,x,-2,train\n1,2e3,y, 7 ,train\n2,0,y,1,test\n"))
    assert isinstance(data.views, FeatureViews) and data.train.inputs.tolist() == [[1.5, -2], [2000, 7]]
    assert data.test is not None and data.test.inputs.tolist() == [[0, 1]] and list(data.test.ids or ()) == ["2"]
    assert data.train.inputs.dtype == torch.float32


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64()), pa.list_(pa.float16(), 2)])
def test_features_in_a_column_of_lists(kind: Any, tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float16).reshape(3, 2)
    column = pa.array(list(values), kind) if kind.value_type == pa.float16() else pa.array(values.tolist(), kind)
    data = load(parquet(tmp_path, {"id": ["p", "q", "r"], "v": column, "label": [1, 0, 1], "note": ["", "", ""]}))
    assert data.train.inputs.tolist() == values.tolist() and list(data.train.ids or ()) == ["p", "q", "r"]


def test_features_of_parquet_are_its_numbers(tmp_path: Path) -> None:
    columns = {"a": [1, 2], "name": ["p", "q"], "b": pa.array([0.5, 1.5], pa.float16()), "y": ["u", "v"]}
    assert load(parquet(tmp_path, columns)).train.inputs.tolist() == [[1, 0.5], [2, 1.5]]


def test_features_with_labels_beside_them(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"v": [[1.0, 2.0], [3.0, 4.0]]})
    data = load(path, labels=written(tmp_path, "cat\ndog\n", "l.txt"))
    assert data.classes == ("cat", "dog") and data.train.inputs.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": [[1.0, 2.0], [3.0]], "label": [0, 1]}, "row 1: 1 numbers where the first row has 2"),
        ({"v": [[1.0], None], "label": [0, 1]}, "row 1: no list of numbers"),
        ({"v": [[1.0], [2.0]], "w": [[1.0], [2.0]], "label": [0, 1]}, "columns 'v', 'w' hold lists; keep the one"),
        ({"v": [[1.0], [float("nan")]], "label": [0, 1]}, "NaN or infinite, the first at index 1"),
        ({"a": [1.0, None], "label": [0, 1]}, "row 1, column 'a': no value"),
    ],
)
def test_features_that_are_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        load(parquet(tmp_path, columns))


def test_an_image_size_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="an image size goes with image files"):
        load(written(tmp_path, "a,label\n1,x\n2,y\n"), image_size=32)
