"""The folder of a run: never made over something else, metrics that survive a kill."""

import json
import math

import pytest

import toy
from labeltrace.engine import RunFolder, plan
from labeltrace.engine.config import dump_config
from labeltrace.engine.folder import code_revision, finite
from labeltrace.errors import InputError

RESOLVED = dump_config(plan(toy.config(), toy.blobs()).config)


def a_run(path):
    """A folder as a run leaves it."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints" / "last.ckpt").write_bytes(b"weights")
    (path / "config.yaml").write_text(RESOLVED)
    (path / "environment.json").write_text("{}")
    (path / "metrics.jsonl").write_text('{"epoch": 0}\n')
    return path


def contents(path):
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_creates_the_folder_and_those_above_it(tmp_path):
    folder = RunFolder.create(tmp_path / "some" / "where")
    assert folder.last.parent.is_dir()
    assert contents(folder.path) == {}


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    assert RunFolder.create(tmp_path / "run").last.parent.is_dir()


def test_a_folder_that_holds_a_run_is_refused_with_the_three_ways_out(tmp_path):
    path = a_run(tmp_path / "run")
    before = contents(path)
    with pytest.raises(InputError, match="holds a run; --resume it, --overwrite it or choose another --out") as caught:
        RunFolder.create(path)
    assert str(path) in str(caught.value)
    assert contents(path) == before


def test_overwrite_deletes_a_run(tmp_path):
    path = a_run(tmp_path / "run")
    RunFolder.create(path, overwrite=True)
    assert contents(path) == {}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_holds_something_else_is_never_deleted(tmp_path, overwrite):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="not empty and not a run"):
        RunFolder.create(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == {"thesis.txt": b"years of work"}


@pytest.mark.parametrize(
    "text",
    ["theme: dark\n", "data: digits\nmodel: small_cnn\nseed: 1\n", RESOLVED],
    ids=["another program's", "a person's", "copied from a run, to repeat it"],
)
def test_a_config_that_no_run_wrote_makes_no_run(tmp_path, text):
    """Many programs keep a config.yaml, and a person may keep the one to start from beside other work."""
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "thesis.txt").write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(InputError):
        RunFolder.create(tmp_path, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_lock_of_another_program_makes_no_run(tmp_path, overwrite):
    (tmp_path / ".lock").write_text("4711")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError):
        RunFolder.create(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == {".lock": b"4711", "thesis.txt": b"years of work"}


def test_a_run_that_was_killed_before_it_began_may_be_started_again(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    with folder.locked():
        folder.environment.write_text("{}")  # config.yaml comes last, and never came
    RunFolder.create(tmp_path / "run")
    assert not folder.environment.exists()


def test_a_trained_run_that_lost_its_config_is_not_deleted_unasked(tmp_path):
    path = a_run(tmp_path / "run")
    with RunFolder.open(path).locked():
        pass  # the lock stays behind, as after any run
    (path / "config.yaml").rename(tmp_path / "config.yaml")
    with pytest.raises(InputError):
        RunFolder.create(path)
    assert (path / "checkpoints" / "last.ckpt").read_bytes() == b"weights"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_is_being_trained_is_left_alone(tmp_path, overwrite):
    path = a_run(tmp_path / "run")
    with RunFolder.open(path).locked():
        before = contents(path)
        with pytest.raises(InputError), RunFolder.open(path).locked():
            pass
        with pytest.raises(InputError):
            RunFolder.create(path, overwrite=overwrite)
        assert contents(path) == before
    with RunFolder.open(path).locked():  # and can be taken up when that is over
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_in_the_way_is_refused(tmp_path, overwrite):
    path = tmp_path / "run"
    path.write_text("a file")
    with pytest.raises(InputError, match="a file is in the way"):
        RunFolder.create(path, overwrite=overwrite)
    assert path.read_text() == "a file"


def test_a_file_in_the_way_further_up_is_refused(tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(InputError, match="file"):
        RunFolder.create(tmp_path / "file" / "run")


def test_only_a_run_can_be_opened(tmp_path):
    path = a_run(tmp_path / "run")
    assert RunFolder.open(path).path == path
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="no run here"):
            RunFolder.open(missing)
    assert not (tmp_path / "nowhere").exists()


def filled(tmp_path, records=({"epoch": 0, "loss": 2.5}, {"epoch": 1, "loss": 1.5})):
    folder = RunFolder.create(tmp_path / "run")
    for record in records:
        folder.append_metrics(record)
    return folder


def test_one_line_per_epoch(tmp_path):
    folder = filled(tmp_path)
    assert len(folder.metrics.read_text().splitlines()) == 2
    assert folder.read_metrics() == [{"epoch": 0, "loss": 2.5}, {"epoch": 1, "loss": 1.5}]


def test_no_metrics_before_the_first_epoch(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert folder.read_metrics() == []
    assert folder.keep_metrics(0) == []


LINE = json.dumps({"epoch": 2, "loss": 0.5, "phases": {"wärme": {"loss": 0.5}}}, ensure_ascii=False).encode()


def test_a_last_line_cut_short_is_dropped_wherever_it_was_cut(tmp_path):
    folder = filled(tmp_path)
    whole = folder.metrics.read_bytes()
    for cut in range(1, len(LINE)):  # also in the middle of a letter of two bytes
        folder.metrics.write_bytes(whole + LINE[:cut])
        assert [record["epoch"] for record in folder.read_metrics()] == [0, 1]
        assert [record["epoch"] for record in folder.keep_metrics(9)] == [0, 1]
        folder.append_metrics({"epoch": 2})  # what follows starts on a line of its own
        assert [record["epoch"] for record in folder.read_metrics()] == [0, 1, 2]


@pytest.mark.parametrize("epochs", [0, 1, 2, 3])
def test_a_resumed_run_keeps_the_lines_of_the_epochs_it_has(tmp_path, epochs):
    folder = filled(tmp_path, [{"epoch": e} for e in range(3)])
    assert folder.keep_metrics(epochs) == [{"epoch": e} for e in range(epochs)]
    assert folder.read_metrics() == [{"epoch": e} for e in range(epochs)]


def test_nan_never_reaches_the_file(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(ValueError):
        folder.append_metrics({"epoch": 0, "loss": math.nan})
    folder.append_metrics(
        finite({"epoch": 0, "loss": math.nan, "signals": {"auroc": -math.inf}, "list": [1.5, math.nan]})
    )
    assert folder.read_metrics() == [{"epoch": 0, "loss": None, "signals": {"auroc": None}, "list": [1.5, None]}]


def test_finite_leaves_other_values_alone():
    value = {"a": 1, "b": "NaN", "c": None, "d": True, "e": [0.5, {"f": -1.5}]}
    assert finite(value) == value


def test_decisions_of_people_are_never_overwritten(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.config.write_text("data: digits\n", encoding="utf-8")
    run.environment.write_text("{}", encoding="utf-8")
    run.review.write_bytes(b"")
    with pytest.raises(InputError, match="decisions of people"):
        RunFolder.create(tmp_path / "run", overwrite=True)
    assert run.review.exists()


def test_the_revision_comes_from_git_or_else_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELTRACE_REVISION", "0123456789ab")
    monkeypatch.setenv("PATH", str(tmp_path))  # no git here
    assert code_revision() == "0123456789ab"
    monkeypatch.delenv("LABELTRACE_REVISION")
    assert code_revision() is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", ""])
def test_a_damaged_environment_is_named(tmp_path, text):
    (tmp_path / "environment.json").write_text(text)
    with pytest.raises(InputError, match=r"environment\.json: damaged"):
        RunFolder(tmp_path).read_environment()
