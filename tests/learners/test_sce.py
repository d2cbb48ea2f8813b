"""SCE: the unit facts of its page (part 11), its terms against slow loops, and its limits."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace.learners import SCE
from labeltrace.learners.sce import SCESettings
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import reverse_cross_entropy

P = torch.tensor([[0.6, 0.3, 0.1]])
ONE = torch.tensor([1])

make = partial(toy.learner, SCE)


def recipe(preset, epochs=None):
    return make(**vars(resolve(SCESettings, SCE.presets[preset], {}, epochs)[0]))


def of_one(**settings):
    """A learner whose network says P, and a batch of one class."""
    drawn = toy.random_batch()
    batch = toy.batch(drawn.index, drawn.inputs, torch.ones(8, dtype=torch.int64))
    return make(networks=[toy.Fixed(P.log())], **settings), batch


def test_fact_1_terms():
    found = float(reverse_cross_entropy(P.log(), ONE))
    assert found == pytest.approx(6.44724, abs=1e-5) and found == pytest.approx(9.21034 * 0.7, abs=1e-4)
    learner, batch = of_one()
    logs = learner.step(batch).logs
    assert float(logs["fit"]) == pytest.approx(1.20397, abs=1e-5)
    assert float(logs["reverse"]) == pytest.approx(6.44724, abs=1e-5)


@pytest.mark.parametrize(("alpha", "beta", "loss"), [(0.1, 1.0, 6.56764), (6.0, 0.1, 7.86856)])
def test_fact_1_loss(alpha, beta, loss):
    learner, batch = of_one(alpha=alpha, beta=beta)
    assert float(learner.step(batch).loss) == pytest.approx(loss, abs=1e-5)


def test_the_reverse_term_equals_its_sum_over_classes():
    """−Σ_c p_c log ē_c with the zeros of the label replaced, as the papers write it."""
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 5
    for zero in (1e-4, math.exp(-4)):
        found = reverse_cross_entropy(logits, labels, zero)
        for row, label, value in zip(logits.tolist(), labels.tolist(), found.tolist(), strict=True):
            p = [math.exp(z) / sum(map(math.exp, row)) for z in row]
            label_log = [0.0 if c == label else math.log(zero) for c in range(5)]
            assert value == pytest.approx(-sum(a * b for a, b in zip(p, label_log, strict=True)), abs=1e-5)


def test_the_reverse_term_is_scaled_mean_absolute_error():
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 5
    error = (F.one_hot(labels, 5) - logits.softmax(1)).abs().sum(1)
    assert torch.allclose(reverse_cross_entropy(logits, labels), -math.log(1e-4) / 2 * error, atol=1e-5)


def test_the_reverse_term_over_all_labels_is_a_constant():
    """That is what makes it tolerant of symmetric noise: Σ_c RCE(p, c) = −A·(C − 1)."""
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    total = sum(reverse_cross_entropy(logits, torch.full((6,), c)) for c in range(5))
    assert torch.allclose(total, torch.full((6,), -math.log(1e-4) * 4), atol=1e-4)


def test_limits():
    learner, batch = of_one(alpha=1.0, beta=0.0)
    assert float(learner.step(batch).loss) == pytest.approx(-math.log(0.3), abs=1e-5)
    learner, batch = of_one(alpha=0.0, beta=1.0)
    assert float(learner.step(batch).loss) == pytest.approx(6.44724, abs=1e-5)
    certain = reverse_cross_entropy(torch.tensor([[90.0, 0.0]]).repeat(2, 1), torch.tensor([0, 1]))
    assert certain.tolist() == pytest.approx([0.0, -math.log(1e-4)], abs=1e-5)  # bounded, unlike cross-entropy


def test_gradient():
    """∂RCE/∂z_k = A·p_y·(1[k = y] − p_k): pulls most where the label is neither believed nor ruled out."""
    logits = P.log().requires_grad_()
    reverse_cross_entropy(logits, ONE).sum().backward()
    expected = [math.log(1e-4) * 0.3 * ((k == 1) - p) for k, p in enumerate((0.6, 0.3, 0.1))]
    assert logits.grad[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_recipes():
    cifar, hundred = recipe("cifar"), recipe("cifar100")
    assert (cifar.settings.alpha, cifar.settings.beta, cifar.settings.epochs) == (0.1, 1.0, 120)
    assert (hundred.settings.alpha, hundred.settings.beta, hundred.settings.epochs) == (6.0, 0.1, 150)
    for learner in (cifar, hundred):
        rates = [learner.learning_rate(t) for t in (39, 40, 79, 80)]
        assert rates == pytest.approx([0.01, 0.001, 0.001, 0.0001])
    assert [recipe("small").learning_rate(t) for t in (32, 33, 60)] == pytest.approx([0.02, 0.002, 0.002])
    assert [recipe("large").learning_rate(t) for t in (39, 40, 79)] == pytest.approx([0.01, 0.001, 0.001])
    assert not any(name.startswith("oracle") for name in SCE.presets)


@pytest.mark.parametrize("bad", [{"alpha": -0.1}, {"beta": -1.0}])
def test_settings_that_do_not_fit(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*expected"):
        SCESettings(**bad)
