"""Before a run: every image is decoded once; what is bad stops it, or is left out and listed."""

import os

import pytest
import torch

import pictures
from labeltrace.data import BadImage, DatasetError, ReadOptions, from_arrays, prepare
from labeltrace.data.images import ImageFiles, Images
from labeltrace.data.prepare import write_skipped

STREAM = {"memory_gb": 0.0}


def read(**options):
    return ReadOptions(**{"workers": 0, **options})


@pytest.fixture
def paths(tmp_path):
    return pictures.write(tmp_path / "files", count=10)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_fit_come_into_memory(paths, workers):
    data = pictures.dataset(paths, test=paths[:3])
    ready, skipped = prepare(data, read(workers=workers))
    assert skipped == []
    assert ready.train.inputs.equal(data.train.inputs.read_all(range(10)))
    assert ready.test.inputs.equal(ready.train.inputs[:3])
    assert list(ready.train.ids) == list(data.train.ids)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_do_not_fit_stay_files(paths, workers):
    ready, _ = prepare(pictures.dataset(paths), read(workers=workers, **STREAM))
    assert isinstance(ready.train.inputs, Images)
    assert ready.train.read([2, 9]).equal(pictures.dataset(paths).train.read([2, 9]))


def test_arrays_are_left_alone():
    data = from_arrays(torch.zeros(4, 6, 6, dtype=torch.uint8), [0, 1, 0, 1])
    ready, skipped = prepare(data, read())
    assert ready.train.inputs is data.train.inputs and skipped == []


@pytest.mark.parametrize("how", pictures.WAYS)
@pytest.mark.parametrize("options", [{}, STREAM, {"workers": 2}, {"cache_gb": 0.0}], ids=str)
def test_a_bad_image_stops(paths, how, options):
    pictures.spoil(paths[7], how)
    with pytest.raises(BadImage, match=paths[7].name):
        prepare(pictures.dataset(paths), read(**options))


@pytest.mark.parametrize("options", [{}, STREAM, {"workers": 2}, {"cache_gb": 0.0, **STREAM}], ids=str)
def test_bad_images_are_left_out_and_listed(paths, options, tmp_path):
    for path, how in zip(paths, pictures.WAYS[:3], strict=False):
        pictures.spoil(path, how)
    data = pictures.dataset(paths, test=paths[2:])
    ready, skipped = prepare(data, read(bad_images="skip", **options))
    assert [(image.part, image.name) for image in skipped] == [
        *(("train", str(path)) for path in paths[:3]),
        ("test", str(paths[2])),
    ]
    assert list(ready.train.ids) == [path.name for path in paths[3:]]
    assert ready.train.labels.equal(data.train.labels[3:])
    assert ready.train.read(range(7)).equal(ready.test.read(range(7)))
    assert ready.train.read([0, 6]).equal(pictures.dataset([paths[3], paths[9]]).train.read([0, 1]))
    write_skipped(skipped, tmp_path / "bad.csv")
    lines = (tmp_path / "bad.csv").read_text().splitlines()
    assert lines[0] == "part,name,reason" and len(lines) == 5


def test_nothing_left_is_an_error(paths):
    for path in paths:
        pictures.spoil(path, "empty")
    with pytest.raises(DatasetError, match="no train image can be used"):
        prepare(pictures.dataset(paths), read(bad_images="skip"))


def test_progress_counts_all_images(paths):
    heard = []
    prepare(pictures.dataset(paths, test=paths[:4]), read(), lambda done, total: heard.append((done, total)))
    assert heard[-1] == (14, 14)
    assert heard == sorted(heard)


class Counting(ImageFiles):
    decoded = 0

    def decode(self, i):
        type(self).decoded += 1
        return super().decode(i)


@pytest.fixture
def counted(paths, monkeypatch):
    """The dataset, and how many images were decoded since the last call."""
    monkeypatch.setattr(pictures, "ImageFiles", Counting)

    def run(**options):
        Counting.decoded = 0
        ready, _ = prepare(pictures.dataset(paths), read(**options))
        ready.train.read(range(10))
        return Counting.decoded

    return run


def test_an_image_is_decoded_once_and_again_when_it_changes(counted, paths):
    assert counted(**STREAM) == 10
    assert counted(**STREAM) == 0  # the next run finds them on disk
    assert counted() == 0
    os.utime(paths[3], (5, 5))
    assert counted(**STREAM) == 1
    assert counted(cache_gb=0.0, **STREAM) == 20


def test_images_beyond_the_bound_are_decoded_each_time_but_checked_once(counted):
    room = {"cache_gb": 4 * 3 * 12**2 / 1e9, **STREAM}
    assert counted(**room) == 10 + 6
    assert counted(**room) == 6


def test_memory_of_a_sample_is_its_name_and_a_few_bytes(paths):
    """The figure that the documentation states: it does not depend on the size of the image."""
    one, other = (ImageFiles([str(path) for path in paths], side).names.nbytes for side in (32, 512))
    assert one == other == sum(len(str(path)) for path in paths) + 8 * 11
