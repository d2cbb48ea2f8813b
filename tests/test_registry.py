"""Names: what is registered is found, in order; what is not is answered with the nearest name."""

import pytest

from labeltrace.catalogue import catalogue
from labeltrace.data import datasets, noises
from labeltrace.errors import InputError, nearest
from labeltrace.learners import learners
from labeltrace.models import models
from labeltrace.registry import Registry


def fruits():
    registry = Registry("fruit")
    registry.add("pear", 1, about="green")
    registry.add("apple", 2, about="red")
    return registry


def test_entries_keep_their_order():
    registry = fruits()
    assert list(registry) == ["pear", "apple"]
    assert len(registry) == 2
    assert registry["apple"] == 2
    assert registry.about("pear") == "green"
    assert "pear" in registry and "plum" not in registry


def test_register_hands_back_what_it_decorates():
    registry = Registry("fruit")

    @registry.register("plum", about="blue")
    class Plum:
        pass

    assert registry["plum"] is Plum
    assert registry.about("plum") == "blue"


def test_a_name_is_taken_once():
    registry = fruits()
    with pytest.raises(ValueError, match="'pear' is registered twice"):
        registry.add("pear", 3, about="another")
    assert registry["pear"] == 1
    assert registry.about("pear") == "green"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="unknown fruit 'aple': did you mean 'apple'"):
        fruits()["aple"]


def test_where_none_is_near_all_are_named():
    with pytest.raises(InputError, match="unknown fruit 'xyz': known: apple, pear"):
        fruits()["xyz"]


def test_asking_adds_nothing():
    registry = fruits()
    with pytest.raises(InputError):
        registry["plum"]
    assert "plum" not in registry


def test_nearest_prefers_the_closest_spelling():
    assert "'symmetric-exact'" in nearest("symmetric-exat", ["symmetric", "symmetric-exact"])
    assert "'symmetric'" in nearest("symetric", ["symmetric", "symmetric-exact"])


@pytest.mark.parametrize("registry", [learners, models, datasets, noises], ids=lambda registry: registry.kind)
def test_everything_registered_is_described_in_one_line(registry):
    assert len(registry) > 0
    for name in registry:
        assert registry.about(name).strip()
        assert "\n" not in registry.about(name)


def test_the_catalogue_names_every_entry():
    listed = catalogue()
    for kind, registry in (("learners", learners), ("models", models), ("datasets", datasets), ("noises", noises)):
        assert list(listed[kind]) == list(registry)
    for name in learners:
        assert all(preset in listed["learners"][name] for preset in learners[name].presets)
