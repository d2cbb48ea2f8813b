"""What the tests of `labeltrace.data` share: the real data where it is, and CIFAR folders small enough to write."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = REPO.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real CIFAR data is not here: no ../shared/data beside the repository")
    return folder


@pytest.fixture(scope="session")
def cifar10_labels(shared_data: Path) -> np.ndarray:
    """The 50,000 training labels of CIFAR-10, out of the CIFAR-10N file."""
    import torch

    rebuild, scalar = np.empty(0).__reduce__()[0], np.int64(0).__reduce__()[0]
    allowed = [
        (rebuild, "numpy.core.multiarray._reconstruct"),
        (scalar, "numpy.core.multiarray.scalar"),
        np.ndarray,
        np.dtype,
        type(np.dtype(np.int64)),
        (__import__("_codecs").encode, "_codecs.encode"),
    ]
    with torch.serialization.safe_globals(allowed):
        return np.asarray(torch.load(shared_data / "cifarn" / "CIFAR-10_human.pt", weights_only=True)["clean_label"])


@pytest.fixture(scope="session")
def cifar100_labels(shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 50,000 fine and coarse training labels of CIFAR-100."""
    shards = [np.load(shared_data / "cifar100" / f"train-{i}.npz") for i in range(5)]
    fine, coarse = (np.concatenate([shard[key] for shard in shards]).astype(np.int64) for key in ("labels", "coarse"))
    return fine, coarse


def python2_pickle(value: Any) -> bytes:
    """Return the pickle (protocol 2) that Python 2 with numpy 1 wrote: byte strings, and the old module names."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key) + _python2(item) for key, item in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, str):
        return b"U" + struct.pack("<B", len(value)) + value.encode()
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if value is None:
        return b"N"
    assert isinstance(value, np.ndarray) and value.dtype == np.uint8
    dtype = b"cnumpy\ndtype\n" + _python2(("u1", 0, 1)) + b"R" + _python2((3, "|", None, None, None, -1, -1, 0)) + b"b"
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2((0,)) + _python2("b") + b"tR"
    content = _python2(1) + _python2(value.shape) + dtype + _python2(False) + _python2(value.tobytes())
    return empty + b"(" + content + b"tb"


WRITERS: dict[str, Callable[[Any], bytes]] = {
    "python 2": python2_pickle,
    "protocol 2": lambda value: pickle.dumps(value, protocol=2),
    "protocol 4": lambda value: pickle.dumps(value, protocol=4),
    "protocol 5": lambda value: pickle.dumps(value, protocol=5),
}


class FakeCifar:
    """A CIFAR-10 or CIFAR-100 folder in the official layout, with `n` random images per file."""

    def __init__(self, root: Path, name: str, writer: str, n: int) -> None:
        rng = np.random.default_rng(0)
        fine = name == "cifar100"
        self.root = root
        self.dump = WRITERS[writer]
        self.folder = root / ("cifar-100-python" if fine else "cifar-10-batches-py")
        self.folder.mkdir(parents=True)
        self.train_files = ["train"] if fine else [f"data_batch_{i}" for i in range(1, 6)]
        self.test_files = ["test"] if fine else ["test_batch"]
        self.label_key = "fine_labels" if fine else "labels"
        self.content: dict[str, dict[str, Any]] = {}
        for file in self.train_files + self.test_files:
            labels = rng.integers(0, 100 if fine else 10, n).tolist()
            batch: dict[str, Any] = {"batch_label": file, self.label_key: labels}
            if fine:
                batch["coarse_labels"] = [0] * n
            batch["data"] = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
            batch["filenames"] = [f"{file}_{i}.png" for i in range(n)]
            self.write(file, batch)

    def write(self, file: str, content: dict[str, Any]) -> None:
        self.content[file] = content
        (self.folder / file).write_bytes(self.dump(content))

    def change(self, file: str, **changes: Any) -> None:
        """Rewrite one file with other values under some keys; None removes the key."""
        merged = self.content[file] | changes
        self.write(file, {key: value for key, value in merged.items() if value is not None})


@pytest.fixture
def fake_cifar(tmp_path: Path) -> Callable[..., FakeCifar]:
    def build(name: str = "cifar10", writer: str = "protocol 4", n: int = 6) -> FakeCifar:
        return FakeCifar(tmp_path / "root", name, writer, n)

    return build
