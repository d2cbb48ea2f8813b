"""ANNE: the unit facts of its page (part 10), the step written out, TRACE's attachment, odd epochs."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import toy
from labeltrace import Coupled, Trace
from labeltrace.data import from_arrays
from labeltrace.data.draws import Draws
from labeltrace.engine import train
from labeltrace.learners.anne import ANNE, ANNESettings
from labeltrace.learners.balanced import balanced_repeats
from labeltrace.learners.heads import Headed, RowNorm, feature_consistency
from labeltrace.learners.mixing import permutation
from labeltrace.learners.settings import resolve
from labeltrace.models import build_model
from labeltrace.scoring import Scores
from labeltrace.scoring.fine import fine_posterior
from labeltrace.scoring.otsu import groups, otsu

CONFIDENCES = torch.tensor([0.1005, 0.1505, 0.2005, 0.2505, 0.3005, 0.7005, 0.8005, 0.9005, 0.9505, 0.9905])

make = partial(toy.learner, ANNE, batch_size=6, head_hidden=8, head_width=5)
batch = partial(toy.random_batch, 6)


def scores(probabilities, embedding, loss=None):
    """A pass of one network over n samples."""
    count = len(probabilities)
    flat = torch.zeros(1, count) if loss is None else loss[None]
    confidence, suggested = probabilities.max(1)
    return Scores(flat, flat, None, None, suggested, confidence, None, probabilities[None], embedding[None])


def gathered(classes=3, each=40, noise=0.3, seed=0, spread=0.4):
    """Features of separate classes, predictions that know them with more or less confidence, wrong labels."""
    rng = np.random.default_rng(seed)
    truth = torch.tensor(np.arange(classes * each) % classes)
    wrong = torch.tensor(rng.random(len(truth)) < noise)
    embedding = torch.tensor(3 * np.eye(classes, 8)[truth] + spread * rng.normal(size=(len(truth), 8))).float()
    sharpness = torch.tensor(rng.choice([0.5, 4.0], (len(truth), 1)))
    probabilities = F.one_hot(truth, classes) * sharpness + torch.tensor(0.2 * rng.normal(size=(len(truth), classes)))
    return probabilities.softmax(1).float(), embedding, (truth + wrong) % classes, truth, wrong


def test_fact_1_otsu():
    split = otsu(CONFIDENCES)
    assert [float(v) for v in split] == pytest.approx([0.301, 0.200, 0.868], abs=1e-9)
    assert groups(CONFIDENCES, split).tolist() == [3, 3, 2, 2, 2, 1, 1, 0, 0, 0]
    low, high = np.array([0.1, 0.15, 0.2, 0.25, 0.3]), np.array([0.7, 0.8, 0.9, 0.95, 0.99])
    assert (low.std(), high.std()) == pytest.approx((0.0707107, 0.1053376), abs=1e-7)
    mean = float(CONFIDENCES.double().mean())
    pull = 5 * (0.2 - mean) ** 2 + 5 * (0.868 - mean) ** 2
    assert pull / (5 * low.std() + 5 * high.std()) == pytest.approx(1.2673377, abs=1e-5)


def test_otsu_equals_a_loop_over_the_cuts():
    values = torch.tensor(np.random.default_rng(1).beta(2, 1, 300), dtype=torch.float32)
    bins = np.minimum((values.double().numpy() * 1000).astype(int), 999) / 1000
    mean, best = float(values.double().mean()), (-1e7, 2)
    for s in range(2, 998):
        sides = [bins[bins * 1000 < s - 0.5], bins[bins * 1000 > s - 0.5]]
        if all(len(side) for side in sides):
            pull = sum(len(side) * (side.mean() - mean) ** 2 for side in sides)
            spread = sum(len(side) * math.sqrt(max(side.var(), 1e-5)) for side in sides)
            if pull / spread > best[0] + 1e-12:
                best = pull / spread, s
    split = otsu(values)
    assert float(split.threshold) == pytest.approx(best[1] / 1000)
    assert float(split.low_mean) == pytest.approx(bins[bins * 1000 < best[1] - 0.5].mean())


@pytest.mark.parametrize("values", [torch.full((7,), 0.4), torch.ones(3), torch.tensor([0.3])])
def test_otsu_without_a_cut_holds_everybody_confident(values):
    split = otsu(values)
    assert float(split.threshold) == 0 and (groups(values, split) == 0).all()


def test_fact_5_feature_term():
    g = torch.Generator().manual_seed(0)
    h, z = torch.randn(7, 5, generator=g, requires_grad=True), torch.randn(7, 5, generator=g, requires_grad=True)
    loss = feature_consistency(h, z)
    assert -1 <= float(loss.detach()) <= 1
    slow = -sum(float(a @ b / a.norm() / b.norm()) for a, b in zip(h.detach(), z.detach(), strict=True)) / 7
    assert float(loss.detach()) == pytest.approx(slow, abs=1e-6)
    loss.backward()
    assert h.grad is not None and z.grad is None
    assert float(feature_consistency(3 * z, z).detach()) == pytest.approx(-1)


def test_fact_5_no_gradient_reaches_the_weak_view():
    learner = make()
    learner.networks[0].eval()
    weak = torch.randn(6, 4, requires_grad=True)
    strong = torch.randn(6, 4, requires_grad=True)
    learner.views = type("V", (), {"weak": lambda *a, **k: weak, "strong": lambda *a, **k: strong})()
    learner.step(0, batch()).loss.backward()
    assert weak.grad is None and strong.grad is not None


def test_fact_5_balanced_list():
    labels = torch.tensor([0] * 5 + [1] * 2 + [3] * 3)
    order = Draws.at(torch.arange(10), 0).uniform(1)[:, 0]
    places = balanced_repeats(labels, order)
    assert len(places) == 15
    assert torch.bincount(labels[places], minlength=4).tolist() == [5, 5, 0, 5]
    times = torch.bincount(places, minlength=10).tolist()
    assert times[:5] == [1] * 5 and sorted(times[5:7]) == [2, 3] and sorted(times[7:]) == [1, 2, 2]
    assert balanced_repeats(labels[:0], order[:0]).tolist() == []


def test_fact_6_learning_rate():
    learner = make()
    assert learner.learning_rate(0) == pytest.approx(0.02)
    assert learner.learning_rate(150) == pytest.approx(0.0102)
    assert learner.learning_rate(300) == pytest.approx(0.0004)
    steps = make(lr_schedule="steps", epochs=150)
    assert [round(steps.learning_rate(t), 6) for t in (0, 49, 50, 99, 100)] == [0.02, 0.02, 0.002, 0.002, 0.0002]


def test_fact_6_groups_partition_and_labels_hold_below_the_threshold():
    p, z, observed, _, _ = gathered()
    found = make(relabel=0.9).decide(p, z, observed, simple=False)
    confidence, predicted = p.max(1)
    assert set(groups(confidence, otsu(confidence)).tolist()) <= {0, 1, 2, 3}
    assert torch.equal(found.label[confidence <= 0.9], observed[confidence <= 0.9])
    assert torch.equal(found.label[confidence > 0.9], predicted[confidence > 0.9])
    exact = torch.tensor([[0.5, 0.25, 0.25]])  # not above γ_r = 0.5
    held = make(relabel=0.5).decide(exact, torch.ones(1, 2), torch.tensor([2]), simple=True)
    assert held.label.tolist() == [2]


@pytest.mark.parametrize("simple", [True, False])
def test_selection_equals_the_page_written_out(simple):
    p, z, observed, _, _ = gathered(each=30, noise=0.4, seed=2, spread=1.2)
    s = {"neighbours": 40, "k_highest": 3, "k_high": 6, "k_low": 9, "k_lowest": 12, "relabel": 0.85, "eigen": 0.4}
    found = make(**s).decide(p, z, observed, simple=simple)
    unit = F.normalize(z, dim=1)
    similar = unit @ unit.T
    count = len(p)
    confidence = [float(v) for v in p.max(1).values]
    label = [int(p[i].argmax()) if confidence[i] > 0.85 else int(observed[i]) for i in range(count)]
    shares = [label.count(c) / count + 1e-10 for c in range(3)]
    split = otsu(p.max(1).values)
    aligned = fine_posterior(unit, torch.tensor(label), 3)
    otherwise = [0, 0]  # confident and unconfident samples of which vote and direction say different things
    for i in range(count):
        if simple:
            group, k = 3, 40
        else:
            edges = float(split.high_mean), float(split.threshold), float(split.low_mean)
            group = next((g for g, edge in enumerate(edges) if confidence[i] >= edge), 3)
            step, least = 0, (3, 6, 9, 12)[group]
            while int((similar[i] > (99 - step) / 100).sum()) < least:
                step += 1
            k = min(40, max(5, int((similar[i] > (99 - step) / 100).sum())))
        near = similar[i].argsort(descending=True, stable=True)[:k].tolist()
        votes = [sum(label[j] == c for j in near) / k / shares[c] for c in range(3)]
        score = votes[label[i]] / max(votes)
        kept, clean = score >= 1 - 1e-6, score
        otherwise[group > 1] += kept != (float(aligned[i]) > 0.4)
        if not simple and group < 2:
            kept, clean = float(aligned[i]) > 0.4, float(aligned[i])
        assert int(found.label[i]) == label[i] and bool(found.kept[i]) == kept
        assert float(found.clean[i]) == pytest.approx(clean if label[i] == int(observed[i]) else 0, abs=1e-5)
        assert votes[int(found.voted[i])] == pytest.approx(max(votes))
    assert simple or min(otherwise) > 3


def test_small_classes_are_kept_and_lengths_of_features_say_nothing():
    """A class of four has no mixture, one of five has; features are compared by their direction alone."""
    confident, unsure = [0.9, 0.1], [0.6, 0.4]
    rows = [[1.0, 0.0], [1.0, 0.01], [1.0, -0.01], [0.0, 1.0]]  # the last lies across the others
    for size, kept in ((4, True), (5, False)):
        mine = [[1.0, 0.02]] * (size - 4) + rows
        z = torch.tensor([*mine, *[[-1.0, 0.1 * i] for i in range(6)]])
        p = torch.tensor([confident] * size + [unsure[::-1]] * 6)
        observed = torch.tensor([0] * size + [1] * 6)
        found = make(classes=2, relabel=1.0, neighbours=6).decide(p, z, observed, simple=False)
        assert bool(found.kept[size - 1]) is kept
        assert float(found.clean[size - 1]) == pytest.approx(float(kept), abs=1e-3)
        assert found.kept[: size - 1].all()
        length = torch.ones(len(z), 1)
        length[size - 1] = 50  # would own the direction of its class
        longer = make(classes=2, relabel=1.0, neighbours=6).decide(p, z * length, observed, simple=False)
        assert torch.equal(longer.kept, found.kept) and torch.allclose(longer.clean, found.clean, atol=1e-5)


def test_a_posterior_must_exceed_its_threshold():
    p, z, observed, _, _ = gathered()
    confident = groups(p.amax(1), otsu(p.amax(1))) < 2
    found = make(eigen=1.0).decide(p, z, observed, simple=False)
    assert found.clean[confident].eq(1).any() and not found.kept[confident].any() and found.kept[~confident].any()


@pytest.mark.parametrize("simple", [True, False])
def test_selection_finds_wrong_labels(simple):
    p, z, observed, truth, _ = gathered(each=80)
    found = make(neighbours=50).decide(p, z, observed, simple=simple)
    assert float((found.label == truth)[found.kept].float().mean()) > 0.97
    assert float(found.kept.float().mean()) > 0.6
    right, wrong = found.clean[(observed == truth)], found.clean[observed != truth]
    assert float(right.mean()) > float(wrong.mean()) + 0.4


def test_epoch_trains_on_all_beside_a_balanced_list_of_the_kept():
    p, z, observed, _, _ = gathered()
    learner = make(size=120, warmup=0, passes=2)
    loop = toy.Loop(scores=scores(p, z), labels=observed)
    learner.epoch(loop, 0)
    (call,) = loop.calls
    assert loop.views == ["weak"] and not loop.notes
    assert call["members"] == [0] and call["batch_size"] == 6 and call["passes"] == 2 and call["drop_last"]
    assert "index" not in call
    chosen = learner.select(loop.scores)
    assert set(call["beside"].tolist()) == set(chosen.kept.nonzero()[:, 0].tolist())
    sizes = torch.bincount(chosen.label[call["beside"]], minlength=3)
    assert (sizes == sizes[0]).all()
    assert torch.equal(learner.memory["label"], chosen.label) and torch.equal(learner.memory["observed"], observed)


def test_trace_counts_its_epochs_from_the_end_of_warm_up():
    p, z, observed, _, _ = gathered()
    learner, steps = make(size=120, warmup=3), []
    loop = toy.Loop(scores=scores(p, z), labels=observed)
    loop.train = lambda step, **asked: steps.append(step.args)
    for epoch in (0, 3, 33):
        learner.epoch(loop, epoch)
    assert steps == [(-3,), (0,), (30,)]


def test_who_is_repeated_is_drawn_anew_in_each_epoch():
    p, z, observed, _, _ = gathered()
    learner, lists = make(size=120, warmup=0), []
    for epoch in (0, 1):
        loop = toy.Loop(scores=scores(p, z), labels=observed)
        learner.epoch(loop, epoch)
        lists.append(torch.bincount(loop.calls[0]["beside"], minlength=120))
    assert torch.equal(lists[0] > 0, lists[1] > 0) and not torch.equal(*lists)


def test_an_epoch_of_some_samples_decides_on_those_alone():
    p, z, observed, _, _ = gathered()
    some = torch.arange(0, 120, 2)
    whole = scores(p[some], z[some]).spread(some, 120)
    learner = make(size=120, warmup=0)
    learner.memory["observed"] = observed
    chosen = learner.select(whole)
    assert torch.equal(chosen.seen.nonzero()[:, 0], some) and not chosen.kept[1::2].any()
    alone = make(size=60, warmup=0).decide(p[some], z[some], observed[some], simple=False)
    assert torch.equal(chosen.kept[some], alone.kept) and torch.equal(chosen.clean[some], alone.clean)


def test_an_empty_kept_set_trains_the_feature_term_and_says_so():
    p, z, observed, _, _ = gathered()
    learner = make(size=120, warmup=0, vote=1.0, eigen=1.0)
    learner.decide = lambda *a, **k: ANNE.decide(learner, *a, **k)._replace(kept=torch.zeros(120, dtype=torch.bool))
    loop = toy.Loop(scores=scores(p, z), labels=observed)
    learner.epoch(loop, 0)
    assert len(loop.calls[0]["beside"]) == 0
    assert loop.notes == ["no sample is kept, so only the feature term is trained"]
    outcome = learner.step(0, batch())
    assert float(outcome.logs["fit"]) == 0
    assert float(outcome.loss) == pytest.approx(float(outcome.logs["consistency"]))
    outcome.loss.backward()


def test_a_class_without_kept_samples_and_equal_confidences_are_noted():
    p, z, observed, _, _ = gathered()
    p = torch.full_like(p, 1 / 3)
    learner = make(size=120, warmup=0)

    def without_class_1(*args, **options):
        found = ANNE.decide(learner, *args, **options)
        return found._replace(kept=found.kept & (found.label != 1))

    learner.decide = without_class_1
    loop = toy.Loop(scores=scores(p, z), labels=observed)
    learner.epoch(loop, 0)
    (note,) = loop.notes
    assert "all confidences are equal" in note and "no sample is kept of 1 of 3 classes" in note


def test_loss_equals_the_formula_written_out():
    learner = make()
    network = learner.networks[0].eval()
    learner.memory["label"] = torch.randint(3, (20,), generator=torch.Generator().manual_seed(3))
    b = batch(beside=batch(seed=1, first=6))
    outcome = learner.step(0, b)
    kept = b.beside
    draws = Draws.at(torch.arange(6), kept.once.keys)
    views = [learner.views.strong(kept.inputs, draws.fork(k)) for k in (0, 1)]
    x = torch.cat(views)
    assert not torch.equal(views[0], views[1])
    y = F.one_hot(learner.memory["label"][kept.index], 3).float().repeat(2, 1)
    share = float(learner.mixing_weight(kept.once.fork(0)))
    partner = permutation(kept.once.fork(1), 12).tolist()
    assert 0.5 <= share <= 1 and sorted(partner) == list(range(12))
    fit = 0.0
    with torch.no_grad():
        for i, j in enumerate(partner):
            log_p = F.log_softmax(network(share * x[i : i + 1] + (1 - share) * x[j : j + 1]).logits[0], 0)
            fit -= float(((share * y[i] + (1 - share) * y[j]) * log_p).sum()) / 12
        z = network(learner.views.weak(b.inputs, b.draws.fork(0)), branch="project")
        h = network(learner.views.strong(b.inputs, b.draws.fork(1)), branch="predict")
    cosine = sum(float(F.cosine_similarity(a, c, dim=0)) for a, c in zip(h, z, strict=True)) / 6
    assert float(outcome.logs["fit"]) == pytest.approx(fit, abs=1e-5)
    assert float(outcome.loss) == pytest.approx(fit - cosine, abs=1e-5)
    weighted = make(lambda_fc=0.25)
    weighted.networks[0].eval()
    weighted.memory["label"] = learner.memory["label"]
    assert float(weighted.step(0, b).loss) == pytest.approx(fit - 0.25 * cosine, abs=1e-5)


def test_repeats_of_a_sample_get_views_of_their_own():
    learner = make()
    twice = batch()
    same = toy.batch(torch.zeros(6, dtype=torch.int64), twice.inputs[:1].repeat(6, 1), torch.zeros(6).long())
    seen = []
    strong = learner.views.strong
    views = type("V", (), {"strong": lambda _, x, d, policy=None: seen.append(strong(x, d, policy)) or seen[-1]})()
    learner.views = views
    learner.fit(0, same)
    rows = torch.cat(seen)
    assert len(rows.unique(dim=0)) == 12


@pytest.mark.parametrize(("policy", "wanted"), [("autoaugment", "autoaugment"), ("", None)])
def test_strong_views_are_made_by_the_published_policy(policy, wanted):
    learner, asked = make(policy=policy), []
    strong, weak = learner.views.strong, learner.views.weak

    def watched(_, x, d, policy=None):
        asked.append(policy)
        return strong(x, d, policy)

    learner.views = type("V", (), {"strong": watched, "weak": lambda _, x, d: weak(x, d)})()
    learner.step(0, batch(beside=batch(seed=1, first=6)))
    assert asked == [wanted] * 3 and ANNESettings().policy == "autoaugment"  # two of the kept, one of all
    mixing = make(alpha=0.5).mixing_weight
    assert (mixing.alpha, mixing.larger_half) == (0.5, True)


def test_three_batches_pass_through_the_network():
    learner = make()
    learner.networks[0].train()
    calls = []
    learner.networks[0].body.layers[0].register_forward_hook(lambda _m, i, _o: calls.append(len(i[0])))
    learner.step(0, batch(beside=batch(seed=1, first=6)))
    assert calls == [12, 6, 6]


def trace_ready(controller):
    """A learner whose memory says: sample 6 of the kept batch took another label, the rest are held in some degree."""
    learner = make(controller)
    g = torch.Generator().manual_seed(4)
    kept = batch(seed=1, first=6)
    label = torch.zeros(20, dtype=torch.int64)
    label[6:12] = kept.observed
    clean = torch.rand(20, generator=g)
    label[6], clean[6] = (kept.observed[0] + 1) % 3, 0.0
    for name, values in (("label", label), ("clean", clean), ("voted", torch.randint(3, (20,), generator=g))):
        learner.memory[name] = values
    learner.memory["structure"] = torch.rand(20, generator=g)
    learner._predicted = torch.rand(20, 3, generator=g).softmax(1)
    return learner, kept


def test_the_base_target_is_one_label():
    for controller, epoch in ((None, 9), (Coupled(), 9), (Trace(start=10, ramp=1), 9)):
        learner, kept = trace_ready(controller)
        s = learner.supervise(epoch, kept, kept.draws)
        assert torch.equal(s.target, F.one_hot(learner.memory["label"][kept.index], 3).float())
        assert torch.equal(s.weight, torch.ones(6))


def test_trace_judges_label_and_prediction_apart():
    controller = Trace(start=2, ramp=4)
    learner, kept = trace_ready(controller)
    s = learner.supervise(5, kept, kept.draws)
    beta, weights = 0.75, []
    for row, i in enumerate(kept.index.tolist()):
        q, clean = learner._predicted[i], float(learner.memory["clean"][i])
        alpha = 1 - beta * (1 - 0.7)
        gate = 1.0 if int(q.argmax()) == int(learner.memory["voted"][i]) else 0.5
        s_obs = (alpha * clean + (1 - alpha) * float(learner.memory["structure"][i])) * ((1 - beta) + beta * gate)
        b = (1 - s_obs) * float(q.max())
        target = (s_obs * F.one_hot(kept.observed[row], 3) + b * q) / (s_obs + b + 1e-8)
        assert s.target[row].tolist() == pytest.approx(target.tolist(), abs=1e-5)
        weights.append(max(s_obs + b, 0.2))
    assert s.weight.tolist() == pytest.approx([w / (sum(weights) / 6) for w in weights], abs=1e-5)
    assert float(s.weight.mean()) == pytest.approx(1, abs=1e-6)


def test_trace_reduces_to_the_base_target():
    """Label held fully: the label. Label replaced and a certain prediction: the prediction."""
    learner, kept = trace_ready(Trace(structure=False, start=0, ramp=0))
    learner.memory["clean"] = torch.ones(20)
    learner.memory["clean"][6] = 0
    learner.memory["label"][6] = (kept.observed[0] + 1) % 3
    learner._predicted = F.one_hot(learner.memory["label"], 3).float()
    learner.memory["voted"] = learner.memory["label"]
    s = learner.supervise(3, kept, kept.draws)
    assert torch.allclose(s.target, F.one_hot(learner.memory["label"][kept.index], 3).float(), atol=1e-6)


def test_the_mixture_weighs_both_partners_by_their_own_weight():
    learner, kept = trace_ready(Trace(structure=False, start=0, ramp=0))
    network = learner.networks[0].eval()
    fit = float(learner.fit(3, kept))
    s = learner.supervise(3, kept, kept.draws)
    draws = Draws.at(torch.arange(6), kept.once.keys)
    x = torch.cat([learner.views.strong(kept.inputs, draws.fork(k)) for k in (0, 1)])
    target, weight = s.target.repeat(2, 1), s.weight.repeat(2)
    share, partner = float(learner.mixing_weight(kept.once.fork(0))), permutation(kept.once.fork(1), 12).tolist()
    total = 0.0
    with torch.no_grad():
        for i, j in enumerate(partner):
            log_p = F.log_softmax(network(share * x[i : i + 1] + (1 - share) * x[j : j + 1]).logits[0], 0)
            total -= share * float(weight[i] * (target[i] * log_p).sum()) / 12
            total -= (1 - share) * float(weight[j] * (target[j] * log_p).sum()) / 12
    assert fit == pytest.approx(total, abs=1e-5)


def test_structure_of_the_batch_costs_a_forward_of_its_own():
    learner, kept = trace_ready(Trace(scope="batch", start=0, ramp=0, k=2))
    calls = []
    learner.networks[0].body.register_forward_hook(lambda _m, i, _o: calls.append(len(i[0])))
    learner.supervise(3, kept, kept.draws)
    assert calls == [6]


def test_the_samples_table_tells_what_the_selection_held():
    p, z, observed, _, _ = gathered()
    learner = make(size=120, warmup=0)
    learner.memory["observed"] = observed
    given = scores(p, z)
    chosen = learner.select(given)
    assert learner.select(given) is chosen  # decided once
    assert torch.equal(learner.cleanliness(given), chosen.clean)
    assert torch.equal(learner.agreement(given), p.argmax(1) == chosen.voted)
    suggested, confidence = learner.suggestion(given)
    assert torch.equal(suggested, p.argmax(1)) and torch.equal(confidence, p.amax(1))
    assert (chosen.clean[chosen.label != observed] == 0).all()


def test_heads():
    network = make().networks[0]
    assert isinstance(network, Headed)
    x = torch.randn(5, 4)
    assert network(x).logits.shape == (5, 3)
    assert network(x, branch="project").shape == network(x, branch="predict").shape == (5, 5)
    with pytest.raises(ValueError, match="known are classify"):
        network(x, branch="projekt")
    settings = ANNESettings()
    wide = ANNE.extend(settings, build_model("small_cnn", 10, (3, 32, 32)), torch.zeros(2, 3, 32, 32))
    shapes = [tuple(m.weight.shape) for head in (wide.project, wide.predict) for m in head if hasattr(m, "in_features")]
    assert shapes == [(256, 128), (128, 256), (256, 128), (128, 256)] and wide.training


def test_one_row_takes_the_running_statistics():
    norm = RowNorm(3)
    norm(torch.randn(8, 3))
    before = norm.running_mean.clone()
    row = torch.randn(1, 3)
    assert torch.equal(norm(row), norm.eval()(row)) and torch.equal(norm.running_mean, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("controller", ["coupled", "trace"])
def test_odd_data_runs(tmp_path, controller):
    rng = np.random.default_rng(0)
    one = from_arrays(np.ones((9, 4)), np.arange(9) % 3)  # all confidences equal, all features equal
    alone = from_arrays(rng.normal(size=(12, 4)), np.zeros(12, dtype=int), classes=range(2))
    rare = from_arrays(rng.normal(size=(14, 4)), np.array([0] * 9 + [1] * 4 + [2]))
    for number, data in enumerate((one, alone, rare)):
        trained = train(toy.config("anne", controller=controller), tmp_path / str(number), dataset=data)
        assert torch.isfinite(toy.weights(trained)).all()


def test_recipes():
    s, recipe = resolve(ANNESettings, ANNE.presets["cifar"], {}, None)
    assert (recipe, s.warmup, s.relabel, s.eigen, s.batch_size, s.lr) == (300, 10, 0.9, 0.5, 128, 0.02)
    assert (s.neighbours, s.k_highest, s.k_high, s.k_low, s.k_lowest, s.vote) == (200, 5, 20, 40, 80, 1.0)
    s, _ = resolve(ANNESettings, ANNE.presets["oracle_cifar100_50"], {}, None)
    assert (s.warmup, s.relabel, s.eigen) == (30, 0.5, 0.1)
    assert (s.lr_schedule, s.momentum, s.weight_decay, s.alpha, s.lambda_fc) == ("cosine", 0.9, 5e-4, 4.0, 1.0)
    for name, wanted in {
        "cifar100": (300, 30, 0.8, 0.1, 128, 0.02, 5e-4, 4.0),
        "oracle_cifar100_20": (300, 30, 0.9, 0.1, 128, 0.02, 5e-4, 4.0),
        "animal10n": (150, 1, 0.95, 0.3, 128, 0.02, 5e-4, 0.5),
        "webvision": (150, 0, 0.95, 0.5, 32, 0.01, 1e-4, 0.5),
    }.items():
        s, _ = resolve(ANNESettings, ANNE.presets[name], {}, None)
        found = s.epochs, s.warmup, s.relabel, s.eigen, s.batch_size, s.lr, s.weight_decay, s.alpha
        assert found == wanted
        assert s.lr_schedule == ("cosine" if "cifar" in name else "steps") and (s.lr_drop, s.lr_drop_again) == (50, 100)
    s, _ = resolve(ANNESettings, ANNE.presets["webvision"], {}, 75)
    assert (s.epochs, s.lr_drop, s.lr_drop_again, s.head_width, s.alpha) == (75, 25, 50, 256, 0.5)
    with pytest.raises(ValueError, match="relabel"):
        ANNESettings(relabel=1.5)
    with pytest.raises(ValueError, match="score_view"):
        ANNESettings(score_view="strong")
    with pytest.raises(ValueError, match="neighbours"):
        ANNESettings(neighbours=0)
