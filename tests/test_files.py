"""Writing whole files: at any moment the old one or the new one is there, never a half."""

import pytest

from labeltrace.files import write_atomically


def test_writes_the_file_and_the_folders_above_it(tmp_path):
    path = tmp_path / "new" / "folder" / "file.txt"
    write_atomically(path, lambda temporary: temporary.write_text("all of it"))
    assert path.read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def half(temporary):
        temporary.write_text("ne")
        raise error("in the middle")

    with pytest.raises(error, match="in the middle"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]  # nothing half written is left beside it


def test_a_writer_that_fails_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "file.txt", lambda temporary: 1 / 0)
    assert list(tmp_path.iterdir()) == []


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path, seen = tmp_path / "file.txt", []
    path.write_text("old")

    def slow(temporary):
        temporary.write_text("ne")
        seen.append(path.read_text())
        temporary.write_text("new")
        seen.append(path.read_text())

    write_atomically(path, slow)
    assert seen == ["old", "old"]
    assert path.read_text() == "new"


def test_others_may_read_the_file(tmp_path):
    path = tmp_path / "file.txt"
    write_atomically(path, lambda temporary: temporary.write_text("shared"))
    assert path.stat().st_mode & 0o444 == 0o444  # a temporary file is private unless told otherwise
