"""TRACE as a scikit-learn classifier: fit on labels some of which are wrong, predict, and read what it says of each.

The estimator is a run like any other (`labeltrace.runs.run`), in a temporary folder unless one is given.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lightning_fabric import is_wrapped
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from labeltrace.data import Dataset, FeatureViews, Images, ImageViews, Split, from_arrays, load_dataset
from labeltrace.data.arrays import as_inputs
from labeltrace.data.feed import Feed
from labeltrace.data.options import ReadOptions
from labeltrace.engine import Interrupted, Reporter, RunConfig
from labeltrace.engine.device import make_fabric
from labeltrace.errors import InputError
from labeltrace.features import feature_recipe
from labeltrace.learners import learners
from labeltrace.runs import run
from labeltrace.validation import build

CHUNK = 2**22  # values that a network sees at a time when it predicts: 16 MiB


class TraceClassifier(ClassifierMixin, BaseEstimator):
    """A classifier for labels some of which are wrong; it also says which, and what they should be.

    `X` is features [N, D] (an array, a data frame), uint8 images [N, H, W], [N, H, W, C] or [N, C, H, W], or the path
    of files that `labeltrace train --data` reads, such as a folder with a folder per class; those carry their labels,
    and `y` is then None. Features are standardised here, with mean and deviation of the training set. Sample weights
    are not supported: how much a sample counts is what the method finds out.

    Args:
        learner: training method by name (`labeltrace list learners`).
        controller: "trace", "coupled" (the learner as published), or None for a learner that takes none.
        preset: recipe of the learner (default: by the kind of data, for features also by their number).
        epochs: length of training (default: the recipe's; a shorter one shrinks the recipe).
        batch_size: samples of a step (default: the recipe's).
        model: network by name, or a function without arguments that returns one (default: by the kind of data).
        settings: other settings of the learner, as under `settings:` in a run's config.
        trace: settings of TRACE, as under `trace:` in a run's config.
        flip: whether images keep their class when mirrored.
        read: with a path, how its files are read, e.g. {"image_size": 64, "bad_images": "skip"}.
        random_state: seed of everything that is drawn; the same seed gives the same model.
        device: "auto", "cpu", "cuda" or "cuda:N".
        run_dir: keep the run in this folder, which must not hold one; None for a temporary one.
        verbose: show the progress.

    Attributes:
        classes_: [C] the classes, in order.
        label_report_: a row per training sample: observed and suggested class, both reliabilities, the decision (keep,
            relabel, review); the columns of the samples table. A data frame with the index of `X` where pandas is
            installed, else a pyarrow table.
        n_features_in_: D, for features; `feature_names_in_` where they have names.
        networks_: the trained networks, on the CPU.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TraceClassifier(epochs=5, device="cpu").fit(X, y)
    >>> model.predict_proba(X[:2]).shape, len(model.label_report_)
    ((2, 3), 150)
    """

    def __init__(
        self,
        learner: str = "rolr",
        controller: str | None = "trace",
        *,
        preset: str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        model: str | Callable[[], nn.Module] | None = None,
        settings: Mapping[str, Any] | None = None,
        trace: Mapping[str, Any] | None = None,
        flip: bool = True,
        read: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "auto",
        run_dir: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.learner = learner
        self.controller = controller
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.model = model
        self.settings = settings
        self.trace = trace
        self.flip = flip
        self.read = read
        self.random_state = random_state
        self.device = device
        self.run_dir = run_dir
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> TraceClassifier:
        """Train, and judge every training sample.

        Args:
            X: samples, or a path; see the class.
            y: [N] labels, numbers or strings; None with a path.

        Raises:
            ValueError: what cannot be trained on; the message says why.
            KeyboardInterrupt: on Ctrl-C; a run in `run_dir` can be resumed.
        """
        dataset = self._dataset(X, y)
        config = self._config(X, dataset)
        make = None if isinstance(self.model, str) else self.model
        with self._folder() as folder, self._reporter() as reporter, _quiet(not self.verbose):
            try:
                trained, table = run(config, folder, dataset=dataset, make_network=make, reporter=reporter)
            except Interrupted:
                raise KeyboardInterrupt from None
        used = trained.plan.dataset
        if dataset is None:
            self.classes_ = np.array(used.classes)
        self.networks_ = [_plain(network) for network in trained.networks]
        views: Any = used.views
        self._views = replace(views)  # without the copies it keeps on devices it has met, which no pickle should hold
        self._shape = tuple(used.train.inputs.shape[1:])
        self.label_report_ = _report(table, self.classes_, (X, y))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return [N] the most probable class of each sample."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(1)])

    @torch.no_grad()
    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Return [N, C] the mean of the networks' probabilities."""
        check_is_fitted(self, "networks_")
        inputs = self._inputs(X)
        device = make_fabric(RunConfig.model_validate({"device": self.device})).device
        networks = [copy.deepcopy(network).to(device).eval() for network in self.networks_]
        views = replace(self._views)
        size = max(1, min(8192, CHUNK // int(np.prod(self._shape))))
        feed = Feed(inputs, device, ReadOptions().processes)
        found = []
        try:
            for batch in feed.batches(torch.arange(len(inputs), device=device).split(size)):
                seen = views.plain(batch)
                found.append(torch.stack([network(seen).logits.float().softmax(1) for network in networks]).mean(0))
        finally:
            feed.close()
        return np.asarray(torch.cat(found).cpu().numpy())

    def _dataset(self, X: Any, y: Any) -> Dataset | None:
        """The data in memory; None where `X` is a path, which the run reads itself."""
        if isinstance(X, (str, Path)):
            if y is not None:
                raise InputError(f"{X}: a path carries its own labels; pass y=None")
            return None
        if self.read:
            raise InputError(f"{', '.join(self.read)}: say how files are read; X is {type(X).__name__}, not a path")
        if _is_images(X):
            labels = _labels(y)
            check_consistent_length(X, labels)
        else:
            X, labels = validate_data(self, X, y, dtype=np.float32)
        self.classes_, codes = _classes(labels)
        if len(self.classes_) < 2:
            raise InputError(f"y holds one class, {self.classes_.tolist()[0]!r}; a classifier needs two or more")
        names = tuple(map(str, self.classes_))
        if not _is_images(X):
            features = _tensor(X)
            split = Split(features, torch.from_numpy(codes.astype(np.int64)))
            views = FeatureViews.from_features(features)
            return Dataset("features", split, None, names, views)
        dataset = from_arrays(X, codes, classes=names, name="images")
        images = dataset.train.inputs
        assert isinstance(images, Tensor) and isinstance(dataset.views, ImageViews)
        padding = max(1, min(images.shape[-2:]) // 8)  # as for images in files
        return replace(dataset, views=replace(dataset.views, padding=padding, flip=self.flip))

    def _inputs(self, X: Any) -> Tensor | Images:
        """What `predict` was given, in the form that the networks were trained on."""
        if isinstance(X, (str, Path)):
            inputs = load_dataset(Path(X)).train.inputs
            inputs = inputs.at_side(self._shape[-1]) if isinstance(inputs, Images) else inputs
        elif _is_images(X):
            inputs = as_inputs(X)
        elif len(self._shape) == 1:
            inputs = _tensor(validate_data(self, X, dtype=np.float32, reset=False))
        else:
            raise InputError(f"X is {np.shape(X)}; the model was trained on uint8 images {self._shape}")
        if tuple(inputs.shape[1:]) != self._shape:
            raise InputError(f"X: samples of shape {tuple(inputs.shape[1:])}, the model was trained on {self._shape}")
        return inputs

    def _config(self, X: Any, dataset: Dataset | None) -> RunConfig:
        """The run that the parameters ask for."""
        if self.controller is not None and self.learner in learners and not learners[self.learner].refurbishes:
            raise InputError(f"{self.learner} has no refurbishment step for a controller; pass controller=None")
        asked: dict[str, Any] = {
            "learner": self.learner, "controller": self.controller, "preset": self.preset, "device": self.device,
            "trace": dict(self.trace or {}), "checkpoint_seconds": 20.0 if self.run_dir else 1e9,
            "seed": _seed(self.random_state),
        }  # fmt: skip
        if isinstance(self.model, str):
            asked["model"] = self.model
        if dataset is None:
            asked |= {
                "data": str(Path(X).absolute()),
                "read": {**({} if self.flip else {"flip": False}), **(self.read or {})},
            }
        elif self.preset is None and len(dataset.input_shape) == 1:
            asked |= feature_recipe(len(dataset.train), self.learner)
        settings = dict(asked.get("settings", {})) | dict(self.settings or {})
        if self.batch_size is not None:
            settings["batch_size"] = self.batch_size
        asked["settings"] = settings
        if self.epochs is not None:
            asked["epochs"] = self.epochs
        return build(RunConfig, asked, type(self).__name__)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        if self.run_dir is None:
            with tempfile.TemporaryDirectory(prefix="labeltrace-") as temporary:
                yield Path(temporary)
            return
        folder = Path(self.run_dir)
        if (folder / "config.yaml").exists():
            raise InputError(f"run_dir {folder}: holds a run; choose another, or None for a temporary one")
        yield folder

    @contextlib.contextmanager
    def _reporter(self) -> Iterator[Reporter | None]:
        if not self.verbose:
            yield None
            return
        from rich.console import Console

        from labeltrace.progress import Bars

        with Bars(Console(stderr=True)) as bars:
            yield bars


def _is_images(X: Any) -> bool:
    """Whether X is an array of more than two dimensions; what those may be is for `as_inputs` to say."""
    return getattr(X, "ndim", 0) in (3, 4)


def _labels(y: Any) -> NDArray[Any]:
    if y is None:
        raise InputError("requires y to be passed, but the target y is None")
    return np.asarray(column_or_1d(y, warn=True))


def _classes(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes [C] in order, and the number of each label's [N]."""
    try:
        check_classification_targets(labels)
        return np.unique(labels, return_inverse=True)
    except TypeError:  # None or NaN among words, words among numbers
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise InputError(f"y mixes {kinds}; expected a number, or a word, for every sample") from None


def _tensor(X: NDArray[np.float32]) -> Tensor:
    """Features without a copy; nothing writes to them, so they may be read-only (a file mapped into memory)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(X))


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _plain(network: nn.Module) -> nn.Module:
    """A trained network without what the engine put around it, on the CPU."""
    inner = network.module if is_wrapped(network) else network
    assert isinstance(inner, nn.Module)
    return inner.cpu().eval()


@contextlib.contextmanager
def _quiet(quiet: bool) -> Iterator[None]:
    """Say nothing of what a small set cannot give (fewer neighbours than asked for, equal losses)."""
    with warnings.catch_warnings():
        if quiet:
            warnings.filterwarnings("ignore", category=UserWarning, module=r"labeltrace\.")
        yield


def _report(table: pa.Table, classes: NDArray[Any], given: tuple[Any, Any]) -> Any:
    """The samples table with the user's own classes; a data frame with the index of X or y, where there is pandas."""
    for name in ("observed", "suggested", "truth"):
        if name in table.column_names:
            codes = table[name].to_numpy()
            column = pa.array(classes[codes], mask=codes < 0)
            table = table.set_column(table.column_names.index(name), name, column)
    table = table.replace_schema_metadata(None)
    try:
        import pandas  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return table
    frame = table.to_pandas()
    index = next((like.index for like in given if isinstance(like, (pandas.DataFrame, pandas.Series))), None)
    return frame if index is None else frame.set_index(index)
