from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.names import Names, printable

text = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=20)


@settings(deadline=None, max_examples=50)
@given(text)
def test_names_are_those_given(names: list[str]) -> None:
    kept = Names(names)
    assert list(kept) == names and len(kept) == len(names)
    assert [kept[i] for i in range(-len(names), 0)] == names
    assert list(kept[1:5]) == names[1:5] and list(kept[::-2]) == names[::-2]
    assert list(pickle.loads(pickle.dumps(kept))) == names


@settings(deadline=None, max_examples=50)
@given(text, text)
def test_the_hash_tells_lists_apart(one: list[str], other: list[str]) -> None:
    assert (Names(one).sha256() == Names(other).sha256()) == (one == other)


def test_the_same_text_cut_elsewhere_has_another_hash() -> None:
    assert Names(["ab", "c"]).sha256() != Names(["a", "bc"]).sha256()


def test_bytes_that_are_no_text_come_back() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert Names([name])[0] == name and printable(name) == r"caf\xe9"
    assert printable("café") == "café"


@pytest.mark.parametrize("place", [3, -4])
def test_beyond_the_end_is_an_index_error(place: int) -> None:
    with pytest.raises(IndexError):
        Names(["a", "b", "c"])[place]


def test_taking_and_searching() -> None:
    names = Names(["a", "b", "c"])
    assert list(names.take(np.array([2, 0, -1]))) == ["c", "a", "c"] and "b" in names and names.index("c") == 2
    empty = names.take(np.array([], np.int64))
    assert len(empty) == 0 and list(empty) == [] and names.take(np.array([0])).sha256() == Names(["a"]).sha256()
    with pytest.raises(IndexError):
        names.take(np.array([3]))


def test_names_take_their_text_and_eight_bytes() -> None:
    names = Names(f"folder/{i:07d}.jpg" for i in range(10_000))
    assert names.nbytes == 10_000 * 18 + 8 * 10_001
    assert len(pickle.dumps(names)) < names.nbytes + 1000
