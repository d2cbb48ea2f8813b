"""SELFIE: the unit facts of its page (part 10; those on votes are in test_votes.py) and what its code does."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import toy
from labeltrace import Coupled, Trace
from labeltrace.audit import samples_table
from labeltrace.data.views import FeatureViews
from labeltrace.engine import train
from labeltrace.engine.checkpoint import read_checkpoint
from labeltrace.learners import Selfie
from labeltrace.learners.dropping import smallest
from labeltrace.learners.selfie import SelfieSettings, clean_count
from labeltrace.learners.settings import resolve
from labeltrace.learners.still import still_statistics
from labeltrace.models import build_model
from labeltrace.scoring import Scores, loss_posterior

AT_ONCE = {"start": 0, "ramp": 0}

make = partial(toy.learner, Selfie, history=4, tau=0.5)


def batch(index=range(8), seed=0, classes=3):
    """Samples `index` of twenty."""
    drawn, index = toy.random_batch(20, seed, classes=classes), torch.tensor(index)
    return toy.batch(index, drawn.inputs[index], drawn.observed[index])


def give(learner, sample, votes):
    """Let a sample have had these predictions."""
    history = [*votes, *[-1] * (learner.settings.history - len(votes))]
    learner.memory["history"][sample] = torch.tensor(history, dtype=torch.int16)
    learner.memory["count"][sample] = len(votes)


def scores(posterior=None, structure=0.5, classes=3, size=20):
    g = torch.Generator().manual_seed(3)
    p = torch.randn(size, classes, generator=g).softmax(1)
    loss = torch.rand(1, size, generator=g)
    posterior = torch.ones(1, size) if posterior is None else posterior
    return Scores(loss, posterior, None, torch.full((1, size), structure), p.argmax(1), p.amax(1), None)


@pytest.mark.parametrize(
    ("tau", "count"), [(0.0, 128), (0.08, 118), (0.2, 103), (0.4, 77), (0.5, 64), (0.8, 26), (1.0, 0)]
)
def test_fact_2_clean_count(tau, count):
    assert int(clean_count(torch.tensor(tau, dtype=torch.float64), 128)) == count
    assert int(clean_count(torch.tensor(0.9, dtype=torch.float64), 10)) == 1  # not 2 by a rounded 1 − τ


def test_fact_2_the_smallest_losses_of_a_batch():
    losses = torch.rand(128, generator=torch.Generator().manual_seed(0))
    marked = smallest(losses, torch.tensor(77.0))
    assert set(marked.nonzero()[:, 0].tolist()) == set(losses.argsort()[:77].tolist())
    assert smallest(torch.ones(4), torch.tensor(2)).tolist() == [True, True, False, False]


@pytest.mark.parametrize(("tau", "after"), [(0.4, 0.3), (0.2, 0.2)])
def test_fact_3_tau_after_a_training(tau, after):
    learner = make(size=50_000, tau=tau, restarts=1, epochs=6, warmup=1)
    learner.memory["corrected"][:35_000] = 1
    learner.memory["history"].fill_(2)
    learner.memory["count"].fill_(9)
    loop = toy.Loop()
    learner.restart(loop, 1)
    assert float(learner.tau) == pytest.approx(after) and loop.restarts == [1]
    assert (learner.memory["history"] == -1).all() and (learner.memory["count"] == 0).all()
    assert int((learner.memory["corrected"] >= 0).sum()) == 35_000  # survives


def test_fact_4_merge():
    """Samples 1 … 4: clean {1, 2}, refurbishable now {2, 3}, 1 corrected before, 4 neither."""
    learner = make(tau=0.5)
    b = batch(index=[1, 2, 3, 4])
    give(learner, 1, [0, 1, 0, 1])
    give(learner, 2, [2, 2, 2, 2])
    give(learner, 3, [1, 1, 1, 1])
    give(learner, 4, [0, 1, 2, 0])
    learner.memory["corrected"][1] = 0
    logits = torch.zeros(4, 3)
    logits[torch.arange(4), b.observed] = torch.tensor([5.0, 4.0, 1.0, 0.5])  # losses of 1 and 2 are the smallest
    supervision, small = learner.sort(logits, learner_shares(learner, b), b)
    assert small.tolist() == [True, True, False, False]
    assert (supervision.weight > 0).tolist() == [True, True, True, False]
    assert supervision.target[:3].argmax(1).tolist() == [0, 2, 1]
    assert learner.memory["corrected"][1:5].tolist() == [0, 2, 1, -1]
    assert supervision.weight[:3].tolist() == pytest.approx([4 / 3] * 3)


def learner_shares(learner, b):
    from labeltrace.learners.votes import vote_shares

    return vote_shares(learner.memory["history"][b.index], learner.num_classes)


def test_fact_6_independent_batches_would_leave_histories_short():
    """Why the epochs are shuffled here: each sample gets its q predictions in q epochs."""
    n, p = 25 * 391, 128 / 50_000
    short = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(15))
    assert short == pytest.approx(0.0122, abs=1e-4)
    learner = make(history=3)
    for _ in range(3):
        for start in (0, 8, 12):
            learner.warmup_step(batch(index=range(start, start + 8)))
    assert learner.full(slice(None)).all()


def test_fact_7_trace():
    """History (12, 2, 1)/15 against the third class: the base drops the sample, TRACE trains it softly."""
    learner = make(Trace(**AT_ONCE, disagreement=0.5), classes=10, history=15, tau=1.0, epsilon=0.05)
    b = batch(index=[0], classes=10)
    b = dataclasses.replace(b, observed=torch.tensor([2]))
    give(learner, 0, [0] * 12 + [1] * 2 + [2])
    learner.memory["clean"][0], learner.memory["structure"][0] = 0.0, 0.5
    with torch.no_grad():
        learner.networks[0].fc.bias[0] += 50  # it predicts class 0, as the history does
    learner.networks[0].eval()
    first = learner.networks[0](b.inputs)
    shares = learner_shares(learner, b)
    base, small = learner.sort(first.logits, shares, b)
    assert not base.weight.any() and int(learner.memory["corrected"][0]) == -1
    merged = learner.supervise(base, first, shares, small, 5, b)
    assert float(merged.observed_reliability) == pytest.approx(0.15, abs=1e-6)
    assert float(merged.pseudo_reliability) == pytest.approx(0.8, abs=1e-6)
    assert float(merged.b) == pytest.approx(0.68, abs=1e-6) and float(merged.a + merged.b) == pytest.approx(0.83)
    assert merged.target[0, :3].tolist() == pytest.approx([0.6554, 0.1092, 0.2353], abs=1e-4)
    assert float(merged.weight) == pytest.approx(1.0)


def test_loss_equals_the_formula_written_out():
    """Mean cross-entropy of corrected samples and of clean ones that are not, every other left out."""
    learner, b = make(tau=0.5), batch()
    network = learner.networks[0].eval()  # so that the second forward does not depend on its companions
    give(learner, 0, [2, 2, 2, 2])
    give(learner, 5, [1, 1, 1, 1])
    give(learner, 6, [1, 1, 1])  # not full
    learner.memory["corrected"][7] = 0
    with torch.no_grad():
        z = network(b.inputs).logits
    losses = [float(F.cross_entropy(z[i : i + 1], b.observed[i : i + 1])) for i in range(8)]
    clean = sorted(range(8), key=losses.__getitem__)[:4]
    labels = {i: int(b.observed[i]) for i in clean} | {0: 2, 5: 1, 7: 0}
    wanted = sum(-float(F.log_softmax(z[i], 0)[y]) for i, y in labels.items()) / len(labels)
    outcome = learner.step(0, b)
    assert float(outcome.loss.detach()) == pytest.approx(wanted, abs=1e-5)
    assert float(outcome.logs["used"]) == pytest.approx(len(labels) / 8)
    assert learner.memory["corrected"][:8].tolist() == [2, -1, -1, -1, -1, 1, -1, 0]
    assert torch.allclose(learner.memory["loss"][:8], torch.tensor(losses), atol=1e-6)


def test_the_history_of_a_step_is_that_before_it():
    learner, b = make(tau=1.0), batch()
    learner.networks[0].eval()
    with torch.no_grad():
        prediction = learner.networks[0](b.inputs).logits.argmax(1)
    for sample in range(8):
        give(learner, sample, [int(prediction[sample])] * 3)
    learner.step(0, b)  # its fourth vote comes too late for this step
    assert (learner.memory["corrected"] == -1).all() and learner.full(b.index).all()
    assert (learner.memory["history"][:8] == prediction[:, None]).all()
    learner.step(0, b)
    assert torch.equal(learner.memory["corrected"][:8].long(), prediction)


def test_a_correction_outlives_its_certainty():
    learner, b = make(tau=1.0), batch()
    give(learner, 0, [2, 2, 2, 2])
    learner.step(0, b)
    give(learner, 0, [0, 1, 2, 0])
    assert float(learner.step(0, b).logs["used"]) == pytest.approx(1 / 8)
    assert int(learner.memory["corrected"][0]) == 2
    give(learner, 0, [1, 1, 1, 1])
    learner.step(0, b)
    assert int(learner.memory["corrected"][0]) == 1  # a new one overwrites it


def test_the_first_forward_leaves_running_statistics_alone():
    network = build_model("mlp", num_classes=3, input_shape=(4,)).train()
    before = {n: v.clone() for n, v in network.state_dict().items()}
    x = torch.randn(8, 4)
    with torch.no_grad(), still_statistics(network):
        still = network(x).logits
    assert all(torch.equal(v, before[n]) for n, v in network.state_dict().items())
    assert torch.equal(still, network(x).logits)  # by batch statistics, as in any train-mode forward
    assert not torch.equal(network.layers[0][1].running_mean, before["layers.0.1.running_mean"])
    assert all(m.track_running_stats for m in network.modules() if isinstance(m, nn.BatchNorm1d))


def test_still_statistics_ends_with_an_error_too():
    network = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
    with pytest.raises(RuntimeError), still_statistics(network):
        raise RuntimeError
    assert [m.track_running_stats for m in network] == [True, False]


def test_a_step_updates_running_statistics_once_and_by_its_samples():
    learner, b = make(tau=0.5), batch()
    network = learner.networks[0].train()
    give(learner, 0, [2, 2, 2, 2])
    with torch.no_grad(), still_statistics(network):
        losses = F.cross_entropy(network(b.inputs).logits, b.observed, reduction="none")
    used = sorted({0, *losses.argsort()[:4].tolist()})
    learner.step(0, b)
    norm = network.layers[0][1]
    assert int(norm.num_batches_tracked) == 1
    rows = [used[i % len(used)] for i in range(8)]
    mean = network.layers[0][0](b.inputs[rows]).mean(0).detach()
    assert torch.allclose(norm.running_mean, 0.1 * mean, atol=1e-6)


def test_warm_up_uses_corrected_labels_and_ranks_by_observed_ones():
    learner, b = make(), batch()
    learner.networks[0].eval()
    with torch.no_grad():
        z = learner.networks[0](b.inputs).logits
    learner.memory["corrected"][3] = (int(b.observed[3]) + 1) % 3
    labels = b.observed.clone()
    labels[3] = (labels[3] + 1) % 3
    loss = float(learner.warmup_step(b).loss.detach())
    assert loss == pytest.approx(float(F.cross_entropy(z, labels)), abs=1e-6)
    assert torch.allclose(learner.memory["loss"][:8], F.cross_entropy(z, b.observed, reduction="none"), atol=1e-6)
    assert torch.equal(learner.memory["history"][:8, 0].long(), z.argmax(1))
    assert learner.memory["count"].tolist() == [1] * 8 + [0] * 12


def test_a_repeated_sample_is_remembered_once():
    learner, b = make(), batch(index=[0, 1, 2, 0, 0])
    learner.networks[0].eval()
    learner.warmup_step(b)
    learner.step(0, b)
    assert learner.memory["count"][:3].tolist() == [2, 2, 2]


def test_tau_is_estimated_from_the_posterior():
    learner = make(tau=None, warmup=0)
    assert learner.tau.isnan()
    posterior = torch.linspace(0, 1, 20)[None]
    loop = toy.Loop(batch(), scores=scores(posterior))
    learner.epoch(loop, 0)
    assert float(learner.tau) == pytest.approx(0.5, abs=1e-6)
    loop.scores = scores(torch.zeros(1, 20))
    learner.epoch(loop, 1)
    assert float(learner.tau) == pytest.approx(0.5, abs=1e-6)  # once
    assert sum("estimated" in note for note in loop.notes) == 1


def test_an_epoch_without_a_sample_to_train_on_is_noted():
    learner = make(tau=1.0, warmup=0)
    loop = toy.Loop(batch(), batch(seed=1))
    learner.epoch(loop, 0)
    assert all(float(outcome.loss.detach()) == 0 for outcome in loop.outcomes)
    assert any(note.startswith("2 batches had neither") for note in loop.notes)
    for outcome in loop.outcomes:
        outcome.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in learner.networks[0].parameters())


def test_trace_leaves_short_histories_to_the_base_rule():
    """Full: max(a + b, w_min). Short: 1 where the rule uses the sample, 0 where it leaves it out."""
    trace = Trace(structure=False, agreement=False, w_min=0.9, **AT_ONCE)
    learner, b = make(trace, tau=0.5), batch()
    network = learner.networks[0].eval()
    learner.memory["clean"] = torch.full((20,), 0.2)
    for sample in (0, 1, 2):
        give(learner, sample, [0, 0, 1, 2])
    first = network(b.inputs)
    shares = learner_shares(learner, b)
    base, small = learner.sort(first.logits, shares, b)
    merged = learner.supervise(base, first, shares, small, 5, b)
    raw = []
    for i in range(8):
        if i < 3:
            raw.append(max(0.2 + 0.8 * 0.5, 0.9))
            target = (0.2 * F.one_hot(b.observed[i], 3) + 0.4 * torch.tensor([0.5, 0.25, 0.25])) / 0.6
            assert torch.allclose(merged.target[i], target, atol=1e-6)
        else:
            raw.append(float(small[i]))
            assert torch.equal(merged.target[i], base.target[i])
    assert 0 < sum(raw[3:]) < 5
    assert merged.weight.tolist() == pytest.approx([w * 8 / sum(raw) for w in raw], abs=1e-5)
    plain = dataclasses.replace(trace.config, reweight=False)
    learner.controller = Trace(plain)
    flat = learner.supervise(base, first, shares, small, 5, b).weight
    assert flat.tolist() == pytest.approx([8 / sum(map(math.ceil, raw)) * math.ceil(w) for w in raw], abs=1e-5)


def test_with_no_history_full_trace_is_the_base_rule():
    b = batch()
    base, traced = make(Coupled(), tau=0.5), make(Trace(structure=False, **AT_ONCE), tau=0.5)
    assert torch.equal(base.step(5, b).loss, traced.step(5, b).loss)


def test_without_a_floor_trace_may_leave_samples_out():
    learner, b = make(Trace(structure=False, w_min=0.0, **AT_ONCE), tau=1.0), batch()
    learner.memory["clean"] = torch.zeros(20)
    for sample in range(8):
        give(learner, sample, [0, 0, 1, 1])
    outcome = learner.step(5, b)
    assert float(outcome.logs["used"]) == 1.0 and torch.isfinite(outcome.loss)


def evidence_of(learner, b, epoch=5):
    seen = toy.watch(learner)
    learner.step(epoch, b)
    return seen[-1][0]


@pytest.mark.parametrize("kind", ["posterior", "rank"])
def test_evidence(kind):
    learner, b = make(Trace(**AT_ONCE, k=3), tau=0.5, clean_score=kind), batch()
    network = learner.networks[0].eval()
    for sample in range(8):
        give(learner, sample, [sample % 3, 1, 1, 2])
    learner.memory["clean"] = torch.linspace(0, 1, 20)
    learner.memory["structure"] = torch.linspace(1, 0, 20)
    shares = learner_shares(learner, b)
    with torch.no_grad():
        z = network(b.inputs).logits
    evidence = evidence_of(learner, b)
    evidence.check()
    small = smallest(F.cross_entropy(z, b.observed, reduction="none"), torch.tensor(4)).float()
    assert torch.equal(evidence.clean, small if kind == "rank" else learner.memory["clean"][:8])
    assert torch.equal(evidence.pseudo, shares) and torch.equal(evidence.votes[1], shares)
    assert torch.allclose(evidence.votes[0], z.softmax(1))
    assert torch.equal(evidence.structure, learner.memory["structure"][:8])
    learner = make(Trace(**AT_ONCE, k=3, scope="batch"), tau=0.5)
    assert not torch.equal(evidence_of(learner, b).structure, torch.ones(8))


def test_posteriors_are_of_the_stored_losses():
    learner = make(Trace(start=0, ramp=0), warmup=0)
    learner.memory["loss"][:12] = torch.rand(12, generator=torch.Generator().manual_seed(0))
    known = learner.memory["loss"][:12].clone()
    learner.epoch(toy.Loop(scores=scores(structure=0.25)), 3)
    assert torch.allclose(learner.memory["clean"][:12], loss_posterior(known))
    assert (learner.memory["clean"][12:] == 1).all() and (learner.memory["structure"] == 0.25).all()


def test_the_base_rule_and_the_memory_go_on_under_trace():
    b = batch()
    found = []
    for controller in (None, Trace(structure=False, **AT_ONCE)):
        learner = make(controller, tau=0.5)
        learner.networks[0].eval()
        give(learner, 0, [2, 2, 2, 2])
        give(learner, 1, [0, 1, 0, 2])
        learner.step(5, b)
        found.append(learner.memory.state_dict())
    for name in ("history", "count", "corrected", "loss"):
        assert torch.equal(found[0][name][:8], found[1][name][:8])


def test_a_step_with_a_tensor_epoch_chooses_the_same():
    b = batch()
    for epoch in (1, 2):
        losses = []
        for kind in (int, torch.tensor):
            learner = make(Trace(structure=False, start=2, ramp=1), tau=0.5)
            for sample in range(4):
                give(learner, sample, [0, 0, 1, 2])
            losses.append(float(learner.step(kind(epoch), b).loss.detach()))
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_no_gradient_reaches_a_target():
    learner, b = make(Trace(structure=False, **AT_ONCE)), batch()
    for sample in range(8):
        give(learner, sample, [0, 0, 1, 2])
    learner.step(5, b).loss.backward()
    assert all(p.grad is not None for p in learner.networks[0].parameters())


@pytest.mark.parametrize("index", [[0], [4, 4], [1, 1, 1, 1]])
def test_batches_of_one(index):
    for controller in (None, Trace(structure=False, **AT_ONCE)):
        learner = make(controller)
        learner.networks[0].eval()
        assert torch.isfinite(learner.step(5, batch(index=index)).loss)


def test_labels_of_one_class():
    learner = make(tau=0.0)
    b = dataclasses.replace(batch(), observed=torch.zeros(8, dtype=torch.int64))
    for _ in range(4):
        learner.warmup_step(b)
    assert torch.isfinite(learner.step(0, b).loss) and learner.full(b.index).all()


def test_the_table_speaks_of_full_histories():
    learner, found = make(), scores()
    give(learner, 0, [1, 1, 2, 1])
    give(learner, 1, [0, 0])
    suggested, confidence = learner.suggestion(found)
    assert int(suggested[0]) == 1 and float(confidence[0]) == 0.75
    assert torch.equal(suggested[1:], found.suggested[1:]) and torch.equal(confidence[1:], found.confidence[1:])
    agree = learner.agreement(found)
    assert bool(agree[0]) == (int(found.suggested[0]) == 1) and agree[1:].all()
    assert torch.equal(learner.cleanliness(found), found.clean)
    ranked = make(clean_score="rank", tau=0.25)
    flags = ranked.cleanliness(found)
    assert int(flags.sum()) == 15 and found.loss[0][flags > 0].max() < found.loss[0][flags == 0].min()
    assert int(make(clean_score="rank", tau=None).cleanliness(found).sum()) == 20  # not estimated yet: all


def test_schedule():
    learner = make(epochs=300, restarts=2, warmup=25, batch_size=128)
    assert [learner.place(e) for e in (0, 99, 100, 250, 299)] == [(0, 0), (0, 99), (1, 0), (2, 50), (2, 99)]
    rates = [learner.learning_rate(e) for e in (0, 49, 50, 74, 75, 99, 100, 150, 275)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.1, 0.02, 0.004])
    assert [learner.controller_epoch(e) for e in (0, 25, 99, 100, 125)] == [-25, 0, 74, -25, 0]
    assert make(epochs=10, restarts=2).place(9) == (2, 3)  # the last one takes the remainder
    optimizer = Selfie.optimizer(learner.settings, learner.networks[0].parameters())
    assert optimizer.defaults["nesterov"] and optimizer.defaults["weight_decay"] == 5e-4


def test_plain_and_weak_views():
    class Spy(FeatureViews):
        def weak(self, inputs, draws):
            return inputs + 1

    for view, shift in (("weak", 1.0), ("plain", 0.0)):
        learner, b = make(view=view), batch()
        learner.views = Spy((0.0,) * 4, (1.0,) * 4)
        assert torch.equal(learner.see(b), b.inputs + shift)


@pytest.mark.parametrize("controller", ["coupled", "trace"])
def test_a_run_with_restarts(tmp_path, controller):
    trace = {"start": 0, "ramp": 1, "k": 5} if controller == "trace" else {}
    settings = {"restarts": 1, "warmup": 2, "history": 3}
    config = toy.config("selfie", controller=controller, epochs=12, settings=settings, trace=trace)
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    records = [json.loads(line) for line in trained.folder.metrics.read_text().splitlines()]
    labels = [next(iter(record["phases"])) for record in records]
    assert labels == (["warm-up"] * 2 + ["train"] * 4) * 2
    saved = read_checkpoint(trained.folder.last)
    assert any("training 2" in note for note in records[6]["notes"])
    assert 0 <= float(saved["companions"]["state"]["tau"]) <= 1
    assert records[6]["lr"] == records[0]["lr"] and trained.summary["last"] > 0.8


def test_restarts_resume_bit_for_bit(tmp_path):
    def config():
        settings = {"restarts": 1, "warmup": 1, "history": 2}
        return toy.config("selfie", controller="coupled", epochs=6, settings=settings, checkpoint_seconds=0.0)

    whole = train(config(), tmp_path / "whole", dataset=toy.blobs())
    with toy.killed_in(Selfie, 4):
        train(config(), tmp_path / "cut", dataset=toy.blobs())
    resumed = train(config(), tmp_path / "cut", dataset=toy.blobs(), resume=True)
    assert torch.equal(toy.weights(whole), toy.weights(resumed))
    assert samples_table(whole).equals(samples_table(resumed))


def test_too_many_trainings_are_noted(tmp_path):
    config = toy.config("selfie", controller="coupled", settings={"restarts": 3, "warmup": 2})
    records = train(config, tmp_path / "run", dataset=toy.blobs()).metrics
    assert any("warm-up only" in note for note in records[0]["notes"])


@pytest.mark.parametrize(("epochs", "said"), [(4, True), (5, False)])
def test_a_run_too_short_for_a_correction_is_noted(tmp_path, epochs, said):
    config = toy.config("selfie", controller="coupled", epochs=epochs, settings={"passes": 1, "history": 4})
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert any("no label is corrected" in note for note in trained.metrics[0].get("notes", [])) is said
    corrected = read_checkpoint(trained.folder.last)["memory"]["corrected"]
    assert bool((corrected >= 0).any()) is not said


def test_recipes():
    settings, recipe = resolve(SelfieSettings, Selfie.presets["cifar"], {}, 40)
    assert (recipe, settings.warmup, settings.lr_drop, settings.lr_again) == (100, 10, 20, 10)
    assert settings.history == 15  # fewer votes are unanimous by chance, however long the run is
    for name, preset in Selfie.presets.items():
        settings, _ = resolve(SelfieSettings, preset, {}, None)
        assert (settings.tau is not None) == name.startswith("oracle")
        length = settings.epochs // (settings.restarts + 1)
        assert settings.warmup * settings.passes >= settings.history and settings.warmup < length
    oracle, _ = resolve(SelfieSettings, Selfie.presets["oracle_40"], {}, None)
    assert (oracle.tau, oracle.epochs, oracle.restarts, oracle.view) == (0.4, 300, 2, "plain")


def test_settings_that_do_not_fit():
    for bad in ({"tau": 1.5}, {"history": 0}, {"view": "strong"}, {"clean_score": "soft"}, {"restarts": -1}):
        with pytest.raises(ValueError, match="expected"):
            SelfieSettings(**bad)
