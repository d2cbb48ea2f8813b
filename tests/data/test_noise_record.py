"""The record of noise, its transition counts, and the file."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.noise import record as noise_record
from labeltrace.data.noise.foreign import ForeignImages
from labeltrace.data.noise.kinds import symmetric
from labeltrace.data.noise.record import NoiseRecord, label_hash, load_noise, save_noise
from labeltrace.data.noise.transitions import Transitions
from labeltrace.errors import InputError

Saved = tuple[Path, np.ndarray, NoiseRecord]
NAMES = tuple("abcdefghij")


# Transition counts


label_pairs = st.integers(2, 7).flatmap(
    lambda c: st.tuples(
        st.just(c),
        st.lists(st.tuples(st.integers(0, c - 1), st.integers(0, c - 1)), min_size=1, max_size=60),
    )
)


@settings(deadline=None, max_examples=60)
@given(case=label_pairs)
def test_transitions_against_a_slow_loop(case: tuple[int, list[tuple[int, int]]]) -> None:
    classes, pairs = case
    seen = Transitions.between(*zip(*pairs, strict=True), num_classes=classes)
    dense = np.zeros((classes, classes))
    for source, target in pairs:
        dense[source, target] += 1
    assert [(i, j, dense[i, j]) for i in range(classes) for j in range(classes) if dense[i, j]] == [
        tuple(entry) for entry in seen.entries.tolist()
    ]
    assert seen.class_counts().tolist() == dense.sum(axis=1).tolist()
    assert seen.label_counts().tolist() == dense.sum(axis=0).tolist()
    assert seen.wrong_counts().tolist() == (dense.sum(axis=1) - dense.diagonal()).tolist()
    shares = [row / row.sum() if row.any() else row for row in dense]
    assert seen.matrix() == pytest.approx(np.array(shares))
    for source, usual in enumerate(seen.usual_mistake()):
        others = [count for target, count in enumerate(dense[source]) if target != source]
        assert (usual == -1) if not any(others) else (usual != source and dense[source, usual] == max(others))


def test_ten_thousand_classes_are_no_burden(tmp_path: Path) -> None:
    clean = np.arange(50_000) % 10_000
    noisy = symmetric(clean, 10_000, 0.5, seed=0)
    names = [f"class {i}" for i in range(10_000)]
    record = NoiseRecord.of("symmetric", "exclusive-iid", 0.5, 0, clean, noisy, names)
    assert len(record.transitions.entries) <= 50_000
    save_noise(tmp_path / "noise.npz", noisy, record)
    assert (tmp_path / "noise.npz").stat().st_size < 4_000_000
    assert load_noise(tmp_path / "noise.npz")[1] == record
    assert "class 5" not in json.dumps(record.to_dict())


def test_transitions_of_a_draw_come_near_its_matrix(cifar10_labels: np.ndarray) -> None:
    record = NoiseRecord.of("x", "x", 0.5, 0, cifar10_labels, symmetric(cifar10_labels, 10, 0.5, 0), NAMES)
    expected = np.full((10, 10), 0.5 / 9)
    np.fill_diagonal(expected, 0.5)
    spread = np.sqrt(expected * (1 - expected) / 5000)
    assert (np.abs(record.transitions.matrix() - expected) < 4.5 * spread).all()


# What a record says


def test_a_record_of_unknown_origin_reads_well() -> None:
    record = NoiseRecord.of("file", "JSON list 0.5_sym.json", None, None, [0, 1], [1, 1], ("a", "b"))
    assert record.describe().startswith("noise from a file (JSON list 0.5_sym.json): actual 0.5000 (1 of 2 labels), ")
    assert record.to_dict()["seed"] is None and record.to_dict()["nominal"] is None


def test_records_differ_by_what_they_hold() -> None:
    def record(images: list[int]) -> NoiseRecord:
        foreign = ForeignImages("cifar100", np.array([1, 3]), np.array(images), "0" * 64)
        return NoiseRecord.of("open-set", "x", 0.5, 0, [0, 1, 0, 1], [0, 1, 0, 1], ("a", "b"), foreign)

    assert record([5, 6]) == record([5, 6]) != record([6, 5])
    assert record([5, 6]).transitions != "transitions" and record([5, 6]).foreign != "foreign"
    assert record([5, 6]).actual == 0.5 and "2 of them on images of cifar100" in record([5, 6]).describe()
    assert record([5, 6]).transitions.entries.tolist() == [[0, 0, 2]]  # a foreign image has no clean class


# The file


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    clean = np.arange(100) % 10
    noisy = symmetric(clean, 10, 0.3, seed=1)
    record = NoiseRecord.of("symmetric", "exclusive-iid", 0.3, 1, clean, noisy, NAMES)
    path = tmp_path / "noise" / "symmetric-0.3-1.npz"
    save_noise(path, noisy, record)
    return path, noisy, record


def rewrite(path: Path, **changes: Any) -> None:
    """Write the file again with other arrays; None removes one, a dictionary changes keys of the record."""
    with np.load(path) as content:
        arrays = {name: content[name] for name in content.files}
    if isinstance(changes.get("record"), dict):
        changes["record"] = np.array(json.dumps(json.loads(arrays["record"].item()) | changes["record"]))
    np.savez(path, **{name: value for name, value in (arrays | changes).items() if value is not None})


def test_a_file_gives_back_what_was_saved(saved: Saved) -> None:
    path, labels, record = saved
    read, read_record = load_noise(path, count=100)
    assert (read == labels).all() and read.dtype == np.int64 and read_record == record
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with np.load(path, allow_pickle=False) as content:
        assert content.files == ["labels", "record", "transitions"]


@st.composite
def files(draw: st.DrawFn) -> tuple[np.ndarray, NoiseRecord]:
    names = draw(st.lists(st.text(max_size=12), min_size=2, max_size=6, unique=True))
    label = st.integers(0, len(names) - 1)
    pairs = draw(st.lists(st.tuples(label, label), min_size=1, max_size=40))
    clean, noisy = np.array(pairs).T
    foreign = None
    if draw(st.booleans()):
        positions = np.array(draw(st.lists(st.integers(0, len(clean) - 1), unique=True)), np.int64)
        indices = np.array(draw(st.lists(st.integers(0, 2**40), min_size=len(positions), max_size=len(positions))))
        foreign = ForeignImages(draw(st.text(max_size=9)), np.sort(positions), indices.astype(np.int64), "f" * 64)
    nominal = draw(st.none() | st.floats(0, 1, exclude_max=True))
    seed = draw(st.none() | st.integers(0, 2**63))
    kind, convention = draw(st.text(max_size=9)), draw(st.text(max_size=9))
    return noisy, NoiseRecord.of(kind, convention, nominal, seed, clean, noisy, names, foreign)


@settings(deadline=None, max_examples=60)
@given(made=files())
def test_any_record_survives_the_file(made: tuple[np.ndarray, NoiseRecord]) -> None:
    labels, record = made
    with tempfile.TemporaryDirectory() as folder:
        save_noise(Path(folder, "x.npz"), labels, record)
        read, read_record = load_noise(Path(folder, "x.npz"), len(labels))
    assert (read == labels).all() and read_record == record
    assert record.describe().count("\n") == (record.kind + record.convention).count("\n") + (
        0 if record.foreign is None else record.foreign.dataset.count("\n")
    )


def test_a_file_for_another_dataset_is_refused(saved: Saved) -> None:
    with pytest.raises(InputError, match="has 100 labels but the dataset has 50,000 training samples"):
        load_noise(saved[0], count=50_000)


def test_changed_labels_are_refused(saved: Saved) -> None:
    path, labels, record = saved
    other = labels.copy()
    other[5] = (other[5] + 1) % 10
    with pytest.raises(InputError, match=f"labels to save: sha256 {record.sha256[:12]} in the record"):
        save_noise(path, other, record)
    rewrite(path, labels=other)
    with pytest.raises(InputError, match=r"symmetric-0.3-1.npz: sha256 .* found; labels were changed"):
        load_noise(path)
    rewrite(path, labels=labels[:99])
    with pytest.raises(InputError, match=r"100 labels in the record, shape \[99\] found"):
        load_noise(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"record": {"num_classes": 9}}, "9 classes in the record, 10 names"),
        ({"record": {"classes": list("abc"), "num_classes": 3}}, "cannot be read"),
        ({"transitions": np.array([[0, 0, 100]])}, "transition counts are not those of the labels"),
        ({"transitions": np.array([[0, 12, 100]])}, "cannot be read .*class 12 is outside 0..9"),
        ({"transitions": np.arange(4)}, r"cannot be read .*got shape \[4\]"),
        ({"transitions": None}, "cannot be read"),
        ({"labels": None}, "cannot be read"),
        ({"record": None}, "cannot be read"),
        ({"record": np.array("{}")}, "cannot be read"),
        ({"record": np.array("[1]")}, "cannot be read"),
        ({"record": np.array(3)}, "cannot be read"),
        ({"record": {"colour": "red"}}, "cannot be read"),
        ({"labels": np.array([object], dtype=object)}, "cannot be read"),
    ],
)
def test_parts_that_do_not_fit_are_refused(saved: Saved, changes: dict[str, Any], message: str) -> None:
    rewrite(saved[0], **changes)
    with pytest.raises(InputError, match=message):
        load_noise(saved[0])


def test_a_label_outside_the_classes_is_named(tmp_path: Path) -> None:
    record = NoiseRecord.of("x", "x", 0.5, 0, [0, 1], [0, 1], ("a", "b"))
    rogue = NoiseRecord(**(vars(record) | {"sha256": label_hash([0, 7])}))
    with pytest.raises(InputError, match="2 classes in the record, 2 names, label 7 at index 1"):
        save_noise(tmp_path / "x.npz", [0, 7], rogue)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("positions", "indices"), [([1, 1], [0, 1]), ([1, 4], [0, 1]), ([-1, 1], [0, 1]), ([0, 1], [0])]
)
def test_replaced_samples_must_be_samples(tmp_path: Path, positions: list[int], indices: list[int]) -> None:
    good = ForeignImages("cifar100", np.array([1, 3]), np.array([0, 1]), "0" * 64)
    labels = [0, 1, 0, 1]
    save_noise(tmp_path / "x.npz", labels, NoiseRecord.of("open-set", "x", 0.5, 0, labels, labels, ("a", "b"), good))
    assert load_noise(tmp_path / "x.npz")[1].foreign == good
    rewrite(tmp_path / "x.npz", positions=np.array(positions), indices=np.array(indices))
    with pytest.raises(InputError, match="samples replaced are not distinct ones of the 4"):
        load_noise(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip", None], ids=["empty", "text", "truncated"])
def test_a_damaged_file_is_refused(saved: Saved, content: bytes | None) -> None:
    path = saved[0]
    path.write_bytes(path.read_bytes()[:200] if content is None else content)
    with pytest.raises(InputError, match="cannot be read"):
        load_noise(path)


def test_a_file_cut_anywhere_is_refused(saved: Saved) -> None:
    path, whole = saved[0], saved[0].read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="cannot be read"):
            load_noise(path)


def test_a_changed_byte_is_noticed_or_harmless(saved: Saved) -> None:
    path, labels, record = saved
    whole = saved[0].read_bytes()
    refused = 0
    for position in np.random.default_rng(0).integers(0, len(whole), 300):
        damaged = bytearray(whole)
        damaged[position] ^= 0x15
        path.write_bytes(bytes(damaged))
        try:
            read, read_record = load_noise(path)
        except InputError:
            refused += 1
        else:  # a date or a flag of the archive
            assert (read == labels).all() and read_record == record
    assert refused > 200


def test_another_kind_of_archive_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    (tmp_path / "x.npz").write_bytes(buffer.getvalue())  # an array under the name of an archive
    with pytest.raises(InputError, match="cannot be read"):
        load_noise(tmp_path / "x.npz")


def test_an_interrupted_write_leaves_the_old_file(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    path, labels, record = saved

    def half(file: Any, **_: object) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(noise_record.np, "savez", half)
    with pytest.raises(OSError, match="disk full"):
        save_noise(path, labels, record)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert (load_noise(path)[0] == labels).all()
