"""Decoded images on disk: what went in comes out, never anything else, and never more than was allowed."""

import os
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labeltrace.data.cache import DiskCache, cache_folder, open_cache


def picture(number, side=4):
    return torch.randint(0, 256, (3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))


def mark(number):
    return number.to_bytes(16, "little")


def test_what_went_in_comes_out(tmp_path):
    cache = DiskCache(tmp_path, "key", count=5, side=4, slots=5)
    for i in (3, 0, 4):
        cache.put(i, mark(i + 1), picture(i))
    for i in (3, 0, 4):
        assert cache.get(i, mark(i + 1)).equal(picture(i))
    assert cache.get(1, mark(2)) is None
    assert cache.get(3, mark(9)) is None  # another image has this place now


def test_another_process_finds_it(tmp_path):
    DiskCache(tmp_path, "key", 2, 4, 2).put(1, mark(7), picture(7))
    assert DiskCache(tmp_path, "key", 2, 4, 2).get(1, mark(7)).equal(picture(7))
    assert pickle.loads(pickle.dumps(DiskCache(tmp_path, "key", 2, 4, 2))).get(1, mark(7)).equal(picture(7))


def test_an_image_written_over_is_the_new_one(tmp_path):
    cache = DiskCache(tmp_path, "key", 1, 4, 1)
    cache.put(0, mark(1), picture(1))
    cache.put(0, mark(2), picture(2))
    assert cache.get(0, mark(1)) is None
    assert cache.get(0, mark(2)).equal(picture(2))


def test_a_file_cut_short_is_no_image(tmp_path):
    cache = DiskCache(tmp_path, "key", 2, 4, 2)
    cache.put(1, mark(1), picture(1))
    os.truncate(cache.pixels, 60)
    assert cache.get(1, mark(1)) is None
    os.truncate(cache.marks, 3)
    assert not cache.seen(0, mark(1))


def test_a_new_image_is_not_trusted_before_it_is_whole(tmp_path, monkeypatch):
    """A kill between pixels and mark leaves an empty place."""
    cache = DiskCache(tmp_path, "key", 1, 4, 1)
    cache.put(0, mark(1), picture(1))
    write = os.pwrite

    def killed(file, data, place):
        if data == mark(2):
            raise KeyboardInterrupt
        return write(file, data, place)

    monkeypatch.setattr(os, "pwrite", killed)
    with pytest.raises(KeyboardInterrupt):
        cache.put(0, mark(2), picture(2))
    assert cache.get(0, mark(2)) is None
    assert cache.get(0, mark(1)) is None


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path, "key", 1, 4, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    cache.put(0, mark(1), picture(1))
    assert cache.get(0, mark(1)) is None


def test_the_folder_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("LABELTRACE_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("LABELTRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    assert cache_folder() == tmp_path / "there" / "labeltrace"


def test_no_cache_without_room_or_right(tmp_path, monkeypatch):
    assert open_cache("key", 4, 4, limit_gb=0) is None
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABELTRACE_CACHE", str(tmp_path / "file"))
    assert open_cache("key", 4, 4, limit_gb=1) is None


SIDE = 64  # 12,288 bytes an image


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 12)), min_size=1, max_size=8), st.integers(0, 20))
def test_all_caches_together_keep_to_the_limit(tmp_path_factory, uses, images):
    """Whatever is opened in whatever order: the bytes on disk are never more than the limit."""
    folder = tmp_path_factory.mktemp("caches")
    limit = images * 3 * SIDE**2
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABELTRACE_CACHE", str(folder))
        for number, (key, count) in enumerate(uses):
            cache = open_cache(f"{key}{count}", count, SIDE, limit / 1e9)
            if cache is None:
                assert not limit
                continue
            os.utime(cache.marks, (number, number))
            for i in range(count):
                cache.put(i, mark(i), picture(i, SIDE))
                found = cache.get(i, mark(i))
                assert found is None if i >= cache.slots else found.equal(picture(i, SIDE))
                assert cache.seen(i, mark(i))
            used = sum(path.stat().st_size for path in folder.glob("*.pixels"))
            assert used <= limit


def test_the_cache_used_last_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELTRACE_CACHE", str(tmp_path))
    for number, key in enumerate(["old", "older", "newest"]):
        cache = open_cache(key, 4, SIDE, limit_gb=1)
        for i in range(4):
            cache.put(i, mark(i), picture(i, SIDE))
        os.utime(cache.marks, (100 - number if key != "newest" else 200,) * 2)
    open_cache("now", 4, SIDE, limit_gb=2 * 4 * 3 * SIDE**2 / 1e9)
    assert {path.stem for path in tmp_path.glob("*.pixels")} == {"newest", "now"}
