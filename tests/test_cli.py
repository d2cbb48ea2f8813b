"""The command: words in, words out; a mistake is one line and exit code 2, never a traceback."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from PIL import Image

import saved
import toy
from labeltrace import __version__, cli
from labeltrace.audit import read_samples
from labeltrace.catalogue import catalogue
from labeltrace.commands.list import KINDS
from labeltrace.data import load_noise
from labeltrace.engine import Diverged, Interrupted, RunConfig, load_config, train
from labeltrace.errors import InputError
from labeltrace.grid import run_all

SMALL = ["train", "--data", "digits", "--subset", "120", "--epochs", "2", "--device", "cpu"]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        code = cli._main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


# What it says


def test_version(command):
    assert command("--version") == (0, f"labeltrace {__version__}\n", "")


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_list_names_everything(command, kind):
    code, out, err = command("list", *([kind] if kind else []))
    assert (code, err) == (0, "")
    for name, entries in catalogue().items():
        if kind in (None, name):
            assert all(entry in out for entry in entries)
        else:
            assert name not in out.split()


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_list_as_json(command, kind):
    code, out, err = command("list", "--json", *([kind] if kind else []))
    assert (code, err) == (0, "")
    assert json.loads(out) == {name: rows for name, rows in catalogue().items() if kind in (None, name)}


COMMANDS = typer.main.get_command(cli.app).commands


def test_figures_as_json(command):
    code, out, err = command("diagnose", "--list", "--json")
    assert (code, err) == (0, "") and "reliability" in json.loads(out)


def leaves(commands, *before):
    """Every command that does something, by its words."""
    for name, found in commands.items():
        nested = getattr(found, "commands", None)
        yield from leaves(nested, *before, name) if nested else [((*before, name), found)]


@pytest.mark.parametrize(("words", "found"), list(leaves(COMMANDS)), ids=lambda value: str(value))
def test_help_has_an_example_that_could_be_typed(command, words, found):
    code, out, err = command(*words, "--help")
    assert (code, err) == (0, "")
    example = re.search(rf"Example: (labeltrace {' '.join(words)} .*?)\n\n", out, re.DOTALL)[1]
    flags = {word for word in shlex.split(example) if word.startswith("--")}
    known = {flag for parameter in found.params for flag in parameter.opts}
    assert flags <= known


def test_help_lists_the_commands(command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "names"),
    [((), COMMANDS), (("labels",), ("apply", "revert")), (("data",), ("show", "check")), (("bench",), ("cpu", "gpu"))],
)
def test_without_a_word_it_helps(command, words, names):
    """As help is meant to be read: one command to a line."""
    _, out, err = command(*words)
    lines = (out + err).splitlines()
    for name in names:
        assert any(line.strip().startswith(f"{name} ") for line in lines)


# Mistakes

MISTAKES = {
    "unknown flag": (["train", "--epcohs", "3"], "--epcohs"),
    "unknown command": (["tain"], "tain"),
    "one word too many": (["train", "one.yaml", "two.yaml"], "two.yaml"),
    "flag without value": (["train", "--epochs"], "--epochs"),
    "no number": (["train", "--epochs", "many"], "--epochs"),
    "no epochs": (["train", "--epochs", "0"], "labeltrace: --epochs: "),
    "no epochs, by --set": (["train", "--set", "epochs=0"], "labeltrace: --set epochs: "),
    "what to do about bad images": (["train", "--bad-images", "leave"], "labeltrace: --bad-images: 'leave'"),
    "image size": (["train", "--set", "read.image_size=4"], "labeltrace: --set read.image_size: 4"),
    "negative seed": (["train", "--seed", "-1"], "seed"),
    "seed too large": (["train", "--seed", str(2**32), "--subset", "60", "--epochs", "2"], "seed"),
    "subset of nothing": (["train", "--subset", "0"], "subset"),
    "subset too large": (["train", "--subset", "5000"], "5000"),
    "unknown learner": (["train", "--learner", "rollr"], "did you mean 'rolr'"),
    "unknown preset": (["train", "--preset", "smal"], "did you mean 'small'"),
    "unknown model": (["train", "--model", "smal_cnn"], "did you mean 'small_cnn'"),
    "unknown dataset": (["train", "--data", "digit"], "did you mean 'digits'"),
    "unknown noise": (["train", "--noise", "symetric", "--rate", "0.2"], "did you mean 'symmetric'"),
    "unknown controller": (["train", "--controller", "trase"], "did you mean 'trace'"),
    "unknown kind": (["list", "learner"], "did you mean 'learners'"),
    "rate too large": (["train", "--noise", "symmetric", "--rate", "1.5"], "1.5"),
    "rate that is no number": (["train", "--noise", "symmetric", "--rate", "nan"], "nan"),
    "rate without noise": (["train", "--rate", "0.4"], "without a noise"),
    "controller where none applies": (
        ["train", "--learner", "cross_entropy", "--controller", "trace"],
        "no controller",
    ),
    "device": (["train", "--device", "gpu"], "gpu"),
    "precision": (["train", "--precision", "fp16"], "fp16"),
    "model that does not fit": (["train", "--model", "mlp"], "small_cnn"),
    "set without value": (["train", "--set", "epochs"], "KEY=VALUE"),
    "set without key": (["train", "--set", "=3"], "KEY=VALUE"),
    "set of an unknown key": (["train", "--set", "epcohs=3"], "did you mean 'epochs'"),
    "set of an unknown setting": (["train", "--set", "settings.lrr=3"], "did you mean 'lr'"),
    "set of an unknown record": (["train", "--set", "setings.lr=3"], "did you mean 'settings'"),
    "set of a wrong type": (["train", "--set", "settings.lr=fast"], "'fast'"),
    "set of a wrong value": (["train", "--set", "trace.alpha=7"], "alpha"),
    "set inside a plain key": (["train", "--data", "digits", "--set", "data.name=digits"], "settings.NAME"),
    "set inside a plain key of the defaults": (["train", "--set", "data.name=digits"], "data"),
    "missing file": (["train", "missing.yaml"], "missing.yaml"),
    "missing dataset": (["train", "--data", "cifar10", "--root", "nowhere"], "nowhere"),
    "no run to resume": (["train", "--resume", "nowhere"], "no run here"),
    "demo: rate too large": (["demo", "--rate", "1.5", "--out", "demo"], "1.5"),
    "demo: no epochs": (["demo", "--epochs", "0", "--out", "demo"], "epochs"),
    "demo: negative seed": (["demo", "--seed", "-1", "--out", "demo"], "seed"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(command, tmp_path, mistake):
    words, expected = MISTAKES[mistake]
    code, out, err = command(*words)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("labeltrace: ")
    assert expected in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("epcohs: 3\n", [], "did you mean 'epochs'"),
        ("- a list\n", [], "expected keys and values"),
        ("a: [broken\n", [], "not a YAML file"),
        ("settings: 5\n", [], "settings"),
        ("settings: 5\n", ["--set", "settings.lr=1"], "settings"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(command, tmp_path, text, words, expected):
    (tmp_path / "run.yaml").write_text(text)
    code, out, err = command("train", "run.yaml", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "run.yaml" in err and expected in err
    assert saved.files(tmp_path) == {"run.yaml"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("my photos/cat/1.png", "labeltrace train --data 'my photos' trains on it"),
        ("my photos/config.yaml", "labeltrace train --resume 'my photos' goes on with it"),
        ("labels.csv", "labeltrace train --data labels.csv trains on it"),
    ],
)
def test_data_and_runs_in_the_place_of_a_file_of_keys_are_told_where_they_go(command, tmp_path, given, told):
    (tmp_path / given).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / given).touch()
    code, out, err = command("train", given.partition("/")[0])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err and saved.files(tmp_path) == {given}


def test_a_folder_that_is_taken_is_left_alone(command, tmp_path):
    command(*SMALL, "--epochs", "1", "--out", "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    before = {name: (tmp_path / name).read_bytes() for name in saved.files(tmp_path)}
    assert "run/config.yaml" in before
    for words, expected in (
        (["--out", "run"], "holds a run"),
        (["--out", "notes"], "not a run"),
        (["--out", "notes", "--overwrite"], "not a run"),
        (["--out", "file"], "a file is in the way"),
        (["--out", "file/run"], "file"),
    ):
        code, out, err = command(*SMALL, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert expected in err
        assert {name: (tmp_path / name).read_bytes() for name in saved.files(tmp_path)} == before


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", "9"], ["--data", "digits"], ["--seed", "1"], ["--out", "other"], ["--set", "settings.lr=1"],
        ["--learner", "rolr"], ["--tensorboard"], ["--overwrite"], ["other.yaml"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_run_is_resumed_as_it_is_or_not_at_all(command, tmp_path, monkeypatch, words):
    monkeypatch.setattr("labeltrace.runs.run", lambda *_, **__: pytest.fail("the run was resumed"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("data: digits\n")
    code, out, err = command("train", "--resume", "run", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--resume" in err
    assert saved.files(tmp_path) == {"run/config.yaml"}


# Training


def test_train_as_json(command, tmp_path):
    code, out, err = command(*SMALL, "--noise", "symmetric", "--rate", "0.4", "--out", "run", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["run"] == "run"
    assert found["noise"]["nominal"] == 0.4 and found["noise"]["count"] == 120
    assert found["noise"]["sha256"] == load_noise(tmp_path / "run" / "noise.npz")[1].sha256
    assert found["figures"]["last"] == saved.metrics(tmp_path / "run")[-1]["test_accuracy"]
    assert {"best", "precision", "recall"} <= found["figures"].keys()
    assert "NaN" not in out
    assert read_samples(tmp_path / "run").num_rows == 120


def test_train_in_words(command, tmp_path):
    """The folder's name has brackets, which are markup to the library that prints."""
    folder = tmp_path / "a [b] folder"
    code, out, _ = command(*SMALL, "--noise", "symmetric", "--rate", "0.4", "--out", folder)
    assert code == 0
    table = read_samples(folder)
    for decision in ("keep", "relabel", "review"):
        assert f"{decision} {table['decision'].to_pylist().count(decision)}" in out
    last = saved.metrics(folder)[-1]["test_accuracy"]
    assert re.search(rf"last +{100 * last:.2f} %", out)
    assert load_noise(folder / "noise.npz")[1].describe() in out
    assert str(folder) in out
    assert all(name in out for name in ("config.yaml", "metrics.jsonl", "samples.parquet", "checkpoints/"))
    assert "whose truth is known" not in out  # it is for all
    *_, last = out.splitlines()
    assert shlex.split(last.removeprefix("next: ")) == [
        "labeltrace", "audit", f"{folder},", "labeltrace", "report", f"{folder},", "labeltrace", "review", str(folder)
    ]  # fmt: skip


def test_train_says_over_how_many_samples_the_truth_is_known(command, tmp_path):
    labels, truth = ["a", "b"] * 6, ["a", "b"] * 2 + [""] * 8
    np.savez(tmp_path / "some.npz", x=np.eye(12, dtype=np.float32), y=labels, truth=truth)
    words = ["train", "--data", "some.npz", "--learner", "cross_entropy", "--epochs", "1", "--device", "cpu"]
    code, out, _ = command(*words)
    assert code == 0 and "over the 4 samples whose truth is known" in out


def test_a_flag_beside_a_file_is_named_and_a_key_of_the_file_is_not(command, tmp_path):
    (tmp_path / "run.yaml").write_text("epochs: 0\n")
    assert command("train", "run.yaml")[2].startswith("labeltrace: run.yaml: epochs: ")
    assert command("train", "run.yaml", "--epochs", "-1")[2].startswith("labeltrace: --epochs: ")


def test_a_run_goes_by_what_it_is_unless_told(command, tmp_path):
    words = ["--subset", "60", "--epochs", "1", "--learner", "cross_entropy", "--seed", "3", "--json"]
    code, out, _ = command("train", *words, "--noise", "pair", "--rate", "0.2")
    assert code == 0
    folder = json.loads(out)["run"]
    assert (tmp_path / folder / "samples.parquet").exists()
    assert all(word in folder for word in ("digits", "pair0.2", "cross_entropy", "s3"))


def test_a_resumed_run_keeps_its_device_and_precision(command, tmp_path):
    """They may be changed, but not behind one's back: half precision gives other bits."""
    asked = RunConfig(data="digits", subset=60, epochs=2, device="cpu", precision="bf16", learner="cross_entropy")
    train(asked, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "last.ckpt").unlink()  # so that it has to be trained again
    code, _, err = command("train", "--resume", "run", "--json")
    assert (code, err) == (0, "")
    config = tmp_path / "config.yaml"
    config.write_text(saved.checkpoint(tmp_path / "run")["config"])
    found = load_config(config, {})
    assert (found.device, found.precision) == ("cpu", "bf16")


@pytest.mark.parametrize("folder", ["run", "two words", "two  spaces", "it's"])
def test_an_interrupted_run_says_how_to_go_on(command, tmp_path, monkeypatch, folder):
    def run(*_, **__):
        raise Interrupted(tmp_path / folder, 3)

    monkeypatch.setattr("labeltrace.runs.run", run)
    code, out, err = command(*SMALL)
    assert (code, out, err.count("\n")) == (130, "", 1)
    assert "3 epochs" in err
    assert shlex.split(err[err.index("labeltrace train") :]) == [
        "labeltrace",
        "train",
        "--resume",
        str(tmp_path / folder),
    ]


@pytest.mark.parametrize(("epochs", "words"), [(0, "nothing is trained yet"), (1, "after 1 epoch, all saved")])
def test_an_interrupted_run_says_what_is_saved(command, tmp_path, monkeypatch, epochs, words):
    def run(*_, **__):
        raise Interrupted(tmp_path / "run", epochs)

    monkeypatch.setattr("labeltrace.runs.run", run)
    code, _, err = command(*SMALL)
    assert code == 130 and words in err and f"labeltrace train --resume {tmp_path / 'run'}" in err


def test_a_run_that_diverged_is_no_users_mistake(command, monkeypatch):
    def run(*_, **__):
        raise Diverged("loss is not finite in epoch 3")

    monkeypatch.setattr("labeltrace.runs.run", run)
    code, out, err = command(*SMALL)
    assert (code, out) == (1, "")
    assert err == "labeltrace: loss is not finite in epoch 3\n"


def test_ctrl_c_before_the_run_began(command, monkeypatch):
    def run(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("labeltrace.runs.run", run)
    assert command(*SMALL) == (130, "", "labeltrace: stopped\n")


def test_ctrl_c_while_torch_is_imported_raises_nothing_into_it(monkeypatch, capsys):
    class Ended(BaseException):
        pass

    def leave(code):
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(KeyboardInterrupt):
        cli._stop()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__spec__=SimpleNamespace(_initializing=True)))
    with pytest.raises(Ended, match="130"):
        cli._stop()
    assert capsys.readouterr().err == "labeltrace: stopped\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "run/.labeltrace.lock"), "run/.labeltrace.lock: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (UnicodeEncodeError("utf-8", "r\udcff", 1, 2, "surrogates not allowed"), "r\\udcff: not UTF-8"),
    ],
)
def test_what_the_system_refuses_is_one_line(command, monkeypatch, error, told):
    def run(*_, **__):
        raise error

    monkeypatch.setattr("labeltrace.runs.run", run)
    code, out, err = command(*SMALL)
    assert (code, out) == (2, "") and err.startswith(f"labeltrace: {told}") and err.count("\n") == 1


@pytest.mark.parametrize("words", [["list", "learners"], ["list", "learners", "--json"]])
def test_a_terminal_without_the_signs_is_no_reason_to_stop(words):
    def said(encoding):
        call = [sys.executable, "-m", "labeltrace", *words]
        done = subprocess.run(call, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode(encoding)

    plain, whole = said("ascii"), said("utf-8")
    assert plain != whole  # there are signs that ASCII has not
    if "--json" in words:
        assert json.loads(plain) == json.loads(whole)


# The demo


def test_a_demo_that_cannot_be_leaves_an_earlier_one_alone(command, tmp_path):
    for name in ("cross-entropy", "rolr", "rolr+trace", "rolr+trace-no-structure"):
        (tmp_path / "demo" / name).mkdir(parents=True)
        (tmp_path / "demo" / name / "config.yaml").write_text("data: digits\nepochs: 1\n")
        (tmp_path / "demo" / name / "metrics.jsonl").write_text('{"epoch": 0}\n')
    before = saved.files(tmp_path)
    code, _, _ = command("demo", "--rate", "1.5", "--out", "demo")
    assert code == 2
    assert saved.files(tmp_path) == before


def test_a_number_of_jobs_below_one_does_not_wait_for_ever(tmp_path, monkeypatch):
    def for_ever(_):
        raise AssertionError("waits, and nothing is going")

    monkeypatch.setattr("labeltrace.grid.time", SimpleNamespace(sleep=for_ever))
    monkeypatch.setattr("labeltrace.grid._start", lambda *_: pytest.fail("started"))
    with pytest.raises(ValueError, match="jobs"):
        run_all({"one": toy.config()}, tmp_path, SimpleNamespace(), jobs=-1)


def test_a_demo_touches_nothing_in_a_folder_that_is_no_run(tmp_path, monkeypatch):
    """The run itself refuses the folder; nothing may be gone by then."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "metrics.jsonl").write_text("somebody's own figures")

    class Refused(SimpleNamespace):
        def __init__(self, *_, stderr, **__):
            stderr.write(b"labeltrace: one: not empty and not a run")

        def poll(self):
            return 2

    monkeypatch.setattr("labeltrace.grid.subprocess.Popen", Refused)
    with pytest.raises(InputError, match="not a run"):
        run_all({"one": toy.config()}, tmp_path, SimpleNamespace(show=lambda *_: None), jobs=1)
    assert (tmp_path / "one" / "metrics.jsonl").read_text() == "somebody's own figures"


@pytest.mark.slow
def test_the_demo_leaves_four_runs_and_a_picture(command, tmp_path):
    folder = tmp_path / "a demo"
    code, out, err = command("demo", "--epochs", "2", "--jobs", "2", "--out", folder)
    assert code == 0, err
    names = ["cross-entropy", "rolr", "rolr+trace", "rolr+trace-no-structure"]
    assert {path.name for path in folder.iterdir()} == {*names, "samples.png", "report.html"}
    with Image.open(folder / "samples.png") as picture:
        picture.load()
        assert min(picture.size) > 500
    noises = {load_noise(folder / name / "noise.npz")[1].sha256 for name in names}
    assert len(noises) == 1  # the same labels for all
    for name in names:
        table, lines = read_samples(folder / name), saved.metrics(folder / name)
        assert table.num_rows == 1347 and len(lines) == 2
        (row,) = [line.split() for line in out.splitlines() if line.strip().startswith(f"{name} ")]
        assert row[1] == f"{100 * max(line['test_accuracy'] for line in lines):.1f}"
        assert row[2] == f"{100 * lines[-1]['test_accuracy']:.1f}"
        assert str(folder / name) in out
    assert str(folder / "samples.png") in out
    assert load_config(folder / "rolr+trace-no-structure" / "config.yaml", {}).trace["structure"] is False


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # the module is run anew here
@pytest.mark.parametrize(
    ("module", "words", "told"),
    [
        ("experiments.matched", [], "usage: python -m labeltrace.experiments.matched RUNS…"),
        ("experiments.matched", ["none"], "none: no run here"),
        ("experiments.findings", [], "usage: python -m labeltrace.experiments.findings TEXT.md"),
        ("experiments.findings", ["none.md"], "none.md"),
        ("experiments.page", ["mian"], "did you mean 'main'?"),
    ],
)
def test_modules_complain_as_the_command_does(module, words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"labeltrace.{module}", run_name="__main__")
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and not out and err.count("\n") == 1 and told in err
    assert not list(tmp_path.iterdir())
