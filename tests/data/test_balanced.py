from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from labeltrace.data.balanced import balanced_subset
from labeltrace.data.dataset import DatasetError

LABELS = torch.from_numpy(np.random.default_rng(0).choice(14, size=4_000, p=np.arange(1, 15) / 105))


@pytest.mark.parametrize("n", [1, 13, 14, 15, 140, 500, 3_000, 10_000])
def test_no_class_and_no_subset_has_too_many(n: int) -> None:
    index = balanced_subset(LABELS, n, seed=3)
    counts, there = torch.bincount(LABELS[index], minlength=14), torch.bincount(LABELS, minlength=14)
    most = math.ceil(n / 14)
    assert len(index) <= n and int(counts.max()) <= most
    assert index.tolist() == sorted(set(index.tolist()))
    # a class has fewer only because it has no more, or because the subset is full
    if len(index) < n:
        assert counts.equal(there.clamp(max=most))


def test_a_draw_belongs_to_its_seed() -> None:
    first = balanced_subset(LABELS, 140, seed=1)
    assert first.equal(balanced_subset(LABELS, 140, seed=1))
    assert not first.equal(balanced_subset(LABELS, 140, seed=2))


def test_every_sample_of_a_class_has_the_same_chance() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2)
    drawn = torch.cat([balanced_subset(labels, 4, seed) for seed in range(2_000)])
    share = torch.bincount(drawn, minlength=12) / 2_000
    assert share[10:].tolist() == [1.0, 1.0] and (share[:10] - 0.2).abs().max() < 0.04


def test_nothing_to_draw() -> None:
    with pytest.raises(DatasetError, match="cannot draw 0 samples"):
        balanced_subset(LABELS, 0, seed=0)
