"""A dataset in numbers."""

import torch

import pictures
from labeltrace.data import from_arrays
from labeltrace.data import overview as module
from labeltrace.data.overview import overview


def test_counts_wrong_labels_where_the_truth_is_known():
    data = from_arrays(torch.zeros(5, 2), ["a", "b", "a", "b", "c"], truth=["a", "a", "a", "b", "c"])
    found = overview(data)
    assert (found.train.known, found.train.wrong) == (5, 1)
    assert found.train.counts == (2, 2, 1)
    assert found.train.inputs == "features [2]" and found.train.sizes is None
    assert found.test is None


def test_reads_the_heads_of_files_only(tmp_path):
    paths = pictures.write(tmp_path, count=4, side=20)
    pictures.spoil(paths[0], "text")
    found = overview(pictures.dataset(paths, side=16))
    assert found.train.sizes == ("20×20",) * 3 and found.train.unreadable == 1
    assert found.network_sees == (3, 16, 16)
    assert found.train.samples == found.train.looked == 4


def test_says_how_many_files_were_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HEADS", 3)
    paths = pictures.write(tmp_path, count=5, side=20)
    pictures.spoil(paths[1], "empty")  # of 0, 2 and 4, the files looked at, none is spoilt
    found = overview(pictures.dataset(paths)).train
    assert (found.samples, found.looked, found.unreadable) == (5, 3, 0)
    features = overview(from_arrays(torch.zeros(4, 2), ["a", "b"] * 2)).train
    assert (features.looked, features.sizes) == (0, None)


def test_a_folder_of_nothing_but_broken_files_has_no_sizes(tmp_path):
    paths = [pictures.spoil(path, "empty") for path in pictures.write(tmp_path, count=4)]
    found = overview(pictures.dataset(paths)).train
    assert (found.looked, found.sizes, found.unreadable) == (4, None, 4)
