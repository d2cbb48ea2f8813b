from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import (
    UNKNOWN,
    Dataset,
    DatasetError,
    Split,
    datasets,
    stratified,
)
from labeltrace.data.load import load_dataset
from labeltrace.data.options import ReadOptions
from labeltrace.data.views import FeatureViews, ImageViews
from labeltrace.errors import InputError


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def tiny(labels: list[int], **options: Any) -> Dataset:
    return from_arrays(images(len(labels), 4, 4), labels, **options)


# Split


def test_a_split_cannot_be_changed() -> None:
    split = tiny([0, 1]).train
    with pytest.raises(FrozenInstanceError):
        split.labels = torch.zeros(2)  # type: ignore[misc]


FEATURES = torch.zeros(3, 2)
LABELS = torch.tensor([0, 1, 0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inputs": FEATURES.double()}, r"inputs are float64 \[3, 2\]; expected uint8 images .* or float32 features"),
        ({"inputs": torch.zeros(3, 2, 2)}, r"inputs are float32 \[3, 2, 2\]"),
        ({"inputs": torch.zeros(3, 2, dtype=torch.uint8)}, r"inputs are uint8 \[3, 2\]"),
        ({"inputs": torch.zeros(0, 2), "labels": LABELS[:0]}, r"inputs are empty: shape \[0, 2\]"),
        ({"labels": LABELS[:2]}, "3 inputs but 2 labels"),
        ({"labels": LABELS.int()}, r"labels: expected int64 \[N\], got int32 \[3\]"),
        ({"labels": LABELS[:, None]}, r"labels: expected int64 \[N\], got int64 \[3, 1\]"),
        ({"truth": LABELS[:1]}, "3 inputs but 1 truth"),
        ({"truth": LABELS.float()}, "truth: expected int64"),
        ({"ids": ("a", "b")}, "3 inputs but 2 ids"),
        ({"ids": ("a", "b", "a")}, "id 'a' names more than one sample"),
        ({"inputs": torch.tensor([[0, 0], [0, torch.nan], [torch.inf, 0]])}, "2 of 3 samples are NaN .* index 1;"),
    ],
)
def test_a_bad_split_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        Split(**({"inputs": FEATURES, "labels": LABELS} | fields))


def test_names_of_samples_survive_taking() -> None:
    split = tiny([0, 1, 0, 1]).train
    assert [split.id_of(i) for i in range(4)] == ["0", "1", "2", "3"]
    taken = split.take(torch.tensor([3, 1]))
    assert taken.ids == ("3", "1") and taken.take(torch.tensor([1])).ids == ("1",)
    assert taken.inputs.equal(split.inputs[[3, 1]])


# Dataset


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("a",)}, "toy: classification needs two classes or more"),
        ({"classes": ("a", "a")}, "toy: class names repeat"),
        ({"train": Split(FEATURES, torch.tensor([0, 1, 2]))}, r"toy: train label 2 at index 2 is outside 0\.\.1"),
        ({"train": Split(FEATURES, torch.tensor([0, -1, 1]))}, r"toy: train label -1 at index 1 is outside 0\.\.1"),
        ({"train": Split(FEATURES, LABELS, LABELS - 2)}, r"toy: train truth -2 at index 0 is outside -1\.\.1"),
        ({"test": Split(FEATURES, LABELS + 1)}, r"toy: test label 2 at index 1"),
        ({"test": Split(torch.zeros(3, 5), LABELS)}, r"toy: train is Split\(3 samples, float32 \[2\]\) but test is"),
        ({"pair_map": (1, 0, 1)}, "toy: pair_map has 3 entries for 2 classes"),
        ({"pair_map": (1, 2)}, "toy: pair_map entry 2 at index 1"),
    ],
)
def test_a_bad_dataset_is_refused(changes: dict[str, Any], message: str) -> None:
    views = FeatureViews.from_features(torch.randn(4, 2))
    good = {"name": "toy", "train": Split(FEATURES, LABELS), "test": None, "classes": ("a", "b"), "views": views}
    Dataset(**good)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=message):
        Dataset(**(good | changes))  # type: ignore[arg-type]


def test_with_labels_leaves_the_original_alone() -> None:
    data = tiny([0, 1, 0, 1])
    labels = np.array([1, 1, 1, 1])
    other = data.with_labels(labels, truth=data.train.labels)
    labels[:] = 0
    assert other.train.labels.tolist() == [1, 1, 1, 1] and other.train.truth is not None
    assert other.train.truth.tolist() == [0, 1, 0, 1]
    assert data.train.labels.tolist() == [0, 1, 0, 1] and data.train.truth is None
    with pytest.raises(DatasetError, match="4 inputs but 3 labels"):
        data.with_labels([0, 1, 0], None)
    with pytest.raises(DatasetError, match="labels: expected int64"):
        data.with_labels([0.0, 1.0, 0.0, 1.0], None)


def test_a_subset_names_the_original_samples() -> None:
    data = tiny([0] * 60 + [1] * 40)
    part = data.subset(10, seed=3)
    assert part.train.labels.tolist() == [0] * 6 + [1] * 4
    assert part.train.ids is not None
    rows = [int(name) for name in part.train.ids]
    assert rows == sorted(set(rows)) and part.train.inputs.equal(data.train.inputs[rows])
    smaller = part.subset(5, seed=0)
    assert smaller.train.ids is not None and set(smaller.train.ids) <= set(part.train.ids)
    assert data.subset(10, seed=3).train.ids == part.train.ids != data.subset(10, seed=4).train.ids


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data(), st.integers(0, 999))
def test_stratified_keeps_shares_to_within_one(labels: list[int], data: st.DataObject, seed: int) -> None:
    n = data.draw(st.integers(1, len(labels)))
    chosen = stratified(torch.tensor(labels), n, seed).tolist()
    assert len(chosen) == n and chosen == sorted(set(chosen))
    for c in range(5):
        share = n * labels.count(c) / len(labels)
        assert abs(sum(labels[i] == c for i in chosen) - share) < 1


def test_stratified_draws_every_member_equally_often() -> None:
    labels = torch.tensor([0, 1] * 5)
    counts = np.bincount(np.concatenate([stratified(labels, 4, seed) for seed in range(2000)]), minlength=10)
    assert abs(counts - 800).max() < 5 * np.sqrt(2000 * 0.4 * 0.6)


@pytest.mark.parametrize("n", [0, 5, -1])
def test_stratified_refuses_more_than_there_is(n: int) -> None:
    with pytest.raises(DatasetError, match=f"cannot draw {n} samples from 4; ask for 1 to 4"):
        stratified(torch.tensor([0, 1, 0, 1]), n, 0)


# from_arrays: inputs


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (4, 6, 5, 1), (4, 3, 6, 5), (4, 1, 6, 5), (4, 6, 5)])
def test_layout_is_inferred(shape: tuple[int, ...], as_tensor: bool) -> None:
    array = images(*shape)
    data = from_arrays(torch.from_numpy(array) if as_tensor else array, [0, 1, 0, 1])
    got = data.train.inputs
    assert got.is_contiguous() and isinstance(data.views, ImageViews)
    if len(shape) == 3:
        assert got.shape == (4, 1, 6, 5) and (got[2, 0].numpy() == array[2]).all()
    elif shape[1] in (1, 3):
        assert (got.numpy() == array).all()
    else:
        for row, column, channel in np.ndindex(6, 5, shape[3]):
            assert got[1, channel, row, column] == array[1, row, column, channel]


@pytest.mark.parametrize("shape", [(4, 3, 8, 3), (4, 1, 8, 3), (4, 1, 1, 1)])
def test_an_ambiguous_layout_must_be_given(shape: tuple[int, ...]) -> None:
    with pytest.raises(DatasetError, match='channels may be second or last; pass layout="NCHW" or layout="NHWC"'):
        from_arrays(images(*shape), [0, 1, 0, 1])
    channels_last = from_arrays(images(*shape), [0, 1, 0, 1], layout="NHWC")
    assert channels_last.input_shape == (shape[3], shape[1], shape[2])
    assert from_arrays(images(*shape), [0, 1, 0, 1], layout="NCHW").input_shape == shape[1:]


def test_images_are_grey_or_colour() -> None:
    with pytest.raises(DatasetError, match=r"uint8 \[4, 8, 8, 4\]: neither .* is 1 or 3 channels"):
        from_arrays(images(4, 8, 8, 4), [0, 1, 0, 1])
    with pytest.raises(DatasetError, match=r"uint8 \[4, 4, 8, 8\]; expected uint8 images .* with C = 1 or 3"):
        from_arrays(images(4, 8, 8, 4), [0, 1, 0, 1], layout="NHWC")


def test_the_test_split_follows_the_layout_of_train() -> None:
    data = from_arrays(images(4, 3, 5, 8), [0, 1, 0, 1], test=(images(2, 3, 5, 8), [0, 1]))
    assert data.test is not None and data.test.inputs.shape == (2, 3, 5, 8)
    ambiguous = from_arrays(images(4, 3, 9, 3), [0, 1, 0, 1], test=(images(2, 3, 9, 3), [0, 1]), layout="NCHW")
    assert ambiguous.test is not None and ambiguous.test.inputs.shape == (2, 3, 9, 3)
    with pytest.raises(DatasetError, match="layout 'NCHW' needs 4 dimensions"):
        from_arrays(images(4, 3, 5, 8), [0, 1, 0, 1], test=(images(2, 5, 8), [0, 1]))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((2, 8, 8, 3)), r"float64 \[2, 8, 8, 3\]; pass images as uint8 0..255"),
        (torch.zeros(2, 3, 8, 8), r"float32 \[2, 3, 8, 8\]; pass images as uint8"),
        (np.zeros((2, 8, 8), np.int64), "pass images as uint8"),
        (np.zeros((2, 8), np.uint8), r"uint8 \[2, 8\]; pass images as \[N, H, W, C\], or features as float32"),
        (np.zeros((2, 8), np.int64), r"int64 \[2, 8\]; pass images as uint8 .* or features as float32"),
        (np.zeros(2), r"float64 \[2\]"),
        (np.array([[0, np.nan], [0, 0]]), "1 of 2 samples are NaN or infinite, the first at index 0"),
        (np.array([[0, 0], [0, 1e300]]), "NaN or infinite, the first at index 1"),
        (np.zeros((3, 2)), "3 inputs but 2 labels"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_inputs_that_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        from_arrays(inputs, [0, 1])


def test_an_unknown_layout_is_named() -> None:
    with pytest.raises(DatasetError, match="layout 'HWCN' is unknown; pass 'NHWC', 'NCHW' or 'NHW'"):
        from_arrays(images(2, 8, 8, 3), [0, 1], layout="HWCN")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_features_become_float32(kind: type) -> None:
    features = np.arange(6).reshape(3, 2).astype(kind)
    data = from_arrays(features, [0, 1, 0])
    assert data.train.inputs.dtype == torch.float32 and data.train.inputs.tolist() == features.tolist()
    assert data.input_shape == (2,) and isinstance(data.views, FeatureViews)
    assert from_arrays(torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True), [0, 1]).train.inputs.sum() == 4


def test_nothing_given_is_changed_or_shared() -> None:
    inputs, labels, features = images(4, 3, 8, 8), np.array([0, 1, 0, 1]), np.zeros((4, 2), np.float32)
    inputs.flags.writeable = labels.flags.writeable = False
    data = from_arrays(inputs, labels, truth=labels)
    data.train.inputs.zero_()
    data.train.labels.zero_()
    assert inputs.any() and labels.any() and data.train.truth is not None and data.train.truth.any()
    tensor = torch.from_numpy(features)
    from_arrays(tensor, labels).train.inputs.fill_(1)
    assert not features.any()


def test_views_given_are_kept() -> None:
    views = ImageViews((0.5,), (0.5,), padding=0, flip=False)
    assert tiny([0, 1], views=views).views is views


# from_arrays: labels


@pytest.mark.parametrize(
    ("labels", "classes", "codes", "names"),
    [
        ([0, 1, 2, 1], None, [0, 1, 2, 1], ("0", "1", "2")),
        ([7, 3, 7, 3], None, [1, 0, 1, 0], ("3", "7")),
        ([-1, 1, 1, -1], None, [0, 1, 1, 0], ("-1", "1")),
        ([10, 9, 10, 9], None, [1, 0, 1, 0], ("9", "10")),
        (["dog", "cat", "emu", "cat"], None, [1, 0, 2, 0], ("cat", "dog", "emu")),
        (["dog", "cat", "dog", "cat"], ["dog", "emu", "cat"], [0, 2, 0, 2], ("dog", "emu", "cat")),
        ([0, 1, 0, 1], ["ok", "bad", "odd"], [0, 1, 0, 1], ("ok", "bad", "odd")),
        ([5, 3, 5, 3], [5, 4, 3], [0, 2, 0, 2], ("5", "4", "3")),
        ([0, 2, 0, 2], range(3), [0, 2, 0, 2], ("0", "1", "2")),
        ([True, False, True, True], None, [1, 0, 1, 1], ("0", "1")),
        (np.array(["b", "a", "b", "a"], dtype=object), None, [1, 0, 1, 0], ("a", "b")),
        (np.array([4, 2, 4, 2], dtype=np.uint8), None, [1, 0, 1, 0], ("2", "4")),
        (torch.tensor([4, 2, 4, 2]), None, [1, 0, 1, 0], ("2", "4")),
    ],
)
def test_labels_are_mapped(labels: Any, classes: Any, codes: list[int], names: tuple[str, ...]) -> None:
    data = from_arrays(images(4, 4, 4), labels, classes=classes)
    assert data.train.labels.tolist() == codes and data.classes == names


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(min_size=1, max_size=4, alphabet="abcdé ~"), min_size=2, max_size=30))
def test_class_names_give_the_labels_back(labels: list[str]) -> None:
    if len(set(labels)) < 2:
        labels = [*labels, "x", "y"]
    data = from_arrays(np.zeros((len(labels), 1)), labels)
    assert [data.classes[c] for c in data.train.labels.tolist()] == labels
    assert list(data.classes) == sorted(set(labels))


def test_test_labels_and_truth_share_the_classes_of_train() -> None:
    test = (images(2, 4, 4), ["c", "b"])
    data = from_arrays(images(3, 4, 4), ["b", "d", "b"], truth=["a", "d", "b"], test=test, ids=[10, "x", 12])
    assert data.classes == ("a", "b", "c", "d") and data.train.ids == ("10", "x", "12")
    assert data.train.labels.tolist() == [1, 3, 1] and data.train.truth is not None
    assert data.train.truth.tolist() == [0, 3, 1] and data.test is not None
    assert data.test.labels.tolist() == [2, 1]


def test_minus_one_in_the_truth_is_unknown_unless_it_is_a_class() -> None:
    data = tiny([3, 5, 3], truth=[-1, 5, 3])
    assert data.train.truth is not None and data.train.truth.tolist() == [UNKNOWN, 1, 0] and data.classes == ("3", "5")
    named = tiny([0, 1, 0], truth=[-1, 1, 0], classes=["a", "b"])
    assert named.train.truth is not None and named.train.truth.tolist() == [UNKNOWN, 1, 0]
    signs = tiny([-1, 1, 1], truth=[-1, -1, 1])
    assert signs.train.truth is not None and signs.train.truth.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["cat", "dgo"], {"classes": ["cat", "dog"]}, "labels: 'dgo' at index 1 is not one of the 2 classes; did you"),
        ([0, 2], {"classes": ["cat", "dog"]}, r"labels: 2 at index 1 is not one of the 2 classes; they lie in 0\.\.1"),
        ([0, 1], {"classes": range(2), "truth": [0, 4]}, "truth: 4 at index 1"),
        ([0, -1], {"classes": range(2)}, "labels: -1 at index 1"),
        ([0.0, 1.0], {}, "labels are float64; pass integers or strings"),
        ([[0, 1], [1, 0]], {}, r"labels have shape \[2, 2\]; expected \[N\] \(of one-hot rows, their argmax\)"),
        ([0, 1], {"truth": ["a", "b"]}, "labels are integers but truth are not"),
        (["a", "b"], {"test": (images(1, 4, 4), [1])}, "labels are strings but test labels are not"),
        (np.array(["a", None], dtype=object), {}, "labels mix types: 'a' at index 0, None at index 1"),
        (np.array([b"a", b"b"]), {}, r"labels are \|S1; pass integers or strings"),
        (["a", "a"], {}, r"arrays: classification needs two classes or more, found \['a'\]"),
        ([0, 1], {"classes": ["x", "x"]}, "class names repeat"),
        ([0, 1], {"classes": []}, "no classes"),
        ([0, 1], {"ids": ["a"]}, "2 inputs but 1 ids"),
    ],
)
def test_labels_that_are_refused(labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        from_arrays(images(2, 4, 4), labels, **options)


# The registry


def test_datasets_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Path | None, int]] = []

    def load(root: Path | None, seed: int, read: ReadOptions) -> Dataset:
        seen.append((root, seed))
        return tiny([0, 1])

    monkeypatch.setitem(datasets._entries, "toy", load)
    assert load_dataset("toy", "some/folder", seed=3).num_classes == 2
    load_dataset("toy")
    assert seen == [(Path("some/folder"), 3), (None, 0)]
    assert {"digits", "cifar10", "cifar100"} <= set(datasets)
    unknown = "cifar1: no dataset and no file or folder of this name; did you mean 'cifar10'"
    with pytest.raises(InputError, match=unknown):
        load_dataset("cifar1")
