"""TRACE's equations against worked numbers, slow loops, limits and invariances."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace import Coupled, Evidence, Trace, TraceConfig
from labeltrace.control import VARIANTS
from labeltrace.control.evidence import one_hot
from labeltrace.control.trace import (
    agreement_gate,
    observed_reliability,
    pseudo_reliability,
    ramp,
    supervise,
)
from labeltrace.scoring import ScorePass, relation_drift, structure_confidence

Q = torch.tensor([[0.55, 0.35, 0.10]])  # mean of (.7,.2,.1) and (.4,.5,.1)
CLASS_2 = torch.tensor([[0.0, 0.0, 1.0]])


def random_evidence(size=12, classes=5, epoch=60, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    votes = tuple(torch.randn(size, classes, generator=g, dtype=dtype).mul(2).softmax(1) for _ in range(2))
    labels = torch.randint(classes, (size,), generator=g)
    return Evidence(
        observed=one_hot(labels, classes, dtype),
        pseudo=(votes[0] + votes[1]) / 2,
        clean=torch.rand(size, generator=g, dtype=dtype),
        votes=votes,
        structure=torch.rand(size, generator=g, dtype=dtype),
        epoch=epoch,
    )


def slow_trace(e: Evidence, c: TraceConfig):
    """The paper's formulas, one sample and one class at a time, in Python floats."""
    beta = min(max((e.epoch - c.start) / c.ramp, 0.0), 1.0)
    alpha_t = 1 - beta * (1 - c.alpha)
    rows = []
    for i in range(len(e.clean)):
        p1, p2, q, y = (values[i].tolist() for values in (*e.votes, e.pseudo, e.observed))
        gate = 1.0 if p1.index(max(p1)) == p2.index(max(p2)) or not c.agreement else c.disagreement
        loss, structure = float(e.clean[i]), float(e.structure[i])
        mix = alpha_t * loss + (1 - alpha_t) * structure if c.structure else loss
        s_obs = min(max(mix * ((1 - beta) + beta * gate), 0.0), 1.0)
        s_pseudo = max(q) ** c.rho if c.pseudo_gate and e.epoch >= c.gate_start else 1.0
        a, b = s_obs, (1 - s_obs) * s_pseudo
        target = [(a * y[k] + b * q[k]) / (a + b + 1e-8) for k in range(len(q))]
        rows.append((target, max(a + b, c.w_min) if c.reweight else 1.0, s_obs, s_pseudo, a, b))
    mean = sum(row[1] for row in rows) / len(rows)
    return [(target, w / mean, *rest) for target, w, *rest in rows]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("epoch", [30, 37, 50, 200])
def test_matches_the_slow_loop(name, epoch):
    evidence = random_evidence(epoch=epoch)
    made = Trace(VARIANTS[name])(evidence)
    for i, (target, weight, s_obs, s_pseudo, a, b) in enumerate(slow_trace(evidence, VARIANTS[name])):
        assert made.target[i].tolist() == pytest.approx(target, abs=1e-6)
        found = [float(v[i]) for v in (made.weight, made.observed_reliability, made.pseudo_reliability, made.a, made.b)]
        assert found == pytest.approx([weight, s_obs, s_pseudo, a, b], abs=1e-6)


@pytest.mark.parametrize(
    "factor",
    [{"alpha": 0.5}, {"alpha": 0.9}, {"rho": 1.5}, {"pseudo_start": 20}, {"pseudo_start": 40}, {"disagreement": 0.25},
     {"disagreement": 0.75}, {"w_min": 0.0}, {"w_min": 0.4}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("epoch", [19, 25, 35, 45, 60])
def test_the_sensitivity_tables_factors_match_the_slow_loop(factor, epoch):
    config, evidence = TraceConfig(**factor), random_evidence(epoch=epoch)
    for known in (evidence, dataclasses.replace(evidence, epoch=torch.tensor(epoch))):
        made = Trace(config)(known)
        for i, (target, weight, *scores) in enumerate(slow_trace(evidence, config)):
            assert made.target[i].tolist() == pytest.approx(target, abs=1e-6)
            found = [float(v[i]) for v in (made.observed_reliability, made.pseudo_reliability, made.a, made.b)]
            assert found == pytest.approx(scores, abs=1e-6)
            assert float(made.weight[i]) == pytest.approx(weight, abs=1e-6)


def test_defaults_are_the_appendix_table():
    c = TraceConfig()
    table = (c.alpha, c.gamma, c.k, c.start, c.ramp, c.disagreement, c.gate_start, c.rho, c.w_min)
    assert table == (0.7, 5.0, 50, 30, 20, 0.5, 30, 1.0, 0.2)


@pytest.mark.parametrize(
    ("epoch", "agree", "disagree"),
    [(0, 0.2, 0.2), (30, 0.2, 0.2), (40, 0.305, 0.22875), (50, 0.41, 0.205), (99, 0.41, 0.205)],
)
def test_worked_observed_scores(epoch, agree, disagree):
    clean, structure = torch.tensor([0.2, 0.2]), torch.tensor([0.9, 0.9])
    gate = torch.tensor([1.0, 0.5])
    found = observed_reliability(clean, structure, gate, alpha=0.7, beta=ramp(epoch, 30, 20))
    assert found.tolist() == pytest.approx([agree, disagree], abs=1e-7)


def test_worked_target():
    q, y = torch.tensor([[0.05, 0.85, 0.10]]), torch.tensor([[1.0, 0.0, 0.0]])
    s = supervise(y, q, torch.tensor([0.205]), pseudo_reliability(q, 1.0), w_min=0.2)
    assert float(s.b) == pytest.approx(0.67575, abs=1e-6)
    assert float(s.a + s.b) == pytest.approx(0.88075, abs=1e-6)
    assert s.target[0].tolist() == pytest.approx([0.271118, 0.652157, 0.076724], abs=1e-6)


def test_worked_rolr_fact():
    s = supervise(CLASS_2, Q, torch.tensor([0.3]), pseudo_reliability(Q, 1.0), w_min=0.2)
    assert float(s.pseudo_reliability) == pytest.approx(0.55)
    assert float(s.b) == pytest.approx(0.385)
    assert s.target[0].tolist() == pytest.approx([0.309124, 0.196715, 0.494161], abs=1e-6)
    base = supervise(CLASS_2, Q, torch.tensor([0.3]), torch.ones(1), w_min=0.2)
    assert base.target[0].tolist() == pytest.approx([0.385, 0.245, 0.370], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epoch", [0, 29])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_before_its_start_trace_is_coupled_bit_for_bit(dtype, epoch, as_tensor):
    evidence = random_evidence(size=500, epoch=torch.tensor(epoch) if as_tensor else epoch, dtype=dtype)
    logits = torch.randn(500, 5, dtype=dtype)
    ours, base = Trace()(evidence), Coupled()(evidence)
    for name in ("target", "weight", "observed_reliability", "pseudo_reliability", "a", "b"):
        assert torch.equal(getattr(ours, name), getattr(base, name)), name
    assert torch.equal(ours.loss(logits), base.loss(logits))


@pytest.mark.parametrize("epoch", [0, 29, 30, 41, 50, 300])
def test_epoch_may_be_a_tensor(epoch):
    number, tensor = random_evidence(epoch=epoch), random_evidence(epoch=torch.tensor(epoch))
    for trace in (Trace(), Trace(ramp=0), Trace(pseudo_start=40)):
        assert torch.allclose(trace(number).target, trace(tensor).target, atol=1e-7)
        assert torch.allclose(trace(number).weight, trace(tensor).weight, atol=1e-7)


def test_limits():
    y, q = torch.eye(100)[:1], torch.eye(100)[1:2]
    one, zero, uniform = torch.ones(1), torch.zeros(1), torch.full((1, 100), 0.01)
    certain_label = supervise(y, q, one, one, w_min=0.2)
    assert torch.allclose(certain_label.target, y) and float(certain_label.weight) == 1
    certain_pseudo = supervise(y, q, zero, pseudo_reliability(q, 1.0), w_min=0.2)
    assert torch.allclose(certain_pseudo.target, q) and float(certain_pseudo.weight) == 1
    unsure = supervise(y, uniform, zero, pseudo_reliability(uniform, 1.0), w_min=0.2)
    assert float(unsure.a + unsure.b) == pytest.approx(0.01)
    assert torch.allclose(unsure.target, uniform, atol=1e-6)
    # The floor acts before the mean: beside a certain sample the unsure one weighs 0.2 / 0.6.
    both = supervise(
        torch.cat([y, y]), torch.cat([q, uniform]), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.01]), 0.2
    )
    assert both.weight.tolist() == pytest.approx([1 / 0.6, 0.2 / 0.6])


@given(st.integers(0, 10_000), st.floats(1, 4), st.floats(1, 4))
@settings(max_examples=60, deadline=None)
def test_properties(seed, rho_1, rho_2):
    evidence = random_evidence(seed=seed)
    low, high = sorted((rho_1, rho_2))
    mild, strict = Trace(rho=low)(evidence), Trace(rho=high)(evidence)
    assert (strict.b <= mild.b + 1e-6).all()  # raising ρ never raises b
    assert float(mild.weight.mean()) == pytest.approx(1, abs=1e-5)
    strength = mild.a + mild.b
    assert torch.allclose(strength, 1 - (1 - mild.a) * (1 - mild.pseudo_reliability), atol=1e-6)
    assert (strength >= 5.0**-low - 1e-6).all()
    assert torch.allclose(mild.target.sum(1), torch.ones(12), atol=1e-5)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_order_of_samples_and_of_classes_does_not_matter(seed):
    e = random_evidence(seed=seed)
    rows, classes = torch.randperm(12), torch.randperm(5)

    def pick(values):
        return values[rows][:, classes]

    shuffled = Evidence(
        pick(e.observed),
        pick(e.pseudo),
        e.clean[rows],
        (pick(e.votes[0]), pick(e.votes[1])),
        e.structure[rows],
        e.epoch,
    )
    plain, other = Trace()(e), Trace()(shuffled)
    assert torch.allclose(pick(plain.target), other.target, atol=1e-6)
    assert torch.allclose(plain.weight[rows], other.weight, atol=1e-6)


@given(st.floats(0.05, 1), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_raising_b_helps_exactly_when_the_replacement_is_better(a, r_o, r_p):
    """Appendix B: SNR = (a r_o + b r_p)/(a(1−r_o) + b(1−r_p)) grows with b iff r_p > r_o."""
    if abs(r_p - r_o) < 1e-3:
        return

    def snr(b):
        return (a * r_o + b * r_p) / (a * (1 - r_o) + b * (1 - r_p) + 1e-12)

    assert (snr(0.5) > snr(0.4)) == (r_p > r_o)


def test_gate():
    p1, p2 = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.5, 0.5]]), torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.7, 0.3]])
    assert agreement_gate(p1, p2, 0.5).tolist() == [1.0, 0.5, 1.0]  # the tie names the lowest class


def test_no_votes_means_agreement_and_ablations_are_options():
    e = random_evidence(epoch=100)
    silent = Evidence(e.observed, e.pseudo, e.clean, None, e.structure, e.epoch)
    assert torch.equal(Trace()(silent).target, Trace(agreement=False)(e).target)
    assert torch.equal(Trace(agreement=False)(e).target, Trace(disagreement=1.0)(e).target)
    assert torch.allclose(Trace(structure=False)(e).target, Trace(alpha=1.0)(e).target)
    assert torch.equal(Trace(VARIANTS["obs_only"])(e).target, Trace(VARIANTS["coupled_null"])(e).target)
    assert torch.equal(Trace(reweight=False)(e).weight, torch.ones(12))


def test_where_nothing_is_trusted_and_nothing_is_the_floor_nothing_weighs():
    rows = torch.eye(3)
    found = supervise(rows, rows, torch.zeros(3), torch.zeros(3), w_min=0.0)
    assert torch.equal(found.weight, torch.zeros(3)) and torch.isfinite(found.target).all()


def test_nothing_lets_a_gradient_through():
    pseudo = torch.randn(6, 3, requires_grad=True)
    clean = torch.rand(6).requires_grad_()
    e = Evidence(torch.arange(6) % 3, pseudo.softmax(1), clean, structure=torch.rand(6), epoch=60)
    for controller in (Coupled(), Trace()):
        s = controller(e)
        assert not any(v.requires_grad for v in (s.target, s.weight, s.a, s.b))
        logits = torch.randn(6, 3, requires_grad=True)
        s.loss(logits).backward()
        assert logits.grad is not None and pseudo.grad is None and clean.grad is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_precisions(dtype):
    exact = Trace()(random_evidence(dtype=torch.float64))
    e = random_evidence(dtype=torch.float64)
    cast = Evidence(
        e.observed.to(dtype),
        e.pseudo.to(dtype),
        e.clean.to(dtype),
        tuple(v.to(dtype) for v in e.votes),
        e.structure.to(dtype),
        e.epoch,
    )
    made = Trace()(cast)
    assert made.target.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(made.target.double(), exact.target, atol=0.02 if dtype.itemsize == 2 else 1e-6)


def bad(field, change):
    e = random_evidence()
    values = {"observed": e.observed, "pseudo": e.pseudo, "clean": e.clean, "votes": e.votes, "structure": e.structure}
    values[field] = change(values[field])
    return values


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("pseudo", lambda v: v.clone().index_fill_(0, torch.tensor(3), 0.5), r"pseudo: row 3 sums to 2\.5"),
        ("pseudo", lambda v: v.clone().index_fill_(0, torch.tensor(7), math.nan), r"pseudo: NaN .* index 7"),
        ("clean", lambda v: v.clone().index_fill_(0, torch.tensor(4), 1.5), r"clean: 1\.5 at index 4"),
        ("clean", lambda v: v.clone().index_fill_(0, torch.tensor(4), math.nan), r"clean: nan at index 4"),
        ("structure", lambda v: v.clone().index_fill_(0, torch.tensor(2), -0.1), r"structure: -0\.1 at index 2"),
        ("clean", lambda v: v[:5], r"clean: shape \(5,\) does not match pseudo"),
        ("observed", lambda v: v[:, :4], r"observed: shape \(12, 4\)"),
        ("votes", lambda v: (v[0], v[1][:3]), r"votes\[1\]: shape"),
        ("votes", lambda v: (v[0] * 2, v[1]), r"votes\[0\]: row 0 sums to 2"),
        ("votes", lambda v: (v[0],), r"votes: 1 given, expected two"),
        ("votes", lambda v: (*v, v[0]), r"votes: 3 given, expected two"),
        ("pseudo", lambda v: v[0], r"pseudo: shape \(5,\)"),
    ],
)  # fmt: skip
def test_bad_evidence_names_the_argument_and_the_index(field, change, message):
    with pytest.raises(ValueError, match=message):
        Evidence(**bad(field, change))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"alpha": 1.2}, "alpha"), ({"disagreement": 0}, "disagreement"), ({"rho": 0.5}, "rho"), ({"k": 0}, "k: 0"),
     ({"gamma": 0}, "gamma"), ({"scope": "epoch"}, "scope"), ({"drift_norm": "z"}, "drift_norm"),
     ({"transitions": "first"}, "transitions"), ({"pooling": "max"}, "pooling"), ({"start": -1}, "start")],
)  # fmt: skip
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Trace(**options)


def test_missing_structure_says_what_to_do():
    e = random_evidence()
    with pytest.raises(ValueError, match=r"scores\.structure.*Trace\(structure=False\)"):
        Trace()(Evidence(e.observed, e.pseudo, e.clean, e.votes, None, 60))


def test_loss_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"logits: shape \(12, 4\)"):
        Trace()(random_evidence()).loss(torch.zeros(12, 4))


def test_batch_scope_scores_structure_in_the_batch():
    features = [[torch.randn(8, 4) for _ in range(3)] for _ in range(2)]
    clean = torch.rand(8)
    assert Trace().batch_structure(features, clean) is None
    found = Trace(scope="batch", k=3).batch_structure(features, clean)
    assert found.shape == (8,) and float(found.min()) >= 0 and float(found.max()) <= 1
    few = [[stage[:2] for stage in stages] for stages in features]
    assert torch.equal(Trace(scope="batch").batch_structure(few, clean[:2]), clean[:2])


@pytest.mark.parametrize(
    "options", [{}, {"gamma": 2.5}, {"drift_norm": "rank"}, {"transitions": "last"}, {"k": 6}], ids=str
)
def test_structure_of_a_batch_is_the_mean_over_the_networks(options):
    g = torch.Generator().manual_seed(0)
    features = [[torch.randn(8, 4, generator=g) for _ in range(3)] for _ in range(2)]
    found = Trace(scope="batch", **{"k": 3, **options}).batch_structure(features, torch.rand(8, generator=g))
    c = TraceConfig(**{"k": 3, **options})
    each = [structure_confidence(relation_drift(f, c.k, c.transitions), c.gamma, c.drift_norm) for f in features]
    assert torch.allclose(found, (each[0] + each[1]) / 2)


@pytest.mark.parametrize("pooling", ["gap", "flatten"])
def test_maps_of_a_batch_are_pooled_as_in_a_scoring_pass(pooling):
    g = torch.Generator().manual_seed(0)
    maps = [torch.randn(8, width, 4, 4, generator=g) for width in (3, 5, 6)]
    vectors = [stage.mean((2, 3)) if pooling == "gap" else stage.flatten(1) for stage in maps]
    trace = Trace(scope="batch", k=3, pooling=pooling)
    wanted = structure_confidence(relation_drift(vectors, 3), 5.0)
    assert torch.allclose(trace.batch_structure([maps], torch.rand(8)), wanted, atol=1e-6)
    passed = ScorePass(trace.config)
    passed.add(torch.arange(8), torch.arange(8) % 3, [(torch.randn(8, 3), maps)])
    assert torch.allclose(passed.finish().structure, wanted, atol=1e-5)


@pytest.mark.slow
def test_compiles_whole():
    trace = Trace()

    def step(observed, pseudo, clean, p1, p2, structure, epoch, logits):
        s = trace(Evidence(observed, pseudo, clean, (p1, p2), structure, epoch))
        return s.loss(logits), s.weight

    e, logits = random_evidence(epoch=torch.tensor(40)), torch.randn(12, 5)
    args = (e.observed, e.pseudo, e.clean, *e.votes, e.structure, e.epoch, logits)
    compiled = torch.compile(step, fullgraph=True)
    for wanted, found in zip(step(*args), compiled(*args), strict=True):
        assert torch.allclose(wanted, found, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_on_cuda_without_a_synchronisation(captured):
    e = random_evidence(epoch=60)
    wanted = Trace()(e)
    on_device = [v.cuda() for v in (e.observed, e.pseudo, e.clean, *e.votes, e.structure)]
    epoch, logits = torch.tensor(60).cuda() if captured else 60, torch.randn(12, 5).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        observed, pseudo, clean, p1, p2, structure = on_device
        found = Trace()(Evidence(observed, pseudo, clean, (p1, p2), structure, epoch))
        found.loss(logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.allclose(found.target.cpu(), wanted.target, atol=1e-6)


@pytest.mark.parametrize(
    ("observed", "words"),
    [(torch.tensor([0, 7]), "observed.*7"), (torch.tensor([0, -1]), "observed.*-1"), (torch.ones(2), "labels.long")],
    ids=["no class", "negative", "not whole"],
)
def test_observed_labels_that_are_no_class_are_named(observed, words):
    with pytest.raises(ValueError, match=words):
        Evidence(observed=observed, pseudo=torch.full((2, 5), 0.2), clean=torch.ones(2), epoch=0)


def test_columns_in_place_of_numbers_are_refused():
    half = torch.full((4,), 0.5)
    with pytest.raises(ValueError, match=r"structure: shape \(4, 1\), expected \[B\]"):
        observed_reliability(half, half[:, None], None, 0.7, 0.5)
    with pytest.raises(ValueError, match=r"gate.*nan"):
        observed_reliability(half, None, torch.full((4,), float("nan")), 0.7, 0.5)
    rows = torch.full((4, 2), 0.5)
    with pytest.raises(ValueError, match=r"observed_reliability: shape \(4, 1\)"):
        supervise(rows, rows, half[:, None], half, w_min=0.2)
    with pytest.raises(ValueError, match=r"observed: shape \(4, 4\) does not match pseudo"):
        supervise(torch.full((4, 4), 0.25), rows, half, half, w_min=0.2)
