"""Runs of own data that has moved since: report, review and diagnose find it where --root says, and nothing else."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import reported
from labeltrace import cli
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig
from labeltrace.errors import InputError
from labeltrace.runs import run

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from labeltrace.review.server import ReviewServer

COUNT, CLASSES = 12, ("cat", "dog")
KINDS = {"folder": "photos", "manifest": "photos/list.csv", "npz": "set.npz", "npy": "set.npy"}


def build(root, shift=0):
    """The same samples in every form, each image of a shade of its own; `shift` gives other labels."""
    labels = [CLASSES[(i // 3 + shift) % 2] for i in range(COUNT)]
    images = np.stack([np.full((8, 8), 20 * i, np.uint8) for i in range(COUNT)])
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        (root / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / "photos" / label / f"{number:02}.png")
    rows = [f"{label}/{number:02}.png,{label}\n" for number, label in enumerate(labels)]
    (root / "photos" / "list.csv").write_text("path,label\n" + "".join(rows), encoding="utf-8")
    np.savez(root / "set.npz", X=images, y=np.array(labels))
    np.save(root / "set.npy", images)
    np.save(root / "labels.npy", np.array(labels))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind of data, which is then gone from where it was."""
    root = tmp_path_factory.mktemp("runs")
    build(root / "old")
    for kind, data in KINDS.items():
        read = {"labels": str(root / "old" / "labels.npy")} if kind == "npy" else {}
        config = RunConfig(data=str(root / "old" / data), read=read, epochs=1, device="cpu", learner="cross_entropy")
        run(config, root / kind)
    shutil.rmtree(root / "old")
    return root


@pytest.fixture
def new(tmp_path):
    build(tmp_path / "new")
    return tmp_path / "new"


PLACES = [
    ("folder", "photos"), ("folder", "."), ("folder", "renamed"), ("manifest", "photos"), ("npz", "."),
    ("npz", "set.npz"), ("npz", "renamed.npz"), ("npy", "."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_pictures_come_from_where_the_data_is_now(runs, new, tmp_path, capsys, kind, place):
    if place.startswith("renamed"):
        (new / KINDS[kind]).rename(new / place)
    out = tmp_path / "report.html"
    assert cli._main(["report", str(runs / kind), "--root", str(new / place), "--out", str(out)]) == 0
    assert "without pictures" not in capsys.readouterr().out
    assert len(reported.read(out).all("img")) == COUNT
    server = ReviewServer(Run(runs / kind, device="cpu", root=new / place))
    try:
        order = torch.tensor([int(server.pictures.read([row])[0, 0, 0, 0]) // 20 for row in range(COUNT)])
    finally:
        server.close()
    by_class = sorted(range(COUNT), key=lambda i: i // 3 % 2) if kind == "folder" else range(COUNT)
    assert order.tolist() == list(by_class)
    assert Run(runs / kind, device="cpu", root=new / place).network() is not None  # what diagnose asks for


@pytest.mark.parametrize("kind", KINDS)
def test_other_data_is_refused(runs, tmp_path, capsys, kind):
    build(tmp_path / "other", shift=1)
    root = tmp_path / "other" / ("photos" if kind == "manifest" else ".")
    assert cli._main(["review", str(runs / kind), "--root", str(root)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "since it began" in told
    out = tmp_path / "report.html"
    assert cli._main(["report", str(runs / kind), "--root", str(root), "--out", str(out)]) == 0
    assert "since it began" in capsys.readouterr().out and reported.read(out).all("img") == []


def test_other_samples_of_the_same_labels_are_refused(runs, new):
    (new / "photos" / "cat" / "00.png").rename(new / "photos" / "cat" / "00 (1).png")
    with pytest.raises(InputError, match="samples have been replaced, renamed or put in another order"):
        _ = Run(runs / "folder", device="cpu", root=new).plan


@pytest.mark.parametrize("kind", KINDS)
def test_data_that_is_gone_says_how_to_go_on(runs, tmp_path, capsys, kind):
    assert cli._main(["review", str(runs / kind)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"{KINDS[kind]}: no such file or folder; --root says where" in told
    assert cli._main(["review", str(runs / kind), "--root", str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "nowhere: no such file or folder" in told


def test_a_set_by_name_is_looked_for_below_the_root(tmp_path):
    table = reported.table()
    folder = reported.run_folder(tmp_path / "run", table, data="digits", root=tmp_path / "there")
    found = Run(folder, root=tmp_path / "here").config
    assert (found.data, found.root) == ("digits", tmp_path / "here")
    own = reported.run_folder(tmp_path / "own", table, data="/old/photos", root=tmp_path / "there")
    found = Run(own, root=tmp_path / "here").config
    assert (found.data, found.root) == (str(tmp_path / "here"), tmp_path / "there")  # the root of foreign images stays
