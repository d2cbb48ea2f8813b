from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labeltrace.data import ReadOptions, prepare
from labeltrace.data.dataset import DatasetError
from labeltrace.data.sets.published import IMAGENET
from labeltrace.data.sets.webvision import WEBVISION, WEBVISION_ILSVRC12
from labeltrace.data.views import ImageViews
from layouts import arrange, build_webvision, text, wnid

HERE = ReadOptions(workers=0, cache_gb=0, image_size=16)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arrange("webvision-mini", tmp_path / "webvision", monkeypatch)


def test_sixty_classes_listed_are_fifty_samples(root: Path) -> None:
    data = WEBVISION.load(root)
    assert data.test is not None and (len(data.train), len(data.test)) == (50, 50)
    assert data.train.labels.tolist() == list(range(50)) and data.num_classes == 50
    assert data.train.id_of(5) == "google/q0005/a b5.jpg"
    # lines of the list that are beyond the 50 classes leave no gap
    assert data.test.labels.tolist() == list(range(49, -1, -1)) and data.test.id_of(0) == "val_images_256/val000010.jpg"
    assert data.classes[:2] == ("animal 0", "animal 1") and data.train.truth is None


def test_official_views_and_another_size(root: Path) -> None:
    data = WEBVISION.load(root)
    assert data.views == ImageViews(*IMAGENET, padding=0, size=299, scale=(0.08, 1.0))
    assert data.train.inputs.shape == (50, 3, 320, 320) and data.input_shape == (3, 299, 299)
    small = WEBVISION.load(root, ReadOptions(image_size=64, flip=False))
    assert small.train.inputs.shape == (50, 3, 69, 69) and small.input_shape == (3, 64, 64)
    assert isinstance(small.views, ImageViews) and not small.views.flip


def test_images_are_read_and_grey_becomes_colour(root: Path) -> None:
    data, skipped = prepare(WEBVISION.load(root, HERE), HERE)
    assert not skipped and data.train.inputs.shape == (50, 3, 18, 18)
    grey = data.train.read([3])
    assert (grey[:, 0] - grey[:, 2]).unique().tolist() == [0]


@pytest.mark.parametrize("form", ["numbers", "wnids", "wnids without synsets.txt", "all wnids", "list"])
def test_ilsvrc12_in_every_layout(form: str, root: Path) -> None:
    val = root / "imagenet/val"
    if "wnids" in form:
        for i in range(50):
            (val / str(i)).rename(val / wnid(i))
    if form == "wnids without synsets.txt":
        (root / "info/synsets.txt").unlink()
    if form == "all wnids":
        for i in range(50, 60):
            shutil.copytree(val / wnid(0), val / wnid(i))
    if form == "list":
        files = sorted(val.rglob("*.JPEG"))
        for file in files:
            file.rename(val / file.name)
        text(root / "imagenet_val.txt", [f"{file.name} {file.parent.name}" for file in files] + ["beyond.JPEG 77"])
    data = WEBVISION_ILSVRC12.load(root)
    assert data.name == "webvision-mini-ilsvrc12" and data.test is not None and len(data.train) == 50
    found = {data.test.id_of(i).rpartition("_")[2]: label for i, label in enumerate(data.test.labels.tolist())}
    assert found == {f"{i:08}.JPEG": i for i in range(50)}


def test_names_of_the_classes(root: Path) -> None:
    synsets = root / "info/synsets.txt"
    text(synsets, [wnid(i) for i in range(60)])
    assert WEBVISION.load(root).classes == tuple(wnid(i) for i in range(50))
    synsets.unlink()
    assert WEBVISION.load(root).classes == tuple(map(str, range(50)))
    text(synsets, ["tench"] * 60)
    with pytest.raises(DatasetError, match=r"class names: .*synsets.txt: 50 lines do not start with a wnid, the first"):
        WEBVISION.load(root)


def test_a_list_of_another_release_is_refused(tmp_path: Path) -> None:
    build_webvision(tmp_path)
    with pytest.raises(DatasetError) as caught:
        WEBVISION.load(tmp_path)
    message = str(caught.value)
    assert f"train: {tmp_path / 'info/train_filelist_google.txt'}: 65,944 lines with label < 50 expected, 50" in message
    assert "mini-WebVision needs info/train_filelist_google.txt of WebVision 1.0" in message


@pytest.mark.parametrize(
    ("line", "found"), [("google/x.jpg", "'google/x.jpg'"), ("x.jpg -1", "x.jpg -1"), ("x.jpg 1000", "x.jpg 1000")]
)
def test_a_line_of_another_form(line: str, found: str, root: Path) -> None:
    with (root / "info/val_filelist.txt").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(
        DatasetError, match=r"test: .*val_filelist.txt: lines `name label` with a label 0..999 exp.*1 o"
    ):
        WEBVISION.load(root)


def test_missing_things_are_named(root: Path) -> None:
    with pytest.raises(DatasetError, match=r"mini-WebVision train and test: ROOT: .* found no root\. Get WebVision"):
        WEBVISION.load(None)
    (root / "google/q0000/img0.jpg").unlink()
    with pytest.raises(DatasetError, match=r"train: .*google/q0000/img0.jpg: no such image; 1 of 50 looked for are"):
        WEBVISION.load(root)
    assert len(WEBVISION.load(root, ReadOptions(bad_images="skip")).train) == 50
    shutil.rmtree(root / "imagenet")
    with pytest.raises(
        DatasetError, match=r"ILSVRC12 test: .*imagenet/val: no such folder; found google, .* Put the IL"
    ):
        WEBVISION_ILSVRC12.load(root, ReadOptions(bad_images="skip"))
    (root / "info/val_filelist.txt").unlink()
    with pytest.raises(
        DatasetError, match=r"test: .*val_filelist.txt: no such file; found synsets.txt, train_filelist"
    ):
        WEBVISION.load(root, ReadOptions(bad_images="skip"))
