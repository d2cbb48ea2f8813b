"""The one door to every kind of noise, and the files that two of them are made from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset
from labeltrace.data.noise.inputs import read_matrix, read_scores
from labeltrace.data.noise.instance import idn
from labeltrace.data.noise.kinds import add_noise, noises
from labeltrace.data.noise.make import NEEDS, check_inputs, make_noise
from labeltrace.data.noise.maps import transition
from labeltrace.errors import InputError

PETS = ("ape", "bee", "cat")
T = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.3, 0.0, 0.7]])


def dataset(labels: np.ndarray, classes: int = 10) -> Dataset:
    return from_arrays(np.zeros((len(labels), 1, 1), np.uint8), labels, classes=range(classes), name="toy")


# Kinds


def test_named_kinds_are_those_of_add_noise() -> None:
    data = dataset(np.arange(1000) % 100, 100)
    for kind in noises:
        if kind not in NEEDS and not kind.startswith("asymmetric"):
            (one, record), (two, other) = make_noise(data, kind, 0.3, 5), add_noise(data, kind, 0.3, 5)
            assert record == other and one.train.labels.equal(two.train.labels)


def test_transition_noise(cifar10_labels: np.ndarray) -> None:
    matrix = np.random.default_rng(0).dirichlet(np.ones(10), 10)
    noisy, record = make_noise(dataset(cifar10_labels), "transition", None, 42, matrix=matrix)
    assert (noisy.train.labels.numpy() == transition(cifar10_labels, matrix, 42)).all()
    assert noisy.train.truth is not None and (noisy.train.truth.numpy() == cifar10_labels).all()
    expected = 1 - matrix.diagonal().mean()  # classes are balanced
    assert record.nominal == pytest.approx(expected) and record.seed == 42
    assert abs(record.actual - expected) < 4.5 * math.sqrt(expected * (1 - expected) / 50_000)
    assert (np.abs(record.transitions.matrix() - matrix) < 5 * np.sqrt(matrix * (1 - matrix) / 5000) + 1e-12).all()
    other = make_noise(dataset(cifar10_labels), "transition", None, 42, matrix=np.eye(10))[1]
    assert other.actual == 0 and other.convention != record.convention


def test_idn_noise(cifar10_labels: np.ndarray) -> None:
    scores = np.random.default_rng(0).dirichlet(np.ones(10), 50_000).astype(np.float32)
    noisy, record = make_noise(dataset(cifar10_labels), "instance-idn", 0.4, 9, scores=scores)
    assert (noisy.train.labels.numpy() == idn(scores, cifar10_labels, 0.4)).all()
    assert (record.kind, record.nominal, record.actual, record.seed) == ("instance-idn", 0.4, 0.4, None)
    assert "instance-idn noise (idn, scores " in record.describe() and "seed" not in record.describe()
    again = make_noise(dataset(cifar10_labels), "instance-idn", 0.4, 10, scores=scores)[1]
    assert again == record  # nothing is drawn


@pytest.mark.parametrize("kind", NEEDS)
def test_kinds_with_inputs_point_to_the_command(kind: str) -> None:
    with pytest.raises(InputError, match=f"{kind} noise needs more than a rate: make a file with `labeltrace noise"):
        add_noise(dataset(np.arange(10)), kind, 0.2, 0)
    assert "labeltrace noise" in noises.about(kind)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("symetric", ["rate"], "unknown noise 'symetric': did you mean 'symmetric'"),
        ("transitoin", [], "did you mean 'transition'"),
        ("symmetric", [], r"symmetric noise needs a rate \(rate=, or --rate of `labeltrace noise`\)"),
        ("transition", ["matrix", "rate"], "transition noise takes no rate; leave it out$"),
        ("transition", ["rate"], r"needs a matrix \(matrix=, or --matrix"),
        ("instance-idn", ["rate"], "needs a score matrix .*--scores"),
        ("instance-idn", ["rate", "scores", "matrix"], "takes no matrix; leave it out, or make 'transition' noise"),
        ("open-set", ["rate", "open_share"], "needs a foreign dataset .*--foreign"),
        ("open-set", ["rate", "foreign"], "needs an open share .*--open-share"),
        ("pair", ["rate", "scores"], "takes no score matrix; leave it out, or make 'instance-idn' noise"),
        ("pair", ["rate", "open_share"], "takes no open share; leave it out, or make 'open-set' noise"),
    ],
)
def test_inputs_that_are_missing_or_too_many(kind: str, given: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_inputs(kind, given)


def test_inputs_for_other_classes_or_samples() -> None:
    data = dataset(np.arange(10))
    with pytest.raises(InputError, match="matrix is for 3 classes but toy has 10"):
        make_noise(data, "transition", None, 0, matrix=T)
    with pytest.raises(InputError, match="scores are for 3 classes but toy has 10"):
        make_noise(data, "instance-idn", 0.2, 0, scores=np.zeros((10, 3)))
    with pytest.raises(InputError, match="a row for each of the 10 labels"):
        make_noise(data, "instance-idn", 0.2, 0, scores=np.zeros((9, 10)))
    with pytest.raises(InputError, match="seed -1 is negative"):
        make_noise(data, "transition", None, -1, matrix=np.eye(10))


@pytest.mark.parametrize(
    ("kind", "inputs"), [("transition", {"matrix": np.eye(10)}), ("instance-idn", {"scores": np.zeros((10, 10))})]
)
def test_noise_is_not_made_twice(kind: str, inputs: dict[str, Any]) -> None:
    noisy, _ = add_noise(dataset(np.arange(10)), "symmetric-exact", 0.2, 0)
    with pytest.raises(InputError, match="2 training labels differ from the truth already"):
        make_noise(noisy, kind, None if kind == "transition" else 0.2, 0, **inputs)


# Matrices in files


def lines(rows: list[list[object]]) -> str:
    return "\n".join(",".join(map(str, row)) for row in rows) + "\n"


@settings(deadline=None, max_examples=40)
@given(order=st.permutations(range(3)), others=st.permutations(range(3)), form=st.sampled_from(["both", "top", "left"]))
def test_a_csv_matrix_is_matched_by_name(
    order: list[int], others: list[int], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = others if form == "both" else order
    rows: list[list[object]] = [[PETS[i], *T[i, others]] for i in order]
    if form != "left":
        rows.insert(0, ["true class", *(PETS[j] for j in others)])
    if form == "top":
        rows = [row[1:] for row in rows]
    path = tmp_path_factory.mktemp("matrix") / "t.csv"
    path.write_text(lines(rows))
    assert (read_matrix(path, PETS) == T).all()


def test_other_forms_of_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("\ufeff" + lines(T.tolist()) + "\n,,\n", encoding="utf-8")
    np.save(tmp_path / "t.npy", T)
    np.savez(tmp_path / "one.npz", anything=T)
    np.savez(tmp_path / "many.npz", matrix=T, scores=T + 1)
    for name in ("plain.csv", "t.npy", "one.npz", "many.npz"):
        assert (read_matrix(tmp_path / name, PETS) == T).all()
    # classes that are numbers: the shape tells which line is the header
    (tmp_path / "digits.csv").write_text("1,0\n0.9,0.1\n0.2,0.8\n")
    assert read_matrix(tmp_path / "digits.csv", ["0", "1"]).tolist() == [[0.8, 0.2], [0.1, 0.9]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 3 lines and columns, with or without class names; found 0 lines"),
        ("1,0\n0,1\n", "found 2 lines of 2 columns"),
        ("1,0,0\n0,1\n0,0,1\n", "found 3 lines of 2 or 3 columns"),
        ("1,0,0\n0,x,0\n0,0,1\n", "'x' is no number"),
        ("ape,bee,kat\n1,0,0\n0,1,0\n0,0,1\n", "no class 'kat': did you mean 'cat'"),
        ("ape,bee,bee\n1,0,0\n0,1,0\n0,0,1\n", "class 'cat' is missing, another is named twice"),
        ("1;0;0\n0;1;0\n0;0;1\n", "found 3 lines of 1 columns"),
    ],
)
def test_what_is_no_csv_matrix(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_matrix(tmp_path / "t.csv", PETS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, message in (
        ("absent.csv", "no file"),
        ("absent.npy", "no file"),
        ("t.txt", r"t.txt: expected a .csv, .npy or .npz file"),
    ):
        with pytest.raises(InputError, match=message):
            read_matrix(tmp_path / name, PETS)
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "t.npy").write_bytes(b"no array")
    (tmp_path / "t.npz").write_bytes(b"PK\x03\x04broken")
    np.save(tmp_path / "objects.npy", np.array([object()], dtype=object), allow_pickle=True)
    for name in ("t.csv", "t.npy", "t.npz", "objects.npy"):
        with pytest.raises(InputError, match="not a readable"):
            read_matrix(tmp_path / name, PETS)
    np.savez(tmp_path / "two.npz", a=T, b=T)
    with pytest.raises(InputError, match="expected an array 'scores', found a, b"):
        read_scores(tmp_path / "two.npz")
    np.savez(tmp_path / "scores.npz", scores=T, other=T)
    assert (read_scores(tmp_path / "scores.npz") == T).all()
