"""labeltrace noise: words in, a file and words out; on a mistake one line, exit code 2, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labeltrace import cli
from labeltrace.data import (
    Dataset,
    ImageFiles,
    ImageViews,
    ReadOptions,
    Split,
    datasets,
    load_dataset,
    load_noise,
    prepare,
)
from labeltrace.data.noise.apply import apply_noise_file
from labeltrace.data.noise.foreign import load_foreign
from labeltrace.data.noise.kinds import add_noise

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in an empty folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli._main(["noise", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_file_that_trains_the_same_labels(command: Command) -> None:
    code, out, err = command("symmetric", "--rate", 0.5, "--seed", 3, "--out", "new/noise.npz")
    assert (code, err) == (0, "")
    digits = load_dataset("digits", None, 3)
    expected, record = add_noise(digits, "symmetric", 0.5, 3)
    noisy, found = apply_noise_file(digits, "new/noise.npz")
    assert found == record and noisy.train.labels.equal(expected.train.labels)
    words = out.splitlines()
    assert words[0] == record.describe() and words[-1] == "new/noise.npz" and len(words) == 13
    count, wrong = record.transitions.class_counts()[0], record.transitions.wrong_counts()[0]
    assert words[2].split()[:3] == ["0", str(count), f"{wrong / count:.4f}"]


def test_json(command: Command) -> None:
    code, out, err = command("pair", "--rate", 0.4, "--noise-seed", 7, "--subset", 100, "--out", "x.npz", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    _, record = load_noise("x.npz", count=100)
    assert found["file"] == "x.npz" and found["noise"] == record.to_dict() and record.seed == 7
    assert [entry["most_often"] for entry in found["classes"].values()] == [str((i + 1) % 10) for i in range(10)]
    assert sum(entry["samples"] for entry in found["classes"].values()) == 100
    subset = load_dataset("digits", None, 0).subset(100, 0)
    assert apply_noise_file(subset, "x.npz")[1] == record


def test_a_matrix_by_name(command: Command) -> None:
    order = [3, 1, 2, 0, 4, 5, 6, 7, 8, 9]
    header = ",".join(["", *map(str, order)])
    rows = [",".join([str(i), *("1" if j == (i + 1) % 10 else "0" for j in order)]) for i in reversed(range(10))]
    Path("t.csv").write_text("\n".join([header, *rows]))
    code, out, err = command("transition", "--matrix", "t.csv", "--out", "x.npz")
    assert (code, err) == (0, "") and "nominal rate 1, actual 1.0000" in out
    labels, record = load_noise("x.npz")
    assert (labels == (load_dataset("digits").train.labels.numpy() + 1) % 10).all() and record.seed == 0


def test_scores(command: Command) -> None:
    digits = load_dataset("digits")
    np.savez("s.npz", scores=np.random.default_rng(0).random((len(digits.train), 10)))
    code, out, err = command("instance-idn", "--scores", "s.npz", "--rate", 0.2, "--out", "x.npz")
    assert (code, err) == (0, "") and "nominal rate 0.2, actual 0.1997 (269 of 1,347 labels)" in out


def test_foreign_images(command: Command) -> None:
    words = ("open-set", "--rate", 0.4, "--foreign", "digits", "--open-share", 0.5, "--subset", 200, "--out", "x.npz")
    code, out, err = command(*words)
    assert (code, err) == (0, "") and "(80 of 200 labels, 40 of them on images of digits)" in out
    digits = load_dataset("digits")
    noisy, record = apply_noise_file(digits.subset(200, 0), "x.npz", load_dataset)
    assert noisy.train.truth is not None and int((noisy.train.truth < 0).sum()) == 40
    assert record.foreign is not None and isinstance(digits.train.inputs, torch.Tensor)
    assert isinstance(noisy.train.inputs, torch.Tensor)
    images = digits.train.inputs[torch.from_numpy(record.foreign.indices)]
    assert noisy.train.inputs[torch.from_numpy(record.foreign.positions)].equal(images)
    assert json.loads(command(*words, "--overwrite", "--json")[1])["noise"]["foreign"] == "digits"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two datasets of image files, 24 and 12; one file of the first is broken."""
    rng = np.random.default_rng(0)

    def add(name: str, classes: tuple[str, ...], count: int, size: int) -> None:
        paths = [tmp_path / name / label / f"{i}.png" for label in classes for i in range(count)]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(path)

        def load(root: Path | None, seed: int, read: ReadOptions) -> Dataset:
            images = ImageFiles(map(str, paths), side=read.image_size or size)
            train = Split(images, torch.arange(len(paths)) // count)
            return Dataset(name, train, None, classes, ImageViews((0.5,) * 3, (0.5,) * 3))

        monkeypatch.setitem(datasets._entries, name, load)

    add("pets", ("cat", "dog"), 12, 16)
    add("cars", ("bus", "van", "tram"), 4, 20)
    (tmp_path / "pets" / "cat" / "3.png").write_bytes(b"broken")


QUIET = ("--cache-gb", 0, "--workers", 0)


@pytest.mark.usefixtures("files")
def test_image_files(command: Command) -> None:
    code, out, _ = command("symmetric-exact", "--data", "pets", "--rate", 0.5, "--out", "all.npz", *QUIET)
    assert code == 0 and "(12 of 24 labels)" in out and "cat" in out  # labels alone: no image is read
    code, _, err = command("instance", "--data", "pets", "--rate", 0.5, "--out", "x.npz", *QUIET)
    assert code == 2 and "3.png" in err and not Path("x.npz").exists()
    skip = ("--bad-images", "skip", *QUIET)
    for kind in ("symmetric-exact", "instance", "instance-standardised"):
        code, out, _ = command(kind, "--data", "pets", "--rate", 0.5, "--out", f"{kind}.npz", *skip)
        assert code == 0 and "of 23 labels" in out
    words = ("open-set", "--data", "pets", "--rate", 0.5, "--foreign", "cars", "--open-share", 1)
    code, out, _ = command(*words, "--out", "open.npz", *skip)
    assert code == 0 and "(11 of 23 labels, 11 of them on images of cars)" in out
    read = ReadOptions(bad_images="skip", cache_gb=0, workers=0)
    pets, _ = prepare(load_dataset("pets", None, 0, read), read)
    noisy, record = apply_noise_file(pets, "open.npz", lambda name: load_foreign(name, None, 0, pets, read))
    assert record.flipped == 11 and noisy.input_shape == pets.input_shape
    code, _, err = command(*words, "--out", "far.npz", *skip, "--memory-gb", 0)
    assert code == 2 and "open-set noise needs uint8 images in memory" in err and not Path("far.npz").exists()
    code, _, err = command("instance", "--data", "pets", "--rate", 0.5, "--out", "far.npz", *skip, "--memory-gb", 0)
    assert code == 2 and "raise --memory-gb" in err


def test_a_file_is_not_overwritten_unasked(command: Command) -> None:
    assert command("symmetric", "--rate", 0.2, "--out", "x.npz")[0] == 0
    before = Path("x.npz").read_bytes()
    code, out, err = command("symmetric", "--rate", 0.4, "--out", "x.npz")
    assert (code, out) == (2, "") and err == (
        "labeltrace: --out x.npz exists; choose another name, or replace it with --overwrite\n"
    )
    assert Path("x.npz").read_bytes() == before
    assert command("symmetric", "--rate", 1.4, "--out", "x.npz", "--overwrite")[0] == 2
    assert Path("x.npz").read_bytes() == before
    assert command("symmetric", "--rate", 0.4, "--out", "x.npz", "--overwrite")[0] == 0
    assert load_noise("x.npz")[1].nominal == 0.4


MISTAKES = {
    "unknown kind": ("symetric --rate 0.2", "did you mean 'symmetric'"),
    "no rate": ("symmetric", "symmetric noise needs a rate"),
    "rate": ("symmetric --rate 1.5", "noise rate 1.5 is outside [0, 1)"),
    "rate that is no number": ("symmetric --rate nan", "noise rate nan"),
    "rate beside a matrix": ("transition --rate 0.2 --matrix t.csv", "takes no rate"),
    "no matrix": ("transition", "needs a matrix (matrix=, or --matrix"),
    "absent matrix": ("transition --matrix absent.csv", "no file absent.csv"),
    "bad matrix": ("transition --matrix bad.csv", "bad.csv: expected 10 lines and columns"),
    "rows of a matrix": ("transition --matrix ones.csv", "row 0 of the transition matrix sums to 10"),
    "matrix too many": ("pair --rate 0.2 --matrix bad.csv", "takes no matrix"),
    "absent scores": ("instance-idn --rate 0.2 --scores s.npy", "no file s.npy"),
    "scores of others": ("instance-idn --rate 0.2 --scores few.npy", "a row for each of the 1347 labels"),
    "no open share": ("open-set --rate 0.2 --foreign digits", "needs an open share"),
    "open share": ("open-set --rate 0.2 --foreign digits --open-share 2", "open share 2.0 is outside"),
    "unknown foreign": ("open-set --rate 0.2 --foreign digit --open-share 1", "did you mean 'digits'"),
    "foreign root alone": ("symmetric --rate 0.2 --foreign-root here", "--foreign-root is given without --foreign"),
    "no map": ("asymmetric --rate 0.2", "digits does not say; use 'pair'"),
    "not CIFAR-100": ("superclass --rate 0.2", "made for the 100 classes of CIFAR-100"),
    "unknown data": ("symmetric --rate 0.2 --data digit", "did you mean 'digits'"),
    "data that is not there": ("symmetric --rate 0.2 --data cifar10 --root nowhere", "CIFAR-10"),
    "subset": ("symmetric --rate 0.2 --subset 5000", "5000"),
    "seed": ("symmetric --rate 0.2 --seed -1", "--seed -1 is negative"),
    "noise seed": ("symmetric --rate 0.2 --noise-seed -1", "seed -1 is negative"),
    "name": ("symmetric --rate 0.2 --out noise.json", "expected a name that ends in .npz"),
    "folder": ("symmetric --rate 0.2 --out folder.npz", "is a folder"),
    "below a file": ("symmetric --rate 0.2 --out bad.csv/x.npz", "--out bad.csv/x.npz"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(mistake: str, command: Command) -> None:
    Path("folder.npz").mkdir()
    Path("bad.csv").write_text("1,2\n3,4\n")
    Path("ones.csv").write_text("\n".join([",".join("1" * 10)] * 10))
    np.save("few.npy", np.zeros((3, 10)))
    before = sorted(Path().rglob("*"))
    words, message = MISTAKES[mistake]
    code, out, err = command(*words.split(), *([] if "--out" in words else ["--out", "x.npz"]))
    assert (code, out) == (2, "")
    assert err.startswith("labeltrace: ") and err.count("\n") == 1 and message in err
    assert sorted(Path().rglob("*")) == before


def test_out_is_asked_for(command: Command) -> None:
    code, out, err = command("symmetric", "--rate", 0.2)
    assert (code, out) == (2, "") and "--out" in err and err.count("\n") == 1
