"""Random numbers that belong to (seed, epoch, sample): even, independent, and the same in whatever batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.draws import Draws

N = 4096
SAMPLES = torch.arange(N)


def chi_square_is_plausible(counts):
    """Pearson's statistic of counts that should be equal lies within five deviations of its mean, on both sides."""
    expected = counts.sum() / counts.numel()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = counts.numel() - 1
    return abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


def cells(x, parts):
    return (x * parts).long()


def even(x, parts=64):
    return chi_square_is_plausible(torch.bincount(cells(x.flatten(), parts), minlength=parts).double())


def independent(x, y, parts=8):
    """Pairs fall evenly on a board of parts × parts."""
    pairs = cells(x.flatten(), parts) * parts + cells(y.flatten(), parts)
    return chi_square_is_plausible(torch.bincount(pairs, minlength=parts * parts).double())


def test_the_checks_see_what_they_should():
    x = torch.rand(N, generator=torch.Generator().manual_seed(0))
    y = torch.rand(N, generator=torch.Generator().manual_seed(1))
    assert even(x) and independent(x, y)
    assert not even(x**1.3)  # skewed
    assert not even(torch.arange(N) / N)  # too even to be random
    assert not independent(x, x)
    assert not independent(x, (x + 0.3) % 1)


@pytest.mark.parametrize("words", [(0,), (0, 0), (0, 0, 0, 0), (1, 7, 2, 1), (123456789, 499, 1_000_003, 0)])
def test_numbers_are_even(words):
    draws = Draws.at(SAMPLES, *words)
    numbers = draws.uniform(16)
    assert numbers.shape == (N, 16) and numbers.dtype == torch.float32
    assert even(numbers)
    for column in range(16):
        assert even(numbers[:, column])
    for row in (0, 1, N - 1):
        assert even(Draws.at(SAMPLES[row : row + 1], *words).uniform(N))


def test_numbers_lie_in_zero_to_one():
    numbers = Draws.at(torch.arange(2**16), 5).uniform(32)
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    assert float(numbers.min()) < 1e-5 and float(numbers.max()) > 1 - 1e-5  # and fill it to both ends


def stream(*words, samples=SAMPLES, fork=()):
    draws = Draws.at(samples, *words)
    for tag in fork:
        draws = draws.fork(tag)
    return draws.uniform(4)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (stream(0, 3), stream(1, 3)),
        (stream(0, 3), stream(0, 4)),
        (stream(0, 1), stream(1, 0)),
        (stream(0), stream(0, 0)),
        (stream(0, 3, 0, 0), stream(0, 3, 1, 0)),
        (stream(0, 3, 0, 0), stream(0, 3, 0, 1)),
        (stream(0, 3), stream(0, 3, samples=SAMPLES + 1)),
        (stream(0, 3), stream(0, 3, samples=SAMPLES + N)),
        (stream(0, 3), stream(0, 3, samples=SAMPLES ^ 1)),
        (stream(0, 3), stream(0, 3, fork=[0])),
        (stream(0, 3, fork=[0]), stream(0, 3, fork=[1])),
        (stream(0, 3, fork=[0]), stream(0, 3, fork=[0, 0])),
        (stream(0, 3, fork=[0, 1]), stream(0, 3, fork=[1, 0])),
        (stream(0, 3, fork=[1]), stream(0, 4, fork=[1])),
        (stream(0, 3)[:, :-1], stream(0, 3)[:, 1:]),
    ],
    ids=[
        "seeds", "epochs", "order of words", "number of words", "phases", "passes", "neighbouring samples",
        "far samples", "samples one bit apart", "a fork and its parent", "two forks", "a fork of a fork",
        "order of forks", "a fork in two epochs", "one draw and the next",
    ],
)  # fmt: skip
def test_streams_are_independent(one, two):
    assert not torch.equal(one, two)
    assert independent(one, two)


def test_forks_draw_evenly():
    for tag in range(5):
        assert even(stream(0, 3, fork=[tag]))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 2**31), min_size=1, max_size=20),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_a_sample_draws_the_same_in_any_batch(samples, words, count):
    index = torch.tensor(samples)
    together = Draws.at(index, *words)
    for i, sample in enumerate(samples):
        alone = Draws.at(torch.tensor([sample]), *words)
        assert torch.equal(together.uniform(count)[i], alone.uniform(count)[0])
        assert torch.equal(together.normal(count)[i], alone.normal(count)[0])
        assert torch.equal(together.fork(3).uniform(count)[i], alone.fork(3).uniform(count)[0])


def test_asking_twice_gives_the_same():
    draws = Draws.at(SAMPLES, 1, 2)
    assert torch.equal(draws.uniform(5), draws.uniform(5))
    assert torch.equal(draws.fork(4).uniform(5), draws.fork(4).uniform(5))


def test_a_word_may_be_a_tensor():
    """Under a captured step the epoch is one, so that a replay draws anew."""
    assert torch.equal(stream(0, torch.tensor(7), 1), stream(0, 7, 1))
    assert not torch.equal(stream(0, torch.tensor(8), 1), stream(0, 7, 1))


def test_no_generator_is_touched():
    before = torch.get_rng_state()
    Draws.at(SAMPLES, 0).fork(1).normal(3)
    assert torch.equal(before, torch.get_rng_state())


def test_normal_numbers_are_normal():
    from scipy import stats

    numbers = Draws.at(SAMPLES, 0, 5).normal(8)
    assert numbers.shape == (N, 8) and torch.isfinite(numbers).all()
    assert stats.kstest(numbers.flatten().numpy(), "norm").pvalue > 1e-4
    ranks = torch.special.ndtr(numbers).clamp(max=1 - 1e-7)
    assert independent(ranks[:, :-1], ranks[:, 1:])
