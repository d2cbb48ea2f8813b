"""Neighbours: ANNE's facts 2 and 3, the radius against the published loop, votes against plain counting."""

import numpy as np
import pytest
import torch

from labeltrace.scoring import neighbours
from labeltrace.scoring.neighbours import class_shares, nearest, neighbour_vote, radius_count, vote_score


def cloud(count=60, width=5, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, width)), dtype=torch.float32)


def walked(similarities, enough, fewest=5, ceiling=200):
    """The published search: widen the radius by a hundredth until enough samples lie within."""
    step = 0
    while sum(s > (99 - step) / 100 for s in similarities) < enough:
        step += 1
    inside = sum(s > (99 - step) / 100 for s in similarities)
    return min(ceiling, max(fewest, inside))


def test_fact_2_radius():
    row = [1, 0.985, 0.975, 0.965, 0.955, 0.945, 0.935, 0.905]
    assert walked(row, 5) == 5
    assert radius_count(torch.tensor([row]), torch.tensor([5])).tolist() == [5]


def test_fact_3_vote():
    labels, prior = torch.tensor([[0, 0, 1, 1, 1]] * 2), torch.tensor([0.8, 0.2])
    plain = neighbour_vote(labels, 2)
    assert plain[0].tolist() == pytest.approx([0.4, 0.6])
    votes = neighbour_vote(labels, 2, prior=prior)
    assert votes[0].tolist() == pytest.approx([0.142857, 0.857143], abs=1e-6)
    assert vote_score(votes, torch.tensor([0, 1])).tolist() == pytest.approx([0.166667, 1.0], abs=1e-6)


@pytest.mark.parametrize("ceiling", [200, 20])
@pytest.mark.parametrize("enough", [1, 5, 20, 40])
def test_radius_equals_the_published_loop(enough, ceiling):
    z = cloud(80, 3)
    similarity, _ = nearest(z, ceiling)
    unit = torch.nn.functional.normalize(z, dim=1)
    everyone = (unit @ unit.T).clamp(max=1 + 1e-6)
    counts = radius_count(similarity, torch.full((80,), min(enough, ceiling)))
    for i in range(80):
        wanted = walked(everyone[i].double().tolist(), min(enough, ceiling), ceiling=min(ceiling, 80))
        assert int(counts[i]) == wanted


def test_nearest_equals_sorting_everything(monkeypatch):
    z = cloud()
    unit = torch.nn.functional.normalize(z, dim=1)
    wanted = (unit @ unit.T).sort(1, descending=True)
    similarity, index = nearest(z, 7)
    assert torch.allclose(similarity, wanted.values[:, :7]) and torch.equal(index, wanted.indices[:, :7])
    assert torch.equal(index[:, 0], torch.arange(60))  # everybody is its own nearest neighbour
    monkeypatch.setattr(neighbours, "_CHUNK", 130)  # two rows at a time
    again = nearest(z, 7)
    assert torch.allclose(again[0], similarity, atol=1e-6) and torch.equal(again[1], index)
    assert torch.equal(nearest(z * torch.rand(60, 1).add(0.1), 7)[1], index)


def test_few_samples():
    similarity, index = nearest(cloud(3), 200)
    assert index.shape == (3, 3)
    assert radius_count(similarity, torch.tensor([5, 40, 80])).tolist() == [3, 3, 3]
    similarity, _ = nearest(cloud(1), 200)
    assert radius_count(similarity, torch.tensor([80])).tolist() == [1]
    assert radius_count(torch.tensor([[1.0, -1.0]]), torch.tensor([2])).tolist() == [2]  # opposite neighbours


def test_votes_equal_counting():
    rng = np.random.default_rng(0)
    labels, counts = rng.integers(0, 4, (30, 9)), rng.integers(1, 10, 30)
    weights = rng.random((30, 9))
    prior = np.array([0.1, 0.2, 0.3, 0.4])
    for given in (None, weights):
        votes = neighbour_vote(
            torch.tensor(labels),
            4,
            counts=torch.tensor(counts),
            weights=None if given is None else torch.tensor(given),
            prior=torch.tensor(prior),
        )
        for i in range(30):
            row = [0.0] * 4
            for j in range(counts[i]):
                row[labels[i, j]] += 1 if given is None else given[i, j]
            row = [v / p for v, p in zip(row, prior, strict=True)]
            assert votes[i].tolist() == pytest.approx([v / sum(row) for v in row], abs=1e-8)


def test_a_vote_of_everybody_is_a_tie():
    """With as many neighbours as samples the corrected vote says nothing, so no label loses it."""
    labels = torch.tensor([0] * 7 + [1] * 2 + [3])
    shares = class_shares(labels, 4)
    assert shares.tolist() == pytest.approx([0.7, 0.2, 0, 0.1])
    votes = neighbour_vote(labels.expand(10, -1), 4, prior=shares)
    assert votes[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    assert (vote_score(votes, labels) == 1).all()


def test_relabelling_classes_relabels_the_vote():
    _, index = nearest(cloud(), 9)
    labels = torch.arange(60) % 3
    swap = torch.tensor([2, 0, 1])
    votes = neighbour_vote(labels[index], 3, prior=class_shares(labels, 3))
    swapped = neighbour_vote(swap[labels][index], 3, prior=class_shares(swap[labels], 3))
    assert torch.allclose(swapped[:, swap], votes)


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="expected \\[N, D\\]"):
        nearest(torch.zeros(3), 2)
    with pytest.raises(ValueError, match="count"):
        nearest(cloud(), 0)
    with pytest.raises(ValueError, match="NaN"):
        nearest(torch.tensor([[float("nan")]]), 1)
    with pytest.raises(ValueError, match="enough: shape"):
        radius_count(torch.ones(2, 3), torch.tensor([1]))
