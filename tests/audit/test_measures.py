"""Average precision, calibration error and the figures of an audit, by hand and against scikit-learn."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

import samples
from labeltrace.audit import average_precision, expected_calibration_error, measure

RANKED = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40)


@given(RANKED)
def test_average_precision_is_scikit_learns(rows):
    score, positive = map(np.array, zip(*rows, strict=True))
    if not positive.any():
        assert math.isnan(average_precision(score, positive))
    else:
        assert average_precision(score, positive) == pytest.approx(average_precision_score(positive, score))


@pytest.mark.parametrize(
    ("score", "positive", "expected"),
    [
        ([3, 2, 1], [1, 1, 0], 1.0),
        ([3, 2, 1], [0, 0, 1], 1 / 3),
        ([1, 1, 1, 1], [1, 0, 0, 0], 1 / 4),  # all alike: the share of positives
        ([4, 3, 2, 1], [1, 0, 1, 0], (1 + 2 / 3) / 2),
    ],
)
def test_average_precision_by_hand(score, positive, expected):
    assert average_precision(score, positive) == pytest.approx(expected)


def test_the_worked_calibration_error():
    """Five samples in five bins of ten: |1−.95| + |1−.85| + |0−.75| + |1−.65| + |0−.55| = 1.85, over five."""
    assert expected_calibration_error([0.95, 0.85, 0.75, 0.65, 0.55], [1, 1, 0, 1, 0], bins=10) == pytest.approx(0.37)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 20))
def test_calibration_error_equals_a_slow_loop(rows, bins):
    edges, expected = np.linspace(0, 1, bins + 1), 0.0
    for low, high in pairwise(edges):
        inside = [(c, ok) for c, ok in rows if low < c <= high or (c == 0 and low == 0)]
        if inside:
            accuracy = sum(ok for _, ok in inside) / len(inside)
            expected += len(inside) / len(rows) * abs(accuracy - sum(c for c, _ in inside) / len(inside))
    confidence, correct = zip(*rows, strict=True)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(expected, abs=1e-9)


def test_an_edge_belongs_to_the_lower_bin():
    """0.5 and 0.3 share the bin (0, 0.5]: accuracy ½, confidence 0.4."""
    assert expected_calibration_error([0.5, 0.3], [1, 0], bins=2) == pytest.approx(0.1)


def test_the_calibrated_have_no_error_and_nobody_has_none():
    assert expected_calibration_error([0.25] * 4, [1, 0, 0, 0]) == pytest.approx(0)
    assert math.isnan(expected_calibration_error([], []))


def test_the_figures_of_a_table():
    """Rows of unknown truth count nowhere."""
    found = samples.table(
        observed=[0, 0, 1, 1, 2],
        suggested=[0, 1, 1, 0, 0],
        truth=[0, 1, 1, 1, -1],
        decision=["keep", "relabel", "keep", "review", "relabel"],
        observed_reliability=[0.9, 0.2, 0.8, 0.1, 0.0],
        pseudo_reliability=[0.9, 0.9, 0.9, 0.9, 0.9],
    )
    figures = measure(found, "reliability")
    wrong, score = [0, 1, 0, 0], [0.1, 0.8, 0.2, 0.9]
    assert figures["precision"] == 1 / 2 and figures["recall"] == 1 and figures["suggestion_accuracy"] == 3 / 4
    assert figures["relabel_accuracy"] == 1 and figures["right_after"] == 1
    assert figures["auroc"] == pytest.approx(roc_auc_score(wrong, score))
    assert figures["average_precision"] == pytest.approx(average_precision_score(wrong, score))
    assert figures["ece_label"] == pytest.approx((0.1 + 0.2 + 0.2 + 0.9) / 4)
    assert figures["ece_suggestion"] == pytest.approx(0.9 - 3 / 4)
