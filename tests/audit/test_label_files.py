"""A diff put into every kind of file and taken out again: labels as before, everything else untouched."""

import csv
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layouts
import samples
from labeltrace.audit.diff import LabelDiff, label_diff, read_diff
from labeltrace.audit.labels import open_labels, retyped
from labeltrace.data import ReadOptions
from labeltrace.data.own.load import load_own
from labeltrace.errors import InputError


def diff_of(*changes):
    columns = dict(zip(("id", "from", "to"), zip(*changes, strict=True), strict=True))
    return LabelDiff(pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()}))


def put(data, diff, out, **read):
    source = open_labels(data, ReadOptions(**read))
    source.write(out, diff.changes(source.ids, source.labels, source.known, str(data)))


def there_and_back(data, diff, out, back, **read):
    """Apply and revert; the labels before, between and after."""
    before = open_labels(data, ReadOptions(**read)).labels.to_pylist()
    put(data, diff, out, **read)
    again = {**read, "labels": out} if "labels" in read else read
    between = open_labels(data if "labels" in read else out, ReadOptions(**again)).labels.to_pylist()
    put(data if "labels" in read else out, diff.reverse(), back, **again)
    last = {**read, "labels": back} if "labels" in read else read
    return before, between, open_labels(data if "labels" in read else back, ReadOptions(**last)).labels.to_pylist()


CHANGES = ("b.png", "dog", "cat"), ("d.png", "cat", "dog")
LINES = [
    "path,label,note",
    'a.png,cat,"one, two"',
    "",
    "b.png,dog,  plain",
    '"c.png",dog,"says ""hi"""',
    "d.png,cat,",
    "",
]


def test_a_manifest_changes_only_where_it_must(tmp_path):
    (tmp_path / "m.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
    before, between, after = there_and_back(
        tmp_path / "m.csv", diff_of(*CHANGES), tmp_path / "n.csv", tmp_path / "o.csv"
    )
    assert before == after == ["cat", "dog", "dog", "cat"] and between == ["cat", "cat", "dog", "dog"]
    old, new = (tmp_path / "m.csv").read_bytes().split(b"\r\n"), (tmp_path / "n.csv").read_bytes().split(b"\r\n")
    assert [i for i, lines in enumerate(zip(old, new, strict=True)) if lines[0] != lines[1]] == [3, 5]
    assert new[0] == b"\xef\xbb\xbfpath,label,note" and new[2] == b"" and new[5] == b"d.png,dog,"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_quotes_and_line_breaks_survive(tmp_path, separator):
    text = io.StringIO()
    rows = [["id", "class", "x", "note"], ["a", "red, hot", "1", "two\nlines"], ["b", 'the "blue"', "2", "-"]]
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    suffix = ".tsv" if separator == "\t" else ".csv"
    (tmp_path / f"m{suffix}").write_text(text.getvalue())
    put(tmp_path / f"m{suffix}", diff_of(("a", "red, hot", 'the "blue"')), tmp_path / f"n{suffix}")
    with (tmp_path / f"n{suffix}").open(newline="") as file:
        found = list(csv.reader(file, delimiter=separator))
    assert found == [rows[0], ["a", 'the "blue"', "1", "two\nlines"], rows[2]]


def test_rows_without_names_go_by_their_number(tmp_path):
    (tmp_path / "m.csv").write_text("x1,x2,label\n1,2,a\n3,4,b\n5,6,a\n")
    put(tmp_path / "m.csv", diff_of(("2", "a", "b")), tmp_path / "n.csv")
    assert load_own(tmp_path / "n.csv", ReadOptions()).train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(["cat", "dog", "dog", "cat"]),
        pa.array(["cat", "dog", "dog", "cat"], pa.large_string()),
        pa.array(["cat", "dog", "dog", "cat"]).dictionary_encode(),
        pa.array([7, 12, 12, 7], pa.uint8()),
        pa.array([7.0, 12.0, 12.0, 7.0], pa.float32()),
        pa.array([True, False, False, True]),
    ],
    ids=lambda array: str(array.type),
)
def test_parquet_keeps_the_type_of_its_labels(tmp_path, labels):
    table = pa.table({"id": ["a", "b", "c", "d"], "label": labels, "emb": [[1.0, 2.0]] * 4})
    table = table.replace_schema_metadata({"made": "by us"})
    pq.write_table(table, tmp_path / "m.parquet")
    first, second = open_labels(tmp_path / "m.parquet", ReadOptions()).labels.to_pylist()[:2]
    before, between, after = there_and_back(
        tmp_path / "m.parquet", diff_of(("b", second, first)), tmp_path / "n.parquet", tmp_path / "o.parquet"
    )
    assert before == after == [first, second, second, first] and between == [first, first, second, first]
    given = pq.read_table(tmp_path / "m.parquet")
    assert pq.read_table(tmp_path / "n.parquet").schema.equals(given.schema, check_metadata=True)
    assert pq.read_table(tmp_path / "o.parquet").equals(given)


@pytest.mark.parametrize(
    "y",
    [
        np.array([0, 1, 1, 2], np.int8),
        np.array([0, 1, 1, 2], ">i4"),
        np.array([[0], [1], [1], [2]]),
        np.array([0.0, 1.0, 1.0, 2.0]),
        np.array(["ox", "cat", "cat", "mouse"]),
        np.array([b"ox", b"cat", b"cat", b"mouse"]),
        np.array([True, False, False, True]),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_npz_changes_one_array(tmp_path, y):
    x, x_test = np.arange(8.0).reshape(4, 2), np.zeros((1, 2))
    np.savez_compressed(tmp_path / "m.npz", X=x, Y=y, x_test=x_test, y_test=y[:1], extra=np.arange(3))
    words = open_labels(tmp_path / "m.npz", ReadOptions()).labels.to_pylist()
    before, between, after = there_and_back(
        tmp_path / "m.npz", diff_of(("1", words[1], words[3])), tmp_path / "n.npz", tmp_path / "o.npz"
    )
    assert before == after == words and between == [words[0], words[3], *words[2:]]
    with np.load(tmp_path / "n.npz") as new, np.load(tmp_path / "o.npz") as old:
        assert new.files == ["X", "Y", "x_test", "y_test", "extra"]
        assert (new["X"] == x).all() and (new["y_test"] == y[:1]).all() and new["Y"].shape == y.shape
        assert (old["Y"] == y).all() and old["Y"].dtype.kind == y.dtype.kind
    with zipfile.ZipFile(tmp_path / "n.npz") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    if y.ndim == 1:
        assert len(load_own(tmp_path / "n.npz", ReadOptions()).train) == 4


def test_npz_with_names(tmp_path):
    np.savez(tmp_path / "m.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 1]), ids=np.array(["a", "b", "c"]))
    put(tmp_path / "m.npz", diff_of(("c", "1", "0")), tmp_path / "n.npz")
    with np.load(tmp_path / "n.npz") as new:
        assert new["y"].tolist() == [0, 1, 0]


def test_labels_beside_arrays(tmp_path):
    np.save(tmp_path / "emb.npy", np.zeros((3, 2), np.float32))
    np.save(tmp_path / "y.npy", np.array([4, 5, 5]))
    (tmp_path / "y.txt").write_text("4\r\n5\r\n5\r\n\r\n")
    (tmp_path / "y.csv").write_text("label,who\n4,me\n5,you\n5,me\n")
    pq.write_table(pa.table({"label": [4, 5, 5]}), tmp_path / "y.parquet")
    for suffix in ("npy", "txt", "csv", "parquet"):
        before, between, after = there_and_back(
            tmp_path / "emb.npy", diff_of(("2", "5", "4")), tmp_path / f"n.{suffix}", tmp_path / f"o.{suffix}",
            labels=tmp_path / f"y.{suffix}",
        )  # fmt: skip
        assert before == after == ["4", "5", "5"] and between == ["4", "5", "4"]
    for suffix in ("txt", "csv"):
        assert (tmp_path / f"o.{suffix}").read_bytes() == (tmp_path / f"y.{suffix}").read_bytes()


@pytest.mark.parametrize("out", ["new.csv", "photos/new.csv", "else/where/new.csv"])
def test_class_folders_become_a_manifest_of_the_same_images(tmp_path, out):
    root = tmp_path / "photos"
    names = ["cat/a.png", "cat/b, c.png", "dog/a.png", "dog/deep/d.png"]
    for split in ("train", "test"):
        for i, name in enumerate(names):
            layouts.picture(root / split / name, i)
    source = load_own(root, ReadOptions())
    (tmp_path / out).parent.mkdir(parents=True, exist_ok=True)
    diff = diff_of(("train/cat/b, c.png", "cat", "dog"))
    put(root, diff, tmp_path / out)
    found = load_own(tmp_path / out, ReadOptions())
    assert found.classes == source.classes and list(found.train.ids) == list(source.train.ids)
    assert source.train.labels.tolist() == [0, 0, 1, 1] and found.train.labels.tolist() == [0, 1, 1, 1]
    assert found.test.labels.tolist() == [0, 0, 1, 1]
    assert found.train.read([0, 1, 2, 3]).equal(source.train.read([0, 1, 2, 3]))
    put(tmp_path / out, diff.reverse(), (tmp_path / out).with_name("back.csv"))
    assert load_own((tmp_path / out).with_name("back.csv"), ReadOptions()).train.labels.tolist() == [0, 0, 1, 1]


def test_a_class_that_the_diff_emptied_comes_back(tmp_path):
    (tmp_path / "m.csv").write_text("id,x,label\na,1,cat\nb,2,dog\nc,3,owl\n")
    before, between, after = there_and_back(
        tmp_path / "m.csv", diff_of(("b", "dog", "cat")), tmp_path / "n.csv", tmp_path / "o.csv"
    )
    assert between == ["cat", "cat", "owl"] and before == after


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("a", "dog", "cat")], r"'a' is labelled 'cat', the diff expects 'dog' \(is the diff applied already\?\)"),
        (
            [("b", "dog", "cat"), ("a", "owl", "dog")],
            "'a' is labelled 'cat', .* 'owl': the labels have changed",
        ),
        ([("z", "dog", "cat")], "line 2: .*m.csv has no sample 'z'"),
        ([("b", "dog", "cat"), ("b", "dog", "owl")], "line 2: id 'b' comes 2 times"),
        ([("b", "dog", "cta")], "line 2: .*m.csv has no class 'cta': did you mean 'cat'?"),
    ],
)
def test_refusals(tmp_path, changes, message):
    (tmp_path / "m.csv").write_text("id,x,label\na,1,cat\nb,2,dog\nc,3,owl\n")
    with pytest.raises(InputError, match=message):
        put(tmp_path / "m.csv", diff_of(*changes), tmp_path / "n.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]


def test_applying_twice_and_reverting_twice_are_refused(tmp_path):
    (tmp_path / "m.csv").write_text("id,x,label\na,1,cat\nb,2,dog\n")
    diff = diff_of(("b", "dog", "cat"))
    put(tmp_path / "m.csv", diff, tmp_path / "n.csv")
    with pytest.raises(InputError, match=r"'b' is labelled 'cat', .* applied already"):
        put(tmp_path / "n.csv", diff, tmp_path / "o.csv")
    with pytest.raises(InputError, match=r"'b' is labelled 'dog', .* taken back already"):
        put(tmp_path / "m.csv", diff.reverse(), tmp_path / "o.csv")


def test_a_name_for_two_samples_is_refused(tmp_path):
    (tmp_path / "m.csv").write_text("id,x,label\na,1,cat\na,2,dog\n")
    with pytest.raises(InputError, match="id 'a' names more than one sample"):
        open_labels(tmp_path / "m.csv", ReadOptions())


def test_paths_stay_with_their_folder(tmp_path):
    (tmp_path / "m.csv").write_text("path,label\na.png,cat\nb.png,dog\n")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"paths in .*m.csv start from its folder"):
        put(tmp_path / "m.csv", diff_of(("b.png", "dog", "cat")), tmp_path / "other" / "n.csv")
    (tmp_path / "m.csv").write_text("path,label\n/x/a.png,cat\n/x/b.png,dog\n")
    put(tmp_path / "m.csv", diff_of(("/x/b.png", "dog", "cat")), tmp_path / "other" / "n.csv")


def test_numbers_hold_no_words(tmp_path):
    with pytest.raises(InputError, match="labels are int8, which cannot hold"):
        retyped(np.zeros(2, np.int8), {0: "cat"}, tmp_path)
    with pytest.raises(InputError, match="labels are int8, which cannot hold"):
        retyped(np.zeros(2, np.int8), {0: "300"}, tmp_path)
    assert retyped(np.zeros(2, np.int8), {}, tmp_path).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["m.npy", "m.xyz", "nothing", "nothing.csv"])
def test_what_has_no_labels_is_refused(tmp_path, name):
    if not name.startswith("nothing"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=name):
        open_labels(tmp_path / name, ReadOptions())


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "m.csv").write_text("id,x,label\na,1,cat\nb,2,dog\n")
    (tmp_path / "n.csv").write_text("old")
    monkeypatch.setattr("labeltrace.audit.labels.TextLabels._line", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        put(tmp_path / "m.csv", diff_of(("b", "dog", "cat")), tmp_path / "n.csv")
    assert (tmp_path / "n.csv").read_text() == "old" and len(list(tmp_path.iterdir())) == 2


def test_the_diff_of_a_table_and_its_file(tmp_path):
    names = ["cat, grey", 'the "dog"']
    table = samples.table(
        names, observed=[0, 1, 0], suggested=[1, 0, 1], decision=["relabel", "relabel", "review"],
        id=["a,1", 'b "2"', "c"], observed_reliability=[0.021, 0.3, 0.9], confidence=[0.987, 0.95, 0.99],
    )  # fmt: skip
    diff = label_diff(table)
    assert diff.table["why"].to_pylist() == [
        "label reliability 0.02, confidence 0.99",
        "label reliability 0.30, confidence 0.95",
    ]
    diff.write(tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text().splitlines()[0] == "id,from,to,why"
    found = read_diff(tmp_path / "d.csv")
    assert found.table.to_pylist() == diff.table.select(["id", "from", "to"]).to_pylist()
    assert found.table.to_pylist() == [
        {"id": "a,1", "from": "cat, grey", "to": 'the "dog"'},
        {"id": 'b "2"', "from": 'the "dog"', "to": "cat, grey"},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("id,from\na,b\n", "expected columns id, from, to, why; found 'id', 'from'"),
        ("id,from,to\na,b,\n", "line 2: no value in column 'to'"),
        ("id,from,to\n,b,c\n", "line 2: no value in column 'id'"),
        ("id,from,to\na,b,b\n", "line 2: from 'b' to itself"),
        ("id,from,to\na,b\n", "line 2: 2 fields for 3 columns"),
        ("id,from,to,why\n", "a header and nothing below it"),
    ],
)
def test_diffs_that_are_none(tmp_path, text, message):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_diff(tmp_path / "d.csv")


def test_no_diff_no_change(tmp_path):
    with pytest.raises(InputError, match=r"d.csv: expected a .csv file with columns id, from, to, why"):
        read_diff(tmp_path / "d.csv")
