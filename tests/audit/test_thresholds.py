"""Thresholds chosen from checked samples: against every pair there is, and the answers when there are none."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from labeltrace.audit.decisions import decide
from labeltrace.audit.thresholds import NEVER, Share, choose_thresholds, needed
from labeltrace.errors import InputError


@given(st.integers(1, 200), st.data())
def test_wilsons_interval_is_scipys(count, data):
    right = data.draw(st.integers(0, count))
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert Share(right, count).interval == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_a_share_of_nothing():
    assert math.isnan(Share(0, 0).precision) and Share(0, 0).interval == (0.0, 1.0)


@pytest.mark.parametrize("precision", [0.5, 0.9, 0.95, 0.99])
def test_how_many_are_needed(precision):
    count = needed(precision)
    assert Share(count, count).interval[0] >= precision > Share(count - 1, count - 1).interval[0]


def counted(columns, truth, label, suggestion):
    """Relabels and keeps as (right, count), and reviews, by the rule itself."""
    observed, suggested = columns[:2]
    decision = np.array(decide(*columns, trust_label=label, trust_suggestion=suggestion).to_pylist())
    relabel, keep = decision == "relabel", decision == "keep"
    return (
        ((suggested == truth)[relabel].sum(), relabel.sum()),
        ((observed == truth)[keep].sum(), keep.sum()),
        (decision == "review").sum(),
    )


TENTHS = st.integers(0, 10).map(lambda i: i / 10)
ROWS = st.tuples(st.integers(0, 2), st.integers(0, 2), TENTHS, TENTHS, st.integers(0, 2))


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=15, max_size=60), st.sampled_from([0.3, 0.5, 0.7, 0.9]))
def test_no_pair_of_thresholds_does_better(rows, wanted):
    *columns, truth = map(np.array, zip(*rows, strict=True))
    values = [i / 10 for i in range(11)] + [NEVER]
    pairs = [counted(columns, truth, label, suggestion) for label in values for suggestion in values]
    reach = [p for p in pairs if p[0][1] >= 10 and p[0][0] / p[0][1] >= wanted]
    sure = [p for p in reach if binomtest(int(p[0][0]), int(p[0][1])).proportion_ci(method="wilson").low >= wanted]
    reach = sure or reach
    if not reach:
        with pytest.raises(InputError):
            choose_thresholds(*columns, truth, wanted)
        return
    found = choose_thresholds(*columns, truth, wanted)
    relabel, keep, review = counted(columns, truth, found.trust_label, found.trust_suggestion)
    assert (found.relabel, found.keep, found.review) == (Share(*relabel), Share(*keep), review)
    assert found.relabel.precision >= wanted and found.is_sure == bool(sure)
    assert found.review == min(p[2] for p in reach)


def checked(count, wrong_at):
    """Suggestions that all differ from the label, right from a confidence on."""
    confidence = np.linspace(0.5, 1, count)
    truth = np.where(confidence >= wrong_at, 1, 2)
    zeros = np.zeros(count, int)
    return zeros, zeros + 1, np.full(count, 0.1), confidence, truth


def test_the_mark_where_suggestions_become_right():
    found = choose_thresholds(*checked(101, 0.8), 1.0)
    assert found.trust_suggestion == pytest.approx(0.8) and found.relabel == Share(41, 41)
    assert not found.is_sure  # nothing finite is
    sure = choose_thresholds(
        *checked(501, 0.8), 0.95
    )  # of 201 right ones four wrong leave the interval from 0.9509, five from 0.9444
    assert sure.is_sure and sure.relabel == Share(201, 205)


def test_too_few_checked_samples():
    with pytest.raises(InputError, match=r"9 checked samples, 9 of them .* at least 10 .* about 73 to be sure of 95 %"):
        choose_thresholds(*checked(9, 0.8), 0.95)


def test_a_precision_that_cannot_be_reached_names_the_best_there_is():
    observed, suggested, label, confidence, truth = checked(20, 0.8)
    truth[:] = [1, 2] * 10  # right every other time, whatever the confidence
    with pytest.raises(InputError, match=r"no thresholds reach a precision of 99 % .* the best is \d+ right of \d+"):
        choose_thresholds(observed, suggested, label, confidence, truth, 0.99)


@pytest.mark.parametrize("precision", [0.0, -1.0, 1.5, math.nan])
def test_a_precision_is_a_share(precision):
    with pytest.raises(InputError, match="more than 0 and at most 1"):
        choose_thresholds(*checked(20, 0.8), precision)


def test_many_distinct_values_are_thinned():
    rng = np.random.default_rng(0)
    count = 3000
    confidence, label = rng.random(count), rng.random(count)
    truth = np.where(rng.random(count) < confidence, 1, 2)
    zeros = np.zeros(count, int)
    found = choose_thresholds(zeros, zeros + 1, label, confidence, truth, 0.9)
    assert found.relabel.precision >= 0.9 and found.trust_suggestion == pytest.approx(0.8, abs=0.1)


def test_thresholds_of_a_float32_table_decide_as_they_were_chosen():
    columns = [c.astype(np.float32) if c.dtype.kind == "f" else c for c in checked(101, 0.8)]
    found = choose_thresholds(*columns, 0.95)
    relabel, _, _ = counted(columns[:4], columns[4], found.trust_label, found.trust_suggestion)
    assert Share(*relabel) == found.relabel
