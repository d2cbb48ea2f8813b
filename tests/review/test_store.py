"""Decisions on the disk: the newest holds, all are kept, none is lost; and the label diff that comes of them."""

import random
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import samples
from labeltrace.audit import write_samples
from labeltrace.audit.decisions import RELABEL
from labeltrace.audit.diff import read_diff
from labeltrace.errors import InputError
from labeltrace.review.merge import reviewed_diff
from labeltrace.review.store import Event, Store

PETS = ("cat", "dog", "owl")


def table_of(observed, **columns):
    return samples.table(PETS, observed=observed, **columns)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "review.sqlite"


@pytest.fixture
def store(file):
    store = Store(file, table_of([0, 1, 2, 0]))
    yield store
    store.close()


def held(store):
    return {event.row: (event.action, event.label) for event in store.decisions()}


def test_the_last_decision_wins_and_both_are_history(store):
    store.record(0, "keep", tab="one")
    store.record(0, "relabel", "owl", tab="two")
    assert held(store) == {0: ("relabel", "owl")}
    assert [(e.tab, e.action, e.label, e.id) for e in store.history(0)] == [
        ("one", "keep", None, "s0"), ("two", "relabel", "owl", "s0"),
    ]  # fmt: skip


def test_undo_is_an_event_and_the_decision_before_holds_again(store):
    store.record(0, "keep")
    second = store.record(0, "relabel", "dog")
    undone = store.undo()
    assert (undone.row, undone.action, undone.undoes) == (0, "undo", second.number)
    assert held(store) == {0: ("keep", None)}
    assert store.undo().row == 0 and held(store) == {}
    assert store.undo() is None
    assert [event.action for event in store.history()] == ["keep", "relabel", "undo", "undo"]


def test_undo_leaves_other_tabs_alone(store):
    store.record(0, "keep", tab="one")
    store.record(1, "skip", tab="two")
    assert store.undo("one").row == 0
    assert store.undo("one") is None
    assert held(store) == {1: ("skip", None)}


def test_undo_reaches_back_before_the_server_was_started(store, file):
    store.record(0, "keep", tab="old")
    again = Store(file, table_of([0, 1, 2, 0]))
    again.record(1, "keep", tab="new")
    again.record(2, "keep", tab="other")
    assert [again.undo("new").row, again.undo("new").row, again.undo("new")] == [1, 0, None]
    assert held(again) == {2: ("keep", None)}
    again.close()


def test_what_holds_is_what_a_slow_loop_says(store):
    rng = random.Random(0)
    events = []
    for _ in range(200):
        tab = rng.choice("ab")
        if rng.random() < 0.3:
            event = store.undo(tab)
            gone = {e.undoes for e in events}
            own = [e for e in events if e.tab == tab and e.action != "undo" and e.number not in gone]
            assert (event and event.undoes) == (own[-1].number if own else None)
        else:
            label = rng.choice([None, *PETS])
            action = rng.choice(["keep", "skip"]) if label is None else "relabel"
            event = store.record(rng.randrange(4), action, label, tab)
        events += [event] if event else []
    assert store.history() == events
    gone = {event.undoes for event in events}
    expected = {e.row: (e.action, e.label) for e in events if e.action != "undo" and e.number not in gone}
    assert held(store) == expected and len(expected) == 4


@pytest.mark.parametrize(("action", "label"), [("undo", None), ("keep", "cat"), ("relabel", None), ("burn", None)])
def test_no_other_decisions(store, action, label):
    with pytest.raises(ValueError, match="no such decision"):
        store.record(0, action, label)
    assert store.history() == []


def test_a_killed_process_loses_nothing_that_it_was_told_is_kept(tmp_path, file):
    table = table_of([0, 1, 2, 0])
    write_samples(table, tmp_path / "samples.parquet")
    code = f"""
import itertools
from pathlib import Path
from labeltrace.audit import read_samples
from labeltrace.review.store import Store
store = Store(Path({str(file)!r}), read_samples(Path({str(tmp_path)!r})))
for i in itertools.count():
    print(store.record(i % 4, "keep").number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    told = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    told += [int(line) for line in process.stdout.read().splitlines()]
    process.wait()
    store = Store(file, table)
    numbers = [event.number for event in store.history()]
    assert numbers[: len(told)] == told == list(range(1, len(told) + 1))
    assert len(numbers) - len(told) in (0, 1)  # the kill may have come between the writing and the telling
    store.close()


def test_several_writers_lose_nothing(file):
    stores = [Store(file, table_of([0, 1, 2, 0])) for _ in range(3)]

    def write(number):
        return [stores[number].record(i % 4, "keep", tab=str(number)).number for i in range(20)]

    with ThreadPoolExecutor(3) as pool:
        numbers = [n for found in pool.map(write, range(3)) for n in found]
    assert sorted(numbers) == list(range(1, 61))
    for store in stores:  # each sees what the others wrote
        assert len(store.history()) == 60
        store.close()


def test_decisions_about_other_labels_are_refused(store, file):
    with pytest.raises(InputError, match=r"review\.sqlite: its decisions are about other labels"):
        Store(file, table_of([0, 1, 2, 2]))


def test_other_files_are_refused(tmp_path):
    table = table_of([0, 1])
    text, other = tmp_path / "text.sqlite", tmp_path / "other.sqlite"
    text.write_text("no database" * 100)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path in (text, other, tmp_path / "nowhere" / "review.sqlite"):
        with pytest.raises(InputError, match=path.name):
            Store(path, table)


# The diff


@pytest.fixture
def judged():
    """The run keeps s0 and s3, relabels s1 and s4 as owl, leaves s2 to a person."""
    return table_of(
        [0, 1, 2, 0, 0],
        suggested=[0, 2, 0, 0, 2],
        decision=["keep", RELABEL, "review", "keep", RELABEL],
        observed_reliability=[0.9, 0.1, 0.1, 0.9, 0.2],
        confidence=[0.9, 0.95, 0.4, 0.9, 0.97],
    )


def decided(*decisions):
    return [Event(i + 1, "2026-01-01T00:00:00.000+00:00", "", row, f"s{row}", action, label)
            for i, (row, action, label) in enumerate(decisions)]  # fmt: skip


def changes(diff):
    return [(row["id"], row["from"], row["to"]) for row in diff.table.to_pylist()]


def test_without_decisions_the_diff_is_the_runs(judged):
    assert changes(reviewed_diff(judged, [])) == [("s1", "dog", "owl"), ("s4", "cat", "owl")]
    assert changes(reviewed_diff(judged, [], only_reviewed=True)) == []


def test_people_win(judged):
    decisions = decided((4, "relabel", "dog"), (1, "keep", None), (2, "relabel", "cat"), (0, "relabel", "owl"))
    diff = reviewed_diff(judged, decisions)
    assert changes(diff) == [("s0", "cat", "owl"), ("s2", "owl", "cat"), ("s4", "cat", "dog")]
    assert {row["why"] for row in diff.table.to_pylist()} == {"reviewed 2026-01-01T00:00:00.000+00:00"}


def test_the_runs_relabels_stand_where_nobody_decided(judged):
    decisions = decided((2, "relabel", "cat"), (1, "skip", None))
    assert changes(reviewed_diff(judged, decisions)) == [
        ("s1", "dog", "owl"),
        ("s2", "owl", "cat"),
        ("s4", "cat", "owl"),
    ]
    assert changes(reviewed_diff(judged, decisions, only_reviewed=True)) == [("s2", "owl", "cat")]


def test_the_file_is_a_label_diff(judged, tmp_path):
    reviewed_diff(judged, decided((2, "relabel", "cat"))).write(tmp_path / "labels.diff.csv")
    labels = pa.chunked_array([[PETS[i] for i in judged["observed"].to_pylist()]])
    found = read_diff(tmp_path / "labels.diff.csv").changes(judged["id"], labels, list(PETS), "the set")
    assert found == {1: "owl", 2: "cat", 4: "owl"}


def test_an_empty_diff_is_a_header(tmp_path):
    reviewed_diff(table_of([0, 1]), [], only_reviewed=True).write(tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text() == "id,from,to,why\n"
