"""The scores that sort the queue."""

import numpy as np
import pytest

import samples
from labeltrace.audit.ranking import DEFAULT, rankings, worst_first
from labeltrace.errors import InputError


@pytest.fixture
def table():
    """A sound label, a doubtful one, and one that the model is sure is wrong."""
    return samples.table(
        observed=[0, 1, 2],
        suggested=[0, 2, 0],
        clean=[0.99, 0.4, 0.01],
        observed_reliability=[0.95, 0.3, 0.02],
        confidence=[0.97, 0.55, 0.98],
        observed_probability=[0.97, 0.35, 0.01],
        loss=-np.log([0.97, 0.35, 0.01]),
    )


def test_the_default_is_one_of_them():
    assert DEFAULT in rankings


@pytest.mark.parametrize("name", list(rankings))
def test_every_ranking_puts_the_surely_wrong_first_and_the_sound_last(name, table):
    score = rankings[name](table)
    assert score.shape == (3,) and np.isfinite(score).all()
    assert worst_first(score).tolist() == [2, 1, 0]
    assert rankings.about(name)


def test_values_by_hand(table):
    assert rankings["reliability"](table) == pytest.approx([0.05, 0.7, 0.98])
    assert rankings["posterior"](table) == pytest.approx([0.01, 0.6, 0.99])
    assert rankings["probability"](table) == pytest.approx([0.03, 0.65, 0.99])
    assert rankings["margin"](table) == pytest.approx([0.03 - 0.97, 0.55 - 0.35, 0.98 - 0.01])
    assert rankings["disagreement"](table) == pytest.approx([-0.97, 0.55, 0.98])
    assert rankings["posterior+margin"](table)[1] == pytest.approx((0.6 + 0.2) / 2)
    assert rankings["reliability+margin"](table)[2] == pytest.approx((0.98 + 0.97) / 2)


def test_a_table_without_the_column_is_refused(table):
    with pytest.raises(InputError, match="no column 'loss'; train the run again"):
        rankings["loss"](table.drop_columns(["loss"]))


def test_an_unknown_ranking_is_told_the_nearest():
    with pytest.raises(InputError, match="unknown ranking 'margn': did you mean 'margin'"):
        rankings["margn"]
