"""Drift strata, the landscape and the choice of cases."""

import math
import warnings

import pytest
import torch

from labeltrace.diagnostics.cases import select_cases
from labeltrace.diagnostics.landscape import landscape, low_observed_high_pseudo
from labeltrace.diagnostics.reliability import verdicts
from labeltrace.diagnostics.strata import STRATA, drift_strata
from labeltrace.engine.signals import auroc


def rows_of(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {row["stratum"]: row for row in drift_strata(*arguments)}


def test_strata_begin_and_end_where_the_paper_says():
    clean = torch.tensor([0.0, 1e-9, 1e-3, 0.1999, 0.2, 0.4999, 0.5, 0.8, 0.9799, 0.98, 1.0], dtype=torch.float64)
    rows = rows_of(clean, torch.arange(11.0), torch.ones(11).bool())
    assert [row["n"] for row in rows.values()] == [2, 2, 2, 1, 2, 2]
    assert list(rows) == [name for name, _, _ in STRATA]


def test_halves_as_a_slow_loop():
    generator = torch.Generator().manual_seed(0)
    clean, drift = torch.rand(2, 501, generator=generator)
    right = torch.rand(501, generator=generator) < 0.3 + 0.5 * clean
    for name, start, end in STRATA:
        inside = [i for i in range(501) if start <= float(clean[i]) < end]
        row = rows_of(clean, drift, right)[name]
        if len(inside) < 2:
            assert math.isnan(row["low"])
            continue
        order = sorted(inside, key=lambda i: float(drift[i]))
        half = len(order) // 2
        assert row["low"] == pytest.approx(sum(bool(right[i]) for i in order[:half]) / half)
        assert row["high"] == pytest.approx(sum(bool(right[i]) for i in order[half:]) / (len(order) - half))


def test_an_odd_sample_is_of_high_drift_and_ties_keep_their_order():
    rows = rows_of(torch.full((3,), 0.6), torch.zeros(3), torch.tensor([True, False, False]))
    assert (rows["[.5, .8)"]["n_low"], rows["[.5, .8)"]["low"], rows["[.5, .8)"]["high"]) == (1, 1, 0)


def test_auroc_is_of_low_drift():
    generator = torch.Generator().manual_seed(1)
    drift, right = torch.rand(60, generator=generator), torch.rand(60, generator=generator) < 0.5
    row = rows_of(torch.full((60,), 0.3), drift, right)["[.2, .5)"]
    assert row["auroc"] == pytest.approx(1 - auroc(drift, right))


def test_empty_strata_are_blank_with_one_warning():
    with pytest.warns(UserWarning, match="drift strata") as caught:
        rows = drift_strata(torch.tensor([0.1, 0.6]), torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
    assert len(caught) == 1
    assert all(math.isnan(row["low"]) for row in rows)  # no stratum has two


def test_landscape_as_a_slow_loop():
    generator = torch.Generator().manual_seed(0)
    observed, pseudo = torch.rand(2, 300, generator=generator)
    ok = torch.rand(300, generator=generator) < pseudo
    found = landscape(observed, pseudo, ok)
    for y in range(5):
        for x in range(5):
            inside = [
                i for i in range(300)
                if min(int(float(observed[i]) * 5), 4) == x and min(int(float(pseudo[i]) * 5), 4) == y
            ]  # fmt: skip
            assert int(found.counts[y, x]) == len(inside)
            assert float(found.accuracy[y, x]) == pytest.approx(float(ok[inside].double().mean()))


def test_cells_of_too_few_samples_are_blank():
    observed = torch.full((50000,), 0.1)
    pseudo = torch.full((50000,), 0.9)
    observed[:4], observed[4:9] = 0.9, 0.5  # 4 of 50,000 are too few, 5 are not
    found = landscape(observed, pseudo, torch.ones(50000).bool())
    assert math.isnan(float(found.accuracy[4, 4])) and int(found.counts[4, 4]) == 4
    assert float(found.accuracy[4, 2]) == 1 and math.isnan(float(found.accuracy[0, 0]))


def test_the_corner_where_a_replacement_is_needed_and_offered():
    score = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.5, 0.1])
    confidence = torch.tensor([0.95, 0.95, 0.85, 0.85, 0.95, 0.5])
    suggested = torch.tensor([1, 0, 1, 1, 0, 0])
    v = verdicts(score, confidence, suggested, torch.zeros(6).long(), torch.ones(6).long())
    assert low_observed_high_pseudo(v, confidence) == {"n": 4, "pseudo_accuracy": 0.75, "hc_error": 0.5}


def cases(**changes):
    columns = {
        "observed": [1, 1, 2, 0, 0, 0, 1, 1],
        "truth": [0, 0, 0, 1, 1, 2, 2, 1],  # the last label is right
        "suggested": [0, 0, 1, 1, 2, 2, 1, 1],
        "confidence": [0.9, 0.8, 0.9, 0.4, 0.9, 0.9, 0.9, 0.9],
        "b": [0.7, 0.9, 0.1, 0.3, 0.2, 0.6, 0.4, 0.0],
    } | changes  # fmt: skip
    c = {name: torch.tensor(values) for name, values in columns.items()}
    v = verdicts(torch.zeros(8), c["confidence"], c["suggested"], c["observed"], c["truth"])
    return v, c["b"]


def test_cases_are_one_of_a_true_class_by_b():
    top, bottom = select_cases(*cases())
    assert top == [1, 5, 3]  # b 0.9 of class 0, 0.6 of class 2, 0.3 of class 1; sample 0 comes second in its class
    assert bottom == [2, 4, 6]  # wrong ones by rising b; 3, right but unsure, comes after 4 in its class


def test_an_unsure_pseudo_target_is_a_case_to_hold_back():
    assert select_cases(*cases(b=[0.7, 0.9, 0.1, 0.05, 0.2, 0.6, 0.4, 0.0]))[1] == [3, 2, 6]


def test_ties_go_to_the_first():
    top, bottom = select_cases(*cases(b=[0.5] * 8), per_row=2)
    assert (top, bottom) == ([0, 3], [2, 3])


def test_no_wrong_label_leaves_no_case():
    v, b = cases(observed=[0, 0, 0, 1, 1, 2, 2, 1])
    assert select_cases(v, b) == ([], [])
