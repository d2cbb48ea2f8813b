"""The audit in a few numbers."""

import numpy as np
import pytest

import samples
from labeltrace.audit import decided
from labeltrace.audit.estimate import NoiseEstimate
from labeltrace.audit.summary import ClassSummary, class_summaries, decision_counts, disagreement


@pytest.fixture
def table():
    return samples.table(
        observed=[0, 0, 0, 0, 1, 1],
        suggested=[0, 1, 2, 2, 1, 0],
        decision=["keep", "relabel", "review", "relabel", "keep", "review"],
        observed_reliability=[0.9, 0.1, 0.1, 0.1, 0.9, 0.95],
        confidence=[0.9, 0.95, 0.7, 0.95, 0.9, 0.5],
    )


def test_counts(table):
    assert decision_counts(table) == {"keep": 2, "relabel": 2, "review": 2}
    assert decision_counts(table.slice(0, 0)) == {"keep": 0, "relabel": 0, "review": 0}


def test_labels_that_are_not_the_suggestion(table):
    assert disagreement(table) == 4 / 6


def test_class_by_class(table):
    joint = np.array([[1.0, 0.5, 0.0], [1.0, 1.5, 0.0], [2.0, 0.0, 0.0]])
    assert class_summaries(table, NoiseEstimate(joint)) == [
        ClassSummary("cat", 4, 3.0, 2, 1, "owl", 2),
        ClassSummary("dog", 2, 0.5, 0, 1, "cat", 1),
        ClassSummary("owl", 0, 0.0, 0, 0, None, 0),
    ]


def test_deciding_anew(table):
    assert decided(table).equals(table)
    strict = decided(table, trust_suggestion=0.99)
    assert strict["decision"].to_pylist() == ["keep", "review", "review", "review", "keep", "review"]
    assert decided(table, trust_label=0.05)["decision"].to_pylist()[1:4] == ["review"] * 3
    assert strict.drop_columns(["decision"]).equals(table.drop_columns(["decision"]))
    assert strict.schema.equals(table.schema, check_metadata=True)
