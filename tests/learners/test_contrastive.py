"""NT-Xent: worked numbers, a slow loop, invariances."""

import math

import pytest
import torch

from labeltrace.learners.contrastive import nt_xent


def slowly(one, two, temperature):
    rows = [row / row.norm() for row in torch.cat([one, two])]
    count, total = len(rows), 0.0
    for i in range(count):
        partner = (i + len(one)) % count
        terms = {j: math.exp(float(rows[i] @ rows[j]) / temperature) for j in range(count) if j != i}
        total -= math.log(terms[partner] / sum(terms.values()))
    return total / count


def test_equals_a_slow_loop():
    generator = torch.Generator().manual_seed(0)
    one, two = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    for temperature in (0.05, 0.5, 2.0):
        assert float(nt_xent(one, two, temperature)) == pytest.approx(slowly(one, two, temperature), rel=1e-10)


@pytest.mark.parametrize("count", [4, 128])
def test_collapsed_projections_give_the_log_of_their_rivals(count):
    same = torch.ones(count, 3)
    assert float(nt_xent(same, same, 0.5)) == pytest.approx(math.log(2 * count - 1), abs=1e-5)


def test_matched_orthogonal_views_cost_nothing_at_a_low_temperature():
    assert float(nt_xent(torch.eye(4), torch.eye(4), 0.05)) == pytest.approx(0.0, abs=1e-6)


def test_neither_lengths_nor_the_order_of_images_nor_of_views_matter():
    one, two = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    wanted = float(nt_xent(one, two, 0.5))
    order = torch.randperm(6, generator=torch.Generator().manual_seed(2))
    assert float(nt_xent(3 * one, 0.1 * two, 0.5)) == pytest.approx(wanted, rel=1e-5)
    assert float(nt_xent(one[order], two[order], 0.5)) == pytest.approx(wanted, rel=1e-5)
    assert float(nt_xent(two, one, 0.5)) == pytest.approx(wanted, rel=1e-5)


def test_a_single_image_has_only_its_partner_and_costs_nothing():
    one, two = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(3)).requires_grad_()
    loss = nt_xent(one, two, 0.5)
    assert float(loss.detach()) == 0.0


def test_gradients_are_finite_in_half_precision():
    one = torch.randn(5, 8, generator=torch.Generator().manual_seed(4)).bfloat16().requires_grad_()
    nt_xent(one, one.detach().flip(0), 0.05).backward()
    assert torch.isfinite(one.grad).all() and bool(one.grad.any())
