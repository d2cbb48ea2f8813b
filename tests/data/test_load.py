"""Data by a name that is none, and own data that has moved."""

from pathlib import Path

import pytest

from labeltrace.cli import main
from labeltrace.data.dataset import datasets
from labeltrace.data.load import exists, follow, load_dataset, moved
from labeltrace.errors import InputError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(path, folder=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(parents=True) if folder else path.write_text("")
    return path


# Names


def test_a_mistyped_folder_is_offered_by_its_name(here):
    for name in ("photos", "photos-2024", ".photoes-old", "music"):
        made(here / name)
    with pytest.raises(InputError) as told:
        load_dataset("photoes")
    assert str(told.value) == (
        "photoes: no dataset and no file or folder of this name; did you mean 'photos' or 'photos-2024'?"
    )


def test_a_mistyped_dataset_is_offered_beside_what_is_here(here):
    made(here / "cifra10-copy")
    with pytest.raises(InputError, match=r"of this name; did you mean 'cifar10' or .*'cifra10-copy'"):
        load_dataset("cifra10")


def test_a_name_like_no_other_says_where_all_are(here, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", "nofolder", "--out", "run"])
    told = capsys.readouterr().err
    assert stop.value.code == 2 and told.count("\n") == 1 and len(told) < 160
    assert "nofolder: no dataset and no file or folder of this name" in told and "labeltrace list datasets" in told
    assert not any(name in told for name in datasets) and list(here.iterdir()) == []


# Moved data


@pytest.mark.parametrize(
    ("data", "there", "root", "found"),
    [
        ("old/photos", "new/photos", "new/photos", "new/photos"),  # itself
        ("old/photos", "new/photos", "new", "new/photos"),  # what holds it
        ("old/photos", "new/pics", "new/pics", "new/pics"),  # renamed
        ("old/photos", "new/photos/photos", "new/photos", "new/photos"),  # a class of the same name is no dataset
        ("old/photos.v2", "new/pics", "new/pics", "new/pics"),  # an ending does not make a folder a file
        ("old/photos", "other", "new", "new"),  # nothing there: it is said of what was given
    ],
)
def test_a_folder_is_itself_or_in_what_holds_it(here, data, there, root, found):
    made(here / there)
    assert moved(Path("/", data), Path(root)) == here / found


@pytest.mark.parametrize(
    ("there", "root", "found"),
    [
        ("new/set.csv", "new/set.csv", "new/set.csv"),
        ("new/set.csv", "new", "new/set.csv"),
        ("new/renamed.csv", "new/renamed.csv", "new/renamed.csv"),
        ("new/renamed.csv", "new", "new/set.csv"),  # a folder never stands in for a file
        ("new/renamed.csv", "new/remaned.csv", "new/remaned.csv"),
    ],
)
def test_a_file_is_itself_or_in_a_folder(here, there, root, found):
    made(here / there, folder=False)
    assert moved(Path("/old/set.csv"), Path(root)) == here / found


def test_where_one_stands_is_a_place_too(here, monkeypatch):
    made(here / "photos" / "photos")
    monkeypatch.chdir(here / "photos")
    assert moved(Path("/old/photos"), Path()) == here / "photos"


def test_files_go_with_the_data_only_where_they_went(tmp_path):
    inside, beside, left = (made(tmp_path / name, folder=False) for name in ("new/a/x.csv", "new/y.csv", "old/z.csv"))
    made(tmp_path / "new/z.csv", folder=False)
    old, new = tmp_path / "old/a", tmp_path / "new/a"
    assert follow(old / "x.csv", old, new) == inside
    assert follow(tmp_path / "old/y.csv", old, new) == beside
    assert follow(left, old, new) == left  # it is where it was
    for gone in (tmp_path / "old/w.csv", Path("/elsewhere/y.csv")):
        assert follow(gone, old, new) == gone


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
def test_paths_that_nothing_can_have(path):
    assert not exists(Path(path)) and moved(Path("/old/photos"), Path(path)) == Path.cwd() / path
