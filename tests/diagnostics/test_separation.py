"""The Fisher ratio against its definition."""

import math

import pytest
import torch

from labeltrace.diagnostics.separation import Fisher, fisher_ratio


def slowly(features, labels):
    features, mean = features.double(), features.double().mean(0)
    between = within = 0.0
    for label in set(labels.tolist()):
        members = features[labels == label]
        centre = members.mean(0)
        between += len(members) * float((centre - mean).square().sum())
        within += float((members - centre).square().sum())
    return between / within


def problem(seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (80,), generator=generator)
    return torch.randn(80, 7, generator=generator, dtype=torch.float64) + labels[:, None] + shift, labels


def test_worked_example():
    assert fisher_ratio(torch.tensor([[0.0], [2.0], [4.0], [6.0]]), torch.tensor([0, 0, 1, 1])) == pytest.approx(4)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_as_the_definition(shift):
    assert fisher_ratio(*problem(shift=shift)) == pytest.approx(slowly(*problem()), rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 80])
def test_any_batch_size_gives_the_same(size):
    features, labels = problem()
    fisher = Fisher()
    for part, its in zip(features.split(size), labels.split(size), strict=True):
        fisher.add(part, its)
    assert fisher.ratio() == pytest.approx(slowly(features, labels), rel=1e-10)


def test_invariant_to_scale_rotation_and_names():
    features, labels = problem()
    turn, _ = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    assert fisher_ratio(3 * features @ turn, 4 - labels) == pytest.approx(fisher_ratio(features, labels))


def test_one_class_and_equal_features_are_zero():
    assert fisher_ratio(torch.randn(6, 3), torch.zeros(6).long()) == pytest.approx(0, abs=1e-9)
    assert fisher_ratio(torch.full((6, 3), 0.1), torch.tensor([0, 1] * 3)) == 0


def test_nothing_is_nan_with_a_warning():
    with pytest.warns(UserWarning, match="Fisher"):
        assert math.isnan(Fisher().ratio())
