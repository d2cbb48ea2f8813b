"""The picture of a dozen samples: it opens, shows what it should, and refuses what is no image."""

import json
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from labeltrace.data import Split
from labeltrace.errors import InputError
from labeltrace.report import draw_gallery
from labeltrace.report.gallery import pick


def samples(decisions, classes=("cat", "dog"), truth=True):
    count = len(decisions)
    columns = {
        "id": pa.array([f"sample-{i}" for i in range(count)]),
        "observed": pa.array([i % 2 for i in range(count)], pa.int32()),
        "suggested": pa.array([(i + 1) % 2 for i in range(count)], pa.int32()),
        "a": pa.array([0.25] * count, pa.float32()),
        "b": pa.array([0.5] * count, pa.float32()),
        "decision": pa.array(decisions, pa.string()),
    }
    if truth:
        columns["truth"] = pa.array([-1 if i % 3 == 0 else 0 for i in range(count)], pa.int32())
    return pa.table(columns).replace_schema_metadata({"labeltrace.classes": json.dumps(list(classes))})


def images(count, channels=1, side=8):
    g = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=g)
    return Split(pixels, torch.zeros(count, dtype=torch.int64))


MIXED = ["keep"] * 20 + ["relabel"] * 10 + ["review"] * 10


def opened(path):
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert 600 <= picture.width <= 3000 and 600 <= picture.height <= 3000
        return np.asarray(picture.convert("RGB"))


@pytest.mark.parametrize(("channels", "truth"), [(1, True), (3, False)])
def test_the_picture_opens_and_is_not_blank(tmp_path, channels, truth):
    path = tmp_path / "samples.png"
    draw_gallery(samples(MIXED, truth=truth), images(40, channels), path, "a title")
    assert len(np.unique(opened(path)[:, :, 0])) > 20
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("decisions", [["keep"], ["relabel", "review"], ["review"] * 30, ["keep"] * 3 + ["relabel"]])
def test_fewer_than_a_dozen_are_fine(tmp_path, decisions):
    path = tmp_path / "samples.png"
    draw_gallery(samples(decisions), images(len(decisions)), path, "few")
    opened(path)


def test_the_picture_shows_the_images_of_the_rows_it_names(tmp_path):
    """Every image is one grey of its own; those of the picked rows are found in the picture, the others are not."""
    rows = pick(samples(MIXED))
    greys = torch.arange(40, dtype=torch.uint8) * 4 + 20
    split = Split(greys.view(40, 1, 1, 1).expand(40, 1, 8, 8).clone(), torch.zeros(40, dtype=torch.int64))
    draw_gallery(samples(MIXED), split, tmp_path / "samples.png", "greys")
    pixels = opened(tmp_path / "samples.png")
    grey = pixels[(pixels == pixels[:, :, :1]).all(2)][:, 0]
    areas = Counter(grey.tolist())
    large = {i for i, level in enumerate(greys.tolist()) if sum(areas[level + d] for d in (-1, 0, 1)) > 5000}
    assert large == set(rows)


def test_a_dozen_is_four_of_each():
    table = samples(MIXED)
    rows = pick(table)
    decisions = [table["decision"][row].as_py() for row in rows]
    assert len(set(rows)) == 12
    assert Counter(decisions) == {"keep": 4, "relabel": 4, "review": 4}


def test_where_a_decision_is_rare_all_of_it_is_shown():
    table = samples(["keep"] * 20 + ["relabel"] + ["review"] * 2)
    assert Counter(table["decision"][row].as_py() for row in pick(table)) == {"keep": 4, "relabel": 1, "review": 2}


def test_the_seed_draws_the_samples():
    table = samples(MIXED)
    assert pick(table, seed=1) == pick(table, seed=1)
    assert len({tuple(pick(table, seed=seed)) for seed in range(5)}) == 5


def test_features_are_refused_and_nothing_is_written(tmp_path):
    split = Split(torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InputError, match="these inputs are features"):
        draw_gallery(samples(["keep"] * 4), split, tmp_path / "samples.png", "no images")
    assert list(tmp_path.iterdir()) == []


def test_names_are_shown_as_they_are(tmp_path):
    """A dollar sign or a backslash is no formula."""
    table = samples(["keep", "relabel", "review"], classes=("$\\frac{", "under $5"))
    draw_gallery(table, images(3), tmp_path / "samples.png", "prices from $5 to $10\\")
    opened(tmp_path / "samples.png")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"labeltrace\[plots\]"):
        draw_gallery(samples(["keep"]), images(1), tmp_path / "samples.png", "nothing to draw with")
    assert list(tmp_path.iterdir()) == []
