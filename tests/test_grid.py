"""Several runs side by side, stopped and gone on with."""

import io

import pytest
from rich.console import Console

import saved
from labeltrace.engine import Reporter, RunConfig, train
from labeltrace.errors import InputError
from labeltrace.grid import GridBars, run_all
from labeltrace.progress import Bars


def config(**changes):
    return RunConfig.model_validate(
        {"data": "digits", "subset": 60, "epochs": 2, "learner": "cross_entropy", "device": "cpu", **changes}
    )


def go(configs, out, **options):
    with Bars(Console(quiet=True)) as bars:
        run_all(configs, out, bars, jobs=1, **options)


def test_a_finished_run_is_left_alone_and_a_half_done_one_goes_on(tmp_path):
    asked = {"one": config(), "two": config(seed=1)}
    go({"one": asked["one"]}, tmp_path)
    began = (tmp_path / "one" / "environment.json").read_bytes()

    class Stop(Reporter):
        def epoch(self, record):
            raise KeyboardInterrupt

    with pytest.raises(Exception, match="stopped"):
        train(asked["two"], tmp_path / "two", reporter=Stop())
    assert len(saved.metrics(tmp_path / "two")) == 1
    go(asked, tmp_path, resume=True)
    assert (tmp_path / "one" / "environment.json").read_bytes() == began
    assert len(saved.metrics(tmp_path / "two")) == 2
    go({"two": asked["two"]}, tmp_path / "whole")
    whole, pieces = (saved.metrics(folder) for folder in (tmp_path / "whole" / "two", tmp_path / "two"))
    # The first epoch was trained here, with another number of threads: sums have another order.
    assert [line["loss"] for line in whole] == pytest.approx([line["loss"] for line in pieces], rel=1e-4)


def test_another_run_under_the_same_name_is_refused(tmp_path):
    go({"one": config()}, tmp_path)
    with pytest.raises(InputError, match="holds a run with seed 0, not 5"):
        go({"one": config(seed=5)}, tmp_path, resume=True)


def test_a_failed_run_is_told_and_the_others_go_on(tmp_path):
    ended = {}
    asked = {"other": config(seed=5), "broken": config(preset="nonsense"), "good": config(), "there": config()}
    for name in ("other", "there"):
        train(config(), tmp_path / name)
    (tmp_path / "there" / "samples.parquet").touch()  # as if it had been written
    go(asked, tmp_path, resume=True, ended=lambda name, problem: ended.update({name: problem}))
    assert set(ended) == set(asked) and list(ended)[:2] == ["other", "there"]
    assert ended["there"] is None and ended["good"] is None
    assert "holds a run with seed 0, not 5" in ended["other"]
    assert ended["broken"].startswith("unknown preset 'nonsense' of cross_entropy")
    assert len(saved.metrics(tmp_path / "good")) == 2 and (tmp_path / "good" / "samples.parquet").exists()


def test_bars_of_a_grid_show_all_runs_and_those_that_are_going():
    console = Console(force_terminal=True, width=160, file=io.StringIO())
    bars = GridBars(console, {"one": 10, "two": 30})

    def shown():
        return {task.description: (task.completed, task.total, task.fields["state"]) for task in bars.progress.tasks}

    bars.show("one", 10, 4, "loss 1.0")
    assert shown() == {"one": (4, 10, "loss 1.0"), "all runs": (4, 40, "0 of 2 runs")}
    bars.show("two", 30, 6, "")
    bars.end_run("one")
    assert shown() == {"two": (6, 30, ""), "all runs": (16, 40, "1 of 2 runs")}
    bars.end_run("two", failed=True)
    assert shown() == {"all runs": (40, 40, "2 of 2 runs, 1 failed")}


def test_a_resumed_run_is_shown_again(tmp_path):
    class Stop(Reporter):
        def epoch(self, record):
            raise KeyboardInterrupt

    with pytest.raises(Exception, match="stopped"):
        train(config(), tmp_path / "one", reporter=Stop())
    bars = GridBars(Console(quiet=True), {"one": 2})
    seen = []
    bars.show = lambda name, total, done, state, unit="epochs": seen.append((name, total, done))
    run_all({"one": config()}, tmp_path, bars, jobs=1, resume=True)
    assert seen[-1] == ("one", 2, 2)
