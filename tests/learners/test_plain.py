"""What the learners that differ in their loss alone have in common."""

import pytest
import torch

import toy
from labeltrace.learners import ELR, GCE, SCE, CrossEntropy
from labeltrace.learners.plain import PlainSettings, TwoDropSettings

EVERY = [CrossEntropy, GCE, SCE, ELR]
P = torch.tensor([[0.6, 0.3, 0.1]])


def test_settings_of_cross_entropy_keep_their_order():
    """Runs are recognised by their settings, so neither names nor order may change."""
    settings = CrossEntropy.settings_type()
    assert vars(settings) == {
        "epochs": 100,
        "warmup": 0,
        "batch_size": 128,
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "passes": 1,
        "lr_drop": 60,
        "lr_factor": 0.1,
    }
    named = ["epochs", "warmup", "batch_size", "lr", "momentum", "weight_decay", "passes", "lr_drop", "lr_factor"]
    assert list(vars(settings)) == named


@pytest.mark.parametrize("kind", EVERY)
def test_an_epoch_is_one_phase_over_all_samples(kind):
    loop = toy.Loop()
    toy.learner(kind, passes=3).epoch(loop, 0)
    assert loop.calls == [{"members": [0], "batch_size": 8, "label": "train", "passes": 3}]


@pytest.mark.parametrize("kind", EVERY)
def test_a_loss_is_in_float32_whatever_the_network_says(kind):
    learner = toy.learner(kind, networks=[toy.Fixed(P.log().bfloat16())])
    outcome = learner.step(toy.random_batch())
    assert outcome.loss.dtype == torch.float32
    assert all(value.dtype == torch.float32 and not value.requires_grad for value in outcome.logs.values())
    outcome.loss.backward()
    assert torch.isfinite(learner.networks[0].logits.grad).all()


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("label", [0, 1])
def test_certain_predictions_right_or_wrong_have_a_finite_loss(kind, label):
    logits = torch.tensor([[80.0, -80.0, -80.0]])
    learner = toy.learner(kind, networks=[toy.Fixed(logits)])
    drawn = toy.random_batch()
    for draws in (0, 1):
        batch = toy.batch(drawn.index, drawn.inputs, torch.full((8,), label), seed=draws)
        loss = learner.step(batch).loss
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(learner.networks[0].logits.grad).all()


@pytest.mark.parametrize("kind", EVERY)
def test_the_order_of_a_batch_and_the_names_of_classes_do_not_matter(kind):
    order, classes = torch.tensor([3, 1, 2, 0]), torch.tensor([2, 0, 1])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    observed = torch.tensor([0, 2, 1, 1])

    def loss(logits, observed):
        """The second step, so that a memory of the first counts."""
        learner = toy.learner(kind, networks=[toy.Fixed(logits)])
        index, inputs = torch.arange(4), torch.zeros(4, 4)
        return [float(learner.step(toy.batch(index, inputs, observed, seed=s)).loss) for s in (0, 1)]

    assert loss(logits[order], observed[order]) == pytest.approx(loss(logits, observed), abs=1e-6)
    assert loss(logits[:, classes], classes.argsort()[observed]) == pytest.approx(loss(logits, observed), abs=1e-6)


def test_drops():
    settings = TwoDropSettings(lr_drop=40, lr_drop_again=80)
    assert settings.drops == (40, 80)
    assert TwoDropSettings(lr_drop=40, lr_drop_again=0).drops == PlainSettings(lr_drop=40).drops == (40,)


@pytest.mark.parametrize("bad", [{"passes": 0}, {"lr_drop_again": -1}, {"epochs": 0}])
def test_settings_that_do_not_fit(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*expected"):
        TwoDropSettings(**bad)
