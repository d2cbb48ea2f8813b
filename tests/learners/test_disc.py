"""DISC: the unit facts of its page (part 10), its step against slow loops over subsets, and where TRACE attaches."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace import Coupled, Trace
from labeltrace.audit import samples_table
from labeltrace.data import from_arrays
from labeltrace.data.draws import Draws
from labeltrace.engine import train
from labeltrace.learners import DISC
from labeltrace.learners.disc import DISCSettings
from labeltrace.learners.mixing import BetaWeight, mix_among
from labeltrace.learners.settings import resolve
from labeltrace.learners.terms import generalised_cross_entropy
from labeltrace.scoring import Scores

SIZE, CLASSES = 20, 3

make, batch = partial(toy.learner, DISC), toy.random_batch


def filled(learner, seed=0):
    """Random predictions, labels, thresholds; sets of all kinds among the first eight samples."""
    g = torch.Generator().manual_seed(seed)
    m = learner.memory
    for name in ("weak", "strong"):
        m[name] = torch.randn(SIZE, CLASSES, generator=g).mul(2).softmax(1)
    observed = torch.zeros(SIZE, dtype=torch.int64)
    observed[:8] = batch().observed
    m["selecting"] = torch.tensor([2, 1, 0, 2, 0, 1, 0, 2] + [0] * 12)
    m["purified"] = torch.tensor([0, 0, 1, 0, 0, 0, 1, 0] + [0] * 12).bool()
    m["label"] = torch.where(m["selecting"] > 0, observed, (m["weak"] + m["strong"]).argmax(1))
    m["clean"] = m["selecting"] / 2
    m["structure"] = torch.rand(SIZE, generator=g)
    return learner


def test_fact_1_generalised_cross_entropy():
    def loss(p):
        return float(
            generalised_cross_entropy(torch.tensor([[p, 1 - p]], dtype=torch.float64).log(), torch.zeros(1).long(), 0.7)
        )

    assert loss(0.6) == pytest.approx(0.4294740, abs=1e-6)
    assert loss(1.0) == pytest.approx(0, abs=1e-7)
    assert loss(0.0) == pytest.approx(1.4285534, abs=1e-6) and loss(0.0) < 1 / 0.7


@pytest.mark.parametrize(
    ("epochs", "first", "second", "twenty"),
    [(100, 0.0080198, 0.0169396, 0.16390), (20, 0.0400190, 0.0830181, 0.57737)],
    ids=["momentum 0.99", "momentum 0.95"],
)
def test_fact_2_thresholds(epochs, first, second, twenty):
    learner = make(size=50_000, classes=2, threshold_epochs=epochs, warmup=1)

    def predict(value):
        for name in ("weak", "strong"):
            learner.memory[name] = torch.tensor([value, 1 - value]).expand(50_000, 2)

    predict(0.8)
    learner.epoch(toy.Loop(labels=torch.zeros(50_000).long()), 0)  # thresholds start at 1/N
    assert float(learner.memory["threshold"][7, 0]) == pytest.approx(first, abs=1e-6)
    assert bool((learner.memory["selecting"] == 2).all())  # nearly everything is clean after the first epoch
    predict(0.9)
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert learner.memory["threshold"][7].tolist() == pytest.approx([second] * 2, abs=1e-6)
    learner.memory["threshold"] = torch.full((50_000, 2), 1 / 50_000)
    for _ in range(20):
        learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert float(learner.memory["threshold"][0, 1]) == pytest.approx(twenty, abs=1e-4)


@pytest.mark.parametrize(
    ("confidences", "selecting"), [((0.45, 0.52), 2), ((0.45, 0.48), 1), ((0.30, 0.20), 0), ((0.40, 0.50), 0)]
)
def test_fact_3_selection(confidences, selecting):
    learner = make(size=1)
    m = learner.memory
    m["threshold"] = torch.tensor([[0.4, 0.5]])
    for name, p in zip(("weak", "strong"), confidences, strict=True):
        m[name] = torch.tensor([[p, 1 - p, 0.0]])
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert int(m["selecting"]) == selecting
    assert float(m["clean"]) == selecting / 2
    # with the maximum, not with the label's confidence, and after the selection
    wanted = [0.99 * t + 0.01 * max(p, 1 - p) for t, p in zip((0.4, 0.5), confidences, strict=True)]
    assert m["threshold"][0].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("threshold", "sigma", "bound"),
    [((0.4, 0.5), 0.5, 0.95), ((0.4, 0.5), 0.3, 0.75), ((0.48, 0.52), 0.5, 0.99), ((0.6, 0.8), 0.5, 0.99)],
)
def test_fact_3_correction(threshold, sigma, bound):
    learner = make(size=2, sigma=sigma)
    m = learner.memory
    m["threshold"] = torch.tensor([threshold] * 2)
    for name in ("weak", "strong"):
        m[name] = torch.tensor([[0.0, bound + 1e-4, 1 - bound - 1e-4], [0.0, bound - 1e-4, 1 - bound + 1e-4]])
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert m["purified"].tolist() == [True, False]
    assert int(m["label"][0]) == 1


def test_fact_4_sets_are_disjoint_and_mix_is_their_union():
    learner = make(size=500, sigma=0.1)
    g = torch.Generator().manual_seed(0)
    m = learner.memory
    for name in ("weak", "strong"):
        m[name] = torch.randn(500, CLASSES, generator=g).mul(3).softmax(1)
    observed = torch.randint(CLASSES, (500,), generator=g)
    m["threshold"] = torch.rand(500, 2, generator=g) * 0.9
    m["label"] = observed
    before = {name: m[name].clone() for name in ("threshold", "weak", "strong")}
    learner.choose(observed)
    kinds = [0, 0, 0, 0]
    for i in range(500):
        of_label = [float(before[v][i, observed[i]]) for v in ("weak", "strong")]
        passed = [p > float(t) for p, t in zip(of_label, before["threshold"][i], strict=True)]
        mean = (before["weak"][i] + before["strong"][i]) / 2
        bound = min(float(before["threshold"][i].mean()) + 0.1, 0.99)
        purified = not any(passed) and float(mean.max()) > bound
        assert int(m["selecting"][i]) == sum(passed)
        assert bool(m["purified"][i]) == purified
        wanted = int(mean.argmax()) if purified else int(observed[i])
        assert int(m["label"][i]) == wanted
        kinds[3 if purified else sum(passed)] += 1
    assert min(kinds) > 10
    assert not bool((m["purified"] & (m["selecting"] > 0)).any())


def test_fact_4_a_label_that_is_predicted_can_leave_the_clean_set():
    learner = make(size=1, classes=2)
    for name in ("weak", "strong"):
        learner.memory[name] = torch.tensor([[0.6, 0.4]])
    learner.memory["threshold"] = torch.full((1, 2), 0.7)
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert int(learner.memory["selecting"]) == 0


def test_working_labels_are_kept_outside_the_sets():
    learner = make(size=1)
    learner.memory["label"] = torch.tensor([2])
    learner.memory["threshold"] = torch.ones(1, 2)
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert int(learner.memory["label"]) == 2


def test_fact_5_adam_plan():
    settings, _ = resolve(DISCSettings, DISC.presets["oracle_80"], {}, None)
    learner = make()
    learner.settings = settings
    assert [learner.adam_plan(e)[0] for e in (119, 120, 160, 199)] == pytest.approx([1e-3, 1e-3, 5e-4, 1.25e-5])
    assert [learner.adam_plan(e)[1] for e in (0, 119, 120, 199)] == [0.9, 0.9, 0.1, 0.1]
    optimizer = learner.optimizer(learner.settings, learner.networks[0].parameters())
    found = []
    for epoch in (120, 121, 161):  # one epoch late, as published
        learner.tune(optimizer, epoch)
        found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"]))
    assert found == [(pytest.approx(1e-3), (0.9, 0.999)), (1e-3, (0.1, 0.999)), (pytest.approx(5e-4), (0.1, 0.999))]
    # applied after the epoch it was made for
    assert [learner.learning_rate(e) for e in (0, 121, 161)] == pytest.approx([1e-3, 1e-3, 5e-4])
    optimizer = DISC.optimizer(settings, [torch.nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, torch.optim.Adam) and optimizer.defaults["weight_decay"] == 0


def test_fact_5_mixing_weight():
    drawn = BetaWeight(5.0)(Draws.at(torch.arange(20_000), 0))
    assert float(drawn.min()) >= 0.5 and float(drawn.max()) <= 1
    assert float(drawn.mean()) == pytest.approx(0.623, abs=0.003)
    for alpha in (DISCSettings().mix_alpha, 2.0):
        weight = make(mix_alpha=alpha).mixing_weight
        assert (weight.alpha, weight.larger_half) == (alpha, True)
    assert DISCSettings().mix_alpha == 5


def test_sgd_has_no_momentum_and_drops_twice():
    optimizer = DISC.optimizer(DISCSettings(), [torch.nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, torch.optim.SGD) and optimizer.defaults["momentum"] == 0
    rates = [make().learning_rate(epoch) for epoch in (0, 79, 80, 159, 160, 199)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


@pytest.mark.parametrize("pattern", ["10110010", "00000001", "11111111", "00000000"])
def test_mix_among_permutes_inside_the_members(pattern):
    members = torch.tensor([c == "1" for c in pattern])
    wanted = members.nonzero()[:, 0].tolist()
    seen = set()
    for seed in range(30):
        rows, partners, counted = mix_among(members, Draws.at(torch.arange(8), seed))
        n = int(counted.sum())
        assert n == len(wanted) and counted[:n].all()
        if not n:  # the batch stands in for members that there are not
            assert rows.tolist() == list(range(8))
            continue
        assert rows[:n].tolist() == wanted
        assert sorted(partners[:n].tolist()) == list(range(n))
        assert set(rows.tolist()) == set(wanted) and set(partners.tolist()) == set(range(n))
        assert rows.tolist() == [wanted[j % n] for j in range(8)]
        seen.add(tuple(partners[:n].tolist()))
    assert len(seen) > 1 or len(wanted) < 2


def slow_loss(learner, b, target, weight):
    """The published loss, by cutting subsets; targets and weights (before normalisation) per sample of the batch."""
    network, m, s = learner.networks[0], learner.memory, learner.settings
    weak = learner.views.weak(b.inputs, b.draws.fork(0))
    strong = learner.views.strong(b.inputs, b.draws.fork(1))
    clean = [i for i in range(8) if int(m["selecting"][i]) == 2]
    hard = [i for i in range(8) if int(m["selecting"][i]) == 1]
    mixed = [i for i in range(8) if int(m["selecting"][i]) or bool(m["purified"][i])]
    total = 0.0
    for view, tag in ((weak, 2), (strong, 4)):
        z = network(view).logits
        if clean:
            total += s.lambda_ce * len(clean) / 8 * float(F.cross_entropy(z[clean], b.observed[clean]))
        for i in hard:
            p = float(z[i].softmax(0)[b.observed[i]])
            total += s.lambda_h / 8 * (1 - p**s.gce_q) / s.gce_q
        if not mixed:
            continue
        lam = float(learner.mixing_weight(b.once.fork(tag)))
        assert 0.5 <= lam <= 1
        u = b.draws.fork(tag + 1).uniform(1)[: len(mixed), 0]
        order = [mixed[k] for k in u.argsort().tolist()]
        mean = sum(float(weight[i]) for i in mixed) / len(mixed)
        loss = 0.0
        for i, j in zip(mixed, order, strict=True):
            log_p = F.log_softmax(network((lam * view[i] + (1 - lam) * view[j])[None]).logits[0], 0)
            loss -= lam * float(weight[i]) / mean * float(target[i] @ log_p)
            loss -= (1 - lam) * float(weight[j]) / mean * float(target[j] @ log_p)
        total += loss / len(mixed)
    return total


@pytest.mark.parametrize("sets", ["all kinds", "no clean", "one", "none"])
def test_the_loss_is_the_subset_formula(sets):
    learner, b = filled(make(lambda_ce=1.5, lambda_h=0.2, gce_q=0.5)), batch()
    m = learner.memory
    if sets == "no clean":
        m["selecting"] = m["selecting"].clamp(max=1)
    elif sets in ("one", "none"):
        m["selecting"] = torch.zeros(SIZE)
        m["purified"] = torch.arange(SIZE) == (3 if sets == "one" else 99)
    learner.networks[0].eval()  # batch statistics aside, the rows that fill the batch leave no trace
    with torch.no_grad():
        wanted = slow_loss(learner, b, F.one_hot(m["label"][:8], CLASSES).float(), torch.ones(8))
    outcome = learner.step(0, b)
    assert outcome.loss.item() == pytest.approx(wanted, abs=1e-5)
    outcome.loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in learner.networks[0].parameters())
    if sets == "none":
        assert outcome.loss.item() == 0
        assert all(not p.grad.any() for p in learner.networks[0].parameters())


@pytest.mark.parametrize("options", [{}, {"structure": False}, {"reweight": False}, {"agreement": False}])
def test_trace_replaces_target_and_weight_of_the_mixture_alone(options):
    trace = Trace(start=0, ramp=0, alpha=0.7, w_min=0.2, **options)
    learner, b = filled(make(trace)), batch()
    m = learner.memory
    learner.networks[0].eval()
    target, weight = torch.zeros(8, CLASSES), torch.zeros(8)
    for i in range(8):
        weak, strong = m["weak"][i], m["strong"][i]
        q, clean = (weak + strong) / 2, int(m["selecting"][i]) / 2
        score = clean if options.get("structure") is False else 0.7 * clean + 0.3 * float(m["structure"][i])
        if options.get("agreement", True) and int(weak.argmax()) != int(strong.argmax()):
            score *= 0.5
        second = (1 - score) * float(q.max())
        target[i] = (score * F.one_hot(b.observed[i], CLASSES) + second * q) / (score + second + 1e-8)
        weight[i] = 1.0 if options.get("reweight") is False else max(score + second, 0.2)
    with torch.no_grad():
        wanted = slow_loss(learner, b, target, weight)
    assert float(learner.step(50, b).loss) == pytest.approx(wanted, abs=1e-5)


def test_reduction_hard_evidence_gives_disc_back():
    """s_obs 1 on selected, 0 on purified with s_pseudo 1 and a one-hot replacement: DISC exactly."""
    plain, traced = filled(make()), filled(make(Trace(structure=False, agreement=False, start=0, ramp=0)))
    b = batch()
    hard = F.one_hot(plain.memory["label"], CLASSES).float()
    for learner in (plain, traced):
        learner.networks[0].eval()
        learner.memory["clean"] = (learner.memory["selecting"] > 0).float()
        learner.memory["weak"], learner.memory["strong"] = hard, hard
    assert float(traced.step(50, b).loss) == pytest.approx(float(plain.step(50, b).loss), abs=1e-6)


def test_before_its_start_trace_is_disc_also_for_an_epoch_on_the_device():
    b = batch()
    plain, early, late = (filled(make(c)) for c in (Coupled(), Trace(start=5, ramp=2), Trace(start=5, ramp=2)))
    for learner in (plain, early, late):
        learner.networks[0].eval()
    wanted = plain.step(4, b).loss
    assert torch.equal(early.step(4, b).loss, wanted)
    assert torch.equal(late.step(torch.tensor(4), b).loss, wanted)
    early, late = filled(early), filled(late)
    assert torch.allclose(early.step(6, b).loss, late.step(torch.tensor(6), b).loss)
    assert not torch.equal(early.step(6, b).loss, wanted)


def test_trace_counts_from_the_end_of_warm_up_and_scores_from_its_start_on():
    learner, steps = make(Trace(start=2, ramp=1)), []
    structure = torch.rand(1, SIZE, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros(1, SIZE)
    loop = toy.Loop(scores=Scores(zeros, zeros, structure, structure, zeros[0].long(), zeros[0], None))
    loop.train = lambda step, **asked: steps.append(step)
    learner.epoch(loop, 19)  # the last of warm-up
    assert steps == [learner.warmup_step]
    learner.epoch(loop, 21)
    assert not loop.views and learner.memory["structure"].eq(1).all()
    learner.epoch(loop, 22)
    assert [step.args for step in steps[1:]] == [(1,), (2,)]
    assert loop.views == ["plain"] and torch.equal(learner.memory["structure"], structure[0])


def test_structure_of_the_batch_is_the_mean_over_the_views():
    learner, b = filled(make(Trace(start=0, ramp=0, scope="batch", k=3))), batch()
    learner.networks[0].eval()
    seen = []
    original = learner.controller.batch_structure
    learner.controller.batch_structure = lambda features, clean: seen.append(features) or original(features, clean)
    learner.step(9, b)
    (views,) = seen
    assert len(views) == 2 and all(stage.shape[0] == 8 and not stage.requires_grad for view in views for stage in view)
    strong = learner.networks[0](learner.views.strong(b.inputs, b.draws.fork(1))).features
    assert torch.allclose(views[1][-1], strong[-1], atol=1e-5)


def test_smooth_score():
    learner = make(size=3, clean_score="smooth")
    m = learner.memory
    m["threshold"] = torch.tensor([[0.4, 0.5]] * 3)
    m["weak"] = torch.tensor([[0.45, 0.55, 0.0], [0.2, 0.8, 0.0], [0.0, 1.0, 0.0]])
    m["strong"] = torch.tensor([[0.52, 0.48, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]])
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert m["clean"].tolist() == pytest.approx([1.0, 0.75, 0.25])


def test_a_step_remembers_its_own_forward_in_train_mode():
    learner, b = make(), batch()
    learner.networks[0].train()
    x = torch.cat([learner.views.weak(b.inputs, b.draws.fork(0)), learner.views.strong(b.inputs, b.draws.fork(1))])
    learner.warmup_step(b)
    twin = make()
    twin.networks[0].train()
    with torch.no_grad():
        p = twin.networks[0](x).logits.softmax(1)
    assert torch.allclose(learner.memory["weak"][:8], p[:8]) and torch.allclose(learner.memory["strong"][:8], p[8:])
    assert not learner.memory["weak"][8:].any()  # never met


def test_warm_up_loss_is_the_sum_over_both_views():
    learner, b = make(), batch()
    learner.networks[0].eval()
    z = [
        learner.networks[0](x).logits
        for x in (learner.views.weak(b.inputs, b.draws.fork(0)), learner.views.strong(b.inputs, b.draws.fork(1)))
    ]
    wanted = sum(F.cross_entropy(view, b.observed) for view in z)
    assert float(learner.warmup_step(b).loss) == pytest.approx(float(wanted), abs=1e-5)


def test_unmet_samples_keep_zeros_and_their_threshold_decays():
    learner = make(size=4)
    learner.memory["threshold"] = torch.full((4, 2), 0.5)
    learner.choose(torch.zeros(learner.memory.size, dtype=torch.int64))
    assert torch.allclose(learner.memory["threshold"], torch.full((4, 2), 0.495))
    assert not learner.memory["selecting"].any() and not learner.memory["purified"].any()


def test_the_table_says_what_disc_holds():
    learner = filled(make())
    m = learner.memory
    m["weak"][9] = m["strong"][9] = 0  # never met
    scores = Scores(
        *(torch.zeros(1, SIZE) for _ in range(2)), None, None, torch.full((SIZE,), 2), torch.full((SIZE,), 0.4), None
    )
    assert torch.equal(learner.cleanliness(scores), m["clean"])
    assert learner.agreement(scores).tolist() == (m["weak"].argmax(1) == m["strong"].argmax(1)).tolist()
    suggested, confidence = learner.suggestion(scores)
    mean = (m["weak"] + m["strong"]) / 2
    assert suggested[:9].tolist() == mean.argmax(1)[:9].tolist()
    assert torch.allclose(confidence[:9], mean.amax(1)[:9])
    assert (int(suggested[9]), float(confidence[9])) == (2, pytest.approx(0.4))


def test_empty_sets_are_noted_once_and_the_run_goes_on(tmp_path):
    learner = make(warmup=1)
    loop = toy.Loop(labels=torch.zeros(SIZE).long())
    learner.epoch(loop, 0)
    assert loop.notes == ["no label is selected or purified, so the next epoch fits nothing"]
    loop.notes.clear()
    learner.memory["weak"] = torch.eye(3)[torch.zeros(SIZE).long()]
    learner.epoch(loop, 1)
    assert len(loop.notes) == 1 and "clean in both views" in loop.notes[0]
    # thresholds that nothing passes
    config = toy.config("disc", controller="coupled", settings={"threshold_epochs": 1, "sigma": 1.0, "cap": 1.0})
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert all(math.isfinite(record["loss"]) for record in trained.metrics)


def test_a_run_on_some_samples_per_epoch(tmp_path):
    config = toy.config("disc", controller="trace", epoch_samples=30, trace={"start": 0, "ramp": 0, "k": 5})
    trained = train(config, tmp_path / "run", dataset=toy.blobs())
    assert len(samples_table(trained)) == 96
    assert torch.isfinite(trained.judgement.observed_reliability).all()


def test_images_get_the_published_views(tmp_path, monkeypatch):
    seen = []
    from labeltrace.data.views import ImageViews

    strong, weak = ImageViews.strong, ImageViews.weak
    monkeypatch.setattr(
        ImageViews, "strong", lambda self, x, d, policy=None: seen.append(policy) or strong(self, x, d, policy)
    )
    monkeypatch.setattr(
        ImageViews,
        "weak",
        lambda self, x, d, *, reflect=False: seen.append(reflect) or weak(self, x, d, reflect=reflect),
    )
    train(toy.config("disc", controller="coupled", epochs=2), tmp_path / "run", dataset=toy.pictures())
    assert set(seen) == {True, "disc_mild"}
    assert make(classes=11).policy == "disc" and make(classes=10).policy == "disc_mild"
    assert make(strong="disc").policy == "disc" and make(classes=11, strong="disc_mild").policy == "disc_mild"


def test_recipes():
    cifar, recipe = resolve(DISCSettings, DISC.presets["cifar"], {}, 100)
    assert (recipe, cifar.warmup, cifar.lr_drop, cifar.lr_drop_again, cifar.lr_fall) == (200, 10, 40, 80, 60)
    assert (cifar.batch_size, cifar.momentum, cifar.sigma, cifar.threshold_epochs) == (128, 0, 0.5, 50)
    for wrong in (
        {"optimizer": "adamw"},
        {"strong": "x"},
        {"clean_score": "x"},
        {"gce_q": 0.0},
        {"cap": 2.0},
        {"threshold_epochs": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DISCSettings(**wrong)


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("cifar", (200, 20, 128, 0.1, 80, 160, 1e-3, 0.99, 1.0, 0.5)),
        ("tiny_imagenet", (200, 15, 128, 0.1, 80, 160, 1e-3, 0.99, 1.0, 0.5)),
        ("large", (100, 10, 32, 0.01, 50, 80, 5e-4, 0.95, 1.0, 0.5)),
        ("food101n", (100, 10, 32, 0.01, 50, 80, 5e-4, 0.95, 1.0, 0.5)),
        ("clothing1m", (100, 10, 32, 0.01, 50, 80, 5e-4, 0.95, 1.0, 0.5)),
        ("webvision", (100, 15, 32, 0.1, 60, 80, 5e-4, 0.99, 1.0, 0.5)),
        ("animal10n", (120, 10, 64, 0.05, 50, 80, 5e-4, 0.99, 1.0, 0.5)),
        ("oracle_low", (200, 20, 128, 0.1, 80, 160, 1e-3, 0.99, 1.0, 0.3)),
        ("oracle_asymmetric", (200, 20, 128, 0.1, 80, 160, 1e-3, 0.95, 1.0, 0.5)),
        ("oracle_instance", (200, 15, 128, 0.1, 80, 160, 1e-3, 0.99, 1.0, 0.5)),
        ("oracle_instance_60", (200, 15, 128, 0.1, 80, 160, 1e-3, 0.95, 0.2, 0.5)),
        ("oracle_60", (200, 20, 128, 0.1, 80, 160, 1e-3, 0.95, 0.2, 0.5)),
        ("oracle_80", (200, 20, 128, 0.001, 80, 160, 0.0, 0.95, 0.2, 0.5)),
    ],
)
def test_published_recipes(preset, wanted):
    s, _ = resolve(DISCSettings, DISC.presets[preset], {}, None)
    momentum = round(1 - 1 / s.threshold_epochs, 9)
    drops = s.lr_drop, s.lr_drop_again
    assert (s.epochs, s.warmup, s.batch_size, s.lr, *drops, s.weight_decay, momentum, s.lambda_h, s.sigma) == wanted
    assert (s.momentum, s.cap, s.lambda_ce, s.gce_q, s.mix_alpha) == (0, 0.99, 1, 0.7, 5)
    assert s.optimizer == ("adam" if preset == "oracle_80" else "sgd")
    large = preset in ("tiny_imagenet", "large", "food101n", "clothing1m", "webvision", "animal10n")
    assert s.strong == ("disc" if large else "auto")


def test_bytes_per_sample_are_stated(tmp_path):
    learner = make()
    assert learner.memory.bytes_per_sample == 2 * 4 * CLASSES + 8 + 2 * 4 + 1 + 1 + 2 * 4
    data = from_arrays(torch.randn(12, 4).numpy(), [0, 1] * 6)
    train(toy.config("disc", controller="coupled", epochs=1), tmp_path / "run", dataset=data)
