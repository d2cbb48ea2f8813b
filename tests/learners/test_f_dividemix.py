"""f-DivideMix: DivideMix divided by FINE. Facts 1 to 5 of its page are the selector's (tests/scoring/test_fine.py)."""

import dataclasses
from functools import partial

import pytest
import torch

import toy
from labeltrace import Trace
from labeltrace.engine import train
from labeltrace.learners import DivideMix, FDivideMix
from labeltrace.learners.f_dividemix import FDivideMixSettings
from labeltrace.learners.settings import resolve
from labeltrace.scoring import Scores
from labeltrace.scoring.fine import fine_posterior

C, N = 3, 30

make = partial(toy.learner, FDivideMix, size=N)


def labels():
    return torch.arange(N) % C


def scores_of(seed=0, wrong=((3, 5, 7), (6, 10, 11))):
    """Features along the axis of their class, but for one sample of each class that lies along the next one's."""
    g = torch.Generator().manual_seed(seed)
    embedding = torch.stack([3 * torch.eye(C)[labels()] for _ in wrong]) + 0.1 * torch.randn(2, N, C, generator=g)
    for features, rows in zip(embedding, wrong, strict=True):
        rows = torch.tensor(rows)
        features[rows] = features[rows].roll(1, 1)
    ones = torch.ones(2, N)
    return Scores(torch.rand(2, N, generator=g), ones, ones, ones, labels(), ones[0], ones[0].bool(), None, embedding)


def test_each_network_is_trained_with_the_division_of_its_peers_features():
    learner, scores = make(), scores_of()
    loop = toy.Loop(scores=scores, labels=labels())
    learner.epoch(loop, 20)
    assert [call["beside"].tolist() for call in loop.calls] == [[6, 10, 11], [3, 5, 7]]
    for member in (0, 1):
        wanted = fine_posterior(scores.embedding[member], labels(), C)
        assert torch.equal(learner.memory["posterior"][:, member], wanted)
    assert not loop.notes  # the loss posterior, which is 1 for all, has no part


def test_the_table_gets_fines_posterior_and_it_is_made_once_per_pass(monkeypatch):
    import labeltrace.learners.f_dividemix as module

    calls = []
    monkeypatch.setattr(module, "fine_posterior", lambda *a, **k: calls.append(k) or fine_posterior(*a, **k))
    learner, scores = make(), scores_of()
    learner.epoch(toy.Loop(scores=scores, labels=labels()), 20)
    clean = learner.cleanliness(scores)
    assert len(calls) == 2 and torch.equal(clean, learner.memory["posterior"].mean(1))
    other = scores_of(1)
    learner.cleanliness(other)
    assert len(calls) == 4
    assert calls[0] == {"score": "abs", "max_iter": 10, "tol": 1e-6, "reg_covar": 1e-6}


def test_fines_settings_reach_the_selector():
    scores = scores_of(wrong=((1,), (1,)))
    sharp, blurred, squared = (
        make(**changes) for changes in ({}, {"fine_reg_covar": 5e-2}, {"fine_score": "sq", "fine_iterations": 3})
    )
    found = []
    for learner in (sharp, blurred, squared):
        learner.memory["observed"] = labels()
        found.append(learner.posteriors(scores))
    assert not torch.allclose(found[0], found[1]) and not torch.allclose(found[0], found[2])


def test_samples_outside_the_epoch_have_no_part():
    scores, some = scores_of(), torch.arange(0, N, 2)
    narrow = dataclasses.replace(scores, loss=scores.loss[:, some], embedding=scores.embedding[:, some])
    wide = dataclasses.replace(
        scores,
        loss=torch.full((2, N), float("nan")).index_copy(1, some, narrow.loss),
        embedding=torch.full((2, N, C), float("nan")).index_copy(1, some, narrow.embedding),
    )
    learner = make()
    learner.epoch(toy.Loop(scores=wide, labels=labels(), some=some), 20)
    wanted = fine_posterior(narrow.embedding[1], labels()[some], C)
    assert torch.equal(learner.memory["posterior"][some, 1], wanted)
    assert not learner.memory["posterior"].isnan().any()
    assert learner.cleanliness(wide).isnan().sum() == N - len(some)


def test_fact_6_trace_judges_fines_posterior():
    learner = make(Trace(start=0, ramp=0))
    seen = toy.watch(learner)
    learner.memory["posterior"] = torch.tensor([0.1, 0.9031]).repeat(N, 1)
    learner.memory["structure"] = torch.full((N,), 0.5)
    batch = toy.batch(torch.arange(4), torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64))
    own, _ = learner.see(0, [torch.cat(learner.two_views(batch))])
    learner.refine(0, 5, batch, own)
    assert seen[0][1].observed_reliability.tolist() == pytest.approx([0.78217] * 4, abs=1e-5)


def test_the_step_is_dividemixs():
    assert FDivideMix.step is DivideMix.step and FDivideMix.refine is DivideMix.refine


def test_warm_up_and_ramp_count_from_its_own_longer_warm_up():
    learner = make()
    assert learner.settings.warmup == 20 and learner.controller_epoch(20) == 0 and learner.controller_epoch(36) == 16
    loop = toy.Loop(scores=scores_of(), labels=labels())
    learner.epoch(loop, 19)
    assert [call["label"] for call in loop.calls] == ["warm-up A", "warm-up B"]
    assert torch.equal(learner.memory["observed"], labels())


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("cifar", (300, 20, 25.0, 1e-6, 0.5)),
        ("cifar100", (300, 50, 150.0, 1e-6, 0.5)),
        ("cifar100n", (300, 50, 150.0, 1e-6, 0.5)),
        ("oracle_cifar10_20", (300, 20, 0.0, 1e-6, 0.5)),
        ("oracle_cifar100_90", (300, 50, 150.0, 1e-6, 0.6)),
        ("clothing1m", (80, 1, 0.0, 1e-6, 0.5)),
        ("webvision", (100, 1, 0.0, 5e-4, 0.5)),
        ("food101n", (30, 1, 0.0, 5e-4, 0.5)),
        ("small", (40, 4, 25.0, 1e-6, 0.5)),
    ],
)
def test_recipes(preset, wanted):
    s, _ = resolve(FDivideMixSettings, FDivideMix.presets[preset], {}, None)
    assert (s.epochs, s.warmup, s.lambda_u, s.fine_reg_covar, s.threshold) == wanted
    assert s.loss_window == 1
    assert (s.fine_score, s.fine_iterations) == ("abs", 10)
    assert s.fine_tolerance == (1e-2 if s.fine_reg_covar == 5e-4 else 1e-6)
    assert set(FDivideMix.presets) == set(DivideMix.presets)


@pytest.mark.parametrize("bad", [{"loss_window": 5}, {"fine_score": "cosine"}, {"fine_iterations": 0}])
def test_settings_out_of_range(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        FDivideMixSettings(**bad)


def test_a_run_goes_on_when_every_feature_is_alike(tmp_path):
    """FINE then holds every label clean, so there is no unlabelled part."""
    data = toy.blobs()
    same = dataclasses.replace(data, train=dataclasses.replace(data.train, inputs=torch.ones_like(data.train.inputs)))
    trained = train(toy.config("f_dividemix", controller="trace", epochs=3), tmp_path / "run", dataset=same)
    assert torch.isfinite(toy.weights(trained)).all()
    assert all(len(record["notes"]) == 1 for record in trained.metrics[1:])
    assert "no unlabelled part" in trained.metrics[-1]["notes"][0]


def test_it_finds_the_wrong_labels_of_a_toy_set(tmp_path):
    trained = train(toy.config("f_dividemix", controller="coupled", epochs=8), tmp_path / "run", dataset=toy.blobs())
    assert trained.metrics[-1]["signals"]["auroc_clean"] > 0.95
    assert trained.summary["last"] > 0.9


def test_some_samples_an_epoch(tmp_path):
    data = toy.blobs()
    config = toy.config("f_dividemix", controller="coupled", epochs=3, epoch_samples=48)
    trained = train(config, tmp_path / "run", dataset=data)
    assert torch.isfinite(toy.weights(trained)).all() and not trained.judgement.clean.isnan().any()
