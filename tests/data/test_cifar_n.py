from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labeltrace.data import datasets, load_dataset
from labeltrace.data.dataset import DatasetError
from labeltrace.data.noise.kinds import add_noise
from labeltrace.data.sets import cifar_n
from labeltrace.data.sets.cifar import cifar100_coarse, load_cifar10, load_cifar100
from labeltrace.data.sets.cifar_n import COARSE_NAMES, load_cifar10n, load_cifar100n, read_human_labels
from labeltrace.errors import InputError

KEYS10 = {
    "aggre": "aggre_label", "rand1": "random_label1", "rand2": "random_label2", "rand3": "random_label3",
    "worst": "worse_label",
}  # fmt: skip
KEYS100 = {"fine": "noisy_label", "coarse": "noisy_coarse_label"}
NAMES = [f"cifar10n-{kind}" for kind in KEYS10] + [f"cifar100n-{kind}" for kind in KEYS100]


def save_as_published(path: Path, content: Any) -> None:
    """Write what PyTorch and numpy 1 wrote: a zip of a pickle that knows numpy by its old module names."""
    data = pickle.dumps(content, protocol=2).replace(b"numpy._core.", b"numpy.core.")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")


@dataclass
class Human:
    """A small CIFAR folder, and the content of the label file for it."""

    root: Path
    folder: Path
    path: Path
    content: dict[str, Any]

    def change(self, **changes: Any) -> None:
        """Write the file with other values under some keys; None removes the key."""
        merged = self.content | changes
        save_as_published(self.path, {key: value for key, value in merged.items() if value is not None})


@pytest.fixture
def human(fake_cifar: Callable[..., Any]) -> Callable[[str], Human]:
    def build(name: str) -> Human:
        fake = fake_cifar("cifar100" if name.startswith("cifar100") else "cifar10")
        clean = np.array([y for file in fake.train_files for y in fake.content[file][fake.label_key]])
        content: dict[str, Any] = {"clean_label": clean}
        if name.startswith("cifar100"):
            coarse = cifar100_coarse(torch.from_numpy(clean)).numpy()
            content["noisy_label"] = (clean + 3) % 100
            content["clean_coarse_label"] = coarse.tolist()
            content["noisy_coarse_label"] = ((coarse + 1) % 20).tolist()
        else:
            content |= {key: (clean + step) % 10 for step, key in enumerate(KEYS10.values(), start=1)}
        file = "CIFAR-100_human.pt" if name.startswith("cifar100") else "CIFAR-10_human.pt"
        made = Human(fake.root, fake.folder, fake.root / file, content)
        made.change()
        return made

    return build


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the registered loaders read CIFAR folders that hold fewer images than the official ones."""
    monkeypatch.setattr(cifar_n, "load_cifar10", lambda root, strict: load_cifar10(root, strict=False))
    monkeypatch.setattr(cifar_n, "load_cifar100", lambda root, strict: load_cifar100(root, strict=False))


def load(name: str, root: Path) -> Any:
    version, kind = name.split("-")
    return (load_cifar10n if version == "cifar10n" else load_cifar100n)(kind, root, strict=False)


def load_images(name: str, root: Path) -> Any:
    return (load_cifar10 if name.startswith("cifar10n") else load_cifar100)(root, strict=False)


# What is read


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", NAMES)
def test_observed_labels_are_human_and_the_truth_is_clean(name: str, human: Callable[[str], Human]) -> None:
    made = human(name)
    data = load_dataset(name, made.root)
    base = load_images(name, made.root)
    kind = name.split("-")[1]
    clean_key = "clean_coarse_label" if kind == "coarse" else "clean_label"
    assert data.name == name and data.test is not None and base.test is not None
    assert data.train.labels.tolist() == list(made.content[(KEYS10 | KEYS100)[kind]])
    assert data.train.truth is not None and data.train.truth.tolist() == list(made.content[clean_key])
    assert not data.train.labels.equal(data.train.truth) and data.test.truth is None
    assert data.train.inputs.equal(base.train.inputs) and data.views == base.views
    if kind == "coarse":
        assert data.classes == COARSE_NAMES and data.num_classes == 20
        assert data.test.labels.equal(cifar100_coarse(base.test.labels))
    else:
        assert data.classes == base.classes and data.test.labels.equal(base.test.labels)
    with pytest.raises(InputError, match="training labels differ from the truth already"):
        add_noise(data, "symmetric", 0.2, 0)


@pytest.mark.parametrize("place", ["root", "beside the inner folder", "above the root"])
def test_where_the_label_file_is_found(place: str, human: Callable[[str], Human]) -> None:
    made = human("cifar10n-worst")
    root = made.folder if place == "beside the inner folder" else made.root
    if place == "above the root":
        made.path.rename(made.root.parent / made.path.name)
    assert load_cifar10n("worst", root, strict=False).train.labels.tolist() == made.content["worse_label"].tolist()


def test_a_file_in_the_inner_folder_comes_first(human: Callable[[str], Human]) -> None:
    made = human("cifar10n-aggre")
    save_as_published(made.folder / made.path.name, made.content | {"aggre_label": made.content["clean_label"]})
    data = load_cifar10n("aggre", made.folder, strict=False)
    assert data.train.truth is not None and data.train.labels.equal(data.train.truth)


def test_a_relative_root(human: Callable[[str], Human], monkeypatch: pytest.MonkeyPatch) -> None:
    made = human("cifar10n-rand1")
    monkeypatch.chdir(made.folder)
    assert len(load_cifar10n("rand1", ".", strict=False).train) == 30


def test_files_that_numpy_2_or_tensors_wrote(human: Callable[[str], Human]) -> None:
    made = human("cifar10n-worst")
    expected = made.content["worse_label"].tolist()
    torch.save(made.content, made.path)
    assert load("cifar10n-worst", made.root).train.labels.tolist() == expected
    torch.save({key: torch.from_numpy(value) for key, value in made.content.items()}, made.path)
    assert load("cifar10n-worst", made.root).train.labels.tolist() == expected


def test_names_of_the_superclasses(shared_data: Path) -> None:
    assert len(set(COARSE_NAMES)) == 20
    names = json.loads((shared_data / "cifar100" / "classes.json").read_text())
    assert tuple(names["coarse"]) == COARSE_NAMES


# What is refused, and what the message says


def test_every_version_is_registered() -> None:
    assert set(NAMES) <= set(datasets)
    with pytest.raises(InputError, match="did you mean 'cifar10n-worst'"):
        load_dataset("cifar10n-worse")
    with pytest.raises(DatasetError, match="CIFAR-10N has no labels 'worse'; known: aggre, rand1, rand2, rand3, worst"):
        load_cifar10n("worse")
    with pytest.raises(DatasetError, match="CIFAR-100N has no labels 'worst'; known: fine, coarse"):
        load_cifar100n("worst")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_names_the_path_and_the_remedy(name: str, tmp_path: Path) -> None:
    title, file = ("CIFAR-10N", "CIFAR-10_human.pt") if "10n-" in name else ("CIFAR-100N", "CIFAR-100_human.pt")
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{title}: expected {tmp_path / file} (md5 ")
    assert f"found no such file and none in {tmp_path.parent}" in message
    assert "repository UCSC-REAL/cifar-10-100n, folder data/" in message
    with pytest.raises(DatasetError, match=f"{title}: expected ROOT.{file} .*, found no root. Put the file {file}"):
        load_dataset(name)
    with pytest.raises(DatasetError, match="found no folder "):
        load_dataset(name, tmp_path / "absent")


def test_labels_without_the_images(tmp_path: Path) -> None:
    save_as_published(tmp_path / "CIFAR-10_human.pt", {})
    with pytest.raises(DatasetError, match=r"CIFAR-10 train and test: expected .*cifar-10-batches-py"):
        load_dataset("cifar10n-worst", tmp_path)


def test_no_file_to_read(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"CIFAR-N: expected .*x\.pt, found no such file"):
        read_human_labels(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"worse_label": None}, r"key 'worse_label' expected, found \['aggre_label', 'clean_label', 'random_label1'"),
        ({"clean_label": None}, "key 'clean_label' expected"),
        ({"worse_label": np.zeros(29, int)}, "worse_label 30 labels expected, 29 found"),
        ({"clean_label": np.zeros(31, int)}, "clean_label 30 labels expected, 31 found"),
        ({"worse_label": np.full(30, 10)}, "worse_label 0..9 expected, 10 found at index 0"),
        ({"worse_label": [0, -1] * 15}, "worse_label 0..9 expected, -1 found at index 1"),
        ({"worse_label": [0.5] * 30}, r"worse_label integers \[N\] expected, float64 \[30\] found"),
        ({"worse_label": [[1], [1, 2]]}, r"worse_label integers \[N\] expected, object"),
        ({"worse_label": np.zeros((30, 1), int)}, r"worse_label integers \[N\] expected, int64 \[30, 1\] found"),
        ({"worse_label": "worse"}, r"worse_label integers \[N\] expected, <U5 \[\] found"),
    ],
)
def test_a_bad_file_is_refused(changes: dict[str, Any], message: str, human: Callable[[str], Human]) -> None:
    made = human("cifar10n-worst")
    made.change(**changes)
    with pytest.raises(DatasetError, match=f"CIFAR-10N: .*CIFAR-10_human.pt: {message}"):
        load("cifar10n-worst", made.root)


@pytest.mark.parametrize("name", ["cifar10n-worst", "cifar100n-fine", "cifar100n-coarse"])
def test_another_order_is_refused(name: str, human: Callable[[str], Human]) -> None:
    made = human(name)
    key = "clean_coarse_label" if name.endswith("coarse") else "clean_label"
    other = list(made.content[key])
    last = next(i for i, label in enumerate(other) if label != other[0])
    other[0], other[last] = other[last], other[0]
    made.change(**{key: other})
    with pytest.raises(DatasetError) as caught:
        load(name, made.root)
    message = str(caught.value)
    assert f"{key} differs from the labels of CIFAR-10" in message
    assert f"for 2 of {len(other)} images, the first at index 0 ({other[0]}, not {other[last]})" in message
    assert "labels are in TensorFlow order or of another CIFAR build" in message


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04broken", b"\x80\x02}q\x00."])
def test_bytes_that_are_no_label_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(DatasetError, match=r"x\.pt: not a readable PyTorch file .* Get it again from the repository"):
        read_human_labels(tmp_path / "x.pt")


def test_a_list_is_no_label_file(tmp_path: Path) -> None:
    save_as_published(tmp_path / "x.pt", [1, 2])
    with pytest.raises(DatasetError, match="a dictionary expected, list found"):
        read_human_labels(tmp_path / "x.pt")


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.parametrize("form", ["zip", "torch", "old torch", "nested"])
def test_a_file_that_runs_code_is_refused(form: str, human: Callable[[str], Human], tmp_path: Path) -> None:
    made, marker = human("cifar10n-worst"), tmp_path / "ran"
    content = made.content | {"worse_label": Evil(marker)}
    if form == "zip":
        save_as_published(made.path, content)
    elif form == "nested":
        save_as_published(made.path, made.content | {"extra": [{"a": (Evil(marker),)}]})
    else:
        torch.save(content, made.path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(
        DatasetError, match=rf"refused to read {os.system.__module__}\.system: .* do not trust"
    ) as caught:
        load("cifar10n-worst", made.root)
    assert not marker.exists() and "weights_only" not in str(caught.value)


def test_the_loader_refuses_what_it_would_run_otherwise(tmp_path: Path) -> None:
    # The marker in the test above means something only if the file does run code in an unsafe reader.
    marker = tmp_path / "ran"
    save_as_published(tmp_path / "x.pt", {"a": Evil(marker)})
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        pickle.load(io.BytesIO(archive.read("archive/data.pkl")))
    assert marker.exists()


@pytest.mark.parametrize("reference", ["builtins eval", "builtins getattr", "numpy load", "numpy fromfile"])
def test_only_what_arrays_need_is_let_through(reference: str, tmp_path: Path) -> None:
    module, name = reference.split()
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("archive/data.pkl", f"\x80\x02c{module}\n{name}\n(X\x01\x00\x00\x001tR.".encode("latin1"))
        archive.writestr("archive/version", "3\n")
    with pytest.raises(DatasetError, match=rf"refused to read \S*{name}"):
        read_human_labels(tmp_path / "x.pt")


def test_the_list_of_what_is_allowed_is_left_as_it_was(human: Callable[[str], Human]) -> None:
    before = set(torch.serialization.get_safe_globals())
    made = human("cifar10n-worst")
    load("cifar10n-worst", made.root)
    assert set(torch.serialization.get_safe_globals()) == before


# The published files


@pytest.fixture(scope="module")
def published(shared_data: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    files = [shared_data / "cifarn" / f"CIFAR-{classes}_human.pt" for classes in (10, 100)]
    if not all(file.is_file() for file in files):
        pytest.skip("the label files of CIFAR-N are not here: no ../shared/data/cifarn beside the repository")
    ten, hundred = map(read_human_labels, files)
    return ten, hundred


def test_counts_of_cifar10n(published: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ten, _ = published
    clean = ten["clean_label"]
    wrong = {kind: int((ten[key] != clean).sum()) for kind, key in KEYS10.items()}
    assert wrong == {"aggre": 4505, "rand1": 8617, "rand2": 9061, "rand3": 8820, "worst": 20_104}
    assert all(wrong["aggre"] <= wrong[f"rand{i}"] <= wrong["worst"] for i in (1, 2, 3))
    for values in ten.values():
        assert values.shape == (50_000,) and values.min() == 0 and values.max() == 9
    assert np.bincount(clean).tolist() == [5000] * 10
    assert clean[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


def test_how_the_labels_of_cifar10n_belong_together(published: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ten, _ = published
    people = np.stack([ten[f"random_label{i}"] for i in (1, 2, 3)])
    assert (people == ten["worse_label"]).any(axis=0).all()
    assert ((ten["worse_label"] == ten["clean_label"]) == (people == ten["clean_label"]).all(axis=0)).all()
    votes = (people[:, None] == people[None]).sum(axis=1)  # how many of the three agree with each
    majority = votes.max(axis=0) >= 2
    assert majority.sum() == 46_959
    winner = people[votes.argmax(axis=0), np.arange(50_000)]
    assert (ten["aggre_label"] == winner)[majority].all() and (people == ten["aggre_label"]).any(axis=0).all()


def test_counts_of_cifar100n(
    published: tuple[dict[str, Any], dict[str, Any]], cifar100_labels: tuple[np.ndarray, np.ndarray]
) -> None:
    _, hundred = published
    clean, coarse = hundred["clean_label"], np.array(hundred["clean_coarse_label"])
    assert (clean == cifar100_labels[0]).all() and (coarse == cifar100_labels[1]).all()
    assert int((hundred["noisy_label"] != clean).sum()) == 20_100
    assert int((np.array(hundred["noisy_coarse_label"]) != coarse).sum()) == 13_202
    assert np.bincount(clean).tolist() == [500] * 100 and np.bincount(coarse).tolist() == [2500] * 20
    assert clean[:10].tolist() == [19, 29, 0, 11, 1, 86, 90, 28, 23, 31]
    assert coarse[:10].tolist() == [11, 15, 4, 14, 1, 5, 18, 3, 10, 11]
    assert (cifar100_coarse(torch.from_numpy(clean)).numpy() == coarse).all()


@pytest.mark.slow
def test_real_cifar100n(shared_data: Path, tmp_path: Path, published: tuple[dict[str, Any], dict[str, Any]]) -> None:
    script = [sys.executable, str(shared_data / "cifar.py"), "layout", "cifar100", str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    (tmp_path / "CIFAR-100_human.pt").symlink_to(shared_data / "cifarn" / "CIFAR-100_human.pt")
    for name, wrong in (("cifar100n-fine", 20_100), ("cifar100n-coarse", 13_202)):
        data = load_dataset(name, tmp_path)
        assert data.train.truth is not None and data.test is not None
        assert int((data.train.labels != data.train.truth).sum()) == wrong
        assert torch.bincount(data.test.labels).unique().tolist() == [10_000 // data.num_classes]
