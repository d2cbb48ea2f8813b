"""Co-teaching: the unit facts of its page (part 10; schedules are in test_small_loss.py) and what its step must be."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
import worked
from labeltrace.learners import CoTeaching
from labeltrace.learners.dropping import smallest
from labeltrace.learners.small_loss import kept_count, kept_mean

make = partial(worked.learner, CoTeaching)


def loss_of(learner, forget=0.0, batch=None):
    return learner.step(forget, batch or worked.batch())


def test_fact_2_worked_exchange():
    one, two = (F.cross_entropy(z, worked.Y, reduction="none") for z in (worked.Z1, worked.Z2))
    assert one.tolist() == pytest.approx([0.12693, 0.31326, 0.20141, 3.04859], abs=1e-5)
    assert two.tolist() == pytest.approx([1.31326, 0.12693, 0.04859, 0.31326], abs=1e-5)
    assert smallest(one, 2).nonzero()[:, 0].tolist() == [0, 2]
    assert smallest(two, 2).nonzero()[:, 0].tolist() == [1, 2]
    assert float(kept_mean(one, smallest(two, 2))) == pytest.approx(0.25734, abs=1e-5)
    outcome = loss_of(make(), forget=0.5)
    found = {name: float(value) for name, value in outcome.logs.items()}
    assert found == pytest.approx({"fit A": 0.25734, "fit B": 0.68092, "kept": 0.5, "shared": 0.5}, abs=1e-5)
    assert float(outcome.loss.detach()) == pytest.approx(0.25734 + 0.68092, abs=2e-5)


def test_fact_3_nothing_forgotten_is_the_mean_over_the_batch():
    one, two, y = worked.drawn()
    found = loss_of(make(one, two), batch=worked.batch(y)).logs
    for name, z in (("fit A", one), ("fit B", two)):
        assert float(found[name]) == pytest.approx(float(F.cross_entropy(z, y)), abs=1e-6)
    assert float(found["kept"]) == float(found["shared"]) == 1


def test_fact_3_networks_that_are_the_same_choose_the_same():
    one, _, y = worked.drawn()
    found = loss_of(make(one, one), forget=0.4, batch=worked.batch(y)).logs
    assert torch.equal(found["fit A"], found["fit B"]) and float(found["shared"]) == 1


def test_fact_5_each_network_gets_the_gradient_of_its_own_loss():
    """Network A: (softmax − onehot)/m on the samples that B finds easy, exactly 0 on all others; and vice versa."""
    one, two, y = worked.drawn()
    learner, forget = make(one, two), 0.5
    loss_of(learner, forget, worked.batch(y)).loss.backward()
    count = kept_count(forget, len(y))
    for own, peer, network in ((one, two, learner.networks[0]), (two, one, learner.networks[1])):
        chosen = smallest(F.cross_entropy(peer, y, reduction="none"), count)
        wanted = (own.softmax(1) - F.one_hot(y, own.shape[1])) / count
        assert torch.allclose(network.logits.grad[chosen], wanted[chosen], atol=1e-6)
        assert not network.logits.grad[~chosen].any()


def test_fact_5_a_loss_of_one_network_reaches_no_other():
    """The sum's gradient is that of the two losses apart: the other network's logits only choose."""
    one, two, y = worked.drawn()
    chosen = smallest(F.cross_entropy(two, y, reduction="none"), 5)
    alone = one.clone().requires_grad_()
    kept_mean(F.cross_entropy(alone, y, reduction="none"), chosen).backward()
    learner = make(one, two)
    loss_of(learner, 4 / 9, worked.batch(y)).loss.backward()
    assert torch.equal(learner.networks[0].logits.grad, alone.grad)


@pytest.mark.parametrize("forget", [0.0, 0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_loss_equals_the_exchange_written_out(forget, seed):
    one, two, y = worked.drawn(seed=seed)
    losses = [[-math.log(worked.probabilities(row)[int(c)]) for row, c in zip(z, y, strict=True)] for z in (one, two)]
    count = max(1, int(len(y) * (1 - forget) + 1e-9))
    easy = [worked.easiest(values, count) for values in losses]
    found = loss_of(make(one, two), forget, worked.batch(y)).logs
    for name, own, chosen in (("fit A", losses[0], easy[1]), ("fit B", losses[1], easy[0])):
        assert float(found[name]) == pytest.approx(sum(own[i] for i in chosen) / count, abs=1e-5)
    assert float(found["shared"]) == pytest.approx(len({*easy[0]} & {*easy[1]}) / count)


def test_networks_may_change_places_and_samples_too():
    one, two, y = worked.drawn()
    here, there = (loss_of(make(*pair), 0.4, worked.batch(y)) for pair in ((one, two), (two, one)))
    assert torch.equal(here.loss, there.loss)
    assert torch.equal(here.logs["fit A"], there.logs["fit B"])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    moved = loss_of(make(one[order], two[order]), 0.4, worked.batch(y[order]))
    assert torch.allclose(moved.loss, here.loss)
    classes = torch.tensor([2, 0, 3, 1])  # class c becomes classes[c]
    renamed = loss_of(make(one[:, classes.argsort()], two[:, classes.argsort()]), 0.4, worked.batch(classes[y]))
    assert torch.allclose(renamed.loss, here.loss)


def test_no_second_division():
    """The code divides the mean by the number kept once more; here a batch twice over has the same loss."""
    one, two, y = worked.drawn(rows=8)
    whole = loss_of(make(one, two), 0.5, worked.batch(y)).loss
    double = loss_of(make(one.repeat(2, 1), two.repeat(2, 1)), 0.5, worked.batch(y.repeat(2))).loss
    assert torch.allclose(double, whole)


def test_losses_are_float32_under_autocast():
    outcome = loss_of(make(dtype=torch.bfloat16), 0.5)
    assert outcome.loss.dtype == torch.float32
    assert float(outcome.loss.detach()) == pytest.approx(0.93826, abs=1e-4)  # these logits have no rounding in bfloat16


def test_logits_of_any_size_give_finite_gradients():
    learner = make(torch.tensor([[200.0, 0.0], [0.0, 1e4]]), torch.tensor([[0.0, 1.0], [1e4, 0.0]]))
    loss_of(learner, 0.0, worked.batch(torch.tensor([1, 1]))).loss.backward()
    assert all(torch.isfinite(network.logits.grad).all() for network in learner.networks)


def test_both_networks_see_the_same_weak_view():
    learner, b, seen = toy.learner(CoTeaching), toy.random_batch(), []

    class Spy(type(learner.views)):
        def weak(self, inputs, draws):
            seen.append(super().weak(inputs, draws))
            return seen[-1]

    learner.views = Spy((0.0,) * 4, (1.0,) * 4)
    inputs = []
    for network in learner.networks:
        network.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    learner.step(0.5, b)
    assert len(seen) == 1 and len(inputs) == 2 and inputs[0] is inputs[1] is seen[0]


def test_two_optimizers_in_one_step_are_the_two_steps_of_the_code():
    """One backward of the sum, against two backwards one after the other, each of its own loss; to the bit."""
    one, two, y = worked.drawn(rows=12)
    together, apart = make(one, two), make(one, two)
    adams = [[CoTeaching.optimizer(s.settings, n.parameters()) for n in s.networks] for s in (together, apart)]
    for _ in range(5):
        outcome = loss_of(together, 0.5, worked.batch(y))
        for adam in adams[0]:
            adam.zero_grad()
        outcome.loss.backward()
        for adam in adams[0]:
            adam.step()
        losses = [F.cross_entropy(n.logits, y, reduction="none") for n in apart.networks]
        easy = [smallest(loss.detach(), 6) for loss in losses]
        for number, adam in enumerate(adams[1]):
            adam.zero_grad()
            kept_mean(losses[number], easy[1 - number]).backward()
            adam.step()
    for mine, theirs in zip(together.networks, apart.networks, strict=True):
        assert torch.equal(mine.logits, theirs.logits)
