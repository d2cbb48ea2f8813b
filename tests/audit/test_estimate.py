"""The noise estimate on posteriors whose truth is known, and against a slow EM."""

import numpy as np
import pytest

import samples
from labeltrace.audit.estimate import estimate_noise, wrong_probability
from labeltrace.audit.samples import values
from labeltrace.data.noise.transitions import Transitions

COUNT = 20_000


def matrix(kind, classes):
    eye = np.eye(classes)
    return {
        "none": eye,
        "symmetric": 0.6 * eye + 0.4 / (classes - 1) * (1 - eye),
        "pair": 0.7 * eye + 0.3 * np.roll(eye, 1, 1),
        "one way": np.vstack([np.eye(classes)[:-1], 0.5 * np.eye(classes)[0] + 0.5 * np.eye(classes)[-1]]),
    }[kind]


@pytest.mark.parametrize("kind", ["none", "symmetric", "pair", "one way"])
@pytest.mark.parametrize(("classes", "spread"), [(2, 0.3), (3, 0.05), (3, 1.0), (10, 0.05)])
def test_rate_and_matrix_of_calibrated_networks(kind, classes, spread):
    """Three standard errors of a share of 20,000 are one point; of a class of a tenth, three."""
    table = samples.drawn(COUNT, matrix(kind, classes), spread)
    truth, observed = values(table, "truth"), values(table, "observed")
    found = estimate_noise(table)
    assert found.rate == pytest.approx((truth != observed).mean(), abs=0.012)
    actual = Transitions.between(truth, observed, classes).matrix()
    assert np.abs(found.transition - actual).sum(1).mean() / 2 < 0.035
    wrong = np.bincount(observed[truth != observed], minlength=classes)
    assert found.wrong == pytest.approx(wrong, abs=0.02 * COUNT)


def test_the_counts_are_those_of_the_labels():
    table = samples.drawn(500, matrix("pair", 3), 0.3)
    found = estimate_noise(table)
    assert found.joint.sum(0) == pytest.approx(np.bincount(values(table, "observed"), minlength=3))
    assert found.transition.sum(1) == pytest.approx(np.ones(3))
    assert found.wrong.sum() / 500 == pytest.approx(found.rate)


def test_ambiguity_is_no_noise():
    """Labels drawn from the networks' own probabilities: half of them are not the suggestion, none is wrong."""
    table = samples.drawn(COUNT, np.eye(3), 1.0)
    assert (values(table, "observed") != values(table, "suggested")).mean() > 0.35
    assert estimate_noise(table).rate < 0.01


def test_equals_a_slow_em():
    """The formula, sample by sample, with the two known probabilities and the rest spread evenly."""
    table = samples.drawn(60, matrix("symmetric", 4), 0.5, seed=3)
    rows = []
    for row in table.to_pylist():
        p = np.zeros(4)
        p[row["observed"]] = row["observed_probability"]
        p[row["suggested"]] = row["confidence"]
        named = {row["observed"], row["suggested"]}
        for c in range(4):
            if c not in named:
                p[c] = (1 - p[list(named)].sum()) / (4 - len(named))
        rows.append((p, row["observed"]))
    transition = np.full((4, 4), 0.5 / 3)
    np.fill_diagonal(transition, 0.5)
    for _ in range(5000):
        counts = np.zeros((4, 4))
        for p, label in rows:
            share = p * transition[:, label]
            counts[:, label] += share / share.sum()
        transition = counts / counts.sum(1, keepdims=True)
    found = estimate_noise(table)
    assert found.rate == pytest.approx(1 - np.trace(counts) / 60, abs=2e-3)
    likelihood = sum(np.log(p @ transition[:, label]) for p, label in rows)
    assert sum(np.log(p @ found.transition[:, label]) for p, label in rows) == pytest.approx(likelihood, abs=1e-2)


def test_all_suggested_as_labelled_is_clean_and_a_class_of_nobody_keeps_its_label():
    table = samples.table(observed=[0, 1, 0, 1], confidence=[1.0] * 4, observed_probability=[1.0] * 4)
    found = estimate_noise(table)
    assert found.rate == pytest.approx(0, abs=1e-9)
    assert found.transition == pytest.approx(np.eye(3), abs=1e-6)


def test_names_of_classes_do_not_count():
    table = samples.drawn(400, matrix("pair", 3), 0.3)
    order = np.array([2, 0, 1])
    renamed = table
    for name in ("observed", "suggested"):
        column = samples.pa.array(order[values(table, name)], samples.pa.int32())
        renamed = renamed.set_column(renamed.column_names.index(name), name, column)
    one, two = estimate_noise(table).joint, estimate_noise(renamed).joint
    assert two[np.ix_(order, order)] == pytest.approx(one, abs=1e-6)


def test_the_probability_of_a_wrong_label_is_calibrated():
    table = samples.drawn(COUNT, matrix("symmetric", 3), 0.3)
    p = wrong_probability(table, estimate_noise(table))
    wrong = values(table, "observed") != values(table, "truth")
    for low in np.arange(0, 1, 0.25):
        inside = (p >= low) & (p <= low + 0.25)
        assert inside.sum() > 100
        assert wrong[inside].mean() == pytest.approx(p[inside].mean(), abs=0.04)


def test_a_large_table_is_fitted_on_a_part(monkeypatch):
    monkeypatch.setattr("labeltrace.audit.estimate.MOST_ROWS", 5_000)
    table = samples.drawn(COUNT, matrix("pair", 3), 0.05)
    found = estimate_noise(table)
    assert found.joint.sum() == pytest.approx(COUNT)
    assert found.rate == pytest.approx(0.3, abs=0.03)
