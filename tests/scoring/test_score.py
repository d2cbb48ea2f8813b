"""The scoring pass: what it returns, in which order, and how groups are cut."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from labeltrace import TraceConfig, score
from labeltrace.models import Staged, build_model
from labeltrace.scoring import ScorePass, StructureSettings, loss_posterior, relation_drift, structure_confidence

SETTINGS = StructureSettings(k=4, score_batch=8)


def problem(size=37, seed=0):
    g = torch.Generator().manual_seed(seed)
    inputs, labels = torch.randn(size, 6, generator=g), torch.randint(3, (size,), generator=g)
    torch.manual_seed(seed)
    networks = [build_model("mlp", num_classes=3, input_shape=(6,)).eval() for _ in range(2)]
    return networks, inputs, labels


def batches(inputs, labels, size, order=None):
    order = torch.arange(len(labels)) if order is None else order
    return [(inputs[i], labels[i], i) for i in order.split(size)]


@pytest.mark.parametrize("forward", [1, 5, 8, 13, 100])
def test_scores_do_not_depend_on_the_batch_of_the_forward(forward):
    networks, inputs, labels = problem()
    found = score(networks, batches(inputs, labels, forward), SETTINGS)
    with torch.no_grad():
        outputs = [network(inputs) for network in networks]
    for m, output in enumerate(outputs):
        loss = F.cross_entropy(output.logits, labels, reduction="none")
        assert torch.allclose(found.loss[m], loss, atol=1e-5)
        assert torch.allclose(found.posterior[m], loss_posterior(found.loss[m]), atol=1e-6)
        # Groups of eight in the order of the pass; the last one (five samples) is checked below.
        for start in range(0, 32, 8):
            drift = relation_drift([f[start : start + 8] for f in output.features], 4)
            assert torch.allclose(found.drift[m, start : start + 8], drift, atol=1e-5)
        assert torch.allclose(found.stability[m], structure_confidence(found.drift[m], 5.0))
    p = torch.stack([o.logits.softmax(1) for o in outputs])
    assert torch.equal(found.suggested, p.mean(0).argmax(1))
    assert torch.allclose(found.confidence, p.mean(0).amax(1), atol=1e-6)
    assert torch.equal(found.agree, p[0].argmax(1) == p[1].argmax(1))
    assert torch.allclose(found.clean, found.posterior.mean(0))
    assert torch.allclose(found.structure, found.stability.mean(0))


def test_the_last_group_is_filled_up_from_the_first():
    networks, inputs, labels = problem()
    found = score(networks[0], batches(inputs, labels, 8), SETTINGS)
    with torch.no_grad():
        features = networks[0](inputs).features
    fillers = np.random.default_rng(0).permutation(8)[:3].tolist()
    group = [*range(32, 37), *fillers]
    drifts = relation_drift([f[group] for f in features], 4)[:5]
    assert torch.allclose(found.drift[0, 32:], drifts, atol=1e-5)
    assert found.drift.shape == (1, 37)


def test_the_seed_reaches_the_mixture_and_the_fillers():
    networks, inputs, labels = problem()
    with torch.no_grad():
        outputs = [network(inputs) for network in networks]
    scoring = ScorePass(SETTINGS, seed=3)
    scoring.add(torch.arange(37), labels, outputs)
    found = scoring.finish(posterior=lambda loss, seed: torch.full_like(loss, seed))
    assert found.posterior.eq(3).all()
    group = [*range(32, 37), *np.random.default_rng(3).permutation(8)[:3].tolist()]
    drifts = relation_drift([f[group] for f in outputs[0].features], 4)[:5]
    assert torch.allclose(found.drift[0, 32:], drifts, atol=1e-5)
    assert not torch.allclose(found.drift[0, 32:], score(networks, [(inputs, labels)], SETTINGS).drift[0, 32:])


@pytest.mark.parametrize("options", [{"k": 2}, {"gamma": 2.5}, {"drift_norm": "rank"}, {"transitions": "last"}])
def test_every_setting_of_structure_reaches_the_scores(options):
    networks, inputs, labels = problem(size=16)
    s = StructureSettings(**{"k": 4, "score_batch": 8, **options})
    found = score(networks, [(inputs, labels)], s)
    with torch.no_grad():
        features = networks[0](inputs).features
    halves = [relation_drift([f[i : i + 8] for f in features], s.k, s.transitions) for i in (0, 8)]
    assert torch.allclose(found.drift[0], torch.cat(halves), atol=1e-5)
    wanted = structure_confidence(found.drift[0], s.gamma, s.drift_norm)
    assert torch.allclose(found.stability[0], wanted, atol=1e-6)
    plain = score(networks, [(inputs, labels)], SETTINGS)
    assert not torch.allclose(found.structure, plain.structure, atol=1e-3)


def test_a_shuffled_pass_comes_back_in_sample_order():
    networks, inputs, labels = problem()
    order = torch.randperm(37, generator=torch.Generator().manual_seed(1))
    straight, shuffled = (score(networks, batches(inputs, labels, 10, o), SETTINGS) for o in (None, order))
    assert torch.allclose(straight.loss, shuffled.loss, atol=1e-5)
    assert torch.equal(straight.suggested, shuffled.suggested)
    # Groups differ, so drift does; but it belongs to the right samples.
    with torch.no_grad():
        features = [f[order[:8]] for f in networks[0](inputs).features]
    assert torch.allclose(shuffled.drift[0, order[:8]], relation_drift(features, 4), atol=1e-5)


def test_fewer_samples_than_a_group():
    networks, inputs, labels = problem(size=5)
    with pytest.warns(UserWarning, match="clamped"):
        found = score(networks, [(inputs, labels)], TraceConfig(score_batch=64))
    assert found.drift.shape == (2, 5) and torch.isfinite(found.structure).all()


def test_modes_come_back_and_nothing_is_trained():
    networks, inputs, labels = problem()
    networks[0].train()
    before = {name: value.clone() for name, value in networks[0].state_dict().items()}
    score(networks, batches(inputs, labels, 10), SETTINGS)
    assert networks[0].training and not networks[1].training
    for name, value in networks[0].state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_network_without_features_is_scored_without_structure():
    _, inputs, labels = problem()
    network = nn.Linear(6, 3)
    found = score(network, batches(inputs, labels, 10), SETTINGS)
    assert found.structure is None and found.agree is None and found.clean.shape == (37,)


def test_raw_stage_maps_are_pooled():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(96, 3))
    images, labels = torch.randn(20, 1, 8, 8), torch.arange(20) % 3

    class Maps(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            first = self.network[:2](x)
            second = self.network[2](first)
            return self.network[3:](second), (first, second)

    raw = score(Maps(), [(images, labels)], SETTINGS)
    pooled = score(Staged(network, ["1", "2"]), [(images, labels)], SETTINGS)
    assert torch.allclose(raw.drift, pooled.drift, atol=1e-5)


def test_a_data_loader_in_order_needs_no_index():
    networks, inputs, labels = problem()
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=9)
    assert torch.allclose(
        score(networks, loader, SETTINGS).loss, score(networks, [(inputs, labels)], SETTINGS).loss, atol=1e-5
    )


def test_loaders_that_cannot_be_scored():
    networks, inputs, labels = problem()
    shuffling = DataLoader(TensorDataset(inputs, labels), batch_size=9, shuffle=True)
    with pytest.raises(ValueError, match="shuffles, or has a sampler of its own, but yields"):
        score(networks, shuffling, SETTINGS)
    with pytest.raises(ValueError, match="yields nothing"):
        score(networks, [], SETTINGS)
    with pytest.raises(ValueError, match="sample 0 came 2 times"):
        score(networks, [(inputs[:2], labels[:2], torch.tensor([0, 0]))], SETTINGS)
    with pytest.raises(ValueError, match="networks: none"):
        score([], [(inputs, labels)], SETTINGS)
    by_class = torch.arange(160) // 40
    with pytest.raises(ValueError, match="hold a single class"):
        score(nn.Linear(6, 4), [(torch.randn(160, 6), by_class)], SETTINGS)
    with pytest.raises(ValueError, match="yields a dict"):
        score(networks, [{"inputs": inputs, "labels": labels}], SETTINGS)
    for label in (-100, 3):
        with pytest.raises(ValueError, match=f"labels: {label} at index 5, expected a class from 0 to 2"):
            score(networks, [(inputs, labels.index_fill(0, torch.tensor(5), label))], SETTINGS)


@pytest.mark.parametrize("kind", ["subset", "weighted", "batches"])
def test_a_loader_with_a_sampler_of_its_own_must_yield_the_index(kind):
    networks, inputs, labels = problem()
    sampler = SubsetRandomSampler(range(37))
    options = {
        "subset": {"sampler": sampler, "batch_size": 9},
        "weighted": {"sampler": WeightedRandomSampler(torch.ones(37), 37, replacement=False), "batch_size": 9},
        "batches": {"batch_sampler": BatchSampler(sampler, 9, False)},
    }[kind]
    with pytest.raises(ValueError, match="cannot be put back in order"):
        score(networks, DataLoader(TensorDataset(inputs, labels), **options), SETTINGS)
    numbered = DataLoader(TensorDataset(inputs, labels, torch.arange(37)), **options)
    straight = score(networks, [(inputs, labels)], SETTINGS)
    assert torch.allclose(score(networks, numbered, SETTINGS).loss, straight.loss, atol=1e-5)


def test_a_stream_and_narrow_numbers_are_taken():
    networks, inputs, labels = problem()

    class Stream(IterableDataset):
        def __iter__(self):
            return zip(inputs, labels, strict=True)

    straight = score(networks, [(inputs, labels)], SETTINGS)
    assert torch.allclose(score(networks, DataLoader(Stream(), batch_size=9), SETTINGS).loss, straight.loss, atol=1e-5)
    narrow = [(inputs, labels.int(), torch.arange(37, dtype=torch.int32))]
    assert torch.equal(score(networks, narrow, SETTINGS).loss, straight.loss)


def test_a_network_without_parameters():
    class Nothing(nn.Module):
        def forward(self, x):
            return x[:, :3]

    _, inputs, labels = problem()
    assert score(Nothing(), [(inputs, labels)], SETTINGS).clean.shape == (37,)


def test_frozen_parts_stay_frozen():
    _, inputs, labels = problem()
    network = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    network[1].eval()
    score(network, [(inputs, labels)], SETTINGS)
    assert [module.training for module in network.modules()] == [True, True, False, True]


def test_a_callers_autocast_is_for_the_networks_alone():
    networks, inputs, labels = problem()
    seen = []
    networks[0].register_forward_hook(lambda module, given, output: seen.append(output.logits.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        found = score(networks, [(inputs, labels)], SETTINGS)
        features = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
        drift = relation_drift([features, features.square()], 4)
    assert seen == [torch.bfloat16] and found.drift.dtype == torch.float32
    assert torch.equal(drift, relation_drift([features, features.square()], 4))


def test_a_set_of_mostly_one_class_is_no_error_of_order():
    labels = torch.zeros(160, dtype=torch.long)
    labels[3] = 1
    assert score(nn.Linear(6, 2), [(torch.randn(160, 6), labels)], SETTINGS).clean.shape == (160,)


def test_features_of_one_stage_are_refused():
    class OneStage(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x), (x,)

    _, inputs, labels = problem()
    with pytest.raises(ValueError, match=r"outputs\[0\]: features of 1 stage"):
        score(OneStage(), [(inputs, labels)], SETTINGS)


def test_a_learners_own_pseudo_target():
    networks, inputs, labels = problem()
    scoring = ScorePass(SETTINGS, pseudo=lambda p: p[0])
    with torch.no_grad():
        outputs = [network(inputs) for network in networks]
    scoring.add(torch.arange(37), labels, outputs)
    assert torch.equal(scoring.finish().suggested, outputs[0].logits.argmax(1))


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (lambda x, y: (x, F.one_hot(y, 3)), r"labels: shape \(37, 3\), expected \[37\]"),
        (lambda x, y: (x, y, torch.arange(5)), r"index: shape \(5,\), expected \[37\]"),
        (lambda x, y: (x,), "one tensor a batch"),
    ],
    ids=["one-hot labels", "short index", "no labels"],
)
def test_a_batch_that_does_not_fit_is_named(batch, words):
    networks, inputs, labels = problem()
    with pytest.raises(ValueError, match=words):
        score(networks, [batch(inputs, labels)], SETTINGS)


class Stream(IterableDataset):
    """Samples one after the other; every worker gives all of them."""

    def __init__(self, inputs, labels):
        self.samples = list(zip(inputs, labels, strict=True))

    def __iter__(self):
        return iter(self.samples)


def test_a_stream_that_several_workers_share_out_has_to_yield_the_index():
    networks, inputs, labels = problem()
    alone = score(networks, DataLoader(Stream(inputs, labels), batch_size=10), SETTINGS)
    assert torch.allclose(alone.loss, score(networks, [(inputs, labels)], SETTINGS).loss, atol=1e-6)
    with pytest.raises(ValueError, match=r"yield \(inputs, labels, index\)"):
        score(networks, DataLoader(Stream(inputs, labels), batch_size=10, num_workers=2), SETTINGS)
