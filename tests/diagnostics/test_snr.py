"""The signal-to-noise view: its derivative, and when more weight on the pseudo target helps."""

import re
from pathlib import Path

import pytest
import torch

from labeltrace.diagnostics.snr import snr, snr_slope


def draws(count=500, seed=0):
    return torch.rand(4, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 0.98 + 0.01


def test_slope_is_the_derivative():
    a, b, r_o, r_p = draws()
    b.requires_grad_()
    (slope,) = torch.autograd.grad(snr(a, b, r_o, r_p, eps=0.0).sum(), b)
    torch.testing.assert_close(snr_slope(a, b.detach(), r_o, r_p), slope)


def test_more_pseudo_weight_helps_where_the_pseudo_target_is_better_and_nowhere_else():
    a, b, r_o, r_p = draws()
    rises = snr(a, b + 0.01, r_o, r_p, eps=0.0) > snr(a, b, r_o, r_p, eps=0.0)
    assert torch.equal(rises, r_p > r_o)
    assert rises.any() and not rises.all()


def test_without_observed_weight_b_cancels():
    _, b, r_o, r_p = draws()
    zero = torch.zeros_like(b)
    torch.testing.assert_close(snr(zero, b, r_o, r_p, eps=0.0), r_p / (1 - r_p))
    assert (snr_slope(zero, b, r_o, r_p) == 0).all()


def test_numbers():
    assert float(snr(*torch.tensor([0.2, 0.8, 0.3, 0.3], dtype=torch.float64))) == pytest.approx(0.3 / 0.7)
    assert float(snr(*torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))) == pytest.approx(1e8)  # ε alone


def test_the_page_says_what_the_code_says():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "snr.md").read_text(encoding="utf-8")
    a, r_o, b = torch.tensor(0.5), torch.tensor(0.3), torch.tensor([0.0, 0.5, 1.0])
    for r_p, numbers in re.findall(r"snr\(a, b, r_o, torch.tensor\(([\d.]+)\)\)  # ([\d., ]+):", page):
        expected = [float(number) for number in numbers.split(", ")]
        assert snr(a, b, r_o, torch.tensor(float(r_p))).tolist() == pytest.approx(expected, abs=0.005)
    pictures = re.findall(r"\]\((images/.*?)\)", page)
    assert len(pictures) == 3 and all((docs / picture).exists() for picture in pictures)
    one, two = (snr(*torch.tensor([0.3, b, 0.3, 0.6], dtype=torch.float64)) for b in (0.7, 0.42))
    assert f"{two:.2f} instead of {one:.2f}" in page
