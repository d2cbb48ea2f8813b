"""What the signals are worth: AUROC against scikit-learn's, and what a run writes of it where the truth is known."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import saved
import toy
from labeltrace.engine import train
from labeltrace.engine.signals import auroc, signals

# Few distinct values, so that most pairs tie.
SAMPLES = st.lists(st.tuples(st.integers(-3, 3).map(lambda v: v / 10), st.booleans()), min_size=2, max_size=40)


def columns(samples):
    score, positive = zip(*samples, strict=True)
    return torch.tensor(score), torch.tensor(positive)


@settings(deadline=None)
@given(SAMPLES.filter(lambda samples: len({positive for _, positive in samples}) == 2))
def test_equals_scikit_learn_with_ties(samples):
    score, positive = columns(samples)
    expected = roc_auc_score(positive.numpy(), score.numpy())
    assert auroc(score, positive) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(SAMPLES.filter(lambda samples: len({positive for _, positive in samples}) == 2))
def test_is_the_share_of_pairs_won(samples):
    pairs = [(a > b) + (a == b) / 2 for a, is_a in samples if is_a for b, is_b in samples if not is_b]
    score, positive = columns(samples)
    assert auroc(score, positive) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    assert auroc(-score, positive) == pytest.approx(1 - auroc(score, positive), abs=1e-12)
    assert auroc(score.exp(), positive) == pytest.approx(auroc(score, positive), abs=1e-12)  # order is all that counts


def test_many_samples_equal_scikit_learn():
    g = torch.Generator().manual_seed(0)
    positive = torch.rand(20_000, generator=g) < 0.3
    score = (torch.rand(20_000, generator=g) + 0.2 * positive).round(decimals=3)
    assert auroc(score, positive) == pytest.approx(roc_auc_score(positive.numpy(), score.numpy()), abs=1e-9)


@pytest.mark.parametrize("kind", [True, False])
def test_one_kind_alone_has_none(kind):
    assert math.isnan(auroc(torch.tensor([0.1, 0.5, 0.9]), torch.full((3,), kind)))


def test_no_sample_has_none():
    assert math.isnan(auroc(torch.tensor([]), torch.tensor([], dtype=torch.bool)))


def example(size=200, seed=0, unknown=0.0):
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(4, (size,), generator=g)
    observed = torch.where(torch.rand(size, generator=g) < 0.4, torch.randint(4, (size,), generator=g), truth)
    suggested = torch.where(torch.rand(size, generator=g) < 0.3, torch.randint(4, (size,), generator=g), truth)
    scores = {
        name: torch.rand(size, generator=g)
        for name in ("clean", "structure", "observed_reliability", "pseudo_reliability", "confidence")
    }
    truth = torch.where(torch.rand(size, generator=g) < unknown, -1, truth)
    return {"observed": observed, "truth": truth, "suggested": suggested, **scores}


def test_each_signal_is_held_against_what_it_judges():
    e = example()
    found = signals(**e)
    label, suggestion = (e["observed"] == e["truth"]).numpy(), (e["suggested"] == e["truth"]).numpy()
    for name, score, positive in (
        ("auroc_clean", "clean", label),
        ("auroc_structure", "structure", label),
        ("auroc_observed", "observed_reliability", label),
        ("auroc_pseudo", "pseudo_reliability", suggestion),
        ("auroc_confidence", "confidence", suggestion),
    ):
        assert found[name] == pytest.approx(roc_auc_score(positive, e[score].numpy()), abs=1e-9)
    assert found["label_accuracy"] == pytest.approx(label.mean())
    assert found["suggestion_accuracy"] == pytest.approx(suggestion.mean())
    ordered = e["structure"].sort().values
    assert found["structure_q50"] == pytest.approx(float((ordered[99] + ordered[100]) / 2))
    assert found["structure_q05"] < found["structure_q25"] < found["structure_q75"] < found["structure_q95"]


def test_samples_of_unknown_truth_are_left_out():
    e = example(unknown=0.5)
    known = e["truth"] >= 0
    assert 50 < known.sum() < 150
    with_unknown, without = signals(**e), signals(**{name: values[known] for name, values in e.items()})
    for name in with_unknown:
        if not name.startswith("structure_q"):  # quantiles need no truth
            assert with_unknown[name] == without[name]


def test_no_known_truth_gives_no_figure():
    found = signals(**(example() | {"truth": torch.full((200,), -1)}))
    assert all(math.isnan(value) for name, value in found.items() if not name.startswith("structure_q"))


def test_networks_without_stages_have_no_structure():
    found = signals(**(example() | {"structure": None}))
    assert not any("structure" in name for name in found)
    assert "auroc_clean" in found


AUROCS = {"auroc_clean", "auroc_structure", "auroc_observed", "auroc_pseudo"}
QUANTILES = ["structure_q05", "structure_q25", "structure_q50", "structure_q75", "structure_q95"]


@pytest.mark.parametrize("learner", ["cross_entropy", "rolr"])
def test_every_epoch_says_what_the_signals_were_worth(tmp_path, learner):
    train(toy.config(learner), tmp_path / "run", dataset=toy.blobs())
    lines = saved.metrics(tmp_path / "run")
    assert len(lines) == 4
    for line in lines:
        found = line["signals"]
        assert found.keys() >= AUROCS | set(QUANTILES)
        assert all(found[name] is None or 0 <= found[name] <= 1 for name in AUROCS)  # null where all are right
        assert sorted(found[name] for name in QUANTILES) == [found[name] for name in QUANTILES]
        assert found["label_accuracy"] == 0.75  # 24 of the 96 labels are wrong


@pytest.mark.parametrize("learner", ["cross_entropy", "rolr"])
def test_without_truth_nothing_is_said_of_it_and_training_is_the_same(tmp_path, learner):
    data = toy.blobs()
    blind = data.with_labels(data.train.labels, truth=None)
    known, unknown = (
        train(toy.config(learner), tmp_path / name, dataset=d) for name, d in (("known", data), ("unknown", blind))
    )
    assert not any("signals" in line for line in saved.metrics(tmp_path / "unknown"))
    assert torch.equal(toy.weights(known), toy.weights(unknown))


def test_a_run_whose_truth_is_unknown_throughout_writes_null(tmp_path):
    data = toy.blobs()
    unknown = data.with_labels(data.train.labels, truth=torch.full((96,), -1))
    train(toy.config("cross_entropy", epochs=1), tmp_path / "run", dataset=unknown)
    (line,) = saved.metrics(tmp_path / "run")
    assert all(line["signals"][name] is None for name in AUROCS)
