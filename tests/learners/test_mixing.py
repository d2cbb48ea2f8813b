"""Mixup: the Beta weight by quantiles, partners, and the cross-entropy in which each target keeps its weight."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import beta

from labeltrace.data.draws import Draws
from labeltrace.learners.mixing import BetaWeight, mix, mixed_cross_entropy, permutation

ONE = torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("alpha", "mean", "within"), [(4.0, 0.636, 1e-3), (0.5, 0.5 + 1 / math.pi, 1e-3), (1.0, 0.75, 1e-3)]
)
def test_fact_5_mean_of_the_larger_half(alpha, mean, within):
    drawn = BetaWeight(alpha)(Draws.at(torch.arange(400_000), 0))
    assert (drawn >= 0.5).all() and (drawn <= 1).all()
    assert float(drawn.mean()) == pytest.approx(mean, abs=within)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.75, 1.0, 4.0, 8.0])
def test_weights_are_the_quantiles_of_their_uniform_numbers(alpha):
    draws = Draws.at(torch.arange(20_000), 5)
    drawn = BetaWeight(alpha, larger_half=False)(draws).double().numpy()
    uniform = draws.uniform(1)[:, 0].double().numpy()
    error = np.abs(drawn - beta.ppf(uniform, alpha, alpha))
    assert error.max() < 2e-3 and error.mean() < 2e-6


def test_alpha_0_mixes_nothing_and_a_negative_one_is_refused():
    assert BetaWeight(0.0)(Draws.at(ONE, 0)).tolist() == [1.0]
    with pytest.raises(ValueError, match="alpha: -1"):
        BetaWeight(-1)


def test_a_step_draws_one_weight_of_its_own():
    weight = BetaWeight(4.0)
    same = [weight(Draws.at(ONE, 0, 7)) for _ in range(2)]
    assert same[0].shape == (1,) and torch.equal(*same)
    assert not torch.equal(same[0], weight(Draws.at(ONE + 1, 0, 7)))


def test_permutation_holds_every_row_once():
    for streams, rows in ((1, 13), (13, None), (5, 13)):
        order = permutation(Draws.at(torch.arange(streams), 1), rows)
        assert order.sort().values.tolist() == list(range(13)) and order.tolist() != list(range(13))
    assert permutation(Draws.at(torch.tensor([3, 3, 3]), 0)).tolist() == [0, 1, 2]  # samples that fill a batch up


def test_every_partner_is_as_likely():
    counts = torch.zeros(5, 5)
    for number in range(4000):
        counts[torch.arange(5), permutation(Draws.at(ONE + number, 2), 5)] += 1
    assert ((counts / 4000 - 0.2).abs() < 0.03).all()


def test_mix_equals_a_loop():
    g = torch.Generator().manual_seed(0)
    images, order = torch.randn(6, 1, 2, 2, generator=g), torch.tensor([3, 0, 5, 1, 2, 4])
    for weight in (torch.tensor(0.7), torch.tensor([0.7]), torch.rand(6, generator=g)):
        mixed = mix(images, order, weight)
        for i in range(6):
            own = float(weight.expand(6)[i])
            assert torch.allclose(mixed[i], own * images[i] + (1 - own) * images[order[i]])
    assert torch.equal(mix(images, order[:2], weight[:2]), mix(images, order, weight)[:2])


def test_fact_7_each_target_keeps_its_weight():
    logits, target = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.eye(3)[:2]
    partner, share = torch.tensor([1]), torch.tensor([0.7])
    weighted = mixed_cross_entropy(logits, target, torch.tensor([1.2, 0.8]), partner, share)
    assert float(weighted) == pytest.approx(0.871197, abs=1e-6)
    plain = mixed_cross_entropy(logits, target, torch.ones(2), partner, share)
    assert float(plain) == pytest.approx(0.846395, abs=1e-6)


def test_mixed_cross_entropy_equals_a_loop():
    g = torch.Generator().manual_seed(1)
    logits, target = torch.randn(4, 3, generator=g), torch.rand(6, 3, generator=g).softmax(1)
    weight, order, share = torch.rand(6, generator=g), torch.tensor([5, 4, 0, 1, 2, 3]), torch.tensor([0.6])
    log_p, total = F.log_softmax(logits, 1), 0.0
    for i in range(4):
        for c in range(3):
            own, other = weight[i] * target[i, c], weight[order[i]] * target[order[i], c]
            total -= float((0.6 * own + 0.4 * other) * log_p[i, c])
    assert float(mixed_cross_entropy(logits, target, weight, order[:4], share)) == pytest.approx(total / 4, abs=1e-5)


def test_weights_of_1_give_the_cross_entropy_of_the_mixed_target():
    g = torch.Generator().manual_seed(2)
    logits, target = torch.randn(5, 3, generator=g), torch.rand(5, 3, generator=g).softmax(1)
    order, share = torch.tensor([1, 2, 3, 4, 0]), torch.tensor([0.8])
    wanted = F.cross_entropy(logits, mix(target, order, share))
    assert float(mixed_cross_entropy(logits, target, torch.ones(5), order, share)) == pytest.approx(float(wanted))
