"""Linear CKA: the worked number, both forms, streaming, what it is invariant to."""

import math

import pytest
import torch

from labeltrace.diagnostics.cka import StreamingCKA, cka_by_features, cka_by_samples, linear_cka
from labeltrace.errors import InputError

CROSS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)


def pair(rows, wide=7, high=9, seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, wide, dtype=torch.float64, generator=generator) + shift
    mix = torch.randn(wide, high, dtype=torch.float64, generator=generator)
    return x, x @ mix + torch.randn(rows, high, dtype=torch.float64, generator=generator)


def streamed(x, y, size):
    cka = StreamingCKA()
    for one, two in zip(x.split(size), y.split(size), strict=True):
        cka.add(one, two)
    return cka.value()


def test_worked_example():
    y = torch.stack([2 * CROSS[:, 0], CROSS[:, 1], 0 * CROSS[:, 0]], 1)
    for form in (linear_cka, cka_by_features, cka_by_samples):
        assert form(CROSS, y) == pytest.approx(0.857493, abs=5e-7)
    assert linear_cka(CROSS, y) == pytest.approx(5 / math.sqrt(2 * 17), abs=1e-12)  # (4 + 1)·4 / (√8·√(64 + 4))


@pytest.mark.parametrize("rows", [3, 8, 50, 300])
def test_both_forms_agree(rows):
    x, y = pair(rows)
    assert cka_by_features(x, y) == pytest.approx(cka_by_samples(x, y), abs=1e-10)


@pytest.mark.parametrize("size", [1, 7, 64, 300])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_streaming_is_exact_for_any_batch_size(size, shift):
    x, y = pair(300, shift=shift)
    assert streamed(x, y, size) == pytest.approx(cka_by_features(x, y), abs=1e-10)


def test_of_itself_it_is_one():
    x, _ = pair(40)
    assert linear_cka(x, x) == pytest.approx(1, abs=1e-12)


def test_invariant_to_rotation_scale_and_shift():
    x, y = pair(60)
    turn, _ = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    assert linear_cka(x, 5 * y @ turn + 3) == pytest.approx(linear_cka(x, y), abs=1e-12)
    assert linear_cka(y, x) == pytest.approx(linear_cka(x, y), abs=1e-12)


def test_pure_noise_of_few_samples_is_not_zero():
    """Why per-batch values are not averaged: of 50 samples of noise they are far above 0, of all samples near it."""
    generator = torch.Generator().manual_seed(0)
    rows, wide, high = 50, 7, 9
    x, y = (torch.randn(20000, d, dtype=torch.float64, generator=generator) for d in (wide, high))
    parts = [linear_cka(one, two) for one, two in zip(x.split(rows), y.split(rows), strict=True)]
    # E‖XᵀY‖² = n·d·e and E‖XᵀX‖² = n²d + n·d·(d + 1) for standard normal X and Y
    norms = math.sqrt(rows**2 * wide + rows * wide * (wide + 1)), math.sqrt(rows**2 * high + rows * high * (high + 1))
    assert sum(parts) / len(parts) == pytest.approx(rows * wide * high / math.prod(norms), rel=0.05)
    assert min(parts) < 0.176 < max(parts)  # the method page's draw
    assert streamed(x, y, rows) < 0.002


def test_constant_features_are_nan_with_a_warning():
    x, _ = pair(20)
    constant = torch.full((20, 3), 0.1, dtype=torch.float64)
    for form in (linear_cka, cka_by_features, cka_by_samples, lambda a, b: streamed(a, b, 6)):
        with pytest.warns(UserWarning, match="constant") as caught:
            assert math.isnan(form(x, constant))
        assert len(caught) == 1


def test_sides_must_have_the_same_samples():
    with pytest.raises(InputError, match=r"CKA of \[4, 2\] and \[3, 2\]"):
        linear_cka(torch.zeros(4, 2), torch.zeros(3, 2))
    with pytest.warns(UserWarning, match="no samples"):
        assert math.isnan(StreamingCKA().value())
