"""RoLR: the unit facts of its page (part 10) and what its official code does that changes results."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace import Coupled, Evidence, Trace
from labeltrace.learners import RoLR
from labeltrace.learners.rolr import RoLRSettings
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import negative_entropy, prior_penalty, sharpen
from labeltrace.scoring import Scores, loss_posterior, relation_drift, structure_confidence

P_A, P_B = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.4, 0.5, 0.1]])
LOGITS = torch.tensor([[1.0, 0.0, -1.0]])

make, batch = partial(toy.learner, RoLR), toy.random_batch


def test_fact_1_target():
    q = make().pseudo(torch.stack([P_A, P_B]))
    assert q[0].tolist() == pytest.approx([0.55, 0.35, 0.10])
    s = Coupled()(Evidence(observed=torch.tensor([2]), pseudo=q, clean=torch.tensor([0.3])))
    assert s.target[0].tolist() == pytest.approx([0.385, 0.245, 0.370])
    assert make(exponent=2.0).pseudo(torch.stack([P_A, P_B]))[0].tolist() == pytest.approx(
        [0.695402, 0.281609, 0.022989], abs=1e-6
    )
    assert sharpen(q, 1.0) is q


@pytest.mark.parametrize(
    ("mean", "penalty"), [((0.5, 0.3, 0.2), 0.0702403), ((1 / 3,) * 3, 0.0), ((0.98, 0.01, 0.01), 1.9782354)]
)
def test_fact_2_prior_penalty(mean, penalty):
    assert float(prior_penalty(torch.tensor([mean]).log())) == pytest.approx(penalty, abs=1e-6)


def test_fact_2_its_gradient():
    logits = LOGITS.repeat(4, 1).requires_grad_()
    penalty = prior_penalty(logits)
    penalty.backward()
    assert float(penalty.detach()) == pytest.approx(0.3089937, abs=1e-6)
    assert logits.grad.sum(0).tolist() == pytest.approx([0.3319, -0.0886, -0.2433], abs=1e-4)


def test_prior_penalty_of_a_class_nobody_predicts_is_finite():
    logits = torch.tensor([[0.0, -300.0]]).repeat(3, 1).requires_grad_()
    penalty = prior_penalty(logits)
    penalty.backward()
    assert math.isfinite(float(penalty)) and torch.isfinite(logits.grad).all()


def test_fact_3_soft_cross_entropy():
    target = torch.tensor([[0.385, 0.245, 0.370]])
    logits = LOGITS.clone().requires_grad_()
    loss = Coupled()(Evidence(observed=target, pseudo=target, clean=torch.ones(1))).loss(logits)
    loss.backward()
    assert float(loss) == pytest.approx(1.3926059, abs=1e-6)
    assert logits.grad[0].tolist() == pytest.approx([0.28024, -0.00027, -0.27997], abs=1e-5)


def test_fact_4_schedule():
    learner = make(batch_size=448)
    warm = learner.settings.warmup
    assert learner.learning_rate(0) == 0.02
    assert learner.learning_rate(warm + 400) == 0.02 and learner.learning_rate(warm + 401) == pytest.approx(0.002)
    assert learner.learning_rate(514) == pytest.approx(0.002) and learner.settings.epochs == 515


def test_fact_4_steps_per_epoch():
    def walked(*, members, batch_size, passes, drop_last=False, label):
        return members, passes * (50_000 // batch_size if drop_last else math.ceil(50_000 / batch_size)), label

    learner, ones = make(batch_size=448), torch.ones(2, 20)
    loop = toy.Loop(scores=Scores(ones, ones, ones, ones, torch.zeros(20), ones[0], ones[0].bool()))
    learner.epoch(loop, 0)
    assert [walked(**call) for call in loop.calls] == [([0], 782, "warm-up A"), ([1], 782, "warm-up B")]
    loop.calls.clear()
    learner.epoch(loop, 15)
    # B first, then A against the updated B
    assert [walked(**call) for call in loop.calls] == [([1], 222, "train B"), ([0], 222, "train A")]
    assert loop.views == ["weak"] and not loop.notes


def test_fact_5_mixture():
    posterior = loss_posterior(torch.tensor([0, 0.02, 0.04, 0.05, 0.5, 0.7, 0.8, 1.0]))
    assert (posterior[:4] > 0.9998).all() and (posterior[4:] < 1e-5).all()


def test_fact_7_exchange():
    """A's losses reach only B's targets; A's logits reach q of both."""
    learner, b = make(Coupled()), batch()
    seen = toy.watch(learner)

    def evidence():
        seen.clear()
        for network in learner.networks:
            network.eval()
        for member in (0, 1):
            learner.step(member, 0, b)
        return {member: (e.clean.clone(), e.pseudo.clone()) for member, (e, _) in enumerate(seen)}

    learner.memory["posterior"] = torch.full((20, 2), 0.5)
    before = evidence()
    posterior = torch.full((20, 2), 0.5)
    posterior[:, 0] = 0.1  # A's
    learner.memory["posterior"] = posterior
    after = evidence()
    assert torch.equal(before[0][0], after[0][0]) and not torch.equal(before[1][0], after[1][0])
    with torch.no_grad():
        learner.networks[0].fc.bias += torch.tensor([3.0, 0, 0])
    moved = evidence()
    assert not torch.allclose(moved[0][1], after[0][1]) and not torch.allclose(moved[1][1], after[1][1])


def test_own_half_of_q_is_made_in_train_mode():
    learner, b = make(), batch()
    learner.networks[0].train()
    learner.networks[1].eval()
    statistics = [n.layers[0][1].running_mean.clone() for n in learner.networks]
    learner.step(0, 0, b)
    after = [n.layers[0][1].running_mean for n in learner.networks]
    assert not torch.equal(statistics[0], after[0])  # its running statistics saw the weak view
    assert torch.equal(statistics[1], after[1])


def test_the_prior_stays_unweighted_and_the_target_has_no_gradient():
    learner, b = make(Trace(structure=False, start=0, ramp=0)), batch()
    learner.memory["posterior"] = torch.rand(20, 2)
    outcome = learner.step(0, 50, b)
    assert float(outcome.loss) == pytest.approx(float(outcome.logs["fit"] + outcome.logs["prior"]), abs=1e-6)
    outcome.loss.backward()
    assert all(p.grad is not None for p in learner.networks[0].parameters())
    assert all(p.grad is None for p in learner.networks[1].parameters())


@pytest.mark.parametrize("view", ["weak", "plain"])
def test_scoring_sees_one_view_whoever_asks(view):
    """The pass of an epoch is made once; who asks first may be the engine."""
    learner, ones = make(score_view=view), torch.ones(2, 20)
    loop = toy.Loop(scores=Scores(ones, ones, ones, ones, torch.zeros(20), ones[0], ones[0].bool()))
    learner.epoch(loop, 15)
    assert loop.views == [view] and learner.score_view == view
    assert RoLRSettings().score_view == "weak"


def test_trace_counts_its_epochs_from_the_end_of_warm_up():
    learner, ones, steps = make(), torch.ones(2, 20), []
    loop = toy.Loop(scores=Scores(ones, ones, ones, ones, torch.zeros(20), ones[0], ones[0].bool()))
    loop.train = lambda step, **asked: steps.append(step.args)
    for epoch in (15, 45):
        learner.epoch(loop, epoch)
    assert steps == [(1, 0), (0, 0), (1, 30), (0, 30)]


def test_trace_gets_both_votes_and_the_features_of_both_networks():
    learner, b = make(Trace(scope="batch", k=3, start=0, ramp=0)), batch()
    learner.memory["posterior"] = torch.rand(20, 2, generator=torch.Generator().manual_seed(1))
    for network in learner.networks:
        network.eval()
    seen = toy.watch(learner)
    for member in (0, 1):
        learner.step(member, 5, b)
        evidence, _ = seen[-1]
        with torch.no_grad():
            own, peer = (learner.networks[m](b.inputs) for m in (member, 1 - member))
        each = [structure_confidence(relation_drift(output.features, 3), 5.0) for output in (own, peer)]
        assert torch.allclose(evidence.structure, (each[0] + each[1]) / 2, atol=1e-5)
        assert not torch.allclose(each[0], each[1], atol=1e-2)
        for vote, output in zip(evidence.votes, (own, peer), strict=True):
            assert torch.allclose(vote, output.logits.softmax(1), atol=1e-6)
        assert torch.equal(evidence.clean, learner.memory["posterior"][:8, 1 - member])


def test_each_term_has_its_weight():
    learner, b = make(lambda_l=0.5, lambda_p=2.0), batch()
    outcome = learner.step(0, 0, b)
    wanted = 0.5 * outcome.logs["fit"] + 2 * outcome.logs["prior"]
    assert float(outcome.loss.detach()) == pytest.approx(float(wanted), abs=1e-6)


def test_loss_equals_the_formula_written_out():
    learner, b = make(), batch()
    learner.memory["posterior"] = torch.rand(20, 2, generator=torch.Generator().manual_seed(1))
    for network in learner.networks:
        network.eval()
    outcome = learner.step(1, 0, b)
    with torch.no_grad():
        x, strong = b.inputs, learner.views.strong(b.inputs, b.draws.fork(1))
        q = (learner.networks[1](x).logits.softmax(1) + learner.networks[0](x).logits.softmax(1)) / 2
        z = learner.networks[1](strong).logits
    total = 0.0
    for i in range(8):
        w = float(learner.memory["posterior"][i, 0])  # the peer's
        log_p = F.log_softmax(z[i], 0)
        for c in range(3):
            total -= (w * float(b.observed[i] == c) + (1 - w) * float(q[i, c])) * float(log_p[c])
    mean = z.softmax(1).mean(0)
    prior = sum(math.log((1 / 3) / float(m)) / 3 for m in mean)
    assert float(outcome.loss) == pytest.approx(total / 8 + prior, abs=1e-5)


def test_warm_up_entropy():
    logits = torch.tensor([[0.0, 0.0]])
    assert float(negative_entropy(logits)) == pytest.approx(-math.log(2))
    b = batch()
    plain, damped = make().warmup_step(0, b), make(warmup_entropy=1.0).warmup_step(0, b)
    assert float(damped.loss) < float(plain.loss)


def test_recipes():
    settings, recipe = resolve(RoLRSettings, RoLR.presets["cifar"], {}, 103)
    assert (recipe, settings.epochs, settings.warmup, settings.lr_drop) == (515, 103, 3, 80)
    assert (settings.batch_size, settings.passes) == (448, 2)
    table, _ = resolve(RoLRSettings, RoLR.presets["appendix_a"], {"warmup": 15}, None)
    assert (table.epochs, table.batch_size, table.passes, table.lr_drop + table.warmup) == (500, 64, 1, 400)
    for name, (prior, entropy) in {"cifar": (1, 0), "oracle_80": (2, 0), "oracle_asymmetric": (1, 1)}.items():
        known, _ = resolve(RoLRSettings, RoLR.presets[name], {}, None)
        assert (known.lambda_p, known.warmup_entropy) == (prior, entropy)
    windows = {name: resolve(RoLRSettings, p, {}, None)[0].loss_window for name, p in RoLR.presets.items()}
    assert {name for name, window in windows.items() if window != 1} == {"oracle_90"} and windows["oracle_90"] == 5
    for name in ("cifar", "appendix_a"):
        s, _ = resolve(RoLRSettings, RoLR.presets[name], {}, None)
        assert (s.lr, s.momentum, s.weight_decay, s.warmup_batch_size, s.exponent) == (0.02, 0.9, 5e-4, 64, 1)
    large, _ = resolve(RoLRSettings, RoLR.presets["large"], {}, None)
    assert large.warmup + large.lr_drop == 40  # DivideMix's WebVision recipe drops there
