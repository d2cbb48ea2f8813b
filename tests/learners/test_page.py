"""The page about the learners is what the code says."""

from pathlib import Path

import pytest

from labeltrace.learners import learners
from labeltrace.learners.page import page, section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "learners.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m labeltrace.learners.page > docs/learners.md"


@pytest.mark.parametrize("name", learners)
def test_a_learner_says_when_to_choose_it(name):
    assert learners[name].when.endswith(".") and len(learners[name].when.split()) > 8
    assert f"## {name}" in section(learners[name])
