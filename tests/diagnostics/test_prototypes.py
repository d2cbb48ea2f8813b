"""Prototype flipping against a slow loop."""

import math
import warnings

import pytest
import torch

from labeltrace.diagnostics.prototypes import prototype_attraction
from labeltrace.errors import InputError


def problem(seed=0, rows=40, classes=4, dimensions=5, wrong=15):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (rows,), generator=generator)
    observed = truth.clone()
    observed[:wrong] = (truth[:wrong] + 1 + torch.randint(classes - 1, (wrong,), generator=generator)) % classes
    features = torch.randn(rows, dimensions, generator=generator) + 2 * observed[:, None] + truth[:, None]
    return features, observed, truth


def slowly(features, observed, truth, leave_one_out):
    flips, gaps = [], []
    features = features.double()
    for i in range(len(truth)):
        if truth[i] < 0 or observed[i] == truth[i]:
            continue
        distances = []
        for labels in (truth, observed):
            members = [j for j in range(len(truth)) if labels[j] == labels[i] and not (leave_one_out and j == i)]
            if members:
                distances.append(float((features[i] - features[members].mean(0)).norm()))
        if len(distances) == 2:
            flips.append(distances[1] < distances[0])
            gaps.append(distances[0] - distances[1])
    return sum(flips) / len(flips), sum(gaps) / len(gaps), len(flips)


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_as_the_slow_loop(seed, leave_one_out):
    features, observed, truth = problem(seed)
    truth[30:33] = -1
    found = prototype_attraction(features, observed, truth, leave_one_out=leave_one_out)
    assert (found.flip, found.gap, found.count) == pytest.approx(slowly(features, observed, truth, leave_one_out))


def test_samples_on_their_observed_prototype_are_flipped():
    truth = torch.tensor([0, 0, 0, 1, 1, 1])
    observed = torch.tensor([0, 0, 1, 1, 1, 0])
    features = 10.0 * observed[:, None]  # a network that knows the observed labels by heart
    found = prototype_attraction(features, observed, truth)
    assert found.flip == 1
    assert found.gap == pytest.approx(20 / 3)  # the true prototypes lie at 10/3 and 20/3, the observed ones at 0 and 10


def test_a_tie_is_no_flip():
    found = prototype_attraction(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 1, 0]))
    assert (found.flip, found.gap, found.count) == (0, 0, 2)


def test_invariant_to_renaming_classes_and_to_order():
    features, observed, truth = problem()
    name, order = torch.tensor([2, 0, 3, 1]), torch.randperm(len(truth), generator=torch.Generator().manual_seed(3))
    one = prototype_attraction(features, observed, truth)
    two = prototype_attraction(features[order], name[observed[order]], name[truth[order]])
    assert (one.flip, one.count) == (two.flip, two.count)
    assert one.gap == pytest.approx(two.gap)


def test_without_itself_a_class_of_one_is_skipped():
    features = torch.tensor([[0.0], [1.0], [5.0]])
    observed, truth = torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1])  # the only one of class 1 is called 0
    assert prototype_attraction(features, observed, truth).count == 1
    with pytest.warns(UserWarning, match="not defined"):
        assert prototype_attraction(features, observed, truth, leave_one_out=True).count == 0


def test_no_wrong_label_is_nan_with_one_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = prototype_attraction(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 0, 1]))
    assert math.isnan(found.flip) and math.isnan(found.gap) and found.count == 0
    assert len(caught) == 1


def test_lengths_must_agree():
    with pytest.raises(InputError, match="4 features, 3 observed"):
        prototype_attraction(torch.randn(4, 2), torch.zeros(3).long(), torch.zeros(4).long())
