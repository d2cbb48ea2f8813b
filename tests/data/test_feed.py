"""Batches: the same, whether samples are in memory, read here or read by workers; a mistake comes with its words."""

import os
import signal

import pytest
import torch

import pictures
from labeltrace.data import BadImage
from labeltrace.data.feed import Feed
from labeltrace.data.images import Images
from labeltrace.data.workers import WorkerDied, Workers

CPU = torch.device("cpu")


@pytest.fixture
def images(tmp_path):
    return pictures.dataset(pictures.write(tmp_path, count=11)).train.inputs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("piece", [1, 3, 100])
def test_files_give_what_memory_gives(images, workers, piece):
    order = torch.tensor([[3, 0, 7, 7], [10, 1, 2, 3], [5, 5, 0, 9]])
    memory = Feed(images.read_all(range(11)), CPU)
    files = Feed(images, CPU, workers)
    files.piece = piece
    for _ in range(2):  # workers stay for the next pass
        for one, other in zip(memory.batches(order), files.batches(order), strict=True):
            assert one.equal(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_may_differ_in_length(images, workers):
    rows = list(torch.randperm(11).split(4))
    feed = Feed(images, CPU, workers)
    assert [len(batch) for batch in feed.batches(rows)] == [4, 4, 3]
    assert torch.cat(list(feed.batches(rows))).equal(images.read_all(torch.cat(rows).tolist()))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_is_given_up_does_not_spoil_the_next(images, workers):
    feed = Feed(images, CPU, workers)
    feed.piece = 1
    next(feed.batches(torch.arange(8).view(4, 2)))
    assert torch.cat(list(feed.batches(torch.tensor([[9], [1]])))).equal(images.read_all([9, 1]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", pictures.WAYS)
def test_a_bad_image_is_named(tmp_path, workers, how):
    paths = pictures.write(tmp_path, count=6)
    feed = Feed(pictures.dataset(paths).train.inputs, CPU, workers)
    pictures.spoil(paths[4], how)
    with pytest.raises(BadImage, match=paths[4].name) as caught:
        list(feed.batches(torch.arange(6)[None]))
    assert caught.value.name == str(paths[4])
    assert "\n" not in str(caught.value)


class Deadly(Images):
    """A worker that reads it is killed, as by a system without memory."""

    def __init__(self):
        super().__init__(map(str, range(4)), side=8)
        self.home = os.getpid()

    def decode(self, i):
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(3, 8, 8, dtype=torch.uint8)


def test_a_worker_that_is_killed_is_no_silent_end():
    with pytest.raises(WorkerDied, match="was killed"):
        list(Feed(Deadly(), CPU, workers=1).batches(torch.arange(4)[None]))


class Faulty(Images):
    def decode(self, i):
        raise ZeroDivisionError("a mistake of ours")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_mistake_of_ours_is_not_hidden(workers):
    with pytest.raises(ZeroDivisionError):
        list(Feed(Faulty("ab", side=8), CPU, workers).batches(torch.arange(2)[None]))


def square(numbers):
    return [number**2 for number in numbers]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_answers_come_in_the_order_of_the_questions(count):
    workers = Workers(square, count)
    assert list(workers.run([[1, 2], [3], []])) == [[1, 4], [9], []]
    assert list(workers.run([])) == []
    assert list(workers.run([[5]])) == [[25]]
