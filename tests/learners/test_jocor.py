"""JoCoR: the unit facts of its page (part 10; schedules are in test_small_loss.py) and what its step must be."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import worked
from labeltrace.learners import JoCoR
from labeltrace.learners.dropping import smallest
from labeltrace.learners.jocor import JoCoRSettings, divergence
from labeltrace.learners.settings import resolve

make = partial(worked.learner, JoCoR)


def loss_of(learner, forget=0.0, batch=None):
    return learner.step(forget, batch or worked.batch())


def each(one, two, y, share):
    """ℓ of each sample, as the loss of a batch that holds nothing else."""
    alone = (make(one[i : i + 1], two[i : i + 1], co_lambda=share) for i in range(len(y)))
    return torch.stack([loss_of(a, batch=worked.batch(y[i : i + 1])).loss.detach() for i, a in enumerate(alone)])


def test_fact_1_divergences():
    one, two = worked.Z1.log_softmax(1), worked.Z2.log_softmax(1)
    assert divergence(two, one).tolist() == pytest.approx([1.00684, 0.06713, 0.08169, 1.65956], abs=1e-5)
    assert divergence(one, two).tolist() == pytest.approx([0.82872, 0.08261, 0.12081, 1.07497], abs=1e-5)


@pytest.mark.parametrize(
    ("share", "losses", "order", "mean"),
    [
        (0.9, [1.79603, 0.17878, 0.20725, 2.79726], [1, 2], 0.19302),
        (0.1, [1.47973, 0.41114, 0.24525, 3.29912], [2, 1], 0.32820),
    ],
)
def test_fact_2_joint_loss(share, losses, order, mean):
    found = each(worked.Z1, worked.Z2, worked.Y, share)
    assert found.tolist() == pytest.approx(losses, abs=1e-5)
    assert found.argsort()[:2].tolist() == order  # λ changes which sample comes first
    outcome = loss_of(make(co_lambda=share), forget=0.5)
    assert float(outcome.loss.detach()) == pytest.approx(mean, abs=1e-5)
    assert float(outcome.logs["kept"]) == 0.5


def test_fact_3_networks_that_are_the_same():
    one, _, y = worked.drawn()
    outcome = loss_of(make(one, one, co_lambda=0.7), 0.5, worked.batch(y))
    assert float(outcome.logs["apart"]) == 0
    easy = worked.easiest(F.cross_entropy(one, y, reduction="none").tolist(), 4)
    wanted = 2 * 0.3 * float(F.cross_entropy(one[easy], y[easy]))
    assert float(outcome.loss.detach()) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_fact_4_symmetric_and_not_negative(share):
    one, two, y = worked.drawn()
    here, there = (loss_of(make(*pair, co_lambda=share), 0.4, worked.batch(y)) for pair in ((one, two), (two, one)))
    assert torch.equal(here.loss, there.loss)
    assert (each(one, two, y, share) >= 0).all()


def test_fact_5_probabilities_of_zero():
    one, two = torch.tensor([[200.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert float(one.softmax(1)[0, 1]) == 0
    assert float(divergence(one.log_softmax(1), two.log_softmax(1))) == pytest.approx(1.31326, abs=1e-5)
    for y in (0, 1):
        for pair in ((one, two), (two, one), (one, -one), (50 * one, -50 * one)):
            learner = make(*pair)
            outcome = loss_of(learner, batch=worked.batch(torch.tensor([y])))
            outcome.loss.backward()
            assert torch.isfinite(outcome.loss)
            assert all(torch.isfinite(network.logits.grad).all() for network in learner.networks)


@pytest.mark.parametrize("share", [0.0, 0.65, 0.9])
@pytest.mark.parametrize("forget", [0.0, 0.5, 1.0])
def test_loss_equals_the_formula_written_out(share, forget):
    one, two, y = worked.drawn(seed=3)
    losses = []
    for a, b, c in zip(one, two, y.tolist(), strict=True):
        p, q = worked.probabilities(a), worked.probabilities(b)
        fit = -math.log(p[c]) - math.log(q[c])
        apart = sum(x * math.log(x / z) + z * math.log(z / x) for x, z in zip(p, q, strict=True))
        losses.append((1 - share) * fit + share * apart)
    assert each(one, two, y, share).tolist() == pytest.approx(losses, abs=1e-5)
    count = max(1, int(len(y) * (1 - forget) + 1e-9))
    wanted = sum(losses[i] for i in worked.easiest(losses, count)) / count
    found = loss_of(make(one, two, co_lambda=share), forget, worked.batch(y))
    assert float(found.loss.detach()) == pytest.approx(wanted, abs=1e-5)
    both = (1 - share) * found.logs["fit"] + share * found.logs["apart"]
    assert float(both) == pytest.approx(wanted, abs=1e-5)


def test_nothing_forgotten_without_agreement_is_the_mean_cross_entropy_of_both():
    one, two, y = worked.drawn()
    found = loss_of(make(one, two, co_lambda=0.0), batch=worked.batch(y))
    wanted = F.cross_entropy(one, y) + F.cross_entropy(two, y)
    assert float(found.loss.detach()) == pytest.approx(float(wanted), abs=1e-6)


def test_gradient_by_differences_and_none_outside_what_is_kept():
    """Both divergences reach both networks; which samples are kept has no gradient."""
    one, two, y = (v.double() if v.is_floating_point() else v for v in worked.drawn())
    kept = smallest(each(one, two, y, 0.9), 4)

    def loss(a, b):
        a, b = a.log_softmax(1), b.log_softmax(1)
        fit = F.nll_loss(a, y, reduction="none") + F.nll_loss(b, y, reduction="none")
        return (0.1 * fit + 0.9 * (divergence(a, b) + divergence(b, a)))[kept].mean()

    learner = make(one, two)
    loss_of(learner, 0.5, worked.batch(y)).loss.backward()
    for member, network in enumerate(learner.networks):
        assert not network.logits.grad[~kept].any()
        for i in range(len(y)):
            for c in range(4):
                step = torch.zeros_like(one)
                step[i, c] = 1e-5
                up, down = ((one + s, two) if member == 0 else (one, two + s) for s in (step, -step))
                slope = float(loss(*up) - loss(*down)) / 2e-5
                assert float(network.logits.grad[i, c]) == pytest.approx(slope, abs=1e-5)


def test_samples_and_classes_may_change_places():
    one, two, y = worked.drawn()
    here = loss_of(make(one, two), 0.4, worked.batch(y)).loss
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(loss_of(make(one[order], two[order]), 0.4, worked.batch(y[order])).loss, here)
    classes = torch.tensor([2, 0, 3, 1])
    columns = classes.argsort()
    renamed = loss_of(make(one[:, columns], two[:, columns]), 0.4, worked.batch(classes[y])).loss
    assert torch.allclose(renamed, here)


def test_two_adams_are_one_adam_over_both_networks():
    """As the code has it; to the bit."""
    one, two, y = worked.drawn()
    apart, joint = make(one, two), make(one, two)
    adams = [JoCoR.optimizer(apart.settings, network.parameters()) for network in apart.networks]
    union = [JoCoR.optimizer(joint.settings, [p for network in joint.networks for p in network.parameters()])]
    for epoch in (0, 79, 80, 150):
        for learner, optimizers in ((apart, adams), (joint, union)):
            for adam in optimizers:
                learner.tune(adam, epoch)
                adam.zero_grad()
            loss_of(learner, 0.5, worked.batch(y)).loss.backward()
            for adam in optimizers:
                adam.step()
    for mine, theirs in zip(apart.networks, joint.networks, strict=True):
        assert torch.equal(mine.logits, theirs.logits)
        assert not torch.equal(mine.logits, one) and not torch.equal(mine.logits, two)


def test_losses_are_float32_under_autocast():
    outcome = loss_of(make(dtype=torch.bfloat16), 0.5)
    assert outcome.loss.dtype == torch.float32
    assert float(outcome.loss.detach()) == pytest.approx(0.19302, abs=1e-5)


def test_weight_of_agreement_in_recipes():
    found = {name: resolve(JoCoRSettings, preset, {}, None)[0] for name, preset in JoCoR.presets.items()}
    for name, settings in found.items():
        wanted = 0.65 if name in ("oracle_cifar10_80", "small") else 0.85 if "cifar100" in name else 0.9
        assert settings.co_lambda == wanted, name
    assert [found[f"oracle_cifar{c}_asymmetric_40"].tau for c in (10, 100)] == [0.2, 0.2]
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"co_lambda: .*expected"):
            JoCoRSettings(co_lambda=share)
