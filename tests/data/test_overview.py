"""A dataset in numbers."""

import torch

import pictures
from labeltrace.data import from_arrays
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
    assert found.train.samples == 4
