"""Training on image files: the same run, wherever the pixels are; a bad image costs nothing that was trained."""

import pytest

import pictures
import saved
import toy
from labeltrace.audit import read_samples
from labeltrace.engine import Reporter, train
from labeltrace.errors import InputError
from labeltrace.runs import run

READS = {
    "memory": {"workers": 0},
    "read here": {"workers": 0, "memory_gb": 0},
    "workers": {"workers": 2, "memory_gb": 0},
    "no cache": {"workers": 2, "memory_gb": 0, "cache_gb": 0},
}


@pytest.fixture
def paths(tmp_path):
    return pictures.write(tmp_path / "files", count=32)


def config(read, **changes):
    return toy.config("rolr", **{"model": "small_cnn", "read": read, "epochs": 2, **changes})


def test_where_the_pixels_are_changes_nothing(paths, tmp_path):
    data = {"train": paths, "test": paths[::3]}
    found = {}
    for name, read in READS.items():
        trained, _ = run(config(read), tmp_path / name, dataset=pictures.dataset(data["train"], test=data["test"]))
        found[name] = toy.weights(trained), saved.metrics(tmp_path / name), read_samples(tmp_path / name)
    for weights, metrics, table in found.values():
        assert weights.equal(found["memory"][0])
        assert metrics == found["memory"][1]
        assert table.equals(found["memory"][2])


def test_a_bad_image_stops_before_anything_is_written(paths, tmp_path):
    pictures.spoil(paths[20])
    with pytest.raises(InputError, match=paths[20].name):
        train(config({"workers": 2}), tmp_path / "run", dataset=pictures.dataset(paths))
    assert not (tmp_path / "run").exists()


def test_bad_images_are_counted_and_listed_in_the_run(paths, tmp_path):
    pictures.spoil(paths[20])
    pictures.spoil(paths[4], "animated")
    heard = []
    reporter = Reporter()
    reporter.note = heard.append
    read = {"workers": 0, "bad_images": "skip"}
    _, table = run(config(read), tmp_path / "run", dataset=pictures.dataset(paths), reporter=reporter)
    assert table.num_rows == 30
    assert paths[20].name not in table["id"].to_pylist()
    listed = (tmp_path / "run" / "bad_images.csv").read_text()
    assert paths[20].name in listed and "animated" in listed
    assert any("2 bad images left out" in line for line in heard)
    with pytest.raises(InputError, match="holds a run"):  # the list is a file of the run, not of a stranger
        train(config(read), tmp_path / "run", dataset=pictures.dataset(paths))


class Spoiler(Reporter):
    """Makes an image unusable after the first epoch."""

    def __init__(self, path):
        self.path, self.content = path, path.read_bytes()

    def epoch(self, record):
        if record["epoch"] == 0:
            pictures.spoil(self.path)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_turns_bad_on_the_way_costs_no_epoch(paths, tmp_path, workers):
    read = {"workers": workers, "memory_gb": 0, "cache_gb": 0}
    data = pictures.dataset(paths)
    whole = train(config(read, epochs=3), tmp_path / "whole", dataset=data)
    spoiler = Spoiler(paths[9])
    with pytest.raises(InputError, match=rf"{paths[9].name}.*1 epoch is saved") as caught:
        train(config(read, epochs=3), tmp_path / "run", dataset=data, reporter=spoiler)
    assert "\n" not in str(caught.value)
    paths[9].write_bytes(spoiler.content)
    again = train(config(read), tmp_path / "run", dataset=data, resume=True)
    assert toy.weights(again).equal(toy.weights(whole))


def test_an_epoch_of_some_samples_still_judges_all(paths, tmp_path):
    data = pictures.dataset(paths)
    data = data.with_labels(data.train.labels, truth=data.train.labels)  # so that every epoch is judged
    trained, table = run(config({"workers": 0}, epoch_samples=8), tmp_path / "run", dataset=pictures.dataset(paths))
    assert table.num_rows == 32
    assert table["clean"].null_count == 0
    steps = trained.metrics[0]["phases"]
    assert all(log["steps"] == 1 for log in steps.values())  # 8 of 32 samples are half a batch of 16


def test_the_reporter_hears_of_the_reading(paths, tmp_path):
    heard = []
    reporter = Reporter()
    reporter.reading = lambda done, total: heard.append((done, total))
    train(config({"workers": 0}, subset=12), tmp_path / "run", dataset=pictures.dataset(paths), reporter=reporter)
    assert heard[-1] == (12, 12)
