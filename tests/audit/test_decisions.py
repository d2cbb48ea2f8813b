"""Keep, relabel or review: the rule, as a table and against a slow loop."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labeltrace.audit import decide

# (the suggestion is the label, the label is trusted, the suggestion is trusted) → decision
RULE = {
    (True, True, True): "keep",
    (True, True, False): "keep",
    (True, False, True): "keep",
    (True, False, False): "keep",
    (False, True, False): "review",
    (False, False, True): "relabel",
    (False, False, False): "review",
    (False, True, True): "review",
}


def decision(observed, suggested, label, suggestion, **thresholds):
    columns = torch.tensor([observed]), torch.tensor([suggested]), torch.tensor([label]), torch.tensor([suggestion])
    (answer,) = decide(*columns, **thresholds).to_pylist()
    return answer


@pytest.mark.parametrize("case", RULE)
def test_the_rule(case):
    same, label, suggestion = case
    assert decision(2, 2 if same else 1, 0.95 if label else 0.6, 0.95 if suggestion else 0.6) == RULE[case]


@pytest.mark.parametrize(
    ("label", "suggestion", "expected"),
    [
        (0.9, 0.95, "review"),  # a label is trusted from 0.9 on
        (0.89, 0.95, "relabel"),
        (0.2, 0.9, "relabel"),  # so is a suggestion
        (0.2, 0.89, "review"),
        (0.0, 1.0, "relabel"),
        (1.0, 0.0, "review"),
    ],
)
def test_the_thresholds_belong_to_the_trusted_side(label, suggestion, expected):
    assert decision(0, 1, label, suggestion) == expected


def test_other_thresholds_can_be_given():
    assert decision(0, 1, 0.6, 0.8) == "review"
    assert decision(0, 1, 0.6, 0.8, trust_label=0.5, trust_suggestion=0.75) == "review"
    assert decision(0, 1, 0.6, 0.8, trust_suggestion=0.75) == "relabel"


def test_no_sample_no_decision():
    nothing = torch.tensor([])
    assert decide(nothing.long(), nothing.long(), nothing, nothing).to_pylist() == []


UNIT = st.floats(0, 1, width=32)
SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), UNIT, UNIT), min_size=1, max_size=30)


@given(SAMPLES)
def test_equals_a_slow_loop(samples):
    expected = []
    for observed, suggested, label, suggestion in samples:
        # A label that nobody contests is kept; one that the model alone can be trusted to contest is replaced.
        if observed == suggested:
            expected.append("keep")
        elif suggestion >= 0.9 and not label >= 0.9:
            expected.append("relabel")
        else:
            expected.append("review")
    # 0.9 is no float32 number: the loop compares as the tensors do.
    columns = [torch.tensor(column) for column in zip(*samples, strict=True)]
    columns = [c.double() if c.is_floating_point() else c for c in columns]
    assert decide(*columns).to_pylist() == expected


@given(SAMPLES, st.permutations(range(4)))
def test_names_of_classes_do_not_count(samples, renamed):
    observed, suggested, label, suggestion = map(torch.tensor, zip(*samples, strict=True))
    names = torch.tensor(renamed)
    renumbered = decide(names[observed], names[suggested], label, suggestion)
    assert decide(observed, suggested, label, suggestion).equals(renumbered)


@given(SAMPLES)
def test_a_sample_is_decided_by_itself(samples):
    together = decide(*map(torch.tensor, zip(*samples, strict=True)))
    assert together.to_pylist() == [decision(*sample) for sample in samples]


def test_numbers_of_any_kind_are_taken():
    rows = [0, 0, 0, 1], [0, 1, 1, 0], [0.1, 0.9, 0.1, 0.4], [0.6, 0.6, 0.99, 0.6]
    expected = ["keep", "review", "relabel", "review"]
    for kind in (list, np.array, torch.tensor):
        assert decide(*map(kind, rows)).to_pylist() == expected
    assert decide(*map(np.array, rows)).type == pa.string()
