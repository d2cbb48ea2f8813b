"""FINE's selector: the unit facts of f-DivideMix's page (part 10), ANNE's fact 4, a slow loop, limits, invariances."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from labeltrace.control.trace import observed_reliability
from labeltrace.scoring.fine import alignment, class_directions, fine_posterior
from labeltrace.scoring.posterior import _e_step, mixture_torch

METHODS = ["sklearn", "torch"]
FEATURES = torch.tensor([[2.0, 0], [3, 1], [4, 0], [0, 1]])
ONE = torch.zeros(4, dtype=torch.int64)


def gathered(classes=3, each=60, width=8, noise=0.3, seed=0):
    """Classes around orthogonal directions, a share of the labels moved on by one; features, labels, whether wrong."""
    rng = np.random.default_rng(seed)
    truth = np.arange(classes * each) % classes
    wrong = rng.random(len(truth)) < noise
    z = 3 * np.eye(classes, width)[truth] + 0.3 * rng.normal(size=(len(truth), width))
    return torch.tensor(z, dtype=torch.float32), torch.tensor((truth + wrong) % classes), torch.tensor(wrong)


def test_fact_1_direction_and_scores():
    u = class_directions(FEATURES, ONE, 1)
    assert u[0].abs().tolist() == pytest.approx([0.994029, 0.109117], abs=1e-6)
    assert alignment(FEATURES, ONE, u).tolist() == pytest.approx([0.994029, 0.977524, 0.994029, 0.109117], abs=1e-6)
    squared = alignment(FEATURES, ONE, u, "sq").tolist()
    assert squared == pytest.approx([3.952374, 9.555540, 15.809496, 0.011906], abs=1e-6)
    centred = class_directions(FEATURES - FEATURES.mean(0), ONE, 1)[0]
    assert (centred * centred[0].sign()).tolist() == pytest.approx([0.982997, -0.183619], abs=1e-6)


def test_fact_4_of_anne():
    rows = torch.tensor([[1, 0], [0.96, 0.28], [0.96, -0.28], [0.8, 0.6], [0, 1]])
    labels = torch.zeros(5, dtype=torch.int64)
    u = class_directions(rows, labels, 1)
    assert u[0].abs().tolist() == pytest.approx([0.974327, 0.225136], abs=1e-6)
    wanted = [0.974327, 0.998392, 0.872316, 0.914543, 0.225136]
    assert alignment(rows, labels, u).tolist() == pytest.approx(wanted, abs=1e-6)
    assert torch.equal(alignment(rows, labels, u), alignment(rows, labels, -u))


def test_fact_2_invariances():
    z, y, _ = gathered()
    u = class_directions(z, y, 3)
    scores = alignment(z, y, u)
    assert torch.equal(scores, alignment(z, y, -u))
    assert ((scores >= 0) & (scores <= 1)).all()
    scale = torch.rand(len(z), 1, generator=torch.Generator().manual_seed(0)) + 0.1
    assert torch.allclose(scores, alignment(z * scale, y, u), atol=1e-6)
    for number in range(3):
        right = torch.linalg.svd(z[y == number].double(), full_matrices=False).Vh[0]
        assert float((right @ u[number]).abs()) == pytest.approx(1, abs=1e-12)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    turned = z.double() @ turn
    assert torch.allclose(scores, alignment(turned, y, class_directions(turned, y, 3)), atol=1e-9)


@pytest.mark.parametrize(
    ("reg", "wanted"), [(1e-6, (0.0000, 0.0310, 0.9031, 0.9993)), (5e-4, (0.2222, 0.5666, 0.8407, 0.9655))]
)
def test_fact_3_regularisation_blurs_the_posterior(reg, wanted):
    variance = torch.tensor([4e-4, 1e-4], dtype=torch.float64) + reg
    weight, mean = torch.tensor([[0.4, 0.6], [0.90, 0.97]], dtype=torch.float64)
    parameters = torch.stack((weight, mean, variance))[..., None]
    resp = _e_step(torch.tensor([0.92, 0.935, 0.95, 0.97], dtype=torch.float64), parameters)[1]
    assert resp[1].tolist() == pytest.approx(wanted, abs=5e-5)


@pytest.mark.parametrize("method", METHODS)
def test_fact_4_the_majority_owns_the_direction(method):
    rng = np.random.default_rng(0)
    z = torch.tensor(0.1 * rng.normal(size=(1000, 512)), dtype=torch.float32)
    z[:600, 0] += 3
    z[600:, 1] += 3
    y = torch.zeros(1000, dtype=torch.int64)
    u = class_directions(z, y, 1)
    assert float(u[0, 0].abs()) == pytest.approx(0.9995, abs=5e-4)
    scores = alignment(z, y, u)
    assert float(scores[:600].mean()) == pytest.approx(0.800, abs=2e-3)
    assert float(scores[600:].mean()) == pytest.approx(0.021, abs=1e-2)
    chosen = fine_posterior(z, y, 1, method=method) > 0.5
    assert chosen[:600].all() and not chosen[600:].any()
    few = class_directions(z[300:], y[300:], 1)[0].abs()  # 300 clean, 400 noisy
    assert float(few[0]) < 0.01 and float(few[1]) == pytest.approx(0.9993, abs=5e-4)


@pytest.mark.parametrize("method", METHODS)
def test_fact_5_class_by_class(method):
    z, y, wrong = gathered()
    clean = fine_posterior(z, y, 3, method=method)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fine_posterior(z[order], y[order], 3, method=method), clean[order], atol=1e-5)
    alone = fine_posterior(z[y == 1], torch.zeros(int((y == 1).sum()), dtype=torch.int64), 1, method=method)
    assert torch.allclose(alone, clean[y == 1], atol=1e-5)
    assert float(clean[~wrong].mean()) > 0.9 and float(clean[wrong].mean()) < 0.1  # the larger mean is clean


def test_fact_6_trace():
    s = observed_reliability(torch.tensor([0.9031]), torch.tensor([0.5]), torch.tensor([1.0]), alpha=0.7, beta=1.0)
    assert float(s) == pytest.approx(0.78217, abs=1e-6)


def test_equals_the_published_lines():
    """Features of a class, full SVD, |cosine|, scikit-learn's mixture of the sorted scores."""
    z, y, _ = gathered(noise=0.4)
    ours = fine_posterior(z, y, 3)
    for number in range(3):
        rows = z[y == number].double().numpy()
        _, _, vt = np.linalg.svd(rows, full_matrices=False)
        scores = np.abs((rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ vt[0])
        mixture = GaussianMixture(2, covariance_type="full", tol=1e-6, max_iter=10, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(np.sort(scores)[:, None])
        wanted = mixture.predict_proba(scores[:, None])[:, mixture.means_.argmax()]
        assert ours[y == number].numpy() == pytest.approx(wanted, abs=1e-5)


def test_batched_mixture_equals_one_after_another():
    rng = np.random.default_rng(3)
    rows = [
        torch.tensor(np.concatenate([rng.normal(0.2, 0.05, n), rng.normal(0.9, 0.03, 2 * n)])) for n in (4, 9, 30, 1)
    ]
    most = max(map(len, rows))
    table = torch.stack([torch.nn.functional.pad(row, (0, most - len(row)), value=-7.0) for row in rows])
    valid = torch.stack([torch.arange(most) < len(row) for row in rows])
    low, high = mixture_torch(table, 10, 1e-6, 1e-6, valid)
    for number, row in enumerate(rows):
        lone_low, lone_high = mixture_torch(row, 10, 1e-6, 1e-6)
        assert torch.allclose(low[number, : len(row)], lone_low, atol=1e-9)
        assert torch.allclose(high[number, : len(row)], lone_high, atol=1e-9)
        assert torch.allclose(lone_low + lone_high, torch.ones_like(row))
        # ours by hand: EM from the best split written as loops
        assert lone_high.tolist() == pytest.approx(slow_high(row.tolist()), abs=1e-9)


def slow_high(x, max_iter=10, tol=1e-6, reg=1e-6):
    ordered = sorted(x)

    def inertia(group):
        mean = sum(group) / len(group)
        return sum((v - mean) ** 2 for v in group)

    cuts = [k for k in range(1, len(x)) if ordered[k] > ordered[k - 1]]
    best = min(cuts, key=lambda k: inertia(ordered[:k]) + inertia(ordered[k:]))
    resp = [[float(v <= ordered[best - 1]), float(v > ordered[best - 1])] for v in x]

    def fit():
        found = []
        for k in (0, 1):
            size = sum(r[k] for r in resp)
            mean = sum(r[k] * v for r, v in zip(resp, x, strict=True)) / size
            spread = sum(r[k] * (v - mean) ** 2 for r, v in zip(resp, x, strict=True)) / size + reg
            found.append((size / len(x), mean, spread))
        return found

    def density(v, part):
        weight, mean, spread = part
        return weight * math.exp(-((v - mean) ** 2) / (2 * spread)) / math.sqrt(2 * math.pi * spread)

    parts, previous = fit(), -math.inf
    for _ in range(max_iter):
        totals = [sum(density(v, part) for part in parts) for v in x]
        likelihood = sum(map(math.log, totals)) / len(x)
        resp = [[density(v, part) / t for part in parts] for v, t in zip(x, totals, strict=True)]
        parts = fit()
        if abs(likelihood - previous) < tol:
            break
        previous = likelihood
    high = max((0, 1), key=lambda k: parts[k][1])
    return [density(v, parts[high]) / sum(density(v, part) for part in parts) for v in x]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("score", ["abs", "sq"])
def test_both_scores_find_the_wrong_labels(method, score):
    z, y, wrong = gathered()
    clean = fine_posterior(z, y, 3, score=score, method=method)
    assert float(((clean < 0.5) == wrong).float().mean()) > 0.95


@pytest.mark.parametrize("method", METHODS)
def test_small_and_equal_classes_count_as_clean(method):
    z = torch.tensor([[1.0, 0], [2, 0], [3, 0], [1, 1], [1, 0], [0, 1], [0.9, 0.1]])
    y = torch.tensor([0, 0, 0, 1, 3, 3, 3])  # class 2 is empty, class 1 has one, class 0 one direction
    clean = fine_posterior(z, y, 4, method=method)
    assert torch.isfinite(clean).all() and (clean[:4] == 1).all()
    assert clean[5] < 0.5 < clean[4]
    assert (fine_posterior(z, y, 4, method=method, fewest=5) == 1).all()
    assert (fine_posterior(z[:1], y[:1], 4, method=method) == 1).all()


def test_a_feature_of_length_zero_scores_zero():
    z = torch.tensor([[1.0, 0], [0, 0]])
    y = torch.zeros(2, dtype=torch.int64)
    assert alignment(z, y, class_directions(z, y, 1)).tolist() == [1.0, 0.0]
    assert torch.isfinite(fine_posterior(torch.zeros(4, 2), ONE, 1)).all()


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="expected \\[N, D\\]"):
        fine_posterior(torch.zeros(4), ONE, 1)
    with pytest.raises(ValueError, match="labels: shape"):
        fine_posterior(FEATURES, ONE[:2], 1)
    with pytest.raises(ValueError, match="index 1"):
        fine_posterior(torch.tensor([[1.0], [float("nan")], [2], [3]]), ONE, 1)
    with pytest.raises(ValueError, match="known are abs, sq"):
        fine_posterior(FEATURES, ONE, 1, score="cosine")
    with pytest.raises(ValueError, match="known are auto"):
        fine_posterior(FEATURES, ONE, 1, method="numpy")
    with pytest.raises(ValueError, match="fewest"):
        fine_posterior(FEATURES, ONE, 1, fewest=1)
