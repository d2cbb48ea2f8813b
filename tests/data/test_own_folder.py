from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labeltrace.data import BadImage, Dataset, DatasetError, ReadOptions, prepare
from labeltrace.data.own.load import load_own

QUIET = ReadOptions(workers=0, cache_gb=0)


def put(root: Path, *names: str, level: int = 0, size: tuple[int, int] = (8, 8)) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((size[1], size[0], 3), level, np.uint8)).save(path)


def load(path: Path, **options: object) -> Dataset:
    return load_own(path, ReadOptions(workers=0, cache_gb=0, **options))  # type: ignore[arg-type]


def ids(data: Dataset) -> list[str]:
    assert data.train.ids is not None
    return list(data.train.ids)


def test_folders_are_classes(tmp_path: Path) -> None:
    root = tmp_path / "my pets"
    put(root, "dog/b.png", "dog/a.JPG", "cat/deep/er/x.webp", "cat/y.bmp", level=7)
    data = load(root)
    assert data.name == "my-pets" and data.classes == ("cat", "dog") and data.test is None
    assert ids(data) == ["cat/deep/er/x.webp", "cat/y.bmp", "dog/a.JPG", "dog/b.png"]
    assert data.train.labels.tolist() == [0, 0, 1, 1] and data.input_shape == (3, 8, 8)
    ready, skipped = prepare(data, QUIET)
    assert not skipped and ready.train.inputs.float().mean() == 7


def test_the_order_does_not_follow_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, *(f"c{i % 3}/{i}.png" for i in range(9)))
    expected = ids(load(tmp_path))
    scandir = os.scandir

    class Backwards:
        def __init__(self, path: Path) -> None:
            with scandir(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    assert ids(load(tmp_path)) == expected == sorted(expected)


def test_numbered_folders_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    put(tmp_path, *(f"{i}/a.png" for i in (10, 2, 0)))
    assert load(tmp_path).classes == ("0", "2", "10")


def test_files_that_are_no_images_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png", "a/.2.png", ".git/1.png", "__MACOSX/a/1.png", "b/.cache/1.png", "loose.png")
    for name in ("a/Thumbs.db", "b/notes.txt", "README.md"):
        (tmp_path / name).write_text("x")
    assert ids(load(tmp_path)) == ["a/1.png", "b/1.png"]


def test_pictures_that_are_not_read_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png")
    for name in ("a/1.HEIC", "a/deep/2.heic", "b/3.avif", "b/.4.heic", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.warns(UserWarning, match=r"left out, as they are not read: 2 \.heic, 1 \.avif;"):
        assert ids(load(tmp_path)) == ["a/1.png", "b/1.png"]


@pytest.mark.parametrize(
    ("names", "alike"),
    [
        (["Cat", "cat", "dog"], "'Cat' and 'cat'"),
        (["hot dog", "hot  dog", "cat"], "'hot  dog' and 'hot dog'"),
        (["1", "11", "cat", "cats"], None),
    ],
)
def test_classes_that_differ_by_case_or_blanks_are_named(
    names: list[str], alike: str | None, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    table = tmp_path / "labels.csv"
    put(tmp_path, *(f"{i}.png" for i in range(len(names))))
    table.write_text("path,label\n" + "".join(f"{i}.png,{name}\n" for i, name in enumerate(names)))
    assert len(load(table).classes) == len(names)
    said = [str(warning.message) for warning in recwarn]
    assert said == (
        [] if alike is None else [f"{table}: classes {alike} differ by case or blanks alone; are they one?"]
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train/a/1.png", "train/b/1.png", "test/a/2.png"], "test"),
        (["train/a/1.png", "train/b/1.png", "val/a/2.png"], "val"),
        (["Train/a/1.png", "Train/b/1.png", "valid/a/2.png", "Test/b/1.png"], "Test"),
        (["train/a/1.png", "train/b/1.png", "test/a/2.png", "extra/c/1.png"], "test"),
        (["train/a/1.png", "train/b/1.png"], None),
    ],
)
def test_splits_are_found(names: list[str], expected: str | None, tmp_path: Path) -> None:
    put(tmp_path, *names)
    data = load(tmp_path)
    assert data.classes == ("a", "b") and [name.split("/")[1:] for name in ids(data)] == [
        ["a", "1.png"],
        ["b", "1.png"],
    ]
    assert ids(data)[0].lower().startswith("train/")
    assert (data.test is None) == (expected is None)
    if data.test is not None:
        assert data.test.ids is not None and {name.split("/")[0] for name in data.test.ids} == {expected}


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    put(tmp_path / "vehicles", "bus/1.png", "train/1.png")
    assert load(tmp_path / "vehicles").classes == ("bus", "train")
    put(tmp_path / "deep", "bus/1.png", "train/fast/1.png")
    assert load(tmp_path / "deep").classes == ("bus", "train")


def test_a_test_folder_of_its_own(tmp_path: Path) -> None:
    put(tmp_path / "data", "a/1.png", "b/1.png", "b/2.png")
    put(tmp_path / "held", "b/9.png", size=(30, 20))
    (tmp_path / "held" / "a").mkdir()
    data = load(tmp_path / "data", test=tmp_path / "held")
    assert data.test is not None and list(data.test.ids or ()) == ["b/9.png"] and data.test.labels.tolist() == [1]
    ready, _ = prepare(data, QUIET)
    assert ready.test is not None and ready.test.inputs.shape == (1, 3, 8, 8)


def test_names_that_are_not_utf8_are_spelt_out(tmp_path: Path) -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    put(tmp_path, "a/1.png", f"a/{odd}.png", f"{odd}/ü.png", level=3)
    data = load(tmp_path)
    assert ids(data) == ["a/1.png", r"a/caf\xe9.png", r"caf\xe9/ü.png"] and data.classes == ("a", r"caf\xe9")
    "".join([*ids(data), *data.classes]).encode("utf-8")
    ready, _ = prepare(data, QUIET)
    assert ready.train.inputs.float().mean() == 3


def test_a_link_back_does_not_hang(tmp_path: Path) -> None:
    put(tmp_path / "data", "a/1.png", "b/1.png")
    put(tmp_path / "elsewhere", "2.png")
    (tmp_path / "data" / "a" / "loop").symlink_to(tmp_path / "data" / "a")
    (tmp_path / "data" / "b" / "up").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "b" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    found = ids(load(tmp_path / "data"))
    assert "b/more/2.png" in found and "a/gone.png" in found and len(found) == len(set(found)) < 12


@pytest.mark.parametrize(
    ("names", "folders", "message"),
    [
        (["1.png", "2.jpg"], [], "2 images directly in it; expected one folder per class .* a table of paths"),
        ([], [], "no folders in it; expected one folder per class"),
        ([], ["a", "b"], r"no images \(.jpg .*\) in its 2 folders"),
        (["a/1.png", "b/1.png"], ["c", "d"], "2 of 4 class folders hold no images: 'c', 'd'; remove them"),
        (["a/1.png"], [], "one class only, 'a'; classification needs two or more$"),
        (
            ["pets/a/1.png", "pets/b/1.png"],
            [],
            "one class only, 'pets'; .* if its 2 folders are the classes, pass .*pets",
        ),
        (["train/a/1.png", "train/b/1.png", "test/ab/1.png"], [], "test, image 0: 'ab' is the label of no training"),
    ],
)
def test_other_layouts_are_explained(names: list[str], folders: list[str], message: str, tmp_path: Path) -> None:
    put(tmp_path, *names)
    for folder in folders:
        (tmp_path / folder).mkdir()
    with pytest.raises(DatasetError, match=message):
        load(tmp_path)


def test_ten_thousand_classes_of_unequal_size(tmp_path: Path) -> None:
    for i in range(10_000):
        folder = tmp_path / f"{i:05d}"
        folder.mkdir()
        (folder / "a.png").touch()
    for i in range(50):
        (tmp_path / "00007" / f"{i}.jpg").touch()
    data = load(tmp_path)
    assert data.num_classes == 10_000 and len(data.train) == 10_050
    assert data.train.labels.bincount().tolist()[6:9] == [1, 51, 1]


def test_a_bad_image_is_left_out_by_name(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a" / "0.png").write_bytes(b"")
    with pytest.raises(BadImage, match=r"a/0\.png: empty file"):
        prepare(load(tmp_path), QUIET)
    ready, skipped = prepare(load(tmp_path), ReadOptions(workers=0, cache_gb=0, bad_images="skip"))
    assert ids(ready) == ["a/1.png", "b/1.png"] and skipped[0].reason == "empty file"


def test_sizes_follow_the_files_or_the_wish(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/1.png", size=(200, 150))
    data = load(tmp_path)
    assert data.input_shape == (3, 224, 224) and data.train.inputs.shape == (2, 3, 256, 256)
    small = load(tmp_path, image_size=24, flip=False)
    assert small.input_shape == (3, 24, 24) and not small.views.flip  # type: ignore[attr-defined]


def test_an_unreadable_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a/1.png", "b/1.png")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetError, match="/a: permission denied"):
        load(tmp_path)
