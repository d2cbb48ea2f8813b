"""ELR: the unit facts of its page (part 11), its memory against a slow loop, and its limits."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace.engine import train
from labeltrace.learners import ELR
from labeltrace.learners.elr import ELRSettings
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import clamped_softmax, early_learning_penalty, temporal_target

P = torch.tensor([[0.6, 0.3, 0.1]])
NEXT = torch.tensor([[0.2, 0.7, 0.1]])

make = partial(toy.learner, ELR)


def fixed(p=P, **settings):
    return make(networks=[toy.Fixed(p.log())], **settings)


def batch(seed=0, observed=1, count=8):
    """Samples 0 … of one class; `seed` is that of a pass."""
    drawn = toy.random_batch(count)
    return toy.batch(drawn.index, drawn.inputs, torch.full((count,), observed), seed=seed)


def recipe(preset, epochs=None):
    return make(**vars(resolve(ELRSettings, ELR.presets[preset], {}, epochs)[0]))


def test_fact_3_two_steps():
    learner = fixed()
    outcome = learner.step(batch(0))
    assert torch.allclose(learner.memory["target"][:8], torch.tensor([0.18, 0.09, 0.03]), atol=1e-6)
    assert float(outcome.logs["penalty"]) == pytest.approx(-0.14850, abs=1e-5)
    assert float(outcome.loss) == pytest.approx(0.75847, abs=1e-5)
    learner.networks[0].logits.data = NEXT.log()
    outcome = learner.step(batch(1))
    assert torch.allclose(learner.memory["target"][:8], torch.tensor([0.186, 0.273, 0.051]), atol=1e-6)
    assert float(outcome.logs["penalty"]) == pytest.approx(-0.26579, abs=1e-5)
    assert float(outcome.loss) == pytest.approx(-0.44070, abs=1e-5)


def test_fact_4_gradient_of_the_regulariser():
    logits = P.log().requires_grad_()
    p = clamped_softmax(logits)
    early_learning_penalty(temporal_target(torch.zeros(1, 3), p.detach(), 0.7), p).backward()
    assert logits.grad[0].tolist() == pytest.approx([-0.02923, 0.01671, 0.01253], abs=1e-5)
    target, s = torch.tensor([[0.18, 0.09, 0.03]]), 0.138
    assert torch.allclose(logits.grad, P * (s - target) / (1 - s), atol=1e-6)


def test_no_gradient_passes_through_the_memory():
    """The gradient of a step is that of cross-entropy plus λ times that of the regulariser for a constant T."""
    learner = fixed()
    learner.step(batch()).loss.backward()
    plain = P.log().requires_grad_()
    F.cross_entropy(plain, torch.tensor([1])).backward()
    expected = plain.grad[0] + 3 * torch.tensor([-0.02923, 0.01671, 0.01253])
    assert torch.allclose(learner.networks[0].logits.grad[0], expected, atol=5e-5)
    assert not learner.memory["target"].requires_grad


def test_the_floor_of_the_regulariser():
    """A certain prediction, clamped, against a T that has become it: −6.908 for ten classes."""
    p = clamped_softmax(torch.tensor([[100.0, *[0.0] * 9]]))
    assert p[0].tolist() == pytest.approx([0.9999] + [1e-4] * 9)
    assert float(early_learning_penalty(p / p.sum(), p)) == pytest.approx(-6.908, abs=1e-3)
    learner = make(classes=10, networks=[toy.Fixed(torch.tensor([[100.0, *[0.0] * 9]]))])
    lowest = 0.0
    for seed in range(60):  # T is within 0.7^60 of its limit
        lowest = min(lowest, float(learner.step(batch(seed, observed=0)).logs["penalty"]))
    assert lowest == pytest.approx(-6.908, abs=2e-3)


def test_saturated_predictions_get_no_gradient_from_the_regulariser():
    logits = torch.tensor([[60.0, 0.0, 0.0]]).requires_grad_()
    early_learning_penalty(torch.tensor([[0.1, 0.8, 0.1]]), clamped_softmax(logits)).backward()
    assert not logits.grad.any()


def test_the_memory_equals_a_loop():
    """T_i ← β·T_i + (1 − β)·p_i/Σp_i before the loss, sample by sample; others stay as they are."""
    g = torch.Generator().manual_seed(0)
    learner = make(networks=[toy.Fixed(torch.zeros(4, 3))], beta=0.8, lambda_elr=2.0)
    rows, labels = torch.tensor([3, 11, 7, 0]), torch.tensor([0, 1, 2, 0])
    target = [[0.0] * 3 for _ in range(20)]
    for visit in range(3):
        logits = torch.randn(4, 3, generator=g) * 6
        learner.networks[0].logits.data = logits
        outcome = learner.step(toy.batch(rows, torch.zeros(4, 4), labels, seed=visit))
        loss = 0.0
        for row, label, z in zip(rows.tolist(), labels.tolist(), logits.tolist(), strict=True):
            softmax = [math.exp(v) / sum(map(math.exp, z)) for v in z]
            p = [min(max(v, 1e-4), 1 - 1e-4) for v in softmax]
            target[row] = [0.8 * t + 0.2 * v / sum(p) for t, v in zip(target[row], p, strict=True)]
            s = sum(t * v for t, v in zip(target[row], p, strict=True))
            loss += -math.log(softmax[label]) + 2 * math.log(1 - s)
        assert float(outcome.loss) == pytest.approx(loss / 4, abs=1e-4)
        assert torch.allclose(learner.memory["target"], torch.tensor(target), atol=1e-6)
    sums = learner.memory["target"].sum(1)
    assert torch.allclose(
        sums[rows], torch.full((4,), 1 - 0.8**3), atol=1e-6
    )  # not corrected for the zeros it began at


def test_a_sample_enters_once_in_a_pass():
    """One that fills up a last batch, within it or after it, is compared with T but does not change it again."""
    learner = fixed()
    twice = toy.batch(torch.tensor([4, 4]), torch.zeros(2, 4), torch.tensor([1, 1]))
    outcome = learner.step(twice)
    assert torch.allclose(learner.memory["target"][4], torch.tensor([0.18, 0.09, 0.03]), atol=1e-6)
    learner.networks[0].logits.data = NEXT.log()
    again = learner.step(toy.batch(torch.tensor([4]), torch.zeros(1, 4), torch.tensor([1])))
    assert torch.allclose(learner.memory["target"][4], torch.tensor([0.18, 0.09, 0.03]), atol=1e-6)
    assert float(outcome.logs["penalty"]) == pytest.approx(-0.14850, abs=1e-5)
    s = 0.18 * 0.2 + 0.09 * 0.7 + 0.03 * 0.1
    assert float(again.logs["penalty"]) == pytest.approx(math.log(1 - s), abs=1e-5)
    learner.step(toy.batch(torch.tensor([4]), torch.zeros(1, 4), torch.tensor([1]), seed=1))
    assert torch.allclose(learner.memory["target"][4], torch.tensor([0.186, 0.273, 0.051]), atol=1e-6)


def test_in_a_run_every_pass_enters_once(tmp_path):
    """96 samples in batches of 36: the last of each pass is filled up. Sums of T count the visits."""
    config = toy.config("elr", epochs=3, settings={"batch_size": 36, "passes": 2, "beta": 0.9})
    train(config, tmp_path / "run", dataset=toy.blobs())
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    target = saved["memory"]["target"]
    assert target.shape == (96, 3)
    assert torch.allclose(target.sum(1), torch.full((96,), 1 - 0.9**6), atol=1e-5)


def test_limits():
    """λ = 0 is cross-entropy; β = 0 compares a prediction with itself."""
    learner = fixed(lambda_elr=0.0)
    assert float(learner.step(batch()).loss) == pytest.approx(-math.log(0.3), abs=1e-5)
    learner = fixed(beta=0.0)
    expected = math.log(1 - (0.36 + 0.09 + 0.01))
    assert float(learner.step(batch()).logs["penalty"]) == pytest.approx(expected, abs=1e-5)
    assert float(early_learning_penalty(torch.zeros(2, 3), P.repeat(2, 1))) == 0


def test_a_batch_of_one():
    assert torch.isfinite(fixed().step(batch(count=1)).loss)


def test_recipes():
    cifar = recipe("cifar")
    rates = [cifar.learning_rate(t) for t in range(150)]
    cosine = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(cosine, T_0=10, eta_min=0.001)
    for rate in rates:
        assert rate == pytest.approx(schedule.get_last_lr()[0], rel=1e-6)
        cosine.step()
        schedule.step()
    hundred, known = recipe("cifar100"), recipe("oracle_asymmetric")
    assert [hundred.learning_rate(t) for t in (79, 80, 120)] == pytest.approx([2e-2, 2e-4, 2e-6])
    assert [known.learning_rate(t) for t in (39, 40, 80)] == pytest.approx([2e-2, 2e-4, 2e-6])
    published = [(0.7, 3, 150), (0.9, 7, 150), (0.9, 1, 120)]
    for learner, expected in zip((cifar, hundred, known), published, strict=True):
        s = learner.settings
        assert (s.beta, s.lambda_elr, s.epochs) == expected and (s.batch_size, s.weight_decay) == (128, 1e-3)
    small = recipe("small")
    assert [small.learning_rate(t) for t in (0, 32, 33, 60)] == pytest.approx([0.02, 0.02, 0.002, 0.002])
    assert recipe("cifar", epochs=30).settings.lr_period == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"beta": 1.0},
        {"beta": -0.1},
        {"lambda_elr": -1.0},
        {"lr_schedule": "linear"},
        {"lr_period": 0},
        {"lr_floor": 2.0},
    ],
)
def test_settings_that_do_not_fit(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*expected"):
        ELRSettings(**bad)
