"""A run that is killed at any moment goes on to the same bits: real processes, real signals."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

import saved
from labeltrace import cli
from labeltrace.audit import read_samples

RUN = [
    "train", "--data", "digits", "--noise", "symmetric", "--rate", "0.4", "--epochs", "6", "--subset", "200",
    "--set", "settings.warmup=1", "--set", "checkpoint_seconds=0", "--device", "cpu",
]  # fmt: skip
PATIENCE = 120  # seconds, on a machine however busy


def hear_ctrl_c():
    """A job in the background of a shell ignores Ctrl-C, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "labeltrace", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=hear_ctrl_c,
    )


def finish(*words):
    """In this process, which has one thread too: nobody stops it."""
    assert cli._main([*words, "--json"]) == 0


def stop(process, number, reached):
    """Send a signal as soon as `reached` says so; return what the process said on its way out."""
    deadline = time.monotonic() + PATIENCE
    try:
        while not reached():
            assert process.poll() is None, f"over before it was stopped: {process.stderr.read()}"
            assert time.monotonic() < deadline, "never got that far"
            time.sleep(0.003)
        process.send_signal(number)
        return process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
        process.wait()


def epochs(folder):
    metrics = folder / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def assert_same_run(one, two):
    a, b = saved.checkpoint(one), saved.checkpoint(two)
    for part in ("epoch", "networks", "optimizers", "memory", "generators", "best"):
        assert saved.same(a[part], b[part]), part
    assert saved.same(saved.checkpoint(one, "best")["networks"], saved.checkpoint(two, "best")["networks"])
    assert read_samples(one).equals(read_samples(two), check_metadata=True)
    assert saved.metrics(one) == saved.metrics(two)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run as it is when nobody stops it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(*RUN, "--out", str(folder))
    return folder


def test_killed_twice_and_resumed_it_is_the_same_run(whole, tmp_path):
    folder = tmp_path / "run"
    process = start(*RUN, "--out", str(folder))
    stop(process, signal.SIGKILL, lambda: (folder / "config.yaml").exists())  # before an epoch was finished
    assert process.returncode == -signal.SIGKILL
    assert epochs(folder) < 6

    process = start("train", "--resume", str(folder))
    stop(process, signal.SIGKILL, lambda: epochs(folder) >= 3)  # while that epoch's checkpoint is being written
    assert process.returncode == -signal.SIGKILL
    assert 3 <= epochs(folder) < 6

    finish("train", "--resume", str(folder))
    assert_same_run(whole, folder)


def test_after_ctrl_c_it_says_how_to_go_on_and_that_finishes_the_run(whole, tmp_path):
    folder = tmp_path / "a run"  # the command it names must be quoted
    process = start(*RUN, "--out", str(folder))
    errors = stop(process, signal.SIGINT, lambda: epochs(folder) >= 2)
    assert process.returncode == 130
    assert "Traceback" not in errors
    (line,) = [line for line in errors.splitlines() if "--resume" in line]
    done, command = re.search(r"stopped after (\d+) epochs?, all saved.* (labeltrace train --resume .*)", line).groups()
    assert saved.checkpoint(folder)["epoch"] == int(done) < 6
    words = shlex.split(command)
    assert words == ["labeltrace", "train", "--resume", str(folder)]
    finish(*words[1:])
    assert_same_run(whole, folder)
