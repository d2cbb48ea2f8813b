from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as sklearn_digits

from labeltrace.data.sets.digits import load_digits
from labeltrace.data.views import ImageViews


@pytest.fixture(scope="module")
def raw() -> tuple[np.ndarray, np.ndarray]:
    bundle = sklearn_digits()
    return bundle.images, bundle.target


def test_every_row_is_in_one_split_under_its_number(raw: tuple[np.ndarray, np.ndarray]) -> None:
    data = load_digits(seed=0)
    assert data.test is not None and data.train.ids is not None and data.test.ids is not None
    assert (len(data.train), len(data.test)) == (1347, 450)
    assert sorted(map(int, data.train.ids + data.test.ids)) == list(range(1797))
    for split in (data.train, data.test):
        assert split.ids is not None and split.truth is None
        rows = list(map(int, split.ids))
        assert split.labels.tolist() == raw[1][rows].tolist()
        assert (split.inputs[:, 0].numpy() == np.round(raw[0][rows] * 255 / 16)).all()


def test_pixels_use_the_whole_range(raw: tuple[np.ndarray, np.ndarray]) -> None:
    pixels = load_digits().train.inputs
    assert pixels.dtype == torch.uint8 and pixels.min() == 0 and pixels.max() == 255
    assert len(pixels.unique()) == 17


def test_the_split_is_stratified(raw: tuple[np.ndarray, np.ndarray]) -> None:
    test = load_digits(seed=5).test
    assert test is not None
    share = np.bincount(raw[1]) * 450 / 1797
    assert (abs(torch.bincount(test.labels).numpy() - share) < 1).all()


def test_the_seed_draws_the_split() -> None:
    first, again, other = load_digits(seed=0), load_digits(seed=0), load_digits(seed=1)
    assert first.train.ids == again.train.ids != other.train.ids
    assert first.train.inputs.equal(again.train.inputs)


def test_views_fit_digits() -> None:
    data = load_digits()
    assert isinstance(data.views, ImageViews)
    assert data.views.padding == 1 and not data.views.flip
    scaled = data.train.inputs.double() / 255
    assert data.views.mean == pytest.approx([scaled.mean().item()], rel=1e-4)
    assert data.views.std == pytest.approx([scaled.std().item()], rel=1e-3)
    assert data.classes == tuple("0123456789") and data.input_shape == (1, 8, 8) and data.pair_map is None
