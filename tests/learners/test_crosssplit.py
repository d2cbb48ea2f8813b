"""CrossSplit: the unit facts of its page (part 10), its split, its step against a slow loop, where TRACE attaches."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import saved
import toy
from labeltrace import Coupled, Trace
from labeltrace.control.schedule import ramp
from labeltrace.data import from_arrays
from labeltrace.engine import train
from labeltrace.learners import CrossSplit
from labeltrace.learners.contrastive import nt_xent
from labeltrace.learners.crosssplit import CrossSplitSettings
from labeltrace.learners.divergence import label_divergence
from labeltrace.learners.heads import NormProjected
from labeltrace.learners.mixing import permutation
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import prior_penalty, sharpen, squared_error
from labeltrace.scoring import Scores

B, C = 8, 3
STARTED = {"start": 0, "ramp": 0}

make = partial(toy.learner, CrossSplit)


def batch(progress=0.0, beside=True, size=B):
    rest = toy.random_batch(size, seed=1, first=size, draws=5) if beside else None
    return toy.random_batch(size, beside=rest, progress=progress)


def wide_ranges(learner, seed=2):
    """Ranges that leave most divergences inside, and another for each network and class."""
    low = 0.1 * torch.rand(2, C, generator=torch.Generator().manual_seed(seed))
    learner.ranges.copy_(torch.stack([low, low + 0.55], 1))
    return learner


def soften(learner, predicted, observed, epoch, member=0):
    """Target and weight of samples whose peer says `predicted`."""
    observed = torch.tensor(observed)
    b = toy.batch(torch.arange(len(observed)), torch.zeros(len(observed), 4), observed)
    return learner.soften(member, epoch, b, torch.tensor(predicted), [])


def scores_of(loss, agree=None):
    rows = loss.shape[1]
    agree = torch.arange(rows) % 2 == 0 if agree is None else agree
    ones = torch.ones_like(loss)
    return Scores(loss, ones, ones, ones, torch.zeros(rows).long(), ones[0], agree)


def random_scores(rows=20, seed=0):
    return scores_of(3 * torch.rand(2, rows, generator=torch.Generator().manual_seed(seed)))


# The facts


@pytest.mark.parametrize(
    ("predicted", "epoch", "clean", "mixed", "sharpened"),
    [
        ([0.1, 0.8, 0.1], 0, 1 - 0.70560, [0.3650, 0.5645, 0.0706], [0.2916, 0.6975, 0.0109]),
        ([0.1, 0.8, 0.1], 30, 1 - 0.84266, [0.2416, 0.6741, 0.0843], [0.1123, 0.8741, 0.0137]),
        ([0.7, 0.2, 0.1], 0, 1 - 0.29728, [0.9108, 0.0595, 0.0297], [0.9947, 0.0042, 0.0011]),
    ],
)
def test_facts_2_and_3_a_softened_label(predicted, epoch, clean, mixed, sharpened):
    learner = make(Coupled())
    learner.ranges.copy_(torch.tensor([0.02, 0.62])[None, :, None].expand(2, 2, C))
    seen = toy.watch(learner)
    target, weight = soften(learner, [predicted], [0], epoch)
    evidence, supervision = seen[0]
    assert float(evidence.clean) == pytest.approx(clean, abs=1e-5)
    assert supervision.target[0].tolist() == pytest.approx(mixed, abs=1e-4)
    assert target[0].tolist() == pytest.approx(sharpened, abs=1e-4) and weight.tolist() == [1]
    assert torch.equal(evidence.pseudo[0], torch.tensor(predicted))  # before sharpening


def test_fact_4_schedules():
    learner = make()
    s = learner.settings
    assert (s.warmup, s.epochs, s.lambda_u, s.lambda_u_ramp) == (10, 300, 30, 16)
    counted = [learner.controller_epoch(t) for t in (10, 29, 30, 39, 40)]
    assert [learner.gamma(t) for t in counted] == [0.6, 0.6, 0.8, 0.8, 1.0]
    assert [float(learner.gamma(torch.tensor(t))) for t in counted] == pytest.approx([0.6, 0.6, 0.8, 0.8, 1.0])
    ramps = [30 * ramp(learner.controller_epoch(t), 0, s.lambda_u_ramp) for t in (10, 14, 18, 26, 30)]
    assert ramps == [0, 7.5, 15, 30, 30]
    rates = [learner.learning_rate(t) for t in (0, 10, 150, 300)]
    assert rates == pytest.approx([0.1, 0.09973, 0.051, 0.002], abs=5e-6)


def test_fact_5_terms():
    assert float(nt_xent(torch.ones(4, 3), torch.ones(4, 3), 0.05)) == pytest.approx(1.94591, abs=1e-5)
    assert float(nt_xent(torch.eye(4), torch.eye(4), 0.05)) == pytest.approx(0, abs=1e-6)
    assert float(prior_penalty(torch.tensor([[0.5, 0.3, 0.2]]).log())) == pytest.approx(0.07024, abs=1e-5)
    assert float(prior_penalty(torch.zeros(2, 3))) == pytest.approx(0, abs=1e-6)
    error = squared_error(torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.eye(3)[:1])
    assert float(error) == pytest.approx(0.04667, abs=1e-5)


@pytest.mark.parametrize("t", [10, 14.5, 18, 26, 30])
def test_the_loss_is_the_sum_of_its_terms(t):
    learner = wide_ranges(make())
    epoch = learner.controller_epoch(math.floor(t))
    outcome = learner.step(0, epoch, batch(progress=t % 1))
    logs, lambda_u = outcome.logs, 30 * min(max((t - 10) / 16, 0), 1)
    wanted = logs["fit"] + logs["prior"] + lambda_u * logs["guess"] + 0.025 * logs["contrast"]
    assert float(outcome.loss.detach()) == pytest.approx(float(wanted), rel=1e-5)
    alone = learner.step(0, epoch, batch(beside=False))
    assert set(alone.logs) == {"fit", "prior"}
    assert float(alone.loss.detach()) == pytest.approx(float(alone.logs["fit"] + alone.logs["prior"]), rel=1e-6)


# A step


@pytest.mark.parametrize("controller", [None, Trace(structure=False, **STARTED)])
def test_a_step_is_that_of_a_slow_loop(controller):
    """Recomputed sample by sample, in eval mode, where a row does not depend on its batch."""
    learner, b = wide_ranges(make(controller)), batch(progress=0.25)
    learner.memory["agree"] = torch.arange(20) % 3 > 0
    f, g = (network.eval() for network in learner.networks)
    s, epoch, every = learner.settings, 25, 2
    rest = b.beside
    views = learner.views
    with torch.no_grad():
        rows, targets, weights, strong = [], [], [], []
        weak = [g(views.weak(b.inputs, b.draws.fork(k))).logits.softmax(1) for k in (0, 1)]
        px = (weak[0] + weak[1]) / 2
        soft, strength = [], []
        for i in range(B):
            y = int(b.observed[i])
            low, high = learner.ranges[1, :, y].tolist()  # of the peer
            n = (float(label_divergence(px[i, y])) - low) / (high - low)
            beta = 0.8 * (min(max(n, 0), 1) - 0.5) + 0.5
            label = F.one_hot(torch.tensor(y), C).float()
            if controller is None:
                soft.append(beta * px[i] + (1 - beta) * label)
                strength.append(1.0)
            else:
                a = (1 - beta) * (1.0 if int(b.index[i]) % 3 > 0 else 0.5)
                own = (1 - a) * float(px[i].max())
                soft.append((a * label + own * px[i]) / (a + own + 1e-8))
                strength.append(max(a + own, 0.2))
        tx = sharpen(torch.stack(soft), 2.0)
        wx = torch.tensor(strength) / (sum(strength) / B)
        for k in (2, 3):
            rows.append(views.strong(b.inputs, b.draws.fork(k)))
            targets.append(tx)
            weights.append(wx)
        guesses = [f(views.weak(rest.inputs, rest.draws.fork(k))).logits.softmax(1) for k in (0, 1)]
        tu = sharpen(((guesses[0] + guesses[1]) / 2)[::every], 2.0)
        for k in (2, 3):
            strong.append(views.strong(rest.inputs, rest.draws.fork(k))[::every])
            rows.append(strong[-1])
            targets.append(tu)
            weights.append(torch.ones(B // every))
        x, t, w = torch.cat(rows), torch.cat(targets), torch.cat(weights)
        partner = permutation(b.once.fork(0), len(x)).tolist()
        share = float(learner.mixing_weight(b.once.fork(1)))
        mixed = [share * w[i] + (1 - share) * w[j] for i, j in enumerate(partner)]
        labelled = 2 * B
        mean = sum(float(v) for v in mixed[:labelled]) / labelled
        fit = guess = 0.0
        p_mean = torch.zeros(C)
        for i, j in enumerate(partner):
            p = f(share * x[i : i + 1] + (1 - share) * x[j : j + 1]).logits[0].softmax(0)
            wanted = share * t[i] + (1 - share) * t[j]
            p_mean += p / len(x)
            if i < labelled:
                fit -= float(mixed[i]) / mean * float((wanted * p.log()).sum()) / labelled
            else:
                guess += float(((p - wanted) ** 2).sum()) / C / (len(x) - labelled)
        prior = sum(1 / C * math.log(1 / C / float(p_mean[c])) for c in range(C))
        contrast = float(nt_xent(f(strong[0], branch="project"), f(strong[1], branch="project"), 0.05))
        logs = learner.step(0, epoch, b).logs
    assert len(x) == 2 * B + B and s.alpha == 4
    for name, value in {"fit": fit, "guess": guess, "prior": prior, "contrast": contrast}.items():
        assert float(logs[name]) == pytest.approx(value, abs=2e-5), name


@pytest.mark.parametrize(("every", "unlabelled"), [(1, 8), (2, 4), (3, 3), (100, 2)])
def test_of_the_second_list_a_fixed_part_is_used(every, unlabelled):
    learner = wide_ranges(make(labelled_per_unlabelled=every))
    sizes = []
    learner.networks[0].body.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    learner.step(0, 0, batch())
    assert sizes == [unlabelled] * 4 + [2 * (B + unlabelled)]
    sizes.clear()
    learner.step(0, 0, batch(beside=False))
    assert sizes == [2 * B]


@pytest.mark.parametrize(("size", "unlabelled"), [(1, 1), (2, 2), (3, 2)])
def test_a_small_batch_keeps_two_unlabelled_rows_where_there_are_two(size, unlabelled):
    assert len(make().thin(batch(size=size).beside).index) == unlabelled


def test_the_peer_stays_as_it_is_while_the_other_is_trained():
    learner = wide_ranges(make())
    f, g = learner.networks
    f.train()
    g.eval()
    before = {name: value.clone() for name, value in g.state_dict().items()}
    learner.step(0, 30, batch()).loss.backward()
    assert all(p.grad is not None for p in f.parameters()) and all(p.grad is None for p in g.parameters())
    assert all(torch.equal(value, before[name]) for name, value in g.state_dict().items())


def test_running_statistics_move_with_each_forward_of_the_trained_network():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, C)

        def forward(self, x):
            from labeltrace.models.output import Output

            x = self.norm(x)
            return Output(self.fc(x), (x,))

    networks = [NormProjected(Normed(), 4, 16) for _ in range(2)]
    learner = wide_ranges(make(networks=networks))
    networks[0].train()
    networks[1].eval()
    learner.step(0, 0, batch())
    assert [int(n.body.norm.num_batches_tracked) for n in networks] == [5, 0]
    assert [int(n.project[1].num_batches_tracked) for n in networks] == [2, 0]
    learner.step(0, 0, batch(beside=False))
    assert int(networks[0].body.norm.num_batches_tracked) == 6  # a softened label needs the peer alone


def test_no_gradient_reaches_a_target():
    learner = wide_ranges(make(Trace(structure=False, **STARTED)))
    b = batch()
    made = learner.targets(0, 30, [b, b.beside])
    assert not any(values.requires_grad for pair in made for values in pair)


def test_labels_of_the_other_half_are_never_looked_at():
    learner, b = wide_ranges(make(Trace(structure=False, **STARTED))), batch()
    for network in learner.networks:
        network.eval()
    other = dataclasses.replace(b, beside=dataclasses.replace(b.beside, observed=(b.beside.observed + 1) % C))
    assert torch.equal(learner.step(0, 50, b).loss, learner.step(0, 50, other).loss)


def test_colour_images_get_the_policy_and_all_else_the_datasets_own_view():
    asked = []

    class Watched:
        def strong(self, inputs, draws, policy=None):
            asked.append((policy, draws.keys.tolist()))
            return inputs

    learner = make()
    learner.views = Watched()
    inputs = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    colour = toy.batch(torch.arange(4), inputs, torch.zeros(4).long())
    for given in (colour, dataclasses.replace(colour, inputs=inputs[:, :1]), batch()):
        learner.two_strong(given)
    assert [policy for policy, _ in asked] == ["autoaugment"] * 2 + [None] * 4
    assert asked[0][1] != asked[1][1]  # two views, not the same twice
    own = make(policy="")
    own.views = learner.views
    own.two_strong(colour)
    assert asked[-1][0] is None


# The split


def calls_of(learner, epoch=10, **loop):
    loop = toy.Loop(scores=loop.pop("scores", None) or random_scores(), **loop)
    learner.epoch(loop, epoch)
    return loop


@pytest.mark.parametrize("size", [1, 2, 7, 20, 5000])
def test_halves_are_disjoint_cover_everything_and_belong_to_the_seed(size):
    learner = make(size=size)
    second = learner.halve(3)
    assert int(second.sum()) == size // 2 and len(second) == size
    assert torch.equal(second, learner.halve(3)) and torch.equal(second, make(size=size).halve(3))
    if size == 5000:
        assert 0.4 < float((second == learner.halve(4)).float().mean()) < 0.6
        early = float(second[:2500].float().mean())  # nothing to do with the order of the samples
        assert 0.45 < early < 0.55


def test_each_network_is_taught_its_half_and_meets_the_other_without_labels():
    learner = make()
    first, second = calls_of(learner).calls
    assert (first["members"], second["members"]) == ([0], [1]) and first["batch_size"] == B
    assert torch.equal(first["index"], second["beside"]) and torch.equal(second["index"], first["beside"])
    assert sorted(first["index"].tolist() + second["index"].tolist()) == list(range(20))
    assert len(first["index"]) == 10
    again = calls_of(learner, 11).calls
    assert torch.equal(again[0]["index"], first["index"])
    other = calls_of(make(), seed=1).calls
    assert not torch.equal(other[0]["index"], first["index"])


def test_without_a_split_both_lists_are_the_whole_set():
    calls = calls_of(make(split="none")).calls
    assert [c["members"] for c in calls] == [[0], [1]]
    assert all(c[name].tolist() == list(range(20)) for c in calls for name in ("index", "beside"))


def test_a_sample_stays_in_its_half_when_an_epoch_takes_some():
    learner = make()
    whole = set(calls_of(learner).calls[0]["index"].tolist())
    some = torch.tensor([1, 4, 5, 9, 12, 18])
    loss = torch.full((2, 20), torch.nan)
    loss[:, some] = torch.rand(2, 6)
    first, second = calls_of(learner, scores=scores_of(loss), some=some).calls
    assert sorted(first["index"].tolist() + second["index"].tolist()) == some.tolist()
    assert set(first["index"].tolist()) == whole & set(some.tolist())
    assert torch.isfinite(learner.ranges).all()


def test_an_empty_half_rests_and_says_so():
    learner = make()
    alone = calls_of(learner).calls[0]["index"][:1]
    loss = torch.full((2, 20), torch.nan)
    loss[:, alone] = 0.5
    loop = calls_of(learner, scores=scores_of(loss), some=alone)
    assert [c["members"] for c in loop.calls] == [[0]] and not len(loop.calls[0]["beside"])
    assert loop.notes == ["A has no unlabelled part, the other half holds no sample; B rests, its half holds no sample"]


def test_warm_up_walks_all_labels_network_after_network():
    loop = calls_of(make(), 9)
    assert [(c["members"], c["batch_size"], c["label"]) for c in loop.calls] == [
        ([0], 512, "warm-up A"),
        ([1], 512, "warm-up B"),
    ]
    assert all(c.get("index") is None for c in loop.calls) and not loop.views


def test_the_split_of_a_resumed_run_is_that_of_the_run(tmp_path, monkeypatch):
    data, seen, lists = toy.blobs(), [], CrossSplit.lists

    def watched(self, chosen):
        seen.append(lists(self, chosen))
        return seen[-1]

    monkeypatch.setattr(CrossSplit, "lists", watched)
    config = toy.config("crosssplit", controller="coupled")
    train(config, tmp_path / "run", dataset=data)
    with toy.killed_in(CrossSplit, 2):
        train(config.model_copy(update={"checkpoint_seconds": 0.0}), tmp_path / "cut", dataset=data)
    train(config, tmp_path / "cut", dataset=data, resume=True)
    first = seen[0]
    assert len(seen) == 6  # three epochs after warm-up, in one go and in two
    assert all(torch.equal(a, b) for one in seen for a, b in zip(_flat(one), _flat(first), strict=True))
    second = saved.checkpoint(tmp_path / "cut")["memory"]["second"]
    assert torch.equal(second.nonzero()[:, 0], first[1][0])


def _flat(lists):
    return [part for pair in lists for part in pair]


# Scores


def test_the_ranges_of_an_epoch_are_those_of_its_scoring_pass():
    learner, scores = make(), random_scores()
    loop = calls_of(learner, scores=scores)
    assert loop.views == ["plain"]
    for member in (0, 1):
        for c in range(C):
            of_class = [label_divergence(torch.exp(-scores.loss[member, i])) for i in range(20) if i % 3 == c]
            assert torch.equal(learner.ranges[member, :, c], torch.stack([min(of_class), max(of_class)]))
    assert learner.memory["agree"].tolist() == [i % 2 == 0 for i in range(20)]
    place = learner.ranges.data_ptr()
    calls_of(learner, 11, scores=random_scores(seed=1))
    assert learner.ranges.data_ptr() == place  # a captured step reads it


def test_a_label_is_judged_by_the_ranges_and_predictions_of_the_peer():
    learner = make(Coupled())
    learner.ranges.copy_(torch.tensor([[0.0, 0.6], [0.0, 0.3]])[:, :, None].expand(2, 2, C))
    seen = toy.watch(learner)
    for member in (0, 1):
        soften(learner, [[0.7, 0.2, 0.1]], [0], 30, member)
    j = 0.11728
    assert [float(e.clean) for e, _ in seen] == pytest.approx([1 - j / 0.3, 1 - j / 0.6], abs=1e-4)


def test_the_table_asks_the_network_that_is_not_taught_the_label():
    scores = random_scores()
    learner, both = make(), make(split="none")
    calls_of(learner, 40, scores=scores)
    calls_of(both, 40, scores=scores)
    of_each = torch.zeros(2, 20)
    for member in (0, 1):
        for i in range(20):
            low, high = learner.ranges[member, :, i % 3].tolist()
            of_each[member, i] = 1 - (float(label_divergence(torch.exp(-scores.loss[member, i]))) - low) / (high - low)
    second = learner.memory["second"]
    assert torch.allclose(learner.cleanliness(scores), torch.where(second, of_each[0], of_each[1]), atol=1e-5)
    assert torch.allclose(both.cleanliness(scores), of_each.mean(0), atol=1e-5)


def test_equal_losses_and_a_single_class_give_half():
    equal = scores_of(torch.full((2, 20), 0.7))
    for labels in (None, torch.zeros(20).long()):
        learner = make()
        calls_of(learner, scores=equal, labels=labels)
        assert learner.cleanliness(equal).eq(0.5).all()
        assert torch.isfinite(learner.step(0, 0, batch()).loss)


# TRACE


def test_trace_before_its_start_is_the_base():
    b, losses = batch(), []
    for controller in (None, Coupled(), Trace(structure=True, start=3, ramp=2)):
        learner = wide_ranges(make(controller))
        losses.append([learner.step(m, e, b).loss for m in (0, 1) for e in (0, 2)])
    assert losses[0] == losses[1] == losses[2]


def test_an_epoch_on_the_device_gives_what_a_number_gives():
    b = batch(progress=0.5)
    for epoch in (0, 2, 3, 4, 25, 35):
        losses = []
        for given in (epoch, torch.tensor(epoch)):
            learner = wide_ranges(make(Trace(start=3, ramp=2)))
            learner.memory["structure"] = torch.linspace(0, 1, 20)
            losses.append(float(learner.step(0, given, b).loss.detach()))
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_traces_target_is_sharpened_as_the_bases_is():
    learner = wide_ranges(make(Trace(structure=False, **STARTED)))
    seen = toy.watch(learner)
    target, weight = soften(learner, [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], [0, 0], 30)
    supervision = seen[0][1]
    assert torch.allclose(target, sharpen(supervision.target, 2.0)) and torch.equal(weight, supervision.weight)
    assert float(weight.mean()) == pytest.approx(1) and not torch.allclose(weight, torch.ones(2))


def test_where_nothing_is_trusted_the_prediction_stands():
    learner = make(Trace(structure=False, rho=1e4, **STARTED))
    learner.ranges.copy_(torch.tensor([0.0, 0.1])[None, :, None].expand(2, 2, C))
    predicted = [[0.1, 0.5, 0.4]]
    target, _ = soften(learner, predicted, [0], 30)
    assert torch.allclose(target, sharpen(torch.tensor(predicted), 2.0))
    assert torch.isfinite(learner.step(0, 30, batch()).loss)


def test_structure_of_the_training_batch_is_the_peers():
    learner = wide_ranges(make(Trace(scope="batch", k=3, **STARTED)))
    seen, trained, peer = toy.watch(learner), [], []
    for network, sizes in zip(learner.networks, (trained, peer), strict=True):
        network.body.register_forward_pre_hook(lambda _, inputs, sizes=sizes: sizes.append(len(inputs[0])))
    learner.targets(0, 9, [batch()])
    structure = seen[0][0].structure
    assert structure.shape == (B,) and 0 <= float(structure.min()) < float(structure.max()) <= 1
    assert trained == [] and peer == [2 * B]  # nothing is looked at for its sake


# Settings and runs


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("cifar", (300, 10, 256, 512, 0.1, "disjoint")),
        ("cifar100", (300, 30, 256, 512, 0.1, "disjoint")),
        ("released", (300, 10, 256, 512, 0.1, "none")),
        ("small", (40, 4, 64, 64, 0.02, "disjoint")),
        ("large", (80, 1, 32, 64, 0.01, "disjoint")),
    ],
)
def test_recipes(preset, wanted):
    s, _ = resolve(CrossSplitSettings, CrossSplit.presets[preset], {}, None)
    assert (s.epochs, s.warmup, s.batch_size, s.warmup_batch_size, s.lr, s.split) == wanted
    assert s.warmup_entropy == 0


def test_epochs_shrink_with_a_shorter_run():
    s, _ = resolve(CrossSplitSettings, CrossSplit.presets["cifar"], {}, 30)
    assert (s.warmup, s.gamma_rise, s.gamma_rise_again, s.lambda_u_ramp) == (1, 2, 3, 2)


@pytest.mark.parametrize(
    "bad",
    [
        {"split": "half"},
        {"policy": "randaugment"},
        {"labelled_per_unlabelled": 0},
        {"temperature": 0.0},
        {"contrast_temperature": 0.0},
        {"alpha": -1.0},
        {"lambda_c": -1.0},
        {"gamma": 1.1},
        {"gamma_rise_again": 5},
        {"lr_floor": 2.0},
        {"loss_window": 5},
        {"passes": 0},
    ],
)
def test_settings_out_of_range(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        CrossSplitSettings(**bad)


def test_a_projection_is_as_wide_as_asked_and_leaves_the_classifier_alone():
    learner = make(head_width=5)
    network, x = learner.networks[0], torch.randn(6, 4)
    assert network(x, branch="project").shape == (6, 5) and network(x).logits.shape == (6, C)
    assert torch.equal(network.eval()(x).logits, network.body(x).logits)
    with pytest.raises(ValueError, match="known are classify, project"):
        network(x, branch="predict")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("split", ["disjoint", "none"])
@pytest.mark.parametrize("controller", ["coupled", "trace"])
def test_odd_data_runs(tmp_path, controller, split):
    rng = np.random.default_rng(0)
    equal = from_arrays(np.ones((9, 4)), np.arange(9) % 3)  # all losses of a class equal
    alone = from_arrays(rng.normal(size=(12, 4)), np.zeros(12, dtype=int), classes=range(2))
    rare = from_arrays(rng.normal(size=(14, 4)), np.array([0] * 9 + [1] * 4 + [2]))
    two = from_arrays(rng.normal(size=(2, 4)), np.array([0, 1]))
    for number, data in enumerate((equal, alone, rare, two)):
        config = toy.config("crosssplit", controller=controller, settings={"split": split})
        trained = train(config, tmp_path / str(number), dataset=data)
        assert torch.isfinite(toy.weights(trained)).all()


def test_an_epoch_of_one_sample_is_in_the_record(tmp_path):
    config = toy.config("crosssplit", controller="coupled", epochs=2, epoch_samples=1)
    trained = train(config, tmp_path / "run", dataset=toy.pictures(count=12))
    assert "rests, its half holds no sample" in trained.metrics[1]["notes"][0]
    assert torch.isfinite(toy.weights(trained)).all()


def test_some_samples_an_epoch(tmp_path):
    trace = {"start": 0, "ramp": 0, "k": 5, "score_batch": 16}
    config = toy.config("crosssplit", controller="trace", trace=trace, epochs=3, epoch_samples=48)
    data = toy.blobs()
    trained = train(config, tmp_path / "run", dataset=data.with_labels(data.train.labels, truth=None))
    assert torch.isfinite(toy.weights(trained)).all() and not trained.judgement.clean.isnan().any()
