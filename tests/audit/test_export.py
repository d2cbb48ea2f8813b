"""The queue as a file: what stands in it, in every format."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import samples
from labeltrace.audit.export import queue, write_table
from labeltrace.audit.samples import class_names
from labeltrace.errors import InputError


@pytest.fixture
def table():
    return samples.table(
        ["cat, grey", "dog"],
        observed=[0, 1, 1],
        suggested=[1, 1, 0],
        truth=[1, 1, -1],
        id=["a", 'b "2"', "猫"],
        structure=[0.5, None, None],
    )


def test_names_stand_beside_numbers(table):
    found = queue(table, np.array([0.3, 0.1, 0.2]))
    assert found.column_names[:7] == [
        "index", "id", "score", "observed", "observed_class", "suggested", "suggested_class",
    ]  # fmt: skip
    assert found["observed_class"].to_pylist() == ["cat, grey", "dog", "dog"]
    assert found["suggested_class"].to_pylist() == ["dog", "dog", "cat, grey"]
    assert found["truth_class"].to_pylist() == ["dog", "dog", None]
    assert set(table.column_names) < set(found.column_names)


def test_three_formats_hold_the_same(table, tmp_path):
    found = queue(table, np.array([0.3, 0.1, 0.2]))
    rows = found.to_pylist()
    for suffix in ("csv", "parquet", "jsonl"):
        write_table(found, tmp_path / f"q.{suffix}")
    assert pq.read_table(tmp_path / "q.parquet").to_pylist() == rows
    assert class_names(pq.read_table(tmp_path / "q.parquet")) == ["cat, grey", "dog"]
    lines = (tmp_path / "q.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows and "猫" in lines[2]
    with (tmp_path / "q.csv").open(newline="", encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    assert [cell["id"] for cell in cells] == ["a", 'b "2"', "猫"]
    assert [cell["observed_class"] for cell in cells] == ["cat, grey", "dog", "dog"]
    assert [cell["structure"] for cell in cells] == ["0.5", "", ""]
    assert [float(cell["score"]) for cell in cells] == [0.3, 0.1, 0.2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.csv", "q.jsonl", "q.parquet"]


@pytest.mark.parametrize(("name", "message"), [("q.xlsx", "ends in .csv, .parquet, .jsonl"), ("q.csv", "is a folder")])
def test_places_that_are_none(table, tmp_path, name, message):
    (tmp_path / "q.csv").mkdir()
    with pytest.raises(InputError, match=message):
        write_table(table, tmp_path / name)
