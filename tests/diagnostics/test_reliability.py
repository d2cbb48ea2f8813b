"""Reliability of pseudo targets: the page's numbers, slow loops, identities, empty subsets."""

import math
import warnings

import pytest
import torch

from labeltrace.audit import expected_calibration_error
from labeltrace.diagnostics.reliability import (
    Verdicts,
    bin_of,
    follow_noisy,
    hc_error,
    hc_wrong_joint,
    mismatch_curve,
    mismatch_regimes,
    pseudo_accuracy,
    regimes,
    reliability_table,
    subsets,
    verdicts,
)
from labeltrace.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*not defined:UserWarning")


def draw(count=400, classes=5, seed=0, rate=0.4):
    """A run that never was: scores, pseudo targets and labels, all related and none perfectly."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(classes, (count,), generator=generator)
    noisy = torch.rand(count, generator=generator) < rate
    observed = torch.where(noisy, (truth + 1) % classes, truth)
    suggested = torch.where(torch.rand(count, generator=generator) < 0.7, truth, observed)
    score = (torch.rand(count, generator=generator) - 0.4 * noisy).clamp(0, 1)
    return verdicts(score, torch.rand(count, generator=generator), suggested, observed, truth)


def test_measures_as_slow_loops():
    v = draw()
    wrong = [i for i in range(len(v)) if v.observed[i] != v.truth[i]]
    sure = [i for i in range(len(v)) if v.confidence[i] >= 0.9]
    missed = [i for i in range(len(v)) if v.suggested[i] != v.truth[i]]
    assert pseudo_accuracy(v) == pytest.approx(1 - len(missed) / len(v))
    assert follow_noisy(v) == pytest.approx(sum(int(v.suggested[i] == v.observed[i]) for i in wrong) / len(wrong))
    assert hc_error(v) == pytest.approx(len(set(sure) & set(missed)) / len(sure))
    assert hc_wrong_joint(v) == pytest.approx(len(set(sure) & set(missed)) / len(v))


@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9])
def test_the_two_denominators(tau):
    v = draw()
    assert hc_wrong_joint(v, tau) <= 1 - pseudo_accuracy(v)
    share = float((v.confidence >= tau).double().mean())
    assert hc_error(v, tau) * share == pytest.approx(hc_wrong_joint(v, tau))


def test_calibration_error_of_the_page():
    confidence, ok = torch.tensor([0.95, 0.85, 0.75, 0.65, 0.55]), torch.tensor([1, 1, 0, 1, 0])
    assert expected_calibration_error(confidence, ok, bins=10) == pytest.approx(0.37, abs=1e-6)


def test_calibration_error_as_a_slow_loop():
    v = draw()
    total = 0.0
    for number in range(15):
        inside = [i for i in range(len(v)) if number / 15 < float(v.confidence[i]) <= (number + 1) / 15]
        if inside:
            total += abs(float(v.confidence[inside].double().mean()) - float(v.ok[inside].double().mean())) * len(
                inside
            )
    assert expected_calibration_error(v.confidence, v.ok) == pytest.approx(total / len(v))


def test_calibrated_and_overconfident():
    sure = torch.ones(10)
    assert expected_calibration_error(sure, torch.ones(10)) == 0
    assert expected_calibration_error(sure, torch.zeros(10)) == 1
    assert expected_calibration_error(torch.zeros(4), torch.zeros(4)) == 0  # a confidence of 0 is in the first bin


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_bins_are_closed_below_and_the_last_above(kind):
    edges = torch.arange(11, dtype=torch.float64).div(10).to(kind)
    assert bin_of(edges).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]


def test_regimes_by_midpoint_are_whole_bins():
    score = torch.linspace(0, 1, 1001, dtype=torch.float64)
    masks, bins = regimes(score), bin_of(score)
    assert set(bins[masks["low"]].tolist()) == {0, 1, 2}
    assert set(bins[masks["mid"]].tolist()) == {3, 4, 5}
    assert set(bins[masks["high"]].tolist()) == {6, 7, 8, 9}


def test_regimes_by_score_cut_where_the_paper_writes():
    masks = regimes(torch.tensor([0.34, 0.36, 0.64, 0.66], dtype=torch.float64), "score")
    assert [masks[name].tolist() for name in ("low", "mid", "high")] == [
        [True, False, False, False], [False, True, True, False], [False, False, False, True],
    ]  # fmt: skip
    with pytest.raises(InputError, match="did you mean 'score'"):
        regimes(torch.zeros(1), "scores")


def test_subsets():
    v = draw()
    found = subsets(v)
    assert torch.equal(found["low-clean"], v.score < 0.3)
    assert torch.equal(found["low-clean+noisy"], (v.score < 0.3) & (v.observed != v.truth))
    assert torch.equal(found["high-confidence"], v.confidence >= 0.9)
    assert int(subsets(v, low=0.5)["low-clean"].sum()) > int(found["low-clean"].sum())


def test_the_table_is_consistent():
    """As the page's check of a report: right on all = right on noisy + right on clean."""
    v = draw()
    rows = {row["subset"]: row for row in reliability_table(v)}
    noisy, clean = rows["observed-noisy"], v.at(~v.noisy)
    right = noisy["pseudo_accuracy"] * noisy["n"] + pseudo_accuracy(clean) * len(clean)
    assert rows["all"]["pseudo_accuracy"] * rows["all"]["n"] == pytest.approx(right)
    assert rows["all"]["follow_noisy"] == noisy["follow_noisy"]  # over wrong labels alone
    assert rows["low-clean"]["follow_noisy"] == rows["low-clean+noisy"]["follow_noisy"]
    assert rows["high-confidence"]["pseudo_accuracy"] == pytest.approx(1 - rows["all"]["hc_error"])


def test_the_papers_table_passes_the_check():
    """CIFAR-100N under TRACE (counts and accuracies as printed): what it says of clean samples is a possible number."""
    clean = (71.22 * 50000 - 30.93 * 20100) / 29900
    assert 98 < clean < 99


def test_the_curve_adds_up_to_the_whole():
    v = draw()
    curve = mismatch_curve(v)
    assert [row["midpoint"] for row in curve] == [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
    assert sum(row["n"] for row in curve) == len(v)
    for column, whole in (("pseudo_accuracy", pseudo_accuracy(v)), ("observed_correct", 1 - v.noisy.double().mean())):
        kept = [row for row in curve if row["n"]]
        assert sum(row[column] * row["n"] for row in kept) / len(v) == pytest.approx(float(whole))


def test_the_bars_of_figure_one():
    v = draw()
    rows = {row["regime"]: row for row in mismatch_regimes(v)}
    high = v.at(v.score >= 0.6)
    assert rows["high"]["n"] == len(high)
    assert rows["high"]["hc_wrong_joint"] == pytest.approx(float((~high.ok & (high.confidence >= 0.9)).double().mean()))
    assert rows["all"]["pseudo_accuracy"] == pytest.approx(pseudo_accuracy(v))


def test_empty_bins_are_nan_with_one_warning():
    zero = torch.zeros(4).long()
    v = verdicts(torch.full((4,), 0.95), torch.full((4,), 0.5), zero, zero, torch.tensor([0, 0, 0, 1]))
    for measure in (mismatch_curve, mismatch_regimes, reliability_table):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = measure(v)
        assert len(caught) == 1
        assert any(math.isnan(row["pseudo_accuracy"]) for row in rows)


def test_no_wrong_label_has_nothing_to_follow():
    v = draw(rate=0.0)
    assert math.isnan(follow_noisy(v))
    assert not math.isnan(pseudo_accuracy(v))


def test_nothing_known_never_crashes():
    v = verdicts(*(torch.rand(3) for _ in range(2)), *(torch.zeros(3).long() for _ in range(2)), torch.full((3,), -1))
    assert len(v) == 0
    with pytest.warns(UserWarning, match="not defined"):
        assert math.isnan(reliability_table(v)[0]["ece"])


def test_one_class():
    v = verdicts(torch.rand(8), torch.ones(8), *(torch.zeros(8).long() for _ in range(3)))
    assert pseudo_accuracy(v) == 1 and hc_error(v) == 0 and math.isnan(follow_noisy(v))


def test_samples_of_unknown_truth_are_left_out():
    v = draw()
    truth = v.truth.clone()
    truth[::3] = -1
    assert len(verdicts(v.score, v.confidence, v.suggested, v.observed, truth)) == int((truth >= 0).sum())


def test_renaming_the_classes_changes_nothing():
    v, name = draw(), torch.tensor([3, 1, 4, 0, 2])
    other = Verdicts(v.score, v.confidence, name[v.suggested], name[v.observed], name[v.truth])
    assert reliability_table(v) == reliability_table(other)


def test_scores_outside_the_unit_interval_are_refused():
    labels = [torch.zeros(2).long()] * 3
    with pytest.raises(InputError, match="score"):
        verdicts(torch.tensor([0.5, math.nan]), torch.ones(2), *labels)
    with pytest.raises(InputError, match="confidence"):
        verdicts(torch.ones(2), torch.tensor([0.5, 1.5]), *labels)
