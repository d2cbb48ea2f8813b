"""A run as asked for: YAML and flags merged, mistakes answered in one line, the resolved record repeats the run."""

import dataclasses
import typing

import pytest
import typer

import saved
import toy
from labeltrace import cli
from labeltrace.data import ReadOptions
from labeltrace.engine import RunConfig, load_config, train
from labeltrace.errors import InputError
from labeltrace.validation import build


def written(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path, overrides=None):
    with pytest.raises(InputError) as caught:
        load_config(path, overrides or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_flags_lie_on_top_of_the_file_and_records_are_merged_key_by_key(tmp_path):
    path = written(tmp_path, "learner: rolr\nepochs: 9\nsettings: {lr: 0.5, warmup: 2}\ntrace: {alpha: 0.9}\n")
    config = load_config(path, {"epochs": 3, "settings": {"warmup": 1, "passes": 1}, "seed": 4})
    assert (config.learner, config.epochs, config.seed) == ("rolr", 3, 4)
    assert config.settings == {"lr": 0.5, "warmup": 1, "passes": 1}
    assert config.trace == {"alpha": 0.9}


@pytest.mark.parametrize("text", ["", "# nothing but a remark\n", "settings:\n"])
def test_an_empty_file_and_an_empty_record_are_the_defaults(tmp_path, text):
    config = load_config(written(tmp_path, text), {"settings": {}})
    assert config == RunConfig()


def test_without_a_file_flags_stand_alone():
    assert load_config(None, {"epochs": 3}) == RunConfig(epochs=3)


def test_an_unknown_key_is_answered_with_the_nearest(tmp_path):
    path = written(tmp_path, "epcohs: 3\n")
    message = complaint(path)
    assert str(path) in message and "'epcohs'" in message and "did you mean 'epochs'" in message


def test_an_unknown_key_that_is_near_none_is_answered_with_all(tmp_path):
    message = complaint(written(tmp_path, "qqqqqq: 3\n"))
    assert "'qqqqqq'" in message and all(key in message for key in RunConfig.model_fields)


@pytest.mark.parametrize("text", ["1: 2\n", "null: 2\n", "true: 2\n"])
def test_a_key_that_is_no_word_is_unknown(tmp_path, text):
    assert "unknown key" in complaint(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "key", "given"),
    [
        ("epochs: many", "epochs", "many"),
        ("epochs: 2.5", "epochs", "2.5"),
        ("epochs: 0", "epochs", "0"),
        ("subset: 0", "subset", "0"),
        ("rate: [1]", "rate", "[1]"),
        ("seed: -1", "seed", "-1"),
        ("data: 5", "data", "5"),
        ("tensorboard: perhaps", "tensorboard", "perhaps"),
        ("checkpoint_seconds: -3", "checkpoint_seconds", "-3"),
        ("settings: 5", "settings", "5"),
        ("trace: [a, b]", "trace", "['a', 'b']"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_file(tmp_path, text, key, given):
    path = written(tmp_path, text)
    message = complaint(path)
    assert str(path) in message and key in message and given in message


@pytest.mark.parametrize("text", ["- data\n- digits\n", "just words", "42", "[1, 2]"])
def test_a_file_that_holds_no_keys_is_refused(tmp_path, text):
    path = written(tmp_path, text)
    message = complaint(path)
    assert str(path) in message and "expected keys and values" in message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, content in (
        (tmp_path / "missing.yaml", None),
        (tmp_path, None),  # a folder
        (tmp_path / "bytes.yaml", b"\xff\xfe\x00data: digits"),
        (tmp_path / "broken.yaml", b"data: [digits\nepochs: }"),
        (tmp_path / "tabs.yaml", b"settings:\n\tlr: 1"),
    ):
        if content is not None:
            path.write_bytes(content)
        assert str(path) in complaint(path)


@pytest.mark.parametrize("text", ["settings: 5", "settings: [lr]", "settings: fast"])
def test_a_nested_flag_on_top_of_a_value_that_is_no_record_is_refused(tmp_path, text):
    path = written(tmp_path, text)
    message = complaint(path, {"settings": {"lr": 0.1}})
    assert "settings" in message


def test_a_nested_flag_of_a_key_that_is_no_record_is_refused(tmp_path):
    assert "data" in complaint(written(tmp_path, "data: digits"), {"data": {"name": "digits"}})


def test_merging_changes_neither_of_its_parts(tmp_path):
    overrides = {"settings": {"warmup": 1}}
    path = written(tmp_path, "settings: {lr: 0.5}")
    load_config(path, overrides)
    assert overrides == {"settings": {"warmup": 1}}


@pytest.mark.parametrize(
    "changes",
    [
        {"learner": "cross_entropy"},
        {"learner": "rolr", "controller": "coupled"},
        {"learner": "rolr", "trace": {"alpha": 0.6, "pseudo_start": 1}},
    ],
)
def test_the_written_config_repeats_the_run(tmp_path, changes):
    asked = {"data": "digits", "subset": 80, "noise": "pair", "rate": 0.3, "epochs": 2, "seed": 3, "device": "cpu"}
    first = train(RunConfig.model_validate(asked | changes), tmp_path / "first")
    again = train(load_config(tmp_path / "first" / "config.yaml", {}), tmp_path / "again")
    assert toy.weights(first).equal(toy.weights(again))
    assert saved.metrics(tmp_path / "first") == saved.metrics(tmp_path / "again")
    config, repeated = ((tmp_path / run / "config.yaml").read_text() for run in ("first", "again"))
    assert config == repeated


def test_the_written_config_leaves_nothing_to_defaults(tmp_path):
    """A later version with other defaults must repeat the run too."""
    asked = RunConfig(data="digits", subset=80, epochs=2, noise="symmetric", rate=0.2, seed=5, device="cpu")
    trained = train(asked, tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml", {})
    assert (config.preset, config.controller, config.model) == ("small", "trace", "small_cnn")
    assert (config.noise_seed, config.epochs) == (5, 2)
    assert config.settings.keys() == typing.get_type_hints(type(trained.plan.settings)).keys()
    assert config.trace.keys() == typing.get_type_hints(type(trained.plan.trace)).keys()


# A value of each key that is not its default.
VALUES = {
    "data": "cifar10",
    "root": "some/folder",
    "subset": 60,
    "noise": "pair",
    "rate": 0.25,
    "noise_seed": 8,
    "noise_file": "noise.npz",
    "foreign": "cifar100",
    "foreign_root": "other/folder",
    "learner": "cross_entropy",
    "preset": "cifar",
    "controller": "coupled",
    "plugin": "ct",
    "model": "mlp",
    "weights": "weights.pth",
    "epochs": 3,
    "epoch_samples": 50,
    "seed": 9,
    "device": "cpu",
    "precision": "fp32",
    "capture": False,
    "compile": True,
    "tensorboard": True,
    "checkpoint_seconds": 1.5,
    "read": {"workers": 0},
    "settings": {"lr": 0.5},
    "trace": {"alpha": 0.4},
    "plugin_settings": {"alpha": 0.1},
}
SET_ONLY = {"checkpoint_seconds", "read", "settings", "trace", "plugin_settings"}

READ = {
    "labels": "labels.csv",
    "test": "test/folder",
    "path_column": "file",
    "label_column": "kind",
    "split_column": "part",
    "id_column": "number",
    "truth_column": "right",
    "image_size": 64,
    "flip": False,
    "bad_images": "skip",
    "cache_gb": 2.5,
    "memory_gb": 0.5,
    "workers": 3,
}


@pytest.fixture
def asked_for(monkeypatch, tmp_path):
    """Return what reaches a run from the words of a command."""
    monkeypatch.chdir(tmp_path)

    def ask(*words):
        seen = []

        def run(config, folder, **options):
            seen.append(config)
            raise InputError("far enough")

        monkeypatch.setattr("labeltrace.runs.run", run)
        assert cli._main(["train", *words]) == 2
        assert len(seen) == 1, "the command did not get as far as the run"
        return seen[0]

    return ask


@pytest.mark.parametrize("key", RunConfig.model_fields)
def test_every_key_can_be_set(asked_for, key):
    assert key in VALUES, "a new key: give it a value above"
    expected = RunConfig.model_validate({key: VALUES[key]})
    assert expected != RunConfig()
    assert asked_for("--set", f"{key}={VALUES[key]}") == expected


@pytest.mark.parametrize("key", [key for key in RunConfig.model_fields if key not in SET_ONLY])
def test_every_plain_key_has_a_flag(asked_for, key):
    flag = f"--{key.replace('_', '-')}"
    words = [flag, str(VALUES[key])]
    if isinstance(VALUES[key], bool):
        words = [flag if VALUES[key] else f"--no-{key}"]
    assert asked_for(*words) == RunConfig.model_validate({key: VALUES[key]})


@pytest.mark.parametrize("key", [field.name for field in dataclasses.fields(ReadOptions)])
def test_every_option_of_reading_has_a_flag(asked_for, key):
    assert key in READ, "a new option: give it a value above"
    assert READ[key] != getattr(ReadOptions(), key)
    flag = f"--{key.replace('_', '-')}"
    words = [f"--no-{key}"] if READ[key] is False else [flag, str(READ[key])]
    found = build(ReadOptions, asked_for(*words).read, "read")
    assert found == build(ReadOptions, {key: READ[key]}, "read")


@pytest.mark.parametrize("word", ["settings.lr=0.5", "trace.alpha=0.5", "plugin_settings.alpha=0.5"])
def test_nested_keys_are_set_with_a_dot(asked_for, word):
    record, name = word.split("=")[0].split(".")
    assert getattr(asked_for("--set", word), record) == {name: 0.5}


def test_the_command_has_no_flag_for_a_key_that_is_gone():
    command = typer.main.get_command(cli.app).commands["train"]
    about_the_run = {p.name for p in command.params} - {
        "config",
        "set_",
        "out",
        "resume",
        "overwrite",
        "as_json",
        "help",
    }
    assert about_the_run == (set(RunConfig.model_fields) - SET_ONLY) | set(READ)


def test_a_flag_lies_on_top_of_the_file(asked_for, tmp_path):
    path = written(tmp_path, "epochs: 9\nrate: 0.5\nnoise: pair\n")
    config = asked_for(str(path), "--epochs", "4", "--set", "settings.lr=0.5")
    assert (config.epochs, config.rate, config.noise, config.settings) == (4, 0.5, "pair", {"lr": 0.5})
