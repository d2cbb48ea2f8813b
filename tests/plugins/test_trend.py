"""The Mann–Kendall test: the numbers of its page, slow loops, invariances."""

import math

import pytest
import torch
from scipy.stats import norm

from labeltrace.plugins.trend import change_of_s, gaps, least, z_score


def s_of(series):
    """S of one series, pair by pair."""
    return sum((b > a) - (b < a) for i, a in enumerate(series) for b in series[i + 1 :])


def running(series):
    """S of one series [n, …], observation by observation."""
    series = torch.as_tensor(series)
    past = torch.full((1, len(series), *series.shape[1:]), 99.0)  # what has not been written must not count
    s = torch.zeros(series.shape[1:], dtype=torch.int32)
    for number, now in enumerate(series):
        s = s + change_of_s(now[None], past, torch.tensor([number]))[0]
        past[0, number] = now
    return s


def test_fact_1_a_series_with_one_fall():
    s = running([0.1, 0.3, 0.2, 0.5, 0.6, 0.7])
    assert int(s) == 13
    z = float(z_score(s[None], torch.tensor([6])))
    assert z == pytest.approx(2.25441, abs=1e-5)
    assert least(0.10) < z < least(0.01)


def test_fact_2_rising_series():
    for n, wanted in zip(range(2, 8), (0, 1.0445, 1.6984, 2.2045, 2.6301, 3.0038), strict=True):
        s = running([float(k) for k in range(n)])
        assert int(s) == n * (n - 1) // 2
        assert float(z_score(s[None], torch.tensor([n]))) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(("alpha", "first"), [(0.01, 6), (0.10, 4), (0.50, 3)])
def test_the_earliest_epoch_that_can_be_chosen(alpha, first):
    z = [float(z_score(torch.tensor([n * (n - 1) // 2]), torch.tensor([n]))) for n in range(12)]
    assert [value > least(alpha) for value in z] == [n >= first for n in range(12)]
    assert least(alpha) == pytest.approx(norm.ppf(1 - alpha))


def test_equals_a_slow_loop_over_pairs():
    generator = torch.Generator().manual_seed(0)
    series = torch.randint(0, 4, (9, 5), generator=generator).float()  # with ties
    assert running(series).tolist() == [s_of(column.tolist()) for column in series.T]


def test_a_constant_series_and_short_ones_have_no_trend():
    assert z_score(running([0.5] * 6)[None], torch.tensor([6])).tolist() == [0.0]
    assert z_score(torch.tensor([0, 3]), torch.tensor([0, 1])).tolist() == [0.0, 0.0]
    assert least(0.5) == 0.0  # and a score must lie above it


def test_falling_is_rising_with_the_other_sign():
    series = torch.rand(7, generator=torch.Generator().manual_seed(1))
    up, down = running(series), running(series.flip(0))
    assert int(up) == -int(down)
    n = torch.tensor([7])
    assert float(z_score(up[None], n)) == pytest.approx(-float(z_score(down[None], n)))


def test_gaps_are_zero_at_the_label_and_follow_the_classes():
    p = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    labels = torch.tensor([0, 2])
    found = gaps(p, labels)
    assert found[0].tolist() == pytest.approx([0.0, -0.3, -0.1]) and float(found[1, 2]) == 0.0
    order = torch.tensor([2, 0, 1])  # class c is called order.argsort()[c] now
    assert torch.equal(gaps(p[:, order], order.argsort()[labels]), found[:, order])
    assert math.isclose(float(found[1, 0]), -0.5, abs_tol=1e-6)
