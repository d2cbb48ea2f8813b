"""Checked samples read from a table: names or numbers, and what is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import samples
from labeltrace.audit.checked import read_checked
from labeltrace.errors import InputError


@pytest.fixture
def table():
    return samples.table(observed=[0, 1, 2, 0])


def read(folder, text, table):
    (folder / "c.csv").write_text(text, encoding="utf-8")
    rows, truth = read_checked(folder / "c.csv", table)
    return rows.tolist(), truth.tolist()


@pytest.mark.parametrize("column", ["correct", "truth", "label", "Class"])
def test_by_name_and_by_number(tmp_path, table, column):
    assert read(tmp_path, f"note,{column},id\n-,owl,s3\n-,1,s0\n", table) == ([3, 0], [2, 1])


def test_parquet(tmp_path, table):
    pq.write_table(pa.table({"id": ["s1"], "correct": [2]}), tmp_path / "c.parquet")
    rows, truth = read_checked(tmp_path / "c.parquet", table)
    assert (rows.tolist(), truth.tolist()) == ([1], [2])


def test_numbers_that_are_names_are_names(tmp_path):
    table = samples.table(["1", "2"], observed=[0, 1])
    assert read(tmp_path, "id,correct\ns0,1\ns1,2\n", table) == ([0, 1], [0, 1])
    with pytest.raises(InputError, match="line 2: no class '3'"):
        read(tmp_path, "id,correct\ns0,3\n", table)


@pytest.mark.parametrize("answers", [("0", "1"), ("1", "1"), ("yes", "no"), ("TRUE", "FALSE"), ("y", "n")])
@pytest.mark.parametrize("classes", [("cat", "dog"), ("3", "7")])
def test_yes_and_no_are_no_classes(tmp_path, answers, classes):
    table = samples.table(classes, observed=[0, 1])
    with pytest.raises(
        InputError, match=rf"column 'correct': holds nothing but .* right class .* such as '{classes[0]}'"
    ):
        read(tmp_path, f"id,correct\ns0,{answers[0]}\ns1,{answers[1]}\n", table)


def test_yes_and_no_in_parquet(tmp_path, table):
    pq.write_table(pa.table({"id": ["s0", "s1"], "correct": [True, False]}), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="holds nothing but 'false' and 'true'"):
        read_checked(tmp_path / "c.parquet", table)


@pytest.mark.parametrize("classes", [("0", "1"), ("no", "yes"), ("false", "true")])
def test_yes_and_no_where_classes_are_called_so(tmp_path, classes):
    table = samples.table(classes, observed=[0, 1])
    assert read(tmp_path, f"id,correct\ns0,{classes[1]}\ns1,{classes[0]}\n", table) == ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,note\ns0,x\n", "expected columns id and correct"),
        ("id,correct\ns0,cat\ns9,cat\n", "line 3: the run has no sample 's9'"),
        ("id,correct\ns0,cat\ns1,dog\ns0,owl\n", "line 2: id 's0' comes 2 times"),
        ("id,correct\ns0,cta\n", "line 2: no class 'cta': did you mean 'cat'"),
        ("id,correct\ns0,3\n", "line 2: no class '3'"),
        ("id,correct\ns0,\n", "line 2: no class"),
        ("id,correct\n,cat\n", "line 2: no id"),
        ("id,correct\n", "nothing below it"),
    ],
)
def test_refusals(tmp_path, table, text, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text, table)


def test_no_file(tmp_path, table):
    with pytest.raises(InputError, match=r"--checked .*none.csv: expected a .csv"):
        read_checked(tmp_path / "none.csv", table)
