"""Past predictions as votes: the unit facts of SELFIE's page on entropy and the ring."""

import math

import pytest
import torch

from labeltrace.learners.votes import push_votes, vote_entropy, vote_shares


def shares(counts, classes):
    history = torch.tensor([[c for c, n in enumerate(counts) for _ in range(n)]])
    return vote_shares(history, classes)


@pytest.mark.parametrize(
    ("counts", "classes", "entropy"),
    [
        ((15,), 10, 0.0),
        ((14, 1), 10, 0.106372),
        ((14, 1), 100, 0.053186),
        ((14, 1), 200, 0.046228),
        ((13, 2), 10, 0.170536),
        ((13, 1, 1), 10, 0.210674),
        ((12, 2, 1), 10, 0.272609),
        ((1,) * 15, 15, 1.0),
    ],
)
def test_fact_1_entropy(counts, classes, entropy):
    assert float(vote_entropy(shares(counts, classes))) == pytest.approx(entropy, abs=1e-6)


def test_fact_1_one_deviation_passes_from_135_classes_on():
    assert float(vote_entropy(shares((14, 1), 134))) > 0.05 >= float(vote_entropy(shares((14, 1), 135)))
    assert math.exp(0.244930 / 0.05) == pytest.approx(134.10, abs=0.01)


def test_a_unanimous_history_has_entropy_zero_exactly():
    assert float(vote_entropy(shares((15,), 7))) == 0.0 and float(vote_entropy(torch.ones(1, 1))) == 0.0


def test_fact_5_only_the_last_q_votes_count():
    history, count = torch.full((3, 4), -1, dtype=torch.int16), torch.zeros(3, dtype=torch.int32)
    generator = torch.Generator().manual_seed(0)
    pushed = torch.randint(5, (11, 3), generator=generator)
    for votes in pushed:
        push_votes(history, count, torch.arange(3), votes)
    for sample in range(3):
        assert sorted(history[sample].tolist()) == sorted(pushed[-4:, sample].tolist())
    assert count.tolist() == [11] * 3


def test_fact_5_neither_order_nor_names_matter():
    generator = torch.Generator().manual_seed(0)
    history = torch.randint(4, (50, 15), generator=generator)
    wanted = vote_entropy(vote_shares(history, 4))
    turned = history[:, torch.randperm(15, generator=generator)]
    renamed = torch.tensor([2, 0, 3, 1])[history]
    assert torch.equal(vote_shares(turned, 4), vote_shares(history, 4))
    assert torch.allclose(vote_entropy(vote_shares(renamed, 4)), wanted, atol=1e-6)


def test_shares_against_a_loop():
    history = torch.tensor([[0, 2, 2, -1], [1, 1, 1, 1]])
    found = vote_shares(history, 3)
    for row in range(2):
        for c in range(3):
            assert float(found[row, c]) == sum(v == c for v in history[row].tolist()) / 4


def test_a_sample_twice_in_a_batch_votes_once():
    history, count = torch.full((2, 3), -1), torch.zeros(2, dtype=torch.int32)
    push_votes(history, count, torch.tensor([1, 0, 1]), torch.tensor([4, 2, 4]))
    assert count.tolist() == [1, 1] and sorted(history[1].tolist()) == [-1, -1, 4]


def test_ties_go_to_the_first_class():
    assert int(shares((0, 7, 7, 1), 4).argmax(1)) == 1
