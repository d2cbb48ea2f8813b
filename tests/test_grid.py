"""Several runs side by side, stopped and gone on with."""

import pytest
from rich.console import Console

import saved
from labeltrace.engine import Reporter, RunConfig, train
from labeltrace.errors import InputError
from labeltrace.grid import run_all
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
