"""What learners share that drop samples."""

import pytest
import torch
import torch.nn.functional as F

from labeltrace import Coupled, Trace
from labeltrace.learners.dropping import kept_only, per_kept, repeated, takes_over, where
from labeltrace.learners.rates import stepped


@pytest.mark.parametrize(("start", "gate", "first"), [(3, None, 3), (3, 1, 1), (0, None, 0), (2, 5, 2)])
def test_trace_takes_over_at_the_first_of_its_starts(start, gate, first):
    trace = Trace(start=start, pseudo_start=gate)
    assert [takes_over(trace, epoch) for epoch in (first - 1, first)] == [False, True]
    assert bool(takes_over(trace, torch.tensor(first))) and not bool(takes_over(trace, torch.tensor(first - 1)))


def test_the_coupled_controller_never_takes_over():
    assert takes_over(Coupled(), 100) is False and takes_over(None, 100) is False


def test_kept_only_is_the_mean_over_the_kept():
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    kept = torch.tensor([True, False, True, True, False, False])
    loss = kept_only(torch.eye(3)[labels], kept).loss(logits)
    assert float(loss) == pytest.approx(float(F.cross_entropy(logits[kept], labels[kept])), abs=1e-6)


def test_nothing_kept_is_loss_zero_with_gradient_zero():
    logits = torch.randn(4, 3, requires_grad=True)
    loss = kept_only(torch.eye(3)[torch.zeros(4, dtype=torch.int64)], torch.zeros(4, dtype=torch.bool)).loss(logits)
    loss.backward()
    assert float(loss.detach()) == 0 and not logits.grad.any()
    assert torch.equal(per_kept(torch.zeros(3)), torch.zeros(3))


def test_where_by_sample_and_by_epoch():
    late = kept_only(torch.eye(3), torch.tensor([True, True, True]))
    early = kept_only(torch.eye(3).flip(1), torch.tensor([True, False, False]))
    mixed = where(torch.tensor([True, False, True]), late, early)
    assert torch.equal(mixed.target, torch.stack([late.target[0], early.target[1], late.target[2]]))
    assert mixed.weight.tolist() == [1.0, 0.0, 1.0]
    assert torch.equal(where(torch.tensor(False), late, early).target, early.target)
    assert torch.equal(where(torch.tensor(True), late, early).weight, late.weight)


def test_stepped_rates():
    assert [stepped(1.0, 0.1, t, 10) for t in (9, 10, 99)] == pytest.approx([1.0, 0.1, 0.1])
    assert [stepped(1.0, 0.1, t, 10, 10) for t in (9, 10, 19, 20, 29, 30)] == pytest.approx(
        [1.0, 0.1, 0.1, 0.01, 0.01, 0.001]
    )


@pytest.mark.parametrize(
    ("used", "rows", "counted"),
    [("111", [0, 1, 2], [1, 1, 1]), ("000", [0, 1, 2], [0, 0, 0]), ("001", [2, 2, 2], [1, 0, 0])],
)
def test_a_batch_is_filled_with_the_used_samples(used, rows, counted):
    found, turn, first = repeated(torch.tensor([mark == "1" for mark in used]))
    assert found.tolist() == rows and first.tolist() == counted
    assert torch.equal(found[turn], found)
