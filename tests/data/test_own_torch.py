from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Subset, TensorDataset

from labeltrace.data import DatasetError, ReadOptions, prepare
from labeltrace.data.decode import BadImage
from labeltrace.data.own.torch_dataset import TorchImages, from_torch

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 12, 10, 3), dtype=np.uint8)


class Pictures(TorchDataset[Any]):
    """Counts what is asked of it."""

    def __init__(self, images: Any, answers: Any, **more: Any) -> None:
        self.images, self.answers, self.asked = images, answers, 0
        for name, value in more.items():
            setattr(self, name, value)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        if i >= len(self):
            raise IndexError
        self.asked += 1
        return self.images[i], self.answers[i]


def pixels(data: Any) -> torch.Tensor:
    ready, _ = prepare(data, ReadOptions(workers=0, cache_gb=0))
    return ready.train.inputs


@pytest.mark.parametrize("form", ["pillow", "HWC", "CHW", "tensor"])
def test_images_of_any_form(form: str) -> None:
    images: Any = {
        "pillow": [Image.fromarray(image) for image in PIXELS],
        "HWC": PIXELS,
        "CHW": PIXELS.transpose(0, 3, 1, 2),
        "tensor": torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    }[form]
    data = from_torch(Pictures(images, [0, 1, 1, 0]), name="pics")
    assert data.name == "pics" and data.classes == ("0", "1") and data.train.labels.tolist() == [0, 1, 1, 0]
    assert pixels(data).equal(torch.from_numpy(PIXELS).permute(0, 3, 1, 2)[:, :, 1:11])


@pytest.mark.parametrize("shape", [(4, 9, 9), (4, 9, 9, 1), (4, 1, 9, 9)])
def test_grey_images_become_colour(shape: tuple[int, ...]) -> None:
    grey = PIXELS[:, :9, :9, 0].reshape(shape)
    got = pixels(from_torch(Pictures(grey, list("abab"))))
    assert got.equal(torch.from_numpy(grey.reshape(4, 1, 9, 9)).expand(4, 3, 9, 9))


@pytest.mark.parametrize("name", ["targets", "labels"])
def test_labels_that_are_listed_need_no_decoding(name: str) -> None:
    for values in ([1, 0, 1, 0], torch.tensor([1, 0, 1, 0]), np.array([1, 0, 1, 0])):
        pictures = Pictures(PIXELS, [1, 0, 1, 0], **{name: values})
        data = from_torch(pictures, image_size=16)
        assert data.train.labels.tolist() == [1, 0, 1, 0] and pictures.asked == 1


def test_labels_that_are_changed_on_the_way_are_asked_for() -> None:
    for more in ({"targets": [5, 6, 5, 6]}, {"targets": [1, 0, 0, 0], "target_transform": abs}, {"targets": [1]}):
        assert from_torch(Pictures(PIXELS, [1, 0, 1, 0], **more)).train.labels.tolist() == [1, 0, 1, 0]


def test_class_names() -> None:
    pictures = Pictures(PIXELS, [0, 1, 1, 0], classes=["dog", "cat"])
    assert from_torch(pictures).classes == ("dog", "cat")
    data = from_torch(pictures, classes=["x", "y", "z"], test=Pictures(PIXELS[:2], torch.tensor([1, 0])))
    assert data.classes == ("x", "y", "z") and data.test is not None and data.test.labels.tolist() == [1, 0]
    with pytest.raises(DatasetError, match="the dataset, sample 1: label 1, but 1 classes are named"):
        from_torch(pictures, classes=["x"])


def test_part_of_a_dataset() -> None:
    pictures = Pictures(PIXELS, [0, 1, 1, 0], targets=[0, 1, 1, 0])
    part = Subset(pictures, [3, 1])
    data = from_torch(part, image_size=16)
    assert data.train.labels.tolist() == [0, 1] and pictures.asked <= 2
    assert from_torch(part).train.read([0]).equal(from_torch(pictures).train.read([3]))


def test_part_of_a_dataset_keeps_its_class_names() -> None:
    pictures = Pictures(PIXELS, [0, 1, 1, 0], classes=["dog", "cat"])
    assert from_torch(Subset(pictures, [0, 1])).classes == ("dog", "cat")


def test_vectors_are_features() -> None:
    vectors = torch.arange(8.0).view(4, 2)
    data = from_torch(
        TensorDataset(vectors, torch.tensor([0, 1, 0, 1])), test=TensorDataset(vectors, torch.ones(4).int())
    )
    assert data.train.inputs.equal(vectors) and data.test is not None and data.test.labels.tolist() == [1] * 4
    assert from_torch([(row.double().numpy(), "ab"[i % 2]) for i, row in enumerate(vectors)]).train.inputs.equal(
        vectors
    )


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(PIXELS[0], 0)])


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "the dataset is Stream; expected a map-style Dataset"),
        ([], "the dataset is empty"),
        ([{"image": 1}], "the dataset yields dict; expected a pair"),
        ([torch.zeros(3)], "the dataset yields Tensor; expected a pair"),
        (
            [(torch.zeros(3, 8, 8), 0)],
            r"a sample is float32 \[3, 8, 8\]; pass the dataset without",
        ),
        ([("a.jpg", 0)], "a sample is str; expected an image or a vector"),
        ([(np.zeros((5, 8, 8), np.uint8), 0)], r"a sample is uint8 \[5, 8, 8\]; expected \[H, W\]"),
        ([(PIXELS[0], 0.5), (PIXELS[0], 1.0)], "labels are numbers with a fraction"),
        ([(PIXELS[0], torch.eye(2)[0]), (PIXELS[0], torch.eye(2)[1])], r"labels have shape \[2, 2\]"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 1)], r"sample 1 is torch.float32 \[3\], the first is a vector \[2\]"),
    ],
)
def test_datasets_that_are_refused(dataset: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        from_torch(dataset)


def test_a_dataset_that_fails_later_names_the_sample() -> None:
    class Broken(Pictures):
        def __getitem__(self, i: int) -> Any:
            if i == 2:
                raise OSError("disk on fire")
            return super().__getitem__(i)

    data = from_torch(Broken(PIXELS, [0, 1, 1, 0], targets=[0, 1, 1, 0]), image_size=16)
    with pytest.raises(BadImage, match=r"sample 2: cannot be read \(OSError: disk on fire\)"):
        data.train.read([0, 1, 2])


def test_what_is_cached_belongs_to_one_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELTRACE_CACHE", str(tmp_path))
    read = ReadOptions(workers=0, memory_gb=0)
    for level in (1, 2):
        images = np.full_like(PIXELS, level)
        data, _ = prepare(from_torch(Pictures(images, [0, 1, 1, 0])), read)
        assert data.train.read(range(4)).unique().tolist() == [level]
        assert isinstance(data.train.inputs, TorchImages)


def test_workers_read_it(tmp_path: Path) -> None:
    data = from_torch(Pictures(PIXELS, [0, 1, 1, 0]))
    ready, _ = prepare(data, ReadOptions(workers=1, cache_gb=0))
    assert ready.train.inputs.equal(pixels(data))
