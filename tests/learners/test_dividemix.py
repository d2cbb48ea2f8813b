"""DivideMix: the unit facts of its page (part 10), its official code's habits, and where TRACE attaches."""

import dataclasses
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import toy
from labeltrace import Coupled, Trace
from labeltrace.control.schedule import ramp
from labeltrace.engine import train
from labeltrace.learners import DivideMix
from labeltrace.learners.dividemix import DivideMixSettings
from labeltrace.learners.mixing import BetaWeight, permutation
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import negative_entropy, prior_penalty, squared_error
from labeltrace.models.output import Output
from labeltrace.models.parts import norm_by_parts
from labeltrace.scoring import Scores, relation_drift, structure_confidence
from labeltrace.scoring.posterior import _e_step

B, C = 8, 3
X_VIEWS = (0.6, 0.3, 0.1), (0.5, 0.3, 0.2)
STARTED = {"start": 0, "ramp": 0}

make = partial(toy.learner, DivideMix)


def batch(progress=0.0, beside=True):
    rest = toy.random_batch(B, seed=1, first=B, draws=5) if beside else None
    return toy.random_batch(B, beside=rest, progress=progress)


def random_posteriors(learner, seed=1):
    learner.memory["posterior"] = torch.rand(learner.memory.size, 2, generator=torch.Generator().manual_seed(seed))


class Says(nn.Module):
    """A network that answers with the given probabilities, one after the other."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = [torch.tensor(a).reshape(-1, C) for a in answers]
        self.said = 0

    def forward(self, x):
        rows = self.answers[self.said % len(self.answers)]
        self.said += 1
        return Output(rows.repeat(len(x) // len(rows), 1).log() if len(x) != len(rows) else rows.log(), ())


def refine(learner, member, epoch, batch):
    """Target and weight of labelled samples, as a step without others makes them."""
    own, _ = learner.see(member, [torch.cat(learner.two_views(batch))])
    return learner.refine(member, epoch, batch, own)


def guess(learner, epoch, batch):
    """Target and weight that network A gets for unlabelled samples."""
    views = torch.cat(learner.two_views(batch))
    own, peer = learner.see(0, [views, views])
    return learner.guess(epoch, own[:2], peer)


def one_sample():
    return toy.batch(torch.tensor([0]), torch.zeros(1, 4), torch.tensor([1]))


def test_fact_1_refined_target():
    learner = make(networks=[Says(*X_VIEWS), Says(X_VIEWS[0])])
    learner.memory["posterior"] = torch.tensor([0.1, 0.7]).repeat(20, 1)  # network A takes its peer's
    target, weight = refine(learner, 0, 0, one_sample())
    assert target.shape == (2, C) and torch.equal(target[0], target[1])
    assert target[0].tolist() == pytest.approx([0.041670, 0.955231, 0.003099], abs=1e-6)
    assert weight.tolist() == [1, 1]


def test_fact_1_without_sharpening():
    learner = make(networks=[Says(*X_VIEWS), Says(X_VIEWS[0])], temperature=1.0)
    learner.memory["posterior"] = torch.full((20, 2), 0.7)
    target, _ = refine(learner, 0, 0, one_sample())
    assert target[0].tolist() == pytest.approx([0.165, 0.79, 0.045], abs=1e-6)


def test_fact_2_guess():
    peer = torch.tensor([[0.2, 0.7, 0.1], [0.3, 0.6, 0.1]])
    learner = make(networks=[Says(*X_VIEWS), Says(peer.tolist())])
    target, weight = guess(learner, 0, one_sample())
    assert target[0].tolist() == pytest.approx([0.398754, 0.562305, 0.038941], abs=1e-6)
    assert torch.equal(target[0], target[1]) and weight.tolist() == [1, 1]


def test_fact_3_terms():
    logits = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).log()
    assert float(squared_error(logits, torch.eye(4)[:1])) == pytest.approx(0.03)
    assert float(squared_error(logits.repeat(2, 1), torch.eye(4)[:1], torch.tensor([0.5, 1.5]))) == pytest.approx(0.03)
    assert float(prior_penalty(logits)) == pytest.approx(0.429813, abs=1e-6)
    assert float(prior_penalty(torch.zeros(2, 4))) == pytest.approx(0, abs=1e-6)
    assert float(negative_entropy(logits)) == pytest.approx(-0.940448, abs=1e-6)


@pytest.mark.parametrize(
    ("t", "lambda_u"), [(9, 0), (10, 0), (10.5, 0.78125), (14, 6.25), (18, 12.5), (26, 25), (40, 25)]
)
def test_fact_4_ramp(t, lambda_u):
    learner = make()
    assert (learner.settings.lambda_u, learner.settings.warmup, learner.settings.lambda_u_ramp) == (25, 10, 16)
    epoch = learner.controller_epoch(math.floor(t))
    assert 25 * float(ramp(epoch + torch.tensor(t % 1), 0, 16)) == pytest.approx(lambda_u)
    for network in learner.networks:
        network.eval()
    outcome = learner.step(0, epoch, batch(progress=t % 1))
    wanted = outcome.logs["fit"] + outcome.logs["prior"] + lambda_u * outcome.logs["guess"]
    assert float(outcome.loss.detach()) == pytest.approx(float(wanted), rel=1e-5)


def test_fact_5_posterior_of_given_components():
    parameters = torch.tensor([[0.5, 0.5], [0.05, 0.45], [0.0025, 0.01]], dtype=torch.float64)[:, :, None]
    clean = _e_step(torch.tensor([0.05, 0.2, 0.3], dtype=torch.float64), parameters)[1][0]
    assert clean.tolist() == pytest.approx([0.999832, 0.335848, 2.3e-5], abs=1e-6)


@pytest.mark.parametrize(
    ("agree", "a", "b", "by_base", "by_trace"),
    [
        (True, 0.64, 0.262410, (0.0386, 0.9585, 0.0029), (0.2120, 0.7723, 0.0158)),
        (False, 0.32, 0.495663, (0.2481, 0.7334, 0.0185), (0.4429, 0.5241, 0.0329)),
    ],
)
def test_fact_6_trace(agree, a, b, by_base, by_trace):
    for order, wanted in (("base", by_base), ("trace", by_trace)):
        learner = make(Trace(**STARTED), networks=[Says(*X_VIEWS), Says(X_VIEWS[0])], trace_order=order)
        learner.memory["posterior"] = torch.tensor([0.1, 0.7]).repeat(20, 1)
        learner.memory["structure"] = torch.full((20,), 0.5)
        learner.memory["agree"] = torch.full((20,), agree)
        seen = toy.watch(learner)
        target, _ = refine(learner, 0, 5, one_sample())
        assert target[0].tolist() == pytest.approx(wanted, abs=5e-5)
        evidence, supervision = seen[0]
        assert evidence.pseudo[0].tolist() == pytest.approx([0.728916, 0.216867, 0.054217], abs=1e-6)
        assert float(supervision.pseudo_reliability) == pytest.approx(0.728916, abs=1e-6)
        assert (float(supervision.a), float(supervision.b)) == pytest.approx((a, b), abs=1e-6)
        assert float(supervision.a + supervision.b) == pytest.approx(a + b, abs=1e-6)


def slow_loss(learner, member, epoch, b):
    """The loss of a step, row by row and class by class; the networks are in eval mode."""
    s, controller = learner.settings, learner.controller or Coupled()
    own, peer = learner.networks[member], learner.networks[1 - member]

    def probabilities(network, x):
        with torch.no_grad():
            return network(x).logits.softmax(1)

    def sharp(p):
        powered = [float(v) ** (1 / s.temperature) for v in p]
        return [v / sum(powered) for v in powered]

    x, u = b.inputs, b.beside.inputs
    p_x, p_u, p_peer = probabilities(own, x), probabilities(own, u), probabilities(peer, u)
    targets_x, strengths = [], []
    for i in range(len(x)):
        w = float(learner.memory["posterior"][b.index[i], 1 - member])
        y = [float(b.observed[i] == c) for c in range(C)]
        q = sharp(p_x[i])
        if isinstance(controller, Trace):
            agree = learner.memory["agree"][b.index[i]]
            s_obs = w * (1.0 if agree else controller.config.disagreement)
            a, branch = s_obs, (1 - s_obs) * max(q)
        else:
            a, branch = w, 1 - w
        targets_x.append(sharp([(a * y[c] + branch * float(p_x[i, c])) / (a + branch) for c in range(C)]))
        strengths.append(max(a + branch, 0.2))
    targets_u = [sharp([(2 * float(p_u[i, c]) + 2 * float(p_peer[i, c])) / 4 for c in range(C)]) for i in range(len(u))]
    trust = [max(max(q), 0.2) for q in targets_u]
    if not isinstance(controller, Trace):
        strengths, trust = [1.0] * len(x), [1.0] * len(u)
    weights_x = [v * len(strengths) / sum(strengths) for v in strengths]
    weights_u = [v * len(trust) / sum(trust) for v in trust]
    rows = torch.cat([x, x, u, u])
    targets, weights = targets_x * 2 + targets_u * 2, weights_x * 2 + weights_u * 2
    partner = permutation(b.once.fork(0), len(rows)).tolist()
    share = float(BetaWeight(s.alpha)(b.once.fork(1)))
    with torch.no_grad():
        logits = own(share * rows + (1 - share) * rows[partner]).logits
    p, log_p = logits.softmax(1), F.log_softmax(logits, 1)
    l_x = l_u = 0.0
    for i in range(len(rows)):
        j = partner[i]
        if i < 2 * len(x):
            for c in range(C):
                mixed = share * weights[i] * targets[i][c] + (1 - share) * weights[j] * targets[j][c]
                l_x -= mixed * float(log_p[i, c]) / (2 * len(x))
        else:
            weight = share * weights[i] + (1 - share) * weights[j]
            for c in range(C):
                mixed = share * targets[i][c] + (1 - share) * targets[j][c]
                l_u += weight * (float(p[i, c]) - mixed) ** 2 / (2 * len(u) * C)
    prior = sum(math.log((1 / C) / float(m)) / C for m in p.mean(0))
    lambda_u = s.lambda_u * min(max((epoch + float(b.progress)) / s.lambda_u_ramp, 0), 1)
    return l_x + lambda_u * l_u + prior


@pytest.mark.parametrize("member", [0, 1])
@pytest.mark.parametrize("controller", [None, Coupled(), Trace(structure=False, **STARTED)])
def test_loss_equals_the_formula_written_out(member, controller):
    learner = make(controller)
    random_posteriors(learner)
    learner.memory["agree"] = torch.arange(20) % 3 > 0
    for network in learner.networks:
        network.eval()
    b = batch(progress=0.25)
    assert float(learner.step(member, 4, b).loss.detach()) == pytest.approx(slow_loss(learner, member, 4, b), abs=1e-4)


def test_guesses_in_train_mode_move_the_running_statistics_five_times():
    learner = make()
    learner.networks[0].train()
    learner.networks[1].eval()
    counted = [n.layers[0][1].num_batches_tracked for n in learner.networks]
    learner.step(0, 0, batch())
    assert [int(n) for n in counted] == [5, 0]
    learner.step(0, 0, batch(beside=False))
    assert [int(n) for n in counted] == [8, 0]  # two views refined, and the step itself


class Folded(nn.Module):
    """Four features as an image of four pixels, normalised over batch and pixels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(24, C)

    def forward(self, x):
        features = self.layers(x.reshape(-1, 1, 2, 2))
        return Output(self.head(features), (features,))


@pytest.mark.parametrize("beside", [True, False])
def test_views_in_one_forward_give_the_step_of_a_forward_each(beside):
    learners = [make(Trace(structure=False, **STARTED), networks=[Folded(), Folded()]) for _ in range(2)]
    for one, other in zip(*(learner.networks for learner in learners), strict=True):
        other.load_state_dict(one.state_dict())
        norm_by_parts(other)
    sizes = []
    learners[1].networks[0].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    outcomes = []
    for learner in learners:
        random_posteriors(learner)
        outcomes.append(learner.step(0, 50, batch(beside=beside)))
        outcomes[-1].loss.backward()
    assert sizes == ([4 * B, 4 * B] if beside else [2 * B, 2 * B])  # all views, the step
    assert torch.allclose(outcomes[0].loss, outcomes[1].loss, atol=1e-5)
    plain, merged = (learner.networks[0] for learner in learners)
    torch.testing.assert_close(merged.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)
    for one, other in zip(plain.parameters(), merged.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_gradient_reaches_the_trained_network_alone_and_no_target():
    learner = make(Trace(structure=False, **STARTED))
    random_posteriors(learner)
    learner.step(0, 50, batch()).loss.backward()
    assert all(p.grad is not None for p in learner.networks[0].parameters())
    assert all(p.grad is None for p in learner.networks[1].parameters())
    made = *refine(learner, 0, 50, batch()), *guess(learner, 50, batch().beside)
    assert not any(values.requires_grad for values in made)


def test_labels_of_the_unlabelled_part_are_never_looked_at():
    learner, b = make(Trace(structure=False, **STARTED)), batch()
    random_posteriors(learner)
    for network in learner.networks:
        network.eval()
    other = dataclasses.replace(b, beside=dataclasses.replace(b.beside, observed=(b.beside.observed + 1) % C))
    assert torch.equal(learner.step(0, 50, b).loss, learner.step(0, 50, other).loss)


def test_labelled_rows_alone_where_no_unlabelled_row_is_wanted():
    learner, b = make(unlabelled=False), batch()
    sizes = []
    learner.networks[0].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    outcome = learner.step(0, 50, b)
    assert sizes == [B, B, B, B, 2 * B] and "guess" not in outcome.logs  # U is guessed: partners come from it
    assert float(outcome.loss.detach()) == pytest.approx(float(outcome.logs["fit"] + outcome.logs["prior"]), abs=1e-6)
    sizes.clear()
    make_all = make()
    make_all.networks[0].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    make_all.step(0, 50, b)
    assert sizes[-1] == 4 * B


def test_partners_of_labelled_rows_come_from_all_rows():
    partner = permutation(batch().once.fork(0), 4 * B)
    assert (partner[: 2 * B] >= 2 * B).any() and (partner[: 2 * B] < 2 * B).any()


def test_two_views_differ():
    from labeltrace.data.views import ImageViews

    learner = make()
    learner.views = ImageViews((0.5,), (0.5,), padding=1, flip=False)
    images = torch.randint(0, 255, (4, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    first, second = learner.two_views(toy.batch(torch.arange(4), images, torch.zeros(4, dtype=torch.int64)))
    assert not torch.equal(first, second)


def scores_of(posterior, loss=None):
    rows = posterior.shape[1]
    loss = torch.rand(2, rows) if loss is None else loss
    agree = torch.arange(rows) % 2 == 0
    return Scores(loss, posterior, posterior, posterior, torch.zeros(rows).long(), posterior[0], agree)


def test_warm_up_walks_all_samples_network_after_network():
    learner, loop = make(), toy.Loop(scores=scores_of(torch.ones(2, 20)))
    learner.epoch(loop, 9)
    assert [(c["members"], c["batch_size"], c["label"]) for c in loop.calls] == [
        ([0], 128, "warm-up A"),
        ([1], 128, "warm-up B"),
    ]
    assert all(c.get("index") is None for c in loop.calls)


def test_each_network_is_trained_with_its_peers_division():
    posterior = torch.full((2, 20), 0.1)
    posterior[0, :5], posterior[1, 8:] = 0.9, 0.8
    posterior[0, 19] = 0.5  # the threshold itself is not above it
    loop = toy.Loop(scores=scores_of(posterior))
    learner = make()
    learner.epoch(loop, 10)
    first, second = loop.calls
    assert (first["members"], second["members"]) == ([0], [1])
    assert first["index"].tolist() == list(range(8, 20)) and first["beside"].tolist() == list(range(8))
    assert second["index"].tolist() == list(range(5)) and second["beside"].tolist() == list(range(5, 20))
    assert first["batch_size"] == B and loop.views == ["plain"] and not loop.notes
    assert torch.equal(learner.memory["posterior"], posterior.T)
    assert learner.memory["agree"].tolist() == [i % 2 == 0 for i in range(20)]


def test_trace_counts_its_epochs_from_the_end_of_warm_up():
    posterior = torch.full((2, 20), 0.1)
    posterior[:, :5] = 0.9
    learner, steps = make(), []
    loop = toy.Loop(scores=scores_of(posterior))
    loop.train = lambda step, **asked: steps.append(step.args)
    for epoch in (10, 40):
        learner.epoch(loop, epoch)
    assert steps == [(0, 0), (1, 0), (0, 30), (1, 30)]


def test_weights_of_prior_and_mixture_are_the_settings():
    learner, b = make(lambda_p=3.0, lambda_u=0.0, alpha=0.5), batch()
    outcome = learner.step(0, 5, b)
    wanted = outcome.logs["fit"] + 3 * outcome.logs["prior"]
    assert float(outcome.loss.detach()) == pytest.approx(float(wanted), abs=1e-5)
    assert (learner.mixing_weight.alpha, learner.mixing_weight.larger_half) == (0.5, True)


def test_no_clean_sample_and_no_noisy_one_are_noted_once():
    posterior = torch.stack([torch.zeros(20), torch.ones(20)])  # A holds none clean, B all
    loop = toy.Loop(scores=scores_of(posterior))
    make().epoch(loop, 10)
    assert [c["members"] for c in loop.calls] == [[0]] and not len(loop.calls[0]["beside"])
    assert len(loop.notes) == 1 and loop.views == ["plain"]
    assert "B rests" in loop.notes[0] and "A has no unlabelled part" in loop.notes[0]


def test_only_the_epochs_samples_are_divided():
    posterior = torch.full((2, 20), float("nan"))
    some = torch.tensor([3, 4, 11, 12])
    posterior[:, some] = torch.tensor([0.9, 0.1, 0.9, 0.1])
    learner, loop = make(), toy.Loop(scores=scores_of(posterior), some=some)
    learner.epoch(loop, 10)
    assert loop.calls[0]["index"].tolist() == [3, 11] and loop.calls[0]["beside"].tolist() == [4, 12]
    assert not learner.memory["posterior"].isnan().any() and not learner.memory["structure"].isnan().any()
    assert loop.views == ["plain"]


def test_trace_before_its_start_is_the_base_in_either_order():
    b = batch()
    for order in ("base", "trace"):
        losses = []
        for controller in (None, Coupled(), Trace(structure=True, start=3, ramp=2)):
            learner = make(controller, trace_order=order)
            random_posteriors(learner)
            losses.append([learner.step(m, e, b).loss for m in (0, 1) for e in (0, 2)])
        assert losses[0] == losses[1] == losses[2]
        base = losses[0]
    plain = make()
    random_posteriors(plain)
    assert [plain.step(m, e, b).loss for m in (0, 1) for e in (0, 2)] == base


def test_trace_order_is_its_own_target_once_it_has_started():
    learner = make(Trace(structure=False, start=3, ramp=0), trace_order="trace")
    random_posteriors(learner)
    for network in learner.networks:
        network.eval()
    seen = toy.watch(learner)
    target, _ = refine(learner, 0, 3, batch())
    assert torch.equal(target[:B], seen[0][1].target)


@pytest.mark.parametrize("order", ["base", "trace"])
def test_an_epoch_on_the_device_gives_what_a_number_gives(order):
    b = batch(progress=0.5)
    for epoch in (0, 2, 3, 4, 9):
        losses = []
        for given in (epoch, torch.tensor(epoch)):
            learner = make(Trace(start=3, ramp=2), trace_order=order)
            random_posteriors(learner)
            learner.memory["structure"] = torch.linspace(0, 1, 20)
            losses.append(float(learner.step(0, given, b).loss.detach()))
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_trace_weighs_unlabelled_rows_by_their_guess():
    b = batch().beside

    def weights(controller, epoch=5, **settings):
        learner = make(controller, **settings)
        for network in learner.networks:
            network.eval()
            with torch.no_grad():
                network.fc.weight *= 10
        target, weight = guess(learner, epoch, b)
        assert torch.equal(weight[:B], weight[B:])
        return target[:B], weight[:B]

    target, weight = weights(Trace(w_min=0.4, **STARTED))
    strength = target.amax(1).clamp_min(0.4)
    assert torch.allclose(weight, strength / strength.mean()) and not torch.allclose(weight, torch.ones(B))
    for controller, changes in (
        (Coupled(), {}),
        (Trace(**STARTED), {"trace_unlabelled": False}),
        (Trace(start=6, ramp=0), {}),
        (Trace(reweight=False, **STARTED), {}),
        (Trace(pseudo_gate=False, **STARTED), {}),
    ):
        same, ones = weights(controller, **changes)
        assert torch.equal(ones, torch.ones(B)) and torch.equal(same, target)


def test_trace_weights_of_labelled_rows_have_mean_1():
    learner = make(Trace(structure=False, **STARTED))
    random_posteriors(learner)
    _, weight = refine(learner, 1, 9, batch())
    assert float(weight.mean()) == pytest.approx(1) and len(weight) == 2 * B


def test_structure_of_the_training_batch_is_the_trained_networks():
    learner = make(Trace(scope="batch", k=3, **STARTED))
    random_posteriors(learner)
    seen = toy.watch(learner)
    refine(learner, 0, 9, batch())
    structure = seen[0][0].structure
    assert structure.shape == (B,) and 0 <= float(structure.min()) < float(structure.max()) <= 1


def test_structure_of_the_training_batch_is_the_mean_over_both_views():
    learner, b = make(Trace(scope="batch", k=3, **STARTED)), batch()
    random_posteriors(learner)
    views = [b.inputs, b.inputs.flip(1)]
    learner.two_views = lambda half: views
    learner.networks[0].eval()
    seen = toy.watch(learner)
    refine(learner, 0, 9, b)
    with torch.no_grad():
        features = [learner.networks[0](view).features for view in views]
    each = [structure_confidence(relation_drift(stages, 3), 5.0) for stages in features]
    assert torch.allclose(seen[0][0].structure, (each[0] + each[1]) / 2, atol=1e-5)
    assert not torch.allclose(each[0], each[1], atol=1e-2)


def test_a_sample_that_nothing_speaks_for_keeps_its_guess():
    learner = make(Trace(structure=False, rho=1e4, **STARTED))
    learner.memory["posterior"] = torch.zeros(20, 2)
    target, _ = refine(learner, 0, 9, batch())
    assert torch.isfinite(target).all() and torch.allclose(target.sum(1), torch.ones(2 * B))
    assert torch.isfinite(learner.step(0, 9, batch()).loss)


def test_learning_rate():
    learner = make()
    assert [learner.learning_rate(e) for e in (0, 149, 150, 299)] == pytest.approx([0.02, 0.02, 0.002, 0.002])
    twice = make(lr=0.002, lr_drop=10, lr_second_drop=20)
    assert [twice.learning_rate(e) for e in (9, 10, 19, 20)] == pytest.approx([2e-3, 2e-4, 2e-4, 2e-5])


def test_warm_up_entropy():
    b = batch()
    plain, damped = make().warmup_step(0, b), make(warmup_entropy=1.0).warmup_step(0, b)
    assert float(damped.loss.detach()) < float(plain.loss.detach())


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("cifar", (300, 10, 64, 25.0, 0.5, 4.0, True)),
        ("cifar100", (300, 30, 64, 150.0, 0.5, 4.0, True)),
        ("cifar10n", (300, 10, 64, 25.0, 0.5, 4.0, True)),
        ("cifar100n", (300, 30, 64, 150.0, 0.5, 4.0, True)),
        ("oracle_cifar10n_low", (300, 10, 64, 0.0, 0.5, 4.0, True)),
        ("oracle_cifar10_20", (300, 10, 64, 0.0, 0.5, 4.0, True)),
        ("oracle_cifar10_90", (300, 10, 64, 50.0, 0.6, 4.0, True)),
        ("oracle_cifar100_20", (300, 30, 64, 25.0, 0.5, 4.0, True)),
        ("webvision", (100, 1, 32, 0.0, 0.5, 0.5, False)),
        ("food101n", (30, 1, 32, 0.0, 0.5, 0.5, False)),
        ("clothing1m", (80, 1, 32, 0.0, 0.5, 0.5, False)),
    ],
)
def test_recipes(preset, wanted):
    s, _ = resolve(DivideMixSettings, DivideMix.presets[preset], {}, None)
    assert (s.epochs, s.warmup, s.batch_size, s.lambda_u, s.threshold, s.alpha, s.unlabelled) == wanted
    structured = preset in ("clothing1m", "cifar10n", "cifar100n", "oracle_cifar10n_low")
    assert s.warmup_entropy == structured


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("cifar", (0.02, 150, 0, 5e-4, 128)),
        ("cifar100", (0.02, 150, 0, 5e-4, 128)),
        ("clothing1m", (0.002, 40, 0, 1e-3, 64)),
        ("webvision", (0.01, 50, 0, 5e-4, 64)),
        ("large", (0.01, 40, 0, 5e-4, 64)),
        ("food101n", (0.002, 10, 20, 5e-4, 64)),
    ],
)
def test_recipes_of_the_optimizer(preset, wanted):
    s, _ = resolve(DivideMixSettings, DivideMix.presets[preset], {}, None)
    assert (s.lr, s.lr_drop, s.lr_second_drop, s.weight_decay, s.warmup_batch_size) == wanted
    assert (s.momentum, s.lr_factor, s.temperature, s.lambda_u_ramp, s.lambda_p) == (0.9, 0.1, 0.5, 16, 1)


def test_published_cells():
    """λ_u of the paper's table 7; at 90 % also the threshold and the window, with asymmetric noise the entropy."""
    cells = {(10, "20"): 0, (10, "50"): 25, (10, "80"): 25, (10, "90"): 50, (10, "asymmetric_40"): 0}
    cells |= {(100, "20"): 25, (100, "50"): 150, (100, "80"): 150, (100, "90"): 150}
    for (classes, noise), lambda_u in cells.items():
        s, _ = resolve(DivideMixSettings, DivideMix.presets[f"oracle_cifar{classes}_{noise}"], {}, None)
        assert (s.lambda_u, s.warmup) == (lambda_u, 10 if classes == 10 else 30)
        assert (s.threshold, s.loss_window) == ((0.6, 5) if noise == "90" else (0.5, 1))
        assert s.warmup_entropy == (noise == "asymmetric_40")


def test_only_oracle_recipes_know_the_noise():
    knowing = {"loss_window", "threshold"}
    for name, preset in DivideMix.presets.items():
        assert name.startswith("oracle") or not knowing & set(preset.values)
    shorter, _ = resolve(DivideMixSettings, DivideMix.presets["cifar"], {}, 30)
    assert (shorter.warmup, shorter.lr_drop, shorter.lambda_u_ramp, shorter.lr_second_drop) == (1, 15, 2, 0)


@pytest.mark.parametrize(
    "bad", [{"threshold": 1.0}, {"temperature": 0.0}, {"trace_order": "both"}, {"alpha": -1.0}, {"passes": 0}]
)
def test_settings_out_of_range(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        DivideMixSettings(**bad)


@pytest.mark.parametrize("clean", [1, 95])
def test_a_run_goes_on_with_one_labelled_or_one_unlabelled_sample(tmp_path, monkeypatch, clean):
    from labeltrace.scoring import ScorePass

    finish = ScorePass.finish

    def rigged(self, *args, **kwargs):
        scores = finish(self, *args, **kwargs)
        posterior = (torch.arange(scores.loss.shape[1]) < clean).float().repeat(2, 1)
        return dataclasses.replace(scores, posterior=posterior)

    monkeypatch.setattr(ScorePass, "finish", rigged)
    trained = train(toy.config("dividemix", controller="trace", epochs=3), tmp_path / "run", dataset=toy.blobs())
    steps = trained.metrics[-1]["phases"]["train A"]["steps"]
    assert steps == 2 * math.ceil(clean / 16) and torch.isfinite(toy.weights(trained)).all()


def test_an_epoch_without_a_clean_sample_is_in_the_record(tmp_path, monkeypatch):
    from labeltrace.scoring import ScorePass

    finish = ScorePass.finish
    monkeypatch.setattr(
        ScorePass,
        "finish",
        lambda self, **o: dataclasses.replace(s := finish(self, **o), posterior=torch.zeros_like(s.posterior)),
    )
    trained = train(toy.config("dividemix", controller="coupled", epochs=2), tmp_path / "run", dataset=toy.blobs())
    assert trained.metrics[1]["notes"] == [
        "A rests, its peer holds no label clean; B rests, its peer holds no label clean"
    ]


def test_some_samples_an_epoch(tmp_path):
    trace = {"start": 0, "ramp": 0, "k": 5, "score_batch": 16}
    config = toy.config("dividemix", controller="trace", trace=trace, epochs=3, epoch_samples=48)
    data = toy.blobs()
    trained = train(config, tmp_path / "run", dataset=data.with_labels(data.train.labels, truth=None))
    assert torch.isfinite(toy.weights(trained)).all() and not trained.judgement.clean.isnan().any()
