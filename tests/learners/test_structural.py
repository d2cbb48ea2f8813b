"""Structural similarity: worked numbers, slow loops of both definitions, limits, invariances."""

import math

import pytest
import torch

from labeltrace.learners.structural import squared_distances, structural_cross_entropy, structural_divergence

V = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
O = torch.tensor([[0.0, 0.0], [0.5, 0.0], [1.0, 1.0]])  # noqa: E741

FORMS = {
    "normal": structural_cross_entropy,
    "student": lambda v, o: structural_cross_entropy(v, o, "student"),
    "student, three degrees": lambda v, o: structural_cross_entropy(v, o, "student", freedom=3.0),
    "paper": structural_divergence,
    "paper, mean": lambda v, o: structural_divergence(v, o, pairs="mean"),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def rows(count=6, width=4, seed=0, scale=0.7):
    g = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, width, generator=g, dtype=torch.float64)


def apart(rows, i, j):
    return sum((float(a) - float(b)) ** 2 for a, b in zip(rows[i], rows[j], strict=True))


def slow_cross_entropy(v, o, likeness):
    total = 0.0
    for i in range(len(v)):
        for j in range(len(v)):
            total -= likeness(apart(v, i, j)) * math.log(likeness(apart(o, i, j)) + 1e-12)
    return total / len(v) ** 2


def slow_divergence(v, o, sigma):
    total = 0.0
    for i in range(len(v)):
        for j in range(len(v)):
            if i != j:
                one, other = (math.exp(-0.5 * apart(rows, i, j) / sigma**2) for rows in (v, o))
                total += one * math.log(one / other)
    return total


def test_worked_numbers_of_the_likenesses():
    def off_diagonal(rows):
        return [float(torch.exp(-squared_distances(rows))[i, j]) for i, j in ((0, 1), (0, 2), (1, 2))]

    assert off_diagonal(V) == pytest.approx([0.36788, 0.01832, 0.00674], abs=1e-5)
    assert off_diagonal(O) == pytest.approx([0.77880, 0.13534, 0.28650], abs=1e-5)


def test_worked_numbers_of_the_losses():
    assert float(structural_cross_entropy(V, O)) == pytest.approx(0.03045, abs=1e-5)
    assert float(structural_cross_entropy(V, O, "student")) == pytest.approx(0.03582, abs=1e-5)
    assert float(structural_divergence(V, O)) == pytest.approx(-0.40937, abs=1e-5)
    assert float(structural_divergence(V, O, pairs="mean")) == pytest.approx(-0.40937 / 6, abs=1e-5)


def test_the_cross_entropy_equals_a_slow_loop():
    v, o = rows(), rows(width=3, seed=1)
    wanted = slow_cross_entropy(v, o, lambda d: math.exp(-d))
    assert float(structural_cross_entropy(v, o)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("freedom", [1.0, 2.5])
def test_the_student_kernel_equals_a_slow_loop(freedom):
    v, o = rows(), rows(width=3, seed=1)
    wanted = slow_cross_entropy(v, o, lambda d: (1 + d**2 / freedom) ** (-(freedom + 1) / 2))
    assert float(structural_cross_entropy(v, o, "student", freedom)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.3])
def test_the_divergence_equals_a_slow_loop(sigma):
    v, o = rows(), rows(width=3, seed=1)
    wanted = slow_divergence(v, o, sigma)
    assert float(structural_divergence(v, o, sigma)) == pytest.approx(wanted, rel=1e-9)
    assert float(structural_divergence(v, o, sigma, "mean")) == pytest.approx(wanted / 30, rel=1e-9)


@each_form
def test_no_gradient_reaches_the_projections(form):
    v, o = rows().requires_grad_(), rows(seed=1).requires_grad_()
    form(v, o).backward()
    assert v.grad is None and bool(o.grad.any())


@each_form
def test_the_gradient_is_that_of_finite_differences(form):
    v, o = rows(4), rows(4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda logits: form(v, logits), o)


@pytest.mark.parametrize("kernel", ["normal", "student"])
def test_equal_logits_are_the_minimum_of_the_released_loss(kernel):
    v = rows()
    assert float(structural_cross_entropy(v, torch.ones(6, 3), kernel)) == 0.0
    for seed in range(5):
        assert float(structural_cross_entropy(v, rows(seed=seed + 1), kernel)) > 0


@each_form
def test_alone_it_draws_logits_together(form):
    v, o = rows(scale=0.3), rows(seed=1).requires_grad_()
    before = float(squared_distances(o).detach().sum())
    (gradient,) = torch.autograd.grad(form(v, o), o)
    assert float(squared_distances(o - 1e-3 * gradient).detach().sum()) < before


def test_equal_distances_are_no_divergence():
    v = rows()
    assert float(structural_divergence(v, v)) == 0.0
    assert float(structural_divergence(v, v + 2)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("distance", [60.0, 200.0])
def test_logits_far_apart_are_left_alone(distance):
    """The logarithm's 1e-12 holds it at 27.6 from there on."""
    v = torch.zeros(2, 3)
    o = torch.tensor([[0.0], [math.sqrt(distance)]], requires_grad=True)
    loss = structural_cross_entropy(v, o)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-math.log(1e-12) / 2, rel=1e-4)
    assert float(o.grad.abs().max()) < 1e-8
    near = torch.tensor([[0.0], [math.sqrt(20.0)]], requires_grad=True)
    structural_cross_entropy(v, near).backward()
    # of the mean over four pairs two are apart: d/do of D² / 2
    assert float(near.grad[1]) == pytest.approx(math.sqrt(20.0), rel=1e-2)


@each_form
def test_neither_the_order_of_samples_nor_of_classes_nor_the_place_matters(form):
    v, o = rows(), rows(width=3, seed=1)
    wanted = float(form(v, o))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    turn = torch.linalg.qr(rows(4, seed=3)).Q
    assert float(form(v[order], o[order])) == pytest.approx(wanted, rel=1e-9)
    assert float(form(v, o[:, [2, 0, 1]])) == pytest.approx(wanted, rel=1e-9)
    assert float(form(v @ turn + 5, o - 3)) == pytest.approx(wanted, rel=1e-9)


@each_form
def test_a_single_sample_costs_nothing(form):
    o = rows(1, seed=1).requires_grad_()
    loss = form(rows(1), o)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-11) and torch.isfinite(o.grad).all()


@each_form
def test_equal_rows_and_half_precision_stay_finite(form):
    o = torch.ones(4, 3, dtype=torch.bfloat16).index_fill_(0, torch.tensor([1]), 2.0).requires_grad_()
    loss = form(torch.zeros(4, 5, dtype=torch.bfloat16), o)
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss.detach()) and torch.isfinite(o.grad).all()


@each_form
def test_rows_of_a_large_norm_keep_their_distances(form):
    """Products of such rows would be off by more than the distances."""
    v, o = rows().float(), rows(seed=1).float()
    assert float(form(v + 300, o)) == pytest.approx(float(form(v.double(), o.double())), rel=1e-2)


def test_unknown_names_are_quoted():
    with pytest.raises(ValueError, match="unknown kernel 'cauchy'"):
        structural_cross_entropy(V, O, "cauchy")
    with pytest.raises(ValueError, match="unknown pairs 'all'"):
        structural_divergence(V, O, pairs="all")
