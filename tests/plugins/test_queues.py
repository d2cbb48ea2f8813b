"""Queues of projections: the facts of SNSCL's page, slow loops, what enters and what goes."""

import math

import pytest
import torch
import torch.nn.functional as F

from labeltrace.plugins.queues import Queues


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def filled(classes=3, slots=4, width=5, seed=1):
    queues = Queues(classes, slots, width)
    queues.rows.copy_(unit(classes * slots + 1, width, seed=seed))
    return queues


def slowly(queues, queries, keys, labels, temperature):
    """Anchor by anchor: KL(target ‖ softmax) of a row of 1 + Q·C logits, the first Q + 1 of them the positives."""
    total = 0.0
    for q, k, label in zip(queries, keys, labels.tolist(), strict=True):
        order = [label] + [c for c in range(queues.classes) if c != label]
        logits = [q @ k] + [q @ slot for c in order for slot in queues.kept[c]]
        log_p = F.log_softmax(torch.stack(logits) / temperature, 0)
        share = 1 / (queues.slots + 1)
        total += sum(share * (math.log(share) - float(value)) for value in log_p[: queues.slots + 1])
    return total / len(queries)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_the_loss_equals_a_slow_loop(temperature):
    queues, labels = filled(), torch.tensor([0, 2, 2, 1, 0, 0])
    queries, keys = unit(6, 5, seed=2), unit(6, 5, seed=3)
    found = float(queues.loss(queries, keys, labels, temperature))
    assert found == pytest.approx(slowly(queues, queries, keys, labels, temperature), rel=1e-4)


@pytest.mark.parametrize(
    ("classes", "width", "wanted"), [(10, 321, 2.2749), (14, 449, 2.6105), (100, 3201, 4.5747), (101, 3233, 4.5847)]
)
def test_facts_1_and_2_equal_logits(classes, width, wanted):
    """The width of a row of logits is what the loss of equal ones tells; 33 of them are the anchor's."""
    queues = Queues(classes, 32, 4)
    queues.rows.copy_(torch.eye(4)[:1].expand(len(queues.rows), -1))
    same = torch.eye(4)[:1].expand(3, -1)
    found = float(queues.loss(same, same, torch.tensor([0, 1, classes - 1]), 0.07))
    assert found == pytest.approx(wanted, abs=1e-4)
    assert 33 * math.exp(found) == pytest.approx(width, rel=1e-5)


def test_a_perfect_anchor_costs_nothing_and_classes_may_change_names():
    queues = Queues(2, 3, 2)
    queues.rows[:3], queues.rows[3:6] = torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])
    here = torch.tensor([[1.0, 0.0]])
    assert float(queues.loss(here, here, torch.tensor([0]), 0.05)) == pytest.approx(0.0, abs=1e-5)
    queues, labels = filled(), torch.tensor([0, 2, 1])
    queries, keys = unit(3, 5, seed=4), unit(3, 5, seed=5)
    wanted, order = float(queues.loss(queries, keys, labels, 0.1)), torch.tensor([2, 0, 1])
    queues.rows[:-1] = queues.kept[order].flatten(0, 1).clone()
    assert float(queues.loss(queries, keys, order.argsort()[labels], 0.1)) == pytest.approx(wanted, rel=1e-5)


def test_fact_4_pointers_and_what_they_leave_alone():
    queues, before = filled(), filled().kept.clone()
    for n in range(1, 9):
        queues.put(unit(1, 5, seed=10 + n), torch.tensor([1]), torch.tensor([True]))
        assert queues.pointer.tolist() == [0, n % 4, 0]
        assert torch.equal(queues.kept[[0, 2]], before[[0, 2]])
    assert torch.equal(queues.kept[1], torch.cat([unit(1, 5, seed=10 + n) for n in range(5, 9)]))


def test_a_batch_is_its_samples_one_after_the_other():
    generator = torch.Generator().manual_seed(0)
    whole, single = filled(), filled()
    for seed in range(5):
        keys, labels = unit(7, 5, seed=seed), torch.randint(0, 3, (7,), generator=generator)
        accepted = torch.rand(7, generator=generator) < 0.7
        whole.put(keys, labels, accepted)
        for i in range(7):
            single.put(keys[i : i + 1], labels[i : i + 1], accepted[i : i + 1])
        assert torch.equal(whole.kept, single.kept) and torch.equal(whole.pointer, single.pointer)


def test_of_more_than_fit_the_last_stay():
    whole, single, keys = filled(), filled(), unit(11, 5, seed=6)
    whole.put(keys, torch.full((11,), 2), torch.ones(11, dtype=torch.bool))
    for key in keys:
        single.put(key[None], torch.tensor([2]), torch.tensor([True]))
    assert torch.equal(whole.kept, single.kept) and torch.equal(whole.pointer, single.pointer)


def test_what_is_rejected_changes_nothing():
    queues = filled()
    queues.put(unit(6, 5, seed=7), torch.tensor([0, 1, 2, 0, 1, 2]), torch.zeros(6, dtype=torch.bool))
    assert torch.equal(queues.kept, filled().kept) and queues.pointer.tolist() == [0, 0, 0]


def test_fact_5_rows_keep_length_one_and_no_gradient_reaches_them():
    queues, queries = filled(), unit(4, 5, seed=8).requires_grad_()
    keys = unit(4, 5, seed=9).requires_grad_()
    loss = queues.loss(queries, keys, torch.tensor([0, 1, 2, 0]), 0.07)
    queues.put(keys, torch.tensor([0, 1, 2, 0]), torch.ones(4, dtype=torch.bool))  # before backward, as in a step
    loss.backward()
    assert queries.grad is not None and bool(queries.grad.any()) and keys.grad is None
    assert not queues.rows.requires_grad
    assert torch.allclose(queues.kept.norm(dim=2), torch.ones(3, 4), atol=1e-6)
