"""Gradient sensitivity and P9 against their definitions, written out by hand."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from labeltrace.diagnostics.gradients import (
    gradient_figures,
    orthogonal_share,
    projection_ratio,
    sensitivity,
    stage_gradients,
)
from labeltrace.models import build_model


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def network(seed=0, classes=3):
    torch.manual_seed(seed)
    made = build_model("small_cnn", num_classes=classes, input_shape=(1, 8, 8)).double()
    made(torch.randn(64, 1, 8, 8, dtype=torch.float64))  # BatchNorm has seen something
    return made


def batch(seed=1, rows=12, classes=3, wrong=4):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 1, 8, 8, dtype=torch.float64, generator=generator)
    truth = torch.randint(classes, (rows,), generator=generator)
    observed = truth.clone()
    observed[:wrong] = (truth[:wrong] + 1) % classes
    return inputs, observed, truth


def test_sensitivity_of_known_vectors():
    assert sensitivity(vector(1, 2), vector(1, 2)) == 0
    assert sensitivity(vector(0, 0), vector(3, 4)) == pytest.approx(1)  # a network that knows the wrong labels by heart
    assert sensitivity(vector(-3, -4), vector(3, 4)) == pytest.approx(2)


def test_projection_of_known_vectors():
    assert projection_ratio(vector(1, 2), vector(1, 2)) == 0
    assert projection_ratio(vector(1, 0), vector(0, 1)) == pytest.approx(math.sqrt(0.5))
    assert projection_ratio(vector(1, 0), vector(-2, 0)) == pytest.approx(1)
    assert projection_ratio(vector(1, 0), vector(2, 0)) == pytest.approx(-1)


def test_orthogonal_share_of_known_vectors():
    assert orthogonal_share(vector(1, 1), vector(2, 2)) == pytest.approx(0, abs=1e-6)
    assert orthogonal_share(vector(0, 1), vector(2, 0)) == pytest.approx(1)


def test_stage_gradients_are_those_of_backward():
    model, (inputs, observed, _) = network(), batch()
    found = stage_gradients(model, inputs, observed)
    model.eval()
    model.zero_grad()
    F.cross_entropy(model(inputs).logits, observed).backward()
    for stage in ("layer1", "layer2", "layer3", "layer4"):
        by_hand = torch.cat([p.grad.flatten() for p in getattr(model, stage).parameters()])
        torch.testing.assert_close(found[stage], by_hand, rtol=1e-12, atol=1e-14)


def test_measuring_changes_nothing():
    model = network().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    gradient_figures(model, [batch()])
    assert model.training and model.layer1.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_mean_is_over_batches():
    model, batches = network(), [batch(seed) for seed in (1, 2, 3)]
    found = gradient_figures(model, batches)
    for stage in found.sensitivity:
        ratios, shares = [], []
        for inputs, observed, truth in batches:
            noisy, clean = (stage_gradients(model, inputs, labels)[stage] for labels in (observed, truth))
            ratios.append(float((noisy - clean).norm() / clean.norm()))
            wrong = observed != truth
            n, c = (stage_gradients(model, inputs[wrong], labels[wrong])[stage] for labels in (observed, truth))
            shares.append(float(n @ (n - c) / (n.norm() * (n - c).norm())))
        assert found.sensitivity[stage] == pytest.approx(sum(ratios) / 3)
        assert found.projection[stage] == pytest.approx(sum(shares) / 3)
    assert (found.batches, found.skipped, found.without) == (3, 0, 0)


def test_a_batch_without_wrong_labels_has_no_sensitivity():
    right, wrong = batch(1, wrong=0), batch(2)
    alone = gradient_figures(network(), [wrong])
    both = gradient_figures(network(), [right, wrong])
    for stage, value in alone.sensitivity.items():
        assert both.sensitivity[stage] == pytest.approx(value / 2)
        assert both.projection[stage] == pytest.approx(alone.projection[stage])
    assert both.without == 1


def test_no_wrong_label_at_all_is_nan_with_one_warning():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gradient_figures(network(), [batch(seed, wrong=0) for seed in (1, 2)])
    assert len(caught) == 1
    assert all(math.isnan(value) for value in found.projection.values())
    assert all(value == 0 for value in found.sensitivity.values())


def test_a_batch_without_clean_gradient_is_skipped_and_counted():
    model, (inputs, _, truth) = network(), batch()
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.bias.copy_(torch.tensor([1e4, 0, 0]))  # sure of class 0
    found = gradient_figures(model, [(inputs, torch.ones_like(truth), torch.zeros_like(truth))])
    assert (found.batches, found.skipped) == (1, 1)
    assert all(math.isnan(value) for value in found.sensitivity.values())


def test_samples_of_unknown_truth_are_left_out():
    inputs, observed, truth = batch()
    hidden = truth.clone()
    hidden[6:] = -1
    whole = gradient_figures(network(), [(inputs, observed, hidden)])
    part = gradient_figures(network(), [(inputs[:6], observed[:6], truth[:6])])
    assert whole.sensitivity == pytest.approx(part.sensitivity)
