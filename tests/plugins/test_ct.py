"""Confidence Tracking: its tracker by the numbers of its page, and every learner that it attaches to."""

import dataclasses
import itertools
import json
import math

import pytest
import torch

import toy
from labeltrace.audit import samples_table
from labeltrace.engine import train
from labeltrace.errors import InputError
from labeltrace.learners import learners
from labeltrace.plugins import ConfidenceTracking, plugins
from labeltrace.plugins.ct import CTSettings, Tracker
from labeltrace.scoring import SampleMemory

LEARNERS = list(ConfidenceTracking.attached)
# the label's probability, then those of its two rivals, over six epochs
SURE = [list(row) for row in zip([0.20, 0.30, 0.35, 0.45, 0.50, 0.60], [0.50, 0.40, 0.35, 0.30, 0.30, 0.25],
                                 [0.30, 0.30, 0.30, 0.25, 0.20, 0.15], strict=True)]  # fmt: skip


def tracker(size=3, epochs=10, classes=3, count=1, **settings):
    chosen = CTSettings(**settings)
    return Tracker(SampleMemory(size, Tracker.fields(count, epochs, classes, chosen)), chosen)


def follow(tracked, *predictions, labels=None):
    """Show sample i the series `predictions[i]`, an observation in each epoch."""
    index = torch.arange(len(predictions))
    labels = torch.zeros(len(predictions), dtype=torch.int64) if labels is None else labels
    for epoch, rows in enumerate(zip(*predictions, strict=True)):
        tracked.observe(0, index, torch.tensor(rows), labels, epoch)
    everyone = torch.zeros(tracked.memory.size, dtype=torch.int64)
    everyone[index] = labels
    tracked.decide(everyone)
    return tracked.certain[0, index].tolist()


@pytest.mark.parametrize("precision", ["half", "single"])
def test_facts_3_and_4_a_rising_label_is_certain_and_a_constant_one_never(precision):
    for alpha in (0.01, 0.5):
        found = follow(tracker(alpha=alpha, precision=precision), SURE, [SURE[0]] * 6, SURE[::-1])
        assert found == [True, False, False]
    assert follow(tracker(), SURE[:5]) == [False]


def test_the_weakest_of_the_trends_decides():
    """The label gains on class 1 and loses to class 2."""
    mixed = [[0.3, 0.5 - 0.05 * t, 0.2 + 0.05 * t] for t in range(6)]
    assert follow(tracker(alpha=0.5), mixed) == [False]
    assert follow(tracker(alpha=0.5), mixed, labels=torch.tensor([2])) == [True]


def test_an_epoch_counts_once_and_a_left_out_sample_has_fewer_observations():
    tracked, labels = tracker(alpha=0.01), torch.zeros(2, dtype=torch.int64)
    for epoch, row in enumerate(SURE):
        both = torch.tensor([row, row])
        tracked.observe(0, torch.tensor([0, 0]), both, labels, epoch)  # twice in a batch
        tracked.observe(0, torch.tensor([0]), 1 - both[:1], labels[:1], epoch)  # and in a later one
        if epoch != 2:
            tracked.observe(0, torch.tensor([1]), both[:1], labels[:1], epoch)
    tracked.decide(torch.zeros(3, dtype=torch.int64))
    assert tracked.memory["ct_count"][:, 0].tolist() == [6, 5, 0]
    assert tracked.memory["ct_s"][0, 0, 1:].tolist() == [15, 15]
    assert tracked.certain.tolist() == [[True, False, False]]  # five observations are too few at 0.01


def test_many_samples_at_a_time_are_the_same_as_one_by_one(monkeypatch):
    monkeypatch.setattr("labeltrace.plugins.ct.ROWS", 7)
    generator = torch.Generator().manual_seed(0)
    series = torch.rand(5, 20, 4, generator=generator).softmax(2)
    labels = torch.randint(0, 4, (20,), generator=generator)
    whole, single = tracker(20, 5, 4), tracker(20, 5, 4)
    for epoch, probabilities in enumerate(series):
        whole.observe_all(0, torch.arange(20), probabilities, labels, epoch)
        for i in range(20):
            single.observe(0, torch.tensor([i]), probabilities[i : i + 1], labels[i : i + 1], epoch)
    for name in whole.memory.fields:
        assert torch.equal(whole.memory[name], single.memory[name])


def test_trackers_do_not_see_each_other():
    tracked = tracker(count=2)
    for epoch, row in enumerate(SURE):
        tracked.observe(1, torch.tensor([2]), torch.tensor([row]), torch.tensor([0]), epoch)
    tracked.decide(torch.zeros(3, dtype=torch.int64))
    assert tracked.certain.tolist() == [[False] * 3, [False, False, True]]


def test_a_single_class_has_no_rival_to_gain_on():
    assert follow(tracker(1, 6, 1), [[1.0]] * 6) == [False]


@pytest.mark.parametrize(("name", "value"), [("alpha", 0.0), ("alpha", 1.0), ("precision", "double")])
def test_wrong_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        CTSettings(**{name: value})


def run(tmp_path, name, folder="run", **changes):
    changes = {"controller": "coupled", "plugin": "ct", "epochs": 9} | changes
    return train(toy.config(name, **changes), tmp_path / folder, dataset=toy.blobs(), overwrite=True)


@pytest.mark.parametrize("name", LEARNERS)
def test_without_a_certain_sample_it_is_the_learner_itself(tmp_path, name, monkeypatch):
    base = run(tmp_path, name, "base", plugin=None)
    monkeypatch.setattr("labeltrace.plugins.ct.least", lambda alpha: float("inf"))
    tracked = run(tmp_path, name, "tracked")
    assert torch.equal(toy.weights(base), toy.weights(tracked))
    assert samples_table(base).equals(samples_table(tracked))


@pytest.mark.parametrize("name", LEARNERS)
def test_what_it_holds_certain_is_held_clean(tmp_path, name, monkeypatch):
    """With every label certain: the learner holds all of them clean, and trains otherwise than without."""
    base = run(tmp_path, name, "base", plugin=None)
    monkeypatch.setattr(Tracker, "decide", lambda self, labels: self.memory["ct_certain"].fill_(True))
    tracked = run(tmp_path, name, "tracked")
    assert bool((tracked.judgement.clean == 1).all())
    assert not torch.equal(toy.weights(base), toy.weights(tracked))


@pytest.mark.parametrize("name", LEARNERS)
def test_the_choice_is_a_union(tmp_path, name):
    """Whatever it finds in a run, no sample is held less clean than its learner would hold it."""
    seen = []
    attached = ConfidenceTracking(CTSettings(alpha=0.5)).attach(learners[name])
    original = attached.cleanliness

    def watched(self, scores):
        raised, bare = original(self, scores), learners[name].cleanliness(self, scores)
        seen.append((raised.clone(), bare.clone(), self.tracker.certain.clone()))
        return raised

    kind = ConfidenceTracking.attached[name]
    had = kind.__dict__.get("cleanliness")
    kind.cleanliness = watched
    try:
        run(tmp_path, name, plugin_settings={"alpha": 0.5})
    finally:
        if had is None:
            del kind.cleanliness
        else:
            kind.cleanliness = had
    assert any(bool(certain.any()) for _, _, certain in seen)
    assert all(bool((raised >= bare - 1e-6).all()) for raised, bare, _ in seen)


@pytest.mark.parametrize("name", ["rolr", "dividemix", "f_dividemix"])
def test_fact_5_a_posterior_is_raised_to_one_or_left(tmp_path, name, monkeypatch):
    """It is 1 where a network's passes so far, compared pair by pair, show a rising label; all else stays."""
    seen, found, kind = [], [], ConfidenceTracking.attached[name]
    observe, posterior = Tracker.observe_all, kind.posterior

    def noted(self, tracker, index, probabilities, labels, epoch):
        seen.append((tracker, probabilities.clone(), labels))
        observe(self, tracker, index, probabilities, labels, epoch)

    def watched(self, scores, chosen):
        raised = posterior(self, scores, chosen)
        found.append((len(seen), learners[name].posterior(self, scores, chosen), raised))
        return raised

    monkeypatch.setattr(Tracker, "observe_all", noted)
    monkeypatch.setattr(kind, "posterior", watched)
    run(tmp_path, name, plugin_settings={"alpha": 0.1, "precision": "single"})
    assert [count for count, *_ in found] == [2 * n for n in range(1, 9)]  # both networks, once in each epoch
    raises = 0
    for count, bare, raised in found:
        n = count // 2
        for tracker in (0, 1):
            series = [p for number, p, _ in seen[:count] if number == tracker]
            for i, label in enumerate(seen[0][2].tolist()):
                lowest = min(
                    sum(
                        float(torch.sign((v[i, label] - v[i, c]) - (u[i, label] - u[i, c])))
                        for u, v in itertools.combinations(series, 2)
                    )
                    for c in range(3)
                    if c != label
                )
                z = (lowest - 1) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if lowest > 0 else 0
                assert float(raised[tracker, i]) == (1.0 if z > 1.2816 else float(bare[tracker, i]))
                raises += z > 1.2816
    assert raises


def test_trace_takes_the_raised_score(tmp_path):
    trace = {"start": 0, "ramp": 0, "k": 5, "score_batch": 16}
    trained = run(tmp_path, "rolr", controller="trace", trace=trace, plugin_settings={"alpha": 0.5})
    assert trained.plan.config.method == "rolr+trace+ct"
    assert torch.isfinite(toy.weights(trained)).all()


def test_the_controller_is_coupled_unless_another_is_asked_for(tmp_path):
    asked = toy.config("dividemix", controller="coupled", plugin="ct", epochs=2).model_copy(update={"controller": None})
    config = train(asked, tmp_path / "run", dataset=toy.blobs()).plan.config
    assert (config.controller, config.method) == ("coupled", "dividemix+ct")
    assert config.plugin_settings == {"alpha": 0.01, "precision": "half"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plugin": "cd"}, "unknown plug-in 'cd': known: ct"),
        ({"plugin_settings": {"alfa": 0.1}}, "did you mean 'alpha'"),
        ({"plugin_settings": {"alpha": 2}}, "alpha: 2.0, expected"),
        ({"plugin": None, "plugin_settings": {"alpha": 0.1}}, "without a plug-in"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path, changes, words):
    with pytest.raises(InputError, match=words):
        run(tmp_path, "rolr", **changes)
    assert not (tmp_path / "run").exists()


def test_it_says_what_it_attaches_to(tmp_path):
    with pytest.raises(InputError, match="ct does not attach to cross_entropy; it attaches to rolr, dividemix"):
        run(tmp_path, "cross_entropy", controller=None)


def test_every_setting_of_every_plugin_has_a_source():
    for plugin in map(plugins.__getitem__, plugins):
        for field in dataclasses.fields(plugin.settings_type):
            assert len(field.metadata["source"]) > 8, field.name


def test_a_run_says_its_plugin(tmp_path):
    run(tmp_path, "rolr", epochs=2)
    assert "plugin: ct" in (tmp_path / "run" / "config.yaml").read_text()
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["bytes_per_sample"] >= 2 * 2 * 3 * (2 + 2)  # trackers × epochs × classes in half, and S
