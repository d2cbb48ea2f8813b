"""GCE: the unit facts of its page (part 11), its limits, and the truncated loss."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace.engine import train
from labeltrace.learners import GCE
from labeltrace.learners.gce import GCESettings
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import generalised_cross_entropy
from labeltrace.scoring import Scores

P = torch.tensor([[0.6, 0.3, 0.1]])
ONE = torch.tensor([1])

make = partial(toy.learner, GCE)


def recipe(preset, epochs=None, **given):
    settings, _ = resolve(GCESettings, GCE.presets[preset], given, epochs)
    return make(**vars(settings))


def scores(loss):
    """A scoring pass that found these losses [N]."""
    number = torch.zeros(len(loss), dtype=torch.int64)
    return Scores(loss[None], torch.ones(1, len(loss)), None, None, number, torch.ones(len(loss)), None)


@pytest.mark.parametrize(("q", "loss"), [(0.7, 0.81355), (1.0, 0.70)])
def test_fact_1_values(q, loss):
    assert float(generalised_cross_entropy(P.log(), ONE, q)) == pytest.approx(loss, abs=1e-5)
    learner = make(networks=[toy.Fixed(P.log())], q=q)
    drawn = toy.random_batch()
    batch = toy.batch(drawn.index, drawn.inputs, torch.ones(8, dtype=torch.int64))
    assert float(learner.step(batch).loss) == pytest.approx(loss, abs=1e-5)


def test_fact_1_a_small_power_is_cross_entropy():
    """In float32 a difference of two numbers near 1 is known to 6e-8, and 1e-4 divides it."""
    assert float(generalised_cross_entropy(P.log(), ONE, 1e-4)) == pytest.approx(1.20401, abs=1e-3)


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_fact_2_gradient_is_that_of_cross_entropy_times_a_power(q):
    robust, plain = (P.log().requires_grad_() for _ in range(2))
    generalised_cross_entropy(robust, ONE, q).sum().backward()
    F.cross_entropy(plain, ONE).backward()
    assert torch.allclose(robust.grad / plain.grad, torch.full((1, 3), 0.3**q), atol=1e-5)
    if q == 0.7:
        assert (robust.grad / plain.grad)[0].tolist() == pytest.approx([0.43051] * 3, abs=1e-5)


def test_limits():
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 5
    p = logits.softmax(1)[torch.arange(6), labels]
    assert torch.allclose(generalised_cross_entropy(logits, labels, 1.0), 1 - p, atol=1e-6)
    plain = F.cross_entropy(logits, labels, reduction="none")
    for q in (0.1, 0.01):  # −log p − q·(log p)²/2 + …
        near = generalised_cross_entropy(logits, labels, q)
        assert torch.allclose(near, plain - q * plain**2 / 2, atol=float(q**2 * plain.max() ** 3 / 6) + 1e-4)
    certain = generalised_cross_entropy(torch.tensor([[90.0, 0.0]]).repeat(2, 1), torch.tensor([0, 1]), 0.7)
    assert certain.tolist() == pytest.approx([0.0, 1 / 0.7], abs=1e-4)  # bounded, unlike cross-entropy


def test_a_step_equals_a_loop():
    learner, batch = make(), toy.random_batch()
    logits = learner.networks[0](batch.inputs).logits.detach()
    total = 0.0
    for row, label in zip(logits.tolist(), batch.observed.tolist(), strict=True):
        p = math.exp(row[label]) / sum(map(math.exp, row))
        total += (1 - p**0.7) / 0.7
    assert float(learner.step(batch).loss.detach()) == pytest.approx(total / 8, abs=1e-5)


def test_a_truncated_step_equals_a_loop():
    """Pruned samples cost L_q(k), 0.54918 for k = 0.5 and q = 0.7, and pull at nothing."""
    assert pytest.approx(0.54918, abs=1e-5) == (1 - 0.5**0.7) / 0.7
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    learner, batch = make(networks=[toy.Fixed(logits)], truncation=0.5), toy.random_batch()
    kept = torch.tensor([1, 0, 1, 1, 0, 0, 1, 0])
    learner.memory["kept"][:8] = kept.float()
    outcome = learner.step(batch)
    total = 0.0
    for row, label, flag in zip(logits.tolist(), batch.observed.tolist(), kept.tolist(), strict=True):
        p = math.exp(row[label]) / sum(map(math.exp, row))
        total += (1 - p**0.7) / 0.7 if flag else 0.54918
    assert float(outcome.loss) == pytest.approx(total / 8, abs=1e-5) and float(outcome.logs["kept"]) == 0.5
    outcome.loss.backward()
    pull = learner.networks[0].logits.grad.abs().sum(1)
    assert torch.equal(pull > 0, kept.bool())


def test_pruning_keeps_what_is_more_likely_than_k():
    """p_y > k, decided for the epoch's samples alone; a later pass may take a sample back."""
    p = torch.linspace(0.01, 0.99, 20)
    some = torch.arange(0, 20, 2)
    learner = make(truncation=0.5, prune_start=2, prune_every=3)
    for epoch in (0, 1):
        learner.epoch(toy.Loop(), epoch)  # asks for no scores
    assert bool((learner.memory["kept"] == 1).all())
    loop = toy.Loop(scores=scores(-p.log()), some=some)
    learner.epoch(loop, 2)
    expected = [float(i % 2 == 1 or p[i] > 0.5) for i in range(20)]
    assert learner.memory["kept"].tolist() == expected and loop.views == ["plain"] and loop.notes == []
    learner.epoch(toy.Loop(), 3)
    learner.epoch(toy.Loop(), 4)
    loop = toy.Loop(scores=scores(-p.flip(0).log()))
    learner.epoch(loop, 5)
    assert learner.memory["kept"].tolist() == [float(x > 0.5) for x in p.flip(0)]


def test_pruning_everything_is_said():
    learner, loop = make(truncation=0.5, prune_start=0), toy.Loop(scores=scores(torch.full((20,), 3.0)))
    learner.epoch(loop, 0)
    assert not learner.memory["kept"].any() and "no label has a probability over 0.5" in loop.notes[0]
    assert float(learner.step(toy.random_batch()).loss.detach()) == pytest.approx(0.54918, abs=1e-5)


def test_only_the_truncated_loss_remembers():
    assert make().memory.bytes_per_sample == 0 and make(truncation=0.5).memory.bytes_per_sample == 4


def test_a_truncated_run_resumes_bit_for_bit(tmp_path):
    settings = {"truncation": 0.5, "prune_start": 1, "prune_every": 2}
    whole = train(toy.config("gce", settings=settings), tmp_path / "whole", dataset=toy.blobs())
    assert whole.metrics[1]["phases"]["train"]["kept"] < 1
    config = toy.config("gce", settings=settings, checkpoint_seconds=0.0)
    with toy.killed_in(GCE, 2):
        train(config, tmp_path / "cut", dataset=toy.blobs())
    resumed = train(toy.config("gce"), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))


def test_recipes():
    rates = [recipe("cifar").learning_rate(t) for t in (0, 39, 40, 79, 80, 119)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    rates = [recipe("cifar100").learning_rate(t) for t in (79, 80, 120)]
    assert rates == pytest.approx([0.01, 0.001, 0.0001])
    small = recipe("small")
    assert [small.learning_rate(t) for t in (0, 32, 33, 60)] == pytest.approx([0.02, 0.02, 0.002, 0.002])
    assert (small.settings.epochs, small.settings.batch_size, small.settings.passes) == (40, 64, 2)
    assert recipe("truncated").settings.truncation == 0.5 and recipe("cifar").settings.truncation == 0
    short = recipe("truncated", epochs=60).settings
    assert (short.lr_drop, short.lr_drop_again, short.prune_start, short.prune_every) == (20, 40, 20, 5)
    assert not any(name.startswith("oracle") for name in GCE.presets)


@pytest.mark.parametrize(
    "bad", [{"q": 0.0}, {"q": 1.1}, {"truncation": 1.0}, {"truncation": -0.1}, {"prune_every": 0}, {"prune_start": -1}]
)
def test_settings_that_do_not_fit(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*expected"):
        GCESettings(**bad)
