"""SELC and SELC+: the unit facts of their page (part 10), the step against slow loops, and where TRACE attaches."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace import Coupled, Trace
from labeltrace.audit import samples_table
from labeltrace.engine import train
from labeltrace.engine.loop import EngineLoop
from labeltrace.learners import SELC
from labeltrace.learners.selc import SELCSettings, estimate_turning_point
from labeltrace.learners.settings import resolve
from labeltrace.scoring import Scores

SIZE, CLASSES = 20, 3
Y, P = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.2, 0.7, 0.1]])

make, batch = partial(toy.learner, SELC), toy.random_batch


def one():
    return toy.batch(torch.tensor([0]), torch.zeros(1, 4), torch.tensor([0]))


def targets(learner, b):
    return learner.supervise(0, b, P.expand(len(b.index), 3), []).target


def scores_of(suggested, clean=0.25):
    size = len(suggested)
    return Scores(
        torch.zeros(1, size), torch.full((1, size), clean), None, None, suggested, torch.full((size,), 0.4), None
    )


def test_fact_1_target_loss_and_gradient():
    learner = make()
    learner.update(0, one(), P)
    supervision = learner.supervise(0, one(), P, [])
    assert supervision.target[0].tolist() == pytest.approx([0.92, 0.07, 0.01], abs=1e-6)
    logits = P.log().requires_grad_()
    loss = supervision.loss(logits)
    loss.backward()
    assert loss.item() == pytest.approx(1.5286760, abs=1e-5)
    assert logits.grad[0].tolist() == pytest.approx([-0.72, 0.63, 0.09], abs=1e-6)


def test_fact_2_the_label_flips_after_eleven_updates():
    learner = make()
    for epoch in range(10):
        learner.update(epoch, one(), P)
    assert targets(learner, one())[0].tolist() == pytest.approx([0.478943, 0.455925, 0.065132], abs=1e-6)
    learner.update(10, one(), P)
    target = targets(learner, one())[0]
    assert target.tolist() == pytest.approx([0.451048, 0.480333, 0.068619], abs=1e-6)
    assert int(target.argmax()) == 1 and 0.9**11 < 1 / 3 < 0.9**10


def test_fact_3_the_target_is_the_running_mean_written_out():
    g = torch.Generator().manual_seed(3)
    for alpha in (0.9, 0.8, 0.5):
        learner, t = make(alpha=alpha), Y.double()
        learner.memory._values["ensemble"] = learner.memory["ensemble"].double()
        learner.memory._values["updates"] = learner.memory["updates"].double()
        for epoch in range(25):
            p = torch.randn(1, 3, generator=g, dtype=torch.float64).softmax(1)
            t = alpha * t + (1 - alpha) * p
            learner.update(epoch, one(), p)
            share, q = learner.ensemble(one().index)
            recovered = share[:, None] * Y + (1 - share[:, None]) * q
            assert torch.allclose(recovered, t, atol=1e-12, rtol=0)
            assert float(q.sum()) == pytest.approx(1, abs=1e-12) and (q >= 0).all()


def test_fact_3_limits_of_alpha():
    never, always = make(alpha=1.0), make(alpha=0.0)
    for learner in (never, always):
        learner.update(0, one(), P)
    assert torch.equal(targets(never, one()), Y)
    assert torch.allclose(targets(always, one()), P)
    logits = P.log().requires_grad_()
    always.supervise(0, one(), P, []).loss(logits).backward()
    assert logits.grad.abs().max() < 1e-6


@pytest.mark.parametrize(
    ("alpha", "n", "share"), [(0.9, 10, 0.3486784), (0.9, 22, 0.0984771), (0.8, 10, 0.1073742), (0.9, 160, 4.773e-8)]
)
def test_fact_4_share_of_the_label(alpha, n, share):
    learner = make(alpha=alpha)
    learner.memory["updates"] = torch.full((SIZE,), float(n))
    assert float(learner.ensemble()[0][0]) == pytest.approx(share, rel=1e-3)


def test_fact_5_one_update_per_sample_from_the_epoch_after_the_turning_point(tmp_path):
    """96 samples in batches of 20: the last batch is filled up with samples that were met before."""
    settings = {"batch_size": 20, "warmup": 2}
    config = toy.config("selc", controller="coupled", epochs=3, settings=settings)
    seen, original = [], SELC.epoch

    def spy(self, loop, epoch):
        original(self, loop, epoch)
        seen.append((self.memory["updates"].clone(), self.memory["ensemble"].abs().sum().item()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SELC, "epoch", spy)
        trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert not seen[1][0].any() and seen[1][1] == 0  # epochs 1 and 2 of the code, which counts from 1
    assert (seen[2][0] == 1).all()
    assert list(trained.metrics[1]["phases"]) == ["warm-up"] and list(trained.metrics[2]["phases"]) == ["train"]


def test_a_second_visit_in_an_epoch_changes_no_target():
    learner = make()
    learner.update(4, one(), P)
    kept = {name: learner.memory[name].clone() for name in ("ensemble", "updates", "updated")}
    learner.update(4, one(), 1 - P)
    assert all(torch.equal(learner.memory[name], values) for name, values in kept.items())


@pytest.mark.parametrize("visits", [1, 3])
def test_the_loss_is_the_formula_written_out(visits):
    learner, b = make(), batch()
    learner.networks[0].eval()
    with torch.no_grad():
        z = learner.networks[0](learner.views.weak(b.inputs, b.draws)).logits
    for epoch in range(visits):
        outcome = learner.step(epoch, b)
    total = 0.0
    for i in range(8):
        t = F.one_hot(b.observed[i], CLASSES).double()
        for _ in range(visits):
            t = 0.9 * t + 0.1 * z[i].double().softmax(0)  # before the comparison
        total -= float(t @ F.log_softmax(z[i].double(), 0))
    assert outcome.loss.item() == pytest.approx(total / 8, abs=1e-5)
    outcome.loss.backward()
    assert all(p.grad is not None for p in learner.networks[0].parameters())
    assert not learner.memory["ensemble"].requires_grad


def test_logits_that_underflow_stay_finite():
    learner = make()
    learner.update(0, one(), torch.tensor([[1.0, 0.0, 0.0]]))
    loss = learner.supervise(0, one(), P, []).loss(torch.tensor([[0.0, -2000.0, 2000.0]]))
    assert math.isfinite(float(loss))


def test_the_prediction_of_a_target_is_made_in_train_mode():
    learner, twin, b = make(), make(), batch()
    for network in (learner.networks[0], twin.networks[0]):
        network.train()
    learner.step(0, b)
    with torch.no_grad():
        p = twin.networks[0](b.inputs).logits.softmax(1)
    assert torch.allclose(learner.memory["ensemble"][:8], 0.1 * p, atol=1e-6)


@pytest.mark.parametrize("score", ["posterior", "schedule"])
@pytest.mark.parametrize("options", [{}, {"structure": False}, {"reweight": False}])
def test_trace_takes_over_target_and_weight(score, options):
    learner, b = make(Trace(start=2, ramp=0, **options), clean_score=score), batch()
    learner.networks[0].eval()
    g = torch.Generator().manual_seed(1)
    m = learner.memory
    m["posterior"], m["structure"] = torch.rand(SIZE, generator=g), torch.rand(SIZE, generator=g)
    m["updates"] = torch.full((SIZE,), 4.0)
    before = torch.randn(SIZE, CLASSES, generator=g).softmax(1)
    m["ensemble"] = before * (1 - 0.9**4)
    with torch.no_grad():
        z = learner.networks[0](b.inputs).logits
    loss = learner.step(2, b).loss.item()
    targets, strengths = [], []
    for i in range(8):
        p = z[i].softmax(0)
        e = 0.9 * (1 - 0.9**4) * before[i] + 0.1 * p
        q = e / (1 - 0.9**5)
        clean = 0.9**5 if score == "schedule" else float(m["posterior"][i])
        trust = clean if options.get("structure") is False else 0.7 * clean + 0.3 * float(m["structure"][i])
        trust *= 1.0 if int(p.argmax()) == int(q.argmax()) else 0.5
        second = (1 - trust) * float(q.max())
        targets.append((trust * F.one_hot(b.observed[i], CLASSES) + second * q) / (trust + second + 1e-8))
        strengths.append(1.0 if options.get("reweight") is False else max(trust + second, 0.2))
    mean = sum(strengths) / 8
    wanted = -sum(
        w / mean * float(t @ F.log_softmax(z[i], 0)) for i, (t, w) in enumerate(zip(targets, strengths, strict=True))
    )
    assert loss == pytest.approx(wanted / 8, abs=1e-5)


def test_before_its_start_trace_is_selc_also_for_an_epoch_on_the_device():
    b = batch()
    wanted = make(Coupled()).step(1, b).loss
    assert torch.equal(make(Trace(start=2, ramp=1)).step(1, b).loss, wanted)
    assert torch.equal(make(Trace(start=2, ramp=1)).step(torch.tensor(1), b).loss, wanted)
    late, device = make(Trace(start=2, ramp=1)), make(Trace(start=2, ramp=1))
    assert torch.allclose(late.step(3, b).loss, device.step(torch.tensor(3), b).loss)


def test_reduction_to_selc():
    """c_loss = α^n, β = 0, s_pseudo = 1."""
    b = batch()
    trace = Trace(start=0, ramp=100, pseudo_gate=False, reweight=False, structure=False)
    plain, traced = make(), make(trace, clean_score="schedule")
    for learner in (plain, traced):
        learner.networks[0].eval()
        learner.memory["updates"] = torch.full((SIZE,), 3.0)
        learner.memory["ensemble"] = torch.full((SIZE, CLASSES), (1 - 0.9**3) / 3)
    assert traced.step(0, b).loss.item() == pytest.approx(plain.step(0, b).loss.item(), abs=1e-6)


def test_structure_of_the_batch():
    learner, b = make(Trace(start=0, ramp=0, scope="batch", k=3)), batch()
    seen = []
    original = learner.controller.batch_structure
    learner.controller.batch_structure = lambda features, clean: seen.append(features) or original(features, clean)
    learner.step(0, b)
    ((stages,),) = seen
    assert all(len(stage) == 8 and not stage.requires_grad for stage in stages)


def test_the_table_says_what_selc_holds():
    learner = make(size=3)
    m = learner.memory
    m["updates"] = torch.tensor([0.0, 2.0, 2.0])
    m["ensemble"] = torch.tensor([[0.0] * 3, [0.19, 0.0, 0.0], [0.0, 0.19, 0.0]])
    scores = scores_of(torch.tensor([2, 2, 1]))
    assert learner.agreement(scores).tolist() == [True, False, True]
    suggested, confidence = learner.suggestion(scores)
    assert suggested.tolist() == [2, 0, 1] and confidence.tolist() == pytest.approx([0.4, 1.0, 1.0])
    assert learner.cleanliness(scores).tolist() == [0.25] * 3
    schedule = make(size=3, clean_score="schedule")
    schedule.memory["updates"] = m["updates"]
    assert schedule.cleanliness(scores).tolist() == pytest.approx([1.0, 0.81, 0.81])


def test_schedule():
    learner = make()
    assert [learner.learning_rate(e) for e in (0, 39, 40, 79, 80, 199)] == pytest.approx(
        [0.02, 0.02, 0.002, 0.002, 0.0002, 0.0002]
    )
    plus = make(epochs=400, plus_epochs=200)
    assert [plus.learning_rate(e) for e in (199, 200, 240, 399)] == pytest.approx([0.0002, 0.02, 0.002, 0.0002])


def test_recipes():
    cifar, recipe = resolve(SELCSettings, SELC.presets["cifar"], {}, 100)
    assert (recipe, cifar.warmup, cifar.lr_drop, cifar.lr_drop_again, cifar.plus_epochs) == (200, 15, 20, 40, 0)
    plus, _ = resolve(SELCSettings, SELC.presets["plus"], {}, 200)
    assert (plus.epochs, plus.plus_epochs) == (200, 100)
    assert resolve(SELCSettings, SELC.presets["cifar100"], {}, None)[0].warmup == 25
    points = [
        resolve(SELCSettings, SELC.presets[f"oracle_{data}_{rate}"], {}, None)[0].warmup
        for data in ("cifar10", "cifar100")
        for rate in ("20", "40", "60", "80", "asymmetric_40")
    ]
    assert points == [40, 30, 30, 40, 40, 30, 20, 30, 40, 20]
    clothing, _ = resolve(SELCSettings, SELC.presets["clothing1m"], {}, None)
    assert (clothing.epochs, clothing.alpha, clothing.warmup, clothing.weight_decay) == (40, 0.8, 5, 1e-3)
    for wrong in ({"alpha": 1.1}, {"clean_score": "x"}, {"plus_epochs": 201}, {"passes": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SELCSettings(**wrong)


@pytest.mark.parametrize("controller", ["coupled", "trace"])
def test_plus_starts_anew_on_the_corrected_labels(tmp_path, controller):
    changes = {"trace": {"start": 1, "ramp": 1, "k": 5, "score_batch": 16}} if controller == "trace" else {}
    settings = {"plus_epochs": 8, "alpha": 0.5, "lr_drop": 20, "lr_drop_again": 20}
    config = toy.config("selc", controller=controller, epochs=16, settings=settings, **changes)
    held, original, restarts, restart = [], SELC.correct, [], EngineLoop.restart

    def spy(self, loop, epoch):
        original(self, loop, epoch)
        held.append((epoch, self.memory["corrected"].clone()))

    data = toy.blobs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SELC, "correct", spy)
        patch.setattr(EngineLoop, "restart", lambda self, number: restarts.append(number) or restart(self, number))
        trained = train(config, tmp_path / "run", dataset=data)
    ((epoch, corrected),) = held
    assert epoch == 8
    right = (corrected == data.train.truth).float().mean()
    assert right > (data.train.labels == data.train.truth).float().mean()
    assert [list(record["phases"]) for record in trained.metrics[7:9]] == [["train"], ["SELC+"]]
    assert "fresh weights" in trained.metrics[8]["notes"][0]
    assert restarts == [1]
    assert trained.metrics[8]["lr"] == trained.metrics[0]["lr"]
    assert trained.summary["last"] > 0.7
    assert len(samples_table(trained)) == 96


def test_plus_loss_is_the_formula_written_out():
    learner, b = make(epochs=4, plus_epochs=2), batch()
    learner.networks[0].eval()
    labels = torch.tensor([2, 1, 0, 0, 1, 2, 0, 1])
    learner.memory["corrected"][:8] = labels
    loss = learner.plus_step(b).loss.item()
    lam = float(learner.mixing_weight(b.once))
    order = b.draws.fork(1).uniform(1)[:, 0].argsort()
    total = 0.0
    for i, j in enumerate(order.tolist()):
        log_p = F.log_softmax(learner.networks[0]((lam * b.inputs[i] + (1 - lam) * b.inputs[j])[None]).logits[0], 0)
        total -= lam * log_p[labels[i]].item() + (1 - lam) * log_p[labels[j]].item()
    assert loss == pytest.approx(total / 8, abs=1e-5)


def test_plus_resumes_bit_for_bit(tmp_path):
    config = toy.config("selc", controller="trace", epochs=6, settings={"plus_epochs": 3}, checkpoint_seconds=0.0)
    whole = train(config, tmp_path / "whole", dataset=toy.blobs())
    for stop in (3, 4):
        with toy.killed_in(SELC, stop):
            train(config, tmp_path / "cut", dataset=toy.blobs(), overwrite=True)
        resumed = train(config, tmp_path / "cut", dataset=toy.blobs(), resume=True)
        assert torch.equal(toy.weights(whole), toy.weights(resumed))


@pytest.mark.parametrize("plus", [0, 2])
def test_a_run_on_some_samples_per_epoch(tmp_path, plus):
    config = toy.config(
        "selc",
        controller="trace",
        epoch_samples=30,
        trace={"start": 0, "ramp": 0, "k": 5},
        settings={"plus_epochs": plus},
    )
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert torch.isfinite(trained.judgement.observed_reliability).all()


def test_turning_point():
    g = torch.Generator().manual_seed(0)
    low, high = 0.1 * torch.rand(60, generator=g), 0.1 * torch.rand(40, generator=g)
    rows = [torch.cat([low, high + gap]) for gap in (0.3, 1.0, 2.0, 1.2, 0.4)]
    assert estimate_turning_point(torch.stack(rows)) == 3
    with pytest.raises(ValueError, match=r"losses: shape \(3,\), expected \[E, N\]"):
        estimate_turning_point(torch.zeros(3))


@pytest.mark.filterwarnings("ignore")
def test_turning_point_of_equal_losses():
    assert estimate_turning_point(torch.ones(4, 10)) == 1
