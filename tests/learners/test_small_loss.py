"""What Co-teaching and JoCoR share: plans, the number kept, the noise rate and where it comes from."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

import toy
from labeltrace.data.noise.kinds import pair, symmetric
from labeltrace.engine import train
from labeltrace.engine.checkpoint import read_checkpoint
from labeltrace.learners import CoTeaching, JoCoR, learners
from labeltrace.learners.settings import resolve
from labeltrace.learners.small_loss import SmallLossSettings, kept_count, kept_mean
from labeltrace.scoring import Scores

BOTH = pytest.mark.parametrize("kind", [CoTeaching, JoCoR])


class Loop(toy.Loop):
    """Walks its batches, none of which is short."""

    def train(self, step, *, drop_last, **asked):
        assert drop_last
        super().train(step, **asked)


def scores(wrong):
    """A pass of two networks over 20 samples, as many of which have a label that neither holds likely."""
    one = torch.where(torch.arange(20) < wrong, 4.0, 0.1) + torch.linspace(0, 0.01, 20)
    zeros = torch.zeros(20)
    return Scores(torch.stack([one, 1.1 * one]), torch.ones(2, 20), None, None, zeros.long(), zeros, zeros.bool())


@BOTH
def test_forget_rate_and_samples_kept(kind):
    learner = toy.learner(kind, tau=0.5)
    rates = {0: 0, 1: 0.0556, 2: 0.1111, 5: 0.2778, 9: 0.5, 10: 0.5, 199: 0.5}
    assert {e: round(learner.forget_rate(e), 4) for e in rates} == rates
    counts = [kept_count(learner.forget_rate(e), 128) for e in (0, 1, 2, 5, 9, 10)]
    assert counts == [128, 120, 113, 92, 64, 64]
    assert [kept_count(tau, 128) for tau in (0.2, 0.8)] == [102, 25]
    plan = torch.linspace(0, 0.5, 10, dtype=torch.float64).tolist() + [0.5] * 190  # the code's table
    assert [learner.forget_rate(e) for e in range(200)] == pytest.approx(plan, abs=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("warmup", "rates"), [(1, [0, 0.4, 0.4, 0.4]), (2, [0, 0.4, 0.4, 0.4]), (3, [0, 0.2, 0.4, 0.4])]
)
def test_a_short_rise(kind, warmup, rates):
    learner = toy.learner(kind, tau=0.4, warmup=warmup)
    assert [learner.forget_rate(e) for e in range(4)] == pytest.approx(rates)


@BOTH
@pytest.mark.parametrize(("epochs", "rates"), [(40, [0, 0.4 / 3, 0.8 / 3, 0.4]), (3, [0, 0.2, 0.4]), (1, [0])])
def test_an_estimated_rate_rises_over_three_epochs_at_least(kind, epochs, rates):
    learner = toy.learner(kind, warmup=1, epochs=epochs)
    learner.tau.fill_(0.4)
    assert [learner.forget_rate(e) for e in range(len(rates))] == pytest.approx(rates)


def test_binary_fractions_cost_no_sample_and_one_is_kept():
    for rows in (100, 128, 50, 7):
        for percent in range(101):
            wanted = max(1, rows * (100 - percent) // 100)
            assert kept_count(percent / 100, rows) == wanted
            assert kept_count(1 - (100 - percent) / 100, rows) == wanted
    assert [kept_count(f, 1) for f in (0.0, 0.2, 0.999, 1.0)] == [1, 1, 1, 1]


def test_the_mean_over_what_is_kept():
    losses = torch.tensor([0.5, 1.0, 7.0], requires_grad=True)
    mean = kept_mean(losses, torch.tensor([True, True, False]))
    mean.backward()
    assert float(mean.detach()) == 0.75 and losses.grad.tolist() == [0.5, 0.5, 0.0]


@BOTH
def test_rate_and_first_moment(kind):
    learner = toy.learner(kind)
    rates = {0: 1e-3, 79: 1e-3, 80: 1e-3, 81: 9.9167e-4, 140: 5e-4, 199: 8.333e-6}
    for epoch, rate in rates.items():
        assert learner.learning_rate(epoch) == pytest.approx(rate, rel=1e-4)
    assert [learner.first_moment(e) for e in (0, 79, 80, 199)] == [0.9, 0.9, 0.1, 0.1]


@BOTH
def test_adam_keeps_its_state_when_its_first_moment_falls(kind):
    learner = toy.learner(kind)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = kind.optimizer(learner.settings, [parameter])
    assert isinstance(optimizer, torch.optim.Adam) and not optimizer.defaults["weight_decay"]
    gradient = torch.tensor([1.0, -2.0])
    first, second, expected = torch.zeros(2), torch.zeros(2), torch.ones(2)
    for step, (epoch, rate, beta) in enumerate([(79, 1e-3, 0.9), (80, 1e-3, 0.1), (140, 5e-4, 0.1)], 1):
        learner.tune(optimizer, epoch)
        parameter.grad = gradient * step
        optimizer.step()
        first = beta * first + (1 - beta) * gradient * step
        second = 0.999 * second + 0.001 * (gradient * step) ** 2
        expected = expected - rate * first / (1 - beta**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        assert torch.allclose(parameter.detach(), expected, atol=1e-7)


@BOTH
def test_a_noise_rate_that_is_given_is_not_estimated(kind):
    learner = toy.learner(kind, tau=0.3, warmup=3)
    loop = Loop(toy.random_batch())  # has no scores: it refuses to be asked for them
    for epoch in range(5):
        learner.epoch(loop, epoch)
    assert float(learner.tau) == 0.3 and not loop.notes
    assert loop.calls[0] == {"members": [0, 1], "batch_size": 8, "label": "train", "passes": 1}
    kept = [float(outcome.logs["kept"]) for outcome in loop.outcomes]
    assert kept == [8 / 8, 6 / 8, 5 / 8, 5 / 8, 5 / 8]  # 8 · (1, 0.85, 0.7, 0.7, 0.7), truncated


@BOTH
def test_the_noise_rate_is_estimated_while_the_forget_rate_rises(kind):
    """F_e = τ_e · e / 3 with the estimate of that epoch; the last one stays, and is told."""
    learner, loop = toy.learner(kind, warmup=4), Loop(toy.random_batch())
    assert float(learner.tau) == 0 and learner.forget_rate(0) == 0
    wrong, rates = {1: 8, 2: 6, 3: 5}, []
    for epoch in range(6):
        loop.scores = scores(wrong[epoch]) if epoch in wrong else None  # none: it refuses to be asked
        learner.epoch(loop, epoch)
        rates.append(learner.forget_rate(epoch))
    assert rates == pytest.approx([0, 0.4 / 3, 0.3 * 2 / 3, 0.25, 0.25, 0.25], abs=1e-4)
    assert loop.views == ["plain"] * 3
    assert loop.notes == ["noise rate estimated as 0.250"]


@BOTH
def test_the_estimate_is_that_of_a_mixture_over_the_labels_probability(kind):
    learner = toy.learner(kind, warmup=1)
    found = dataclasses.replace(scores(0), loss=torch.rand(2, 20, generator=torch.Generator().manual_seed(0)) * 3)
    learner.epoch(Loop(toy.random_batch(), scores=found), 1)
    unlikely = [1 - (math.exp(-float(a)) + math.exp(-float(b))) / 2 for a, b in found.loss.T]
    low, high = min(unlikely), max(unlikely)
    column = np.array([[(u - low) / (high - low)] for u in unlikely])
    mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0).fit(column)
    clean = mixture.predict_proba(column)[:, mixture.means_.argmin()]
    assert float(learner.tau) == pytest.approx(1 - clean.mean(), abs=1e-5) and 0.1 < float(learner.tau) < 0.9


@BOTH
def test_the_estimate_looks_at_the_samples_of_the_epoch(kind):
    some = torch.tensor([0, 1, 2, 8, 9])  # three of the wrong ones
    found = scores(6)
    unseen = torch.ones(20, dtype=torch.bool)
    unseen[some] = False
    found.loss[:, unseen] = torch.nan
    learner = toy.learner(kind, warmup=1)
    learner.epoch(Loop(toy.random_batch(), scores=found, some=some), 1)
    assert float(learner.tau) == pytest.approx(0.6, abs=1e-3)


@BOTH
@pytest.mark.parametrize(("forget", "kept"), [(0.0, 8), (0.3, 5), (1.0, 1)])
def test_data_without_a_wrong_or_without_a_right_label(kind, forget, kept):
    """Whatever the estimate, a step keeps a sample."""
    learner = toy.learner(kind)
    outcome = learner.step(forget, toy.random_batch())
    assert float(outcome.logs["kept"]) == kept / 8 and torch.isfinite(outcome.loss)


@BOTH
@pytest.mark.filterwarnings("ignore:all .* losses are equal")
def test_equal_losses_forget_nothing(kind, tmp_path):
    """Networks that cannot tell samples apart: one posterior for all, and it is 1."""
    data = toy.blobs()
    data = dataclasses.replace(data, train=dataclasses.replace(data.train, inputs=torch.zeros(96, 6)))
    data = data.with_labels(torch.zeros(96, dtype=torch.int64), truth=None)
    trained = train(toy.config(kind.name), tmp_path / "run", dataset=data)
    assert float(read_checkpoint(trained.folder.last)["companions"]["state"]["tau"]) == 0
    assert torch.isfinite(toy.weights(trained)).all()


@BOTH
@pytest.mark.parametrize("observed", [[0], [1], [2, 2, 2, 2], [0, 1]])
def test_batches_of_one_and_of_one_class(kind, observed):
    learner, b = toy.learner(kind), toy.random_batch(len(observed))
    for network in learner.networks:
        network.eval()  # batch normalisation refuses a single row
    b = dataclasses.replace(b, observed=torch.tensor(observed))
    for forget in (0.0, 0.5, 1.0):
        outcome = learner.step(forget, b)
        assert torch.isfinite(outcome.loss) and float(outcome.logs["kept"]) >= 1 / len(observed)


@BOTH
@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_the_estimate_is_near_the_truth_and_is_saved(kind, rate, tmp_path):
    data = toy.blobs(count=480, noise=rate)
    trained = train(
        toy.config(kind.name, epochs=7, settings={"warmup": 5, "batch_size": 32}), tmp_path / "run", dataset=data
    )
    tau = float(read_checkpoint(trained.folder.last)["companions"]["state"]["tau"])
    assert tau == pytest.approx(rate, abs=0.1)
    notes = [record.get("notes") for record in trained.metrics]
    assert notes == [None] * 4 + [[f"noise rate estimated as {tau:.3f}"]] + [None] * 2
    kept = [record["phases"]["train"]["kept"] for record in trained.metrics]
    assert kept[0] == 1 and kept[4:] == [math.floor(32 * (1 - tau)) / 32] * 3


@BOTH
def test_a_run_without_truth_trains_the_same(kind, tmp_path):
    """Where the truth is known a pass is made in every epoch; it changes nothing."""
    data = toy.blobs()
    blind = data.with_labels(data.train.labels, truth=None)
    one, two = (
        train(toy.config(kind.name, settings={"warmup": 2}), tmp_path / name, dataset=d)
        for name, d in (("one", data), ("two", blind))
    )
    assert torch.equal(toy.weights(one), toy.weights(two))


@BOTH
@pytest.mark.parametrize("settings", [{"warmup": 3}, {"warmup": 1}, {"tau": 0.3}])
def test_resumes_bit_for_bit_within_and_after_the_rise(kind, settings, tmp_path):
    def config():
        return toy.config(kind.name, epochs=5, settings=settings, checkpoint_seconds=0.0)

    whole = train(config(), tmp_path / "whole", dataset=toy.blobs())
    with toy.killed_in(kind, 2):
        train(config(), tmp_path / "cut", dataset=toy.blobs())
    resumed = train(config(), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))
    states = [read_checkpoint(trained.folder.last)["companions"]["state"]["tau"] for trained in (whole, resumed)]
    assert torch.equal(*states) and states[0].dtype == torch.float64


@BOTH
def test_recipes(kind):
    found = {name: resolve(kind.settings_type, preset, {}, None)[0] for name, preset in kind.presets.items()}
    for name, settings in found.items():
        assert (settings.tau is not None) == (name.startswith("oracle") or name in ("cifar10n", "cifar100n")), name
        falls = {"large": 32, "small": 16, "cifar100n": 80 if kind is CoTeaching else 100}
        assert settings.lr_fall == falls.get(name, 100 if "cifar100" in name else 80), name
        assert settings.warmup < settings.lr_fall < settings.epochs
    for classes in (10, 100):
        for end, tau in (("20", 0.2), ("40", 0.4), ("50", 0.5), ("80", 0.8), ("instance_40", 0.4)):
            assert found[f"oracle_cifar{classes}_{end}"].tau == tau
        assert found[f"oracle_cifar{classes}_pair_40"].tau == (0.2 if classes == 10 else 0.4)
        assert found[f"cifar{classes}n"].tau == 0.2
    published = found["cifar"]
    assert (published.epochs, published.batch_size, published.passes, published.warmup) == (200, 128, 1, 10)
    short, _ = resolve(kind.settings_type, kind.presets["cifar"], {}, 50)
    assert (short.warmup, short.lr_fall) == (2, 20)


def test_recipes_of_both_methods_have_the_same_names():
    own = {"oracle_cifar10_asymmetric_40", "oracle_cifar100_asymmetric_40"}
    assert set(JoCoR.presets) - own == set(CoTeaching.presets)


@pytest.mark.parametrize(("classes", "pair_map"), [(10, (0, 1, 0, 5, 7, 3, 6, 7, 8, 1)), (100, None)])
def test_the_rates_of_recipes_are_shares_of_wrong_labels(classes, pair_map):
    """What the package's own noise makes of balanced labels; 0.015 is three standard deviations of 10,000 draws."""
    labels = np.arange(10_000) % classes
    made = {"pair_40": pair(labels, classes, 0.4, 0, pair_map)}
    made |= {str(percent): symmetric(labels, classes, percent / 100, 0) for percent in (20, 40, 50, 80)}
    for end, noisy in made.items():
        tau, _ = CoTeaching.presets[f"oracle_cifar{classes}_{end}"].values["tau"]
        assert (noisy != labels).mean() == pytest.approx(tau, abs=0.015)


@BOTH
def test_settings_that_do_not_fit(kind):
    for bad in (
        {"tau": 1.5}, {"tau": -0.1}, {"tau": float("nan")}, {"warmup": 0}, {"passes": 0}, {"lr_fall": -1},
        {"momentum": 1.0}, {"momentum_late": 1.0}, {"momentum_late": -0.1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{next(iter(bad))}: .*expected"):
            kind.settings_type(**bad)


def test_both_are_registered_and_take_no_controller():
    for name, kind in (("co_teaching", CoTeaching), ("jocor", JoCoR)):
        assert learners[name] is kind and not kind.refurbishes and kind.networks_needed == 2
        assert issubclass(kind.settings_type, SmallLossSettings) and not kind.fields(kind.settings_type(), 10)
