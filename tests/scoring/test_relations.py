"""Relation drift against worked numbers, a slow loop, limits and invariances."""

import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.scoring import relation_drift, relation_matrix, relations, structure_confidence
from labeltrace.scoring.relations import grouped_drift


def at_angles(*degrees):
    radians = torch.tensor(degrees).deg2rad().double()
    return torch.stack([radians.cos(), radians.sin()], 1)


SHALLOW, DEEP = at_angles(0.0, 50.0, 80.0, 170.0), at_angles(0.0, 20.0, 140.0, 170.0)


def slow_relations(features, k):
    """The definition, one pair at a time."""
    rows = features.flatten(1).tolist()
    size = len(rows)

    def cosine(u, v):
        norms = [max(math.sqrt(sum(x * x for x in w)), 1e-12) for w in (u, v)]
        return sum(x * y for x, y in zip(u, v, strict=True)) / (norms[0] * norms[1])

    a = [[cosine(u, v) for v in rows] for u in rows]
    kept = [[0.0] * size for _ in range(size)]
    for i in range(size):
        others = sorted((j for j in range(size) if j != i), key=lambda j: (-a[i][j], j))
        for j in [i, *others[: min(k, size - 1)]]:
            kept[i][j] = a[i][j]
    return torch.tensor([[(kept[i][j] + kept[j][i]) / 2 for j in range(size)] for i in range(size)])


def slow_drift(layers, k):
    relations = [slow_relations(layer, k) for layer in layers]
    size = len(relations[0])
    total = [0.0] * size
    for shallow, deep in itertools.pairwise(relations):
        for i in range(size):
            squares = [float(deep[i, j] - shallow[i, j]) ** 2 for j in range(size)]
            total[i] += math.sqrt(sum(squares)) / math.sqrt(size)
    return torch.tensor(total)


def test_worked_relations():
    r1, r2 = relation_matrix(SHALLOW, 1), relation_matrix(DEEP, 1)
    assert [float(r1[0, 1]), float(r1[1, 2]), float(r1[2, 3])] == pytest.approx([0.3214, 0.8660, 0.0], abs=1e-4)
    assert [float(r2[0, 1]), float(r2[2, 3]), float(r2[1, 2])] == pytest.approx([0.9397, 0.8660, 0.0], abs=1e-4)


@pytest.mark.parametrize(
    ("k", "drift"),
    [(1, (0.30915, 0.53205, 0.61237, 0.43301)), (2, (0.31545, 0.70492, 0.85526, 0.44258)),
     (3, (0.49274, 0.72252, 0.93529, 0.47010)), (99, (0.49274, 0.72252, 0.93529, 0.47010))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:k = ")
def test_worked_drift(k, drift):
    assert relation_drift([SHALLOW, DEEP], k).tolist() == pytest.approx(drift, abs=1e-5)


def test_worked_confidence():
    found = structure_confidence(relation_drift([SHALLOW, DEEP], 1), gamma=5.0)
    assert found.tolist() == pytest.approx([1, 0.01873, 0, 0.12381], abs=1e-5)


@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 8), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_matches_the_slow_loop(seed, size, k, stages):
    g = torch.Generator().manual_seed(seed)
    layers = [torch.randn(size, 3, 2, generator=g, dtype=torch.float64) for _ in range(stages)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(relation_matrix(layers[0], k).double(), slow_relations(layers[0], k).double(), atol=1e-9)
        assert torch.allclose(relation_drift(layers, k).float(), slow_drift(layers, k), atol=1e-6)
        last = relation_drift(layers, k, transitions="last")
    assert torch.allclose(last.float(), slow_drift(layers[-2:], k), atol=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_invariances(seed, k):
    g = torch.Generator().manual_seed(seed)
    layers = [torch.randn(8, 5, generator=g, dtype=torch.float64) for _ in range(3)]
    drift = relation_drift(layers, k)
    order = torch.randperm(8, generator=g)
    assert torch.allclose(relation_drift([layer[order] for layer in layers], k), drift[order], atol=1e-9)
    scale = 10 ** (8 * torch.rand(8, 1, generator=g, dtype=torch.float64) - 6)  # 1e-6 to 100
    assert torch.allclose(relation_drift([layer * scale for layer in layers], k), drift, atol=1e-9)
    assert (drift >= 0).all() and (drift <= 2 * 2 + 1e-9).all()
    relations = relation_matrix(layers[0], k)
    assert torch.equal(relations, relations.T)


def test_ties_keep_the_lowest_column():
    same = torch.ones(4, 2, dtype=torch.float64)
    kept = relation_matrix(same, 1)
    # Row 0 keeps 1; rows 1, 2, 3 keep 0: one-sided pairs count half.
    assert kept[0].tolist() == pytest.approx([1, 1, 0.5, 0.5]) and float(kept[2, 3]) == 0


def test_zero_feature_has_an_empty_row():
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert relation_matrix(features, 2)[0].tolist() == [0, 0, 0]


def test_groups_equal_single_batches():
    layers = [torch.randn(3, 8, 5) for _ in range(4)]
    grouped = grouped_drift(layers, 4)
    for g in range(3):
        assert torch.allclose(grouped[g], relation_drift([layer[g] for layer in layers], 4), atol=1e-6)


def test_one_sample_does_not_drift():
    with pytest.warns(UserWarning, match="clamped"):
        assert relation_drift([torch.ones(1, 2), torch.ones(1, 2)], 5).tolist() == [0]


def test_constant_drift_is_full_confidence_with_a_warning():
    with pytest.warns(UserWarning, match="same for every sample"):
        assert structure_confidence(torch.full((5,), 0.3), 5.0).tolist() == [1] * 5


def test_confidence_spans_and_ranks():
    drift = torch.tensor([0.1, 0.4, 0.2, 0.4])
    found = structure_confidence(drift, 5.0)
    assert float(found[0]) == 1 and float(found[1]) == 0
    ranks = structure_confidence(drift, 5.0, norm="rank")
    assert ranks.tolist() == pytest.approx([1, 1 - 2.5 / 3, 1 - 1 / 3, 1 - 2.5 / 3])
    assert torch.equal(ranks, structure_confidence(drift, 0.1, norm="rank"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relation_matrix(torch.ones(3, 2), 0), "k: 0"),
        (lambda: relation_matrix(torch.ones(3), 1), r"features: shape \(3,\)"),
        (lambda: relation_matrix(torch.tensor([[1.0], [math.nan]]), 1), "features: NaN .* index 1"),
        (lambda: relation_drift([torch.ones(3, 2)], 1), "layers: 1 stage"),
        (lambda: relation_drift([torch.ones(3, 2), torch.ones(4, 2)], 1), r"layers\[1\]: shape"),
        (lambda: relation_drift([torch.ones(3, 2), torch.ones(3, 2)], 1, transitions="some"), "transitions: 'some'"),
        (lambda: structure_confidence(torch.ones(3), 0), "gamma: 0"),
        (lambda: structure_confidence(torch.ones(3, 1), 5), "drift: shape"),
        (lambda: structure_confidence(torch.ones(3), 5, norm="softmax"), "norm: 'softmax'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_precisions(dtype):
    layers = [torch.randn(8, 6, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    found = relation_drift([layer.to(dtype) for layer in layers], 3)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(found.float(), relation_drift(layers, 3), atol=0.05 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.slow
def test_compiles_whole():
    layers = [torch.randn(16, 6) for _ in range(3)]

    def confidence(*stages):
        return structure_confidence(relation_drift(stages, 5), 5.0)

    assert torch.allclose(torch.compile(confidence, fullgraph=True)(*layers), confidence(*layers), atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 11), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_hosts_way_to_the_nearest_is_the_devices(seed, k, coarse):
    g = torch.Generator().manual_seed(seed)
    others = torch.randn(3, 12, 12, generator=g)
    others = (others.round() if coarse else others).masked_fill(torch.eye(12, dtype=torch.bool), -torch.inf)
    host = relations._nearest(others, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relations, "looks_free", lambda values: False)
        device = relations._nearest(others, k)
    assert torch.equal(host, device) and (host.sum(2) == k).all()
