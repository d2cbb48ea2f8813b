"""The linear probe beside scikit-learn's logistic regression."""

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from labeltrace.diagnostics.probe import L2, linear_probe
from labeltrace.errors import InputError


def clouds(seed=0, rows=600, classes=4, dimensions=6):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dimensions, generator=generator)
    labels = torch.arange(rows) % classes
    features = centres[labels] + 1.2 * torch.randn(rows, dimensions, generator=generator)
    return features[:300], labels[:300], features[300:], labels[300:]


@pytest.mark.parametrize("l2", [L2, 0.1])
def test_accuracy_is_scikit_learns(l2):
    train, labels, test, tested = clouds()
    scale = StandardScaler().fit(train.numpy())
    reference = LogisticRegression(C=1 / (len(train) * l2), max_iter=5000, tol=1e-10)
    reference.fit(scale.transform(train.numpy()), labels.numpy())
    expected = reference.score(scale.transform(test.numpy()), tested.numpy())
    assert 0.5 < expected < 0.95
    assert linear_probe(train, labels, test, tested, l2=l2) == pytest.approx(expected, abs=0.004)  # one sample of 300


def test_scale_and_constant_features_change_nothing():
    train, labels, test, tested = clouds()
    plain = linear_probe(train, labels, test, tested)
    wide = [torch.cat([1000 * x, torch.full((len(x), 2), 7.3)], 1) for x in (train, test)]
    assert linear_probe(wide[0], labels, wide[1], tested) == plain


def test_constant_features_leave_the_commonest_class():
    labels, tested = torch.tensor([0, 1, 1, 1]), torch.tensor([1, 1, 0])
    assert linear_probe(torch.ones(4, 3), labels, torch.ones(3, 3), tested) == pytest.approx(2 / 3)


def test_one_class_only():
    assert linear_probe(torch.randn(5, 2), torch.ones(5).long(), torch.randn(3, 2), torch.tensor([1, 1, 0])) == (
        pytest.approx(2 / 3)
    )


def test_samples_of_unknown_truth_are_left_out():
    train, labels, test, tested = clouds()
    hidden = labels.clone()
    hidden[::2] = -1
    assert linear_probe(train, hidden, test, tested) == linear_probe(train[1::2], labels[1::2], test, tested)


def test_no_test_sample_is_nan_with_a_warning():
    train, labels, test, tested = clouds()
    with pytest.warns(UserWarning, match="linear probe"):
        assert math.isnan(linear_probe(train, labels, test[:0], tested[:0]))


def test_wrong_labels_make_worse_probes():
    train, labels, test, tested = clouds(classes=3)
    assert linear_probe(train, (labels + 1) % 3, test, tested) < 0.3 < linear_probe(train, labels, test, tested)


def test_features_must_be_of_one_width():
    with pytest.raises(InputError, match="test set"):
        linear_probe(torch.randn(4, 3), torch.zeros(4).long(), torch.randn(4, 2), torch.zeros(4).long())
