"""CORES²: the unit facts of its page (part 10; phase 2 is not here) and what its official code does that matters."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace import Coupled, Evidence, Trace
from labeltrace.engine import train
from labeltrace.learners import Cores
from labeltrace.learners.cores import CoresSettings, label_margin, prior_loss
from labeltrace.learners.dropping import kept_only
from labeltrace.learners.settings import resolve
from labeltrace.scoring import Scores

Z = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
UNIFORM = torch.full((4,), 0.25)
AT_ONCE = {"start": 0, "ramp": 0}

make = partial(toy.learner, Cores)


def fixed(controller=None, logits=Z, **settings):
    return make(controller, classes=4, networks=[toy.Fixed(logits)], **settings)


def batch(observed=None):
    drawn = toy.random_batch()
    if observed is None:
        return drawn
    return toy.batch(drawn.index[: len(observed)], drawn.inputs[: len(observed)], torch.tensor(observed))


def test_fact_1_sieve():
    log_p = F.log_softmax(Z[0], 0)
    assert (-log_p).tolist() == pytest.approx([0.4402, 1.4402, 2.4402, 3.4402], abs=1e-4)
    assert float(-log_p.mean()) == pytest.approx(1.9402, abs=1e-4)
    for label, g in enumerate((-1.5, -0.5, 0.5, 1.5)):
        margin = label_margin(Z, torch.tensor([label]))
        assert float(-log_p[label] + log_p.mean()) == pytest.approx(g, abs=1e-6)
        assert float(margin) == pytest.approx(-g, abs=1e-6)
        assert float(label_margin(Z + 7, torch.tensor([label]))) == pytest.approx(-g, abs=1e-5)
        assert float(label_margin(3 * Z, torch.tensor([label]))) == pytest.approx(-3 * g, abs=1e-5)
    learner = fixed()
    learner.step(0, 2.0, batch([0, 1, 2, 3]))
    assert learner.memory["kept"][:4].tolist() == [0, 1, -1, -1]


@pytest.mark.parametrize(
    ("beta", "prior", "loss"),
    [(2.0, UNIFORM, -3.440190), (2.0, torch.tensor([0.4, 0.3, 0.2, 0.1]), -2.440190), (1.0, UNIFORM, -1.5)],
)
def test_fact_2_loss(beta, prior, loss):
    learner = fixed()
    learner.prior.copy_(prior)
    assert float(learner.step(0, beta, batch([0])).loss) == pytest.approx(loss, abs=1e-5)


def test_fact_3_gradient():
    """β = 1 and a uniform prior: 1/C − onehot(y), whatever the prediction."""
    for beta, wanted in ((1.0, (0.25, -0.75, 0.25, 0.25)), (2.0, (-0.1439, -0.7369, 0.4129, 0.4679))):
        learner = fixed()
        learner.step(-1, beta, batch([1])).loss.backward()
        assert learner.networks[0].logits.grad[0].tolist() == pytest.approx(wanted, abs=1e-4)
        p = Z.softmax(1)[0]
        formula = p - torch.eye(4)[1] - beta * (p - 0.25)
        assert learner.networks[0].logits.grad[0].tolist() == pytest.approx(formula.tolist(), abs=1e-5)


def test_fact_4_schedule():
    learner = make(batch_size=64)
    wanted = {0: 0, 10: 0, 11: 0.068966, 20: 0.689655, 30: 1.379310, 31: 1.448276, 39: 2, 40: 2, 99: 2}
    assert {t: round(learner.beta(t), 6) for t in wanted} == wanted
    rates = {0: 0.1, 20: 0.059184, 31: 0.040845, 40: 0.033333, 50: 0.003333}
    assert {t: round(learner.learning_rate(t), 6) for t in rates} == rates
    assert learner.settings.warmup == 31 and learner.controller_epoch(30) == -1  # the last epoch that keeps all
    optimizer = Cores.optimizer(learner.settings, learner.networks[0].parameters())
    assert optimizer.defaults["momentum"] == 0 and optimizer.defaults["weight_decay"] == 0


def test_fact_5_prior_from_the_kept():
    """π0 = (.3, .3, .4), N = 100, (10, 0, 20) removed."""
    learner = make(size=100)
    labels = torch.tensor([0] * 30 + [1] * 30 + [2] * 40)
    kept = torch.ones(100, dtype=torch.bool)
    kept[:10] = kept[60:80] = False
    learner.memory["kept"] = torch.where(kept, labels, -1).int()
    assert learner.renew_prior()
    assert learner.prior.tolist() == pytest.approx([0.285714, 0.428571, 0.285714], abs=1e-6)
    learner.memory["kept"] = torch.full((100,), -1, dtype=torch.int32)
    assert not learner.renew_prior()
    assert learner.prior.tolist() == pytest.approx([0.285714, 0.428571, 0.285714], abs=1e-6)


def test_fact_5_reduction():
    losses, kept = torch.tensor([0.5, 1.0, 3.0, 4.0]), torch.tensor([True, True, False, False])
    assert float((kept_only(torch.eye(4), kept).weight * losses).mean()) == pytest.approx(0.75)
    assert float((kept.float() * losses).mean()) == pytest.approx(0.375)
    b = batch([0, 1, 2, 3])
    by_kept, by_batch = (fixed(reduction=r).step(0, 2.0, b).loss for r in ("kept", "batch"))
    assert float(by_batch) == pytest.approx(float(by_kept) / 2, abs=1e-6)


def evidence_of(learner, b, epoch=0):
    """A step's outcome, what the controller was given, and what it answered."""
    seen = toy.watch(learner)
    return learner.step(epoch, 0.0, b), *seen[-1]


def test_fact_7_trace():
    learner = fixed(Trace(structure=False, **AT_ONCE))
    outcome, evidence, supervision = evidence_of(learner, batch([0, 1, 2, 3]))
    assert evidence.clean.tolist() == pytest.approx([0.817574, 0.622459, 0.377541, 0.182426], abs=1e-6)
    assert evidence.pseudo[2].tolist() == pytest.approx([0.8650, 0.1171, 0.0158, 0.0021], abs=1e-4)
    assert float(supervision.b[2]) == pytest.approx(0.538399, abs=1e-6)
    assert float(supervision.a[2] + supervision.b[2]) == pytest.approx(0.915940, abs=1e-6)
    assert supervision.target[2].tolist() == pytest.approx([0.5084, 0.0688, 0.4215, 0.0013], abs=1e-4)
    soft = -(supervision.target[2] * F.log_softmax(Z[0], 0)).sum()
    assert float(soft) == pytest.approx(1.355782, abs=1e-5)
    assert float(outcome.loss) == pytest.approx(float(supervision.loss(Z.expand(4, -1))), abs=1e-6)


def test_loss_equals_the_formula_written_out():
    learner, b = make(), batch()
    learner.networks[0].eval()
    learner.prior.copy_(torch.tensor([0.5, 0.3, 0.2]))
    outcome = learner.step(0, 1.3, b)
    z = learner.networks[0](b.inputs).logits.detach()
    total, kept = 0.0, 0
    for i in range(8):
        y = int(b.observed[i])
        if float(z[i, y]) < float(z[i].mean()):
            continue
        p = z[i].softmax(0)
        term = sum(float(learner.prior[c]) * -math.log(float(p[c]) + 1e-8) for c in range(3))
        total += -math.log(float(p[y])) - 1.3 * term
        kept += 1
    assert 0 < kept < 8
    assert float(outcome.loss) == pytest.approx(total / kept, abs=1e-5)
    assert float(outcome.logs["kept"]) == pytest.approx(kept / 8)


def test_the_regulariser_is_capped():
    logits = torch.tensor([[200.0, 0.0, -200.0]], requires_grad=True)
    loss = prior_loss(logits, torch.full((3,), 1 / 3))
    assert float(loss.detach()) == pytest.approx(2 / 3 * 18.4207, abs=1e-3)
    loss.sum().backward()
    assert torch.isfinite(logits.grad).all() and float(logits.grad.abs().max()) < 1e-3


def test_the_regulariser_uses_the_prior_and_the_sieve_does_not():
    one, two = (fixed() for _ in range(2))
    two.prior.copy_(torch.tensor([0.97, 0.01, 0.01, 0.01]))
    b = batch([0, 1, 2, 3])
    assert float(one.step(0, 2.0, b).loss) != float(two.step(0, 2.0, b).loss)
    assert torch.equal(one.memory["kept"], two.memory["kept"])


def test_equal_logits_are_kept():
    learner = fixed(logits=torch.zeros(1, 4))
    learner.step(0, 2.0, batch([0, 1, 2, 3]))
    assert learner.memory["kept"][:4].tolist() == [0, 1, 2, 3]


def test_everything_is_kept_in_warm_up():
    learner = fixed()
    learner.step(-1, 2.0, batch([3, 3, 3]))
    assert learner.memory["kept"][:3].tolist() == [3, 3, 3]


def test_an_epoch_renews_the_prior_and_notes_empty_batches():
    learner = fixed(warmup=1)
    loop = toy.Loop(batch([0, 0, 1, 3]))
    learner.epoch(loop, 0)
    assert learner.prior.tolist() == [0.5, 0.25, 0.0, 0.25] and not loop.notes
    learner.epoch(loop, 1)
    assert learner.prior.tolist() == pytest.approx([2 / 3, 1 / 3, 0.0, 0.0])
    empty = toy.Loop(batch([2, 3]), batch([3, 2]))
    learner.epoch(empty, 2)
    assert learner.prior.tolist() == pytest.approx([2 / 3, 1 / 3, 0.0, 0.0])
    assert len(empty.notes) == 2 and "2 batches kept no sample" in empty.notes[0]
    assert all(float(outcome.loss) == 0 for outcome in empty.outcomes)


def test_a_repeated_sample_counts_once_in_the_prior():
    learner = fixed()
    b = batch([0, 1, 0, 0])
    learner.epoch(toy.Loop(dataclasses.replace(b, index=torch.tensor([0, 1, 0, 0]))), 0)
    assert learner.prior.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_trace_keeps_the_regulariser_over_the_kept_samples():
    """Only the fit changes: β Σ π ℓ is multiplied by v / mean v, not by TRACE's weight."""
    b = batch([0, 1, 2, 3])
    base = fixed()
    traced = fixed(Trace(structure=False, **AT_ONCE))
    plain, late = base.step(0, 2.0, b), traced.step(0, 2.0, b)
    assert torch.equal(plain.logs["confidence"], late.logs["confidence"])
    assert not torch.equal(plain.logs["fit"], late.logs["fit"])
    assert torch.equal(base.memory["kept"], traced.memory["kept"])
    assert float(late.loss) == pytest.approx(float(late.logs["fit"] - 2 * late.logs["confidence"]), abs=1e-5)


def test_a_step_with_a_tensor_epoch_chooses_the_same():
    b = batch()
    for epoch in (1, 2):
        losses = []
        for kind in (int, torch.tensor):
            learner = make(Trace(structure=False, start=2, ramp=1))
            learner.networks[0].eval()
            losses.append(float(learner.step(kind(epoch), 1.0, b).loss))
        assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_votes_are_the_network_and_its_average():
    learner, b = make(Trace(structure=False, **AT_ONCE), ema_decay=0.5), batch()
    learner.networks[0].eval()
    average = {n: v.clone() for n, v in learner.average.module.state_dict().items()}
    with torch.no_grad():
        learner.networks[0].fc.bias.add_(torch.tensor([4.0, 0.0, 0.0]))
    _, evidence, _ = evidence_of(learner, b)
    with torch.no_grad():
        own = learner.networks[0](b.inputs).logits.softmax(1)
        other = learner.average.module(b.inputs).logits.softmax(1)
    assert torch.allclose(learner.average.module.fc.bias, average["fc.bias"] + torch.tensor([2.0, 0.0, 0.0]), atol=1e-6)
    assert torch.allclose(evidence.votes[0], own) and torch.allclose(evidence.votes[1], other)
    mean = ((own + other) / 2) ** 2
    assert torch.allclose(evidence.pseudo, mean / mean.sum(1, keepdim=True), atol=1e-6)
    agree = own.argmax(1) == other.argmax(1)
    assert torch.equal(learner.memory["agree"][:8], agree)
    assert torch.equal(learner.memory["suggested"][:8].long(), evidence.pseudo.argmax(1))


def test_no_gradient_reaches_a_target_or_the_average():
    learner, b = make(Trace(structure=False, **AT_ONCE)), batch()
    learner.step(0, 1.0, b).loss.backward()
    assert all(p.grad is not None for p in learner.networks[0].parameters())
    assert all(p.grad is None for p in learner.average.module.parameters())


def test_the_average_begins_where_warm_up_ends():
    learner = fixed(Trace(structure=False, start=5), warmup=1)
    with torch.no_grad():
        learner.networks[0].logits.add_(1.0)
    learner.epoch(toy.Loop(batch([0, 1])), 1)
    assert torch.equal(learner.average.module.logits, learner.networks[0].logits)
    with torch.no_grad():
        learner.networks[0].logits.add_(1.0)
    learner.epoch(toy.Loop(batch([0, 1])), 2)
    assert torch.allclose(learner.networks[0].logits - learner.average.module.logits, torch.tensor(0.999))


def test_the_base_has_no_average():
    learner = make(Coupled())
    assert learner.average is None and set(learner.companions()) == {"state"}
    assert learner.agreement(scores(learner)) is None


def scores(learner, classes=3):
    g = torch.Generator().manual_seed(3)
    z, labels = torch.randn(20, classes, generator=g), torch.randint(classes, (20,), generator=g)
    p = z.softmax(1)
    q = learner.pseudo(p[None])
    loss = F.cross_entropy(z, labels, reduction="none")[None]
    made = Scores(loss, torch.ones(1, 20), None, torch.full((1, 20), 0.5), q.argmax(1), q.amax(1), None, p[None])
    made.__dict__["margin"] = label_margin(z, labels)
    return made


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_table_says_how_clean_a_label_is(kind):
    learner = make(clean_score=kind, clean_scale=2.0)
    found = scores(learner)
    margin = found.__dict__["margin"]
    wanted = torch.sigmoid(2 * margin) if kind == "soft" else (margin >= 0).float()
    assert torch.allclose(learner.cleanliness(found), wanted, atol=1e-5)
    assert torch.equal(learner.cleanliness(found) >= 0.5, margin >= 0)  # soft and hard agree at the sieve


def test_a_certain_prediction_has_a_finite_cleanliness():
    learner = make()
    p = torch.tensor([[[1.0, 0.0, 0.0]]]).repeat(1, 20, 1)
    found = dataclasses.replace(scores(learner), probabilities=p, loss=torch.full((1, 20), 150.0))
    assert torch.isfinite(learner.cleanliness(found)).all()


def test_the_table_takes_suggestions_of_the_last_step():
    learner, b = make(Trace(structure=False, **AT_ONCE)), batch()
    found = scores(learner)
    assert torch.equal(learner.suggestion(found)[0], found.suggested)  # TRACE has seen none yet
    learner.networks[0].eval()
    _, evidence, _ = evidence_of(learner, b)
    suggested, confidence = learner.suggestion(found)
    assert torch.equal(suggested[:8], evidence.pseudo.argmax(1)) and torch.equal(suggested[8:], found.suggested[8:])
    assert torch.allclose(confidence[:8], evidence.pseudo.amax(1))
    assert torch.equal(confidence[8:], found.confidence[8:])


def test_structure_comes_from_the_pass():
    learner, b = make(Trace(**AT_ONCE, k=3), warmup=0), batch()
    learner.epoch(toy.Loop(b, scores=scores(learner)), 0)
    assert torch.equal(learner.memory["structure"], torch.full((20,), 0.5))
    _, evidence, _ = evidence_of(learner, b)
    assert torch.equal(evidence.structure, torch.full((8,), 0.5))
    _, evidence, _ = evidence_of(make(Trace(**AT_ONCE, k=3, scope="batch")), b)
    assert not torch.equal(evidence.structure, torch.ones(8))


@pytest.mark.parametrize("observed", [[0], [1], [0, 0, 0, 0]])
def test_batches_of_one_and_of_one_class(observed):
    for controller in (None, Trace(structure=False, **AT_ONCE)):
        learner = make(controller)
        learner.networks[0].eval()  # batch normalisation refuses a single row
        outcome = learner.step(0, 2.0, batch(observed))
        assert torch.isfinite(outcome.loss)


def test_hard_cleanliness_is_the_sieves_flag():
    learner = fixed(Trace(structure=False, **AT_ONCE), clean_score="hard")
    _, evidence, _ = evidence_of(learner, batch([0, 1, 2, 3]))
    assert evidence.clean.tolist() == [1, 1, 0, 0]


def test_evidence_is_valid():
    """What the learner hands over is what `Evidence` asks for, on any device."""
    _, evidence, _ = evidence_of(make(Trace(structure=False, **AT_ONCE)), batch())
    assert isinstance(evidence, Evidence)
    evidence.check()


def test_a_run_that_sieves_everything_goes_on(tmp_path, monkeypatch):
    from labeltrace.learners import cores

    monkeypatch.setattr(cores, "label_margin", lambda logits, observed: torch.full((len(observed),), -1.0))
    trained = train(toy.config("cores", controller="coupled"), tmp_path / "run", dataset=toy.blobs())
    records = [json.loads(line) for line in trained.folder.metrics.read_text().splitlines()]
    assert "notes" not in records[0] and all(len(record["notes"]) == 2 for record in records[1:])
    assert records[1]["loss"] == 0


def test_recipes():
    cifar = partial(resolve, CoresSettings, given={})
    settings, recipe = cifar(preset=Cores.presets["cifar"], epochs=50)
    assert (recipe, settings.warmup, settings.lr_drop, settings.beta_start, settings.lr_again) == (100, 16, 25, 5, 0)
    food, _ = cifar(preset=Cores.presets["food101n"], epochs=None)
    learner = make(**{f.name: getattr(food, f.name) for f in dataclasses.fields(food)})
    assert [learner.beta(t) for t in (0, 1, 29)] == [0, 2, 2]
    assert [learner.learning_rate(t) for t in (0, 10, 20, 29)] == pytest.approx([2e-3, 2e-4, 2e-5, 2e-5])
    web, _ = cifar(preset=Cores.presets["webvision"], epochs=None)
    learner = make(**{f.name: getattr(web, f.name) for f in dataclasses.fields(web)})
    assert [learner.beta(t) for t in (0, 1, 6, 11, 99)] == [0, 0, 1, 2, 2]
    assert learner.learning_rate(60) == pytest.approx(1e-3) and learner.settings.reduction == "batch"
    for name, preset in Cores.presets.items():
        assert make(**{f.name: getattr(cifar(preset=preset, epochs=None)[0], f.name) for f in dataclasses.fields(web)})
        assert not name.startswith("oracle")


def test_settings_that_do_not_fit():
    for bad in (
        {"beta_start": 0, "beta_ramp": 0},
        {"reduction": "sum"},
        {"clean_score": "soft-ish"},
        {"ema_decay": 1.0},
        {"temperature": 0.0},
        {"passes": 0},
    ):
        with pytest.raises(ValueError, match="expected"):
            CoresSettings(**bad)
