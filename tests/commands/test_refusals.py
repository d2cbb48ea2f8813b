"""What fuzzing found around the command: tracebacks, lines too many, a run that went on with other data."""

import os

import numpy as np
import pytest
from PIL import Image

from ending import check_refusal, command, settled
from labeltrace.commands.console import LONGEST, one_line
from labeltrace.engine import load_config

TRAIN = ["train", "--learner", "cross_entropy", "--epochs", "1", "--device", "cpu", "--workers", "0"]


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.eye(6, dtype=np.float32), y=["a", "b"] * 3)
    for i in range(6):
        (tmp_path / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (40 * i,) * 3).save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png")
    return tmp_path


def test_a_message_is_one_line_that_a_terminal_can_show():
    assert one_line("a\nb\x1b[2J\x07 é🐱") == "a b\\x1b[2J\\x07 é🐱"
    long = one_line("start" + "x" * 5000 + "end")
    assert len(long) <= LONGEST + 3 and long.startswith("start") and long.endswith("end")


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "data.npz", "--out", "x" * 300],
        ["--data", "data.npz", "--out", os.fsdecode(b"a\xff")],
        ["--data", "x" * 300],
        ["--data", "~nobody-of-this-name"],
        ["--data", "data.npz", "--subset", "1"],
        ["--data", "data.npz", "--noise-file", "x" * 300 + ".npz"],
        ["--data", "data.npz", "--set", "subset=2001-99-99"],
        ["--data", "data.npz", "--set", "noise_file=.inf"],
        ["--data", "photos", "--out", "photos/run"],
        ["--data", ".", "--out", "run"],
        ["--data", "data.npz", "--weights", "missing.pt"],
        ["--data", "data.npz", "--weights", "data.npz"],
        ["--resume", "x" * 300],
    ],
    ids=lambda words: words[-1][:20],
)
def test_words_that_lead_nowhere(folder, words):
    start = TRAIN if words[0] == "--data" else ["train"]
    assert settled([*start, *words], folder) is False


@pytest.mark.parametrize("sheet", ["labels.csv", "x" * 300 + ".png", "nowhere/a.png"])
def test_a_contact_sheet_replaces_no_other_file(folder, sheet):
    (folder / "labels.csv").write_text("label\n")
    assert settled(["data", "show", "photos", "--sheet", sheet], folder) is False


@pytest.mark.parametrize(
    "text", ["seed: 2001-99-99\n", f"seed: {'9' * 5000}\n", "read: " + "[" * 3000, "noise_file: .inf\n"]
)
def test_yaml_that_python_cannot_hold(folder, text):
    (folder / "run.yaml").write_text(text)
    assert settled([TRAIN[0], "run.yaml", *TRAIN[1:]], folder) is False


@pytest.mark.parametrize("flag", ["--seed", "--noise-seed"])
def test_a_seed_of_noise_that_no_run_could_take(folder, flag):
    words = ["noise", "symmetric", "--rate", "0.3", "--data", "data.npz", "--out", "n.npz"]
    assert settled([*words, flag, str(2**32 - 1)], folder, "n.npz") is True
    assert settled([*words, "--overwrite", flag, str(2**32)], folder, "n.npz") is False


def test_the_name_of_a_run_is_that_of_a_folder(folder):
    (folder / "data.npz").rename(folder / f"two\nlines {'x' * 200}.npz")
    outcome = command([*TRAIN, "--data", f"two\nlines {'x' * 200}.npz"], folder)
    (run,) = (folder / "runs").iterdir()
    assert outcome.code == 0 and run.name.startswith("two-lines-xxx") and len(run.name) < 100


def started(folder, data):
    """A run whose epochs are all still to come."""
    assert command([*TRAIN, "--data", data, "--out", "run"], folder).code == 0
    (folder / "run" / "checkpoints" / "last.ckpt").unlink()
    return ["train", "--resume", folder / "run"]


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "class renamed"])
def test_a_run_does_not_go_on_with_other_photos(folder, change):
    words, photo = started(folder, "photos"), folder / "photos" / "a" / "0.png"
    if change == "added":
        (folder / "photos" / "a" / "9.png").write_bytes(photo.read_bytes())
    elif change == "removed":
        photo.unlink()
    elif change == "renamed":
        photo.rename(photo.with_name("9.png"))
    else:
        (folder / "photos" / "b").rename(folder / "photos" / "c")
    outcome = command(words, folder)
    check_refusal(outcome)
    assert "since it began" in outcome.err


def test_a_run_goes_on_from_another_folder_and_beside_the_link_that_was_given(folder):
    (folder / "lists").mkdir()
    rows = "".join(f"photos/{'ab'[i % 2]}/{i}.png,{'ab'[i % 2]}\n" for i in range(6))
    (folder / "lists" / "m.csv").write_text("path,label\n" + rows)
    (folder / "m.csv").symlink_to("lists/m.csv")
    words = started(folder, "m.csv")
    assert load_config(folder / "run" / "config.yaml", {}).data == str(folder / "m.csv")
    assert command(words, folder / "lists").code == 0
