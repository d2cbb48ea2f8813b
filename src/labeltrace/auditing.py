"""`labeltrace.audit(X, y)`: from samples and labels to a table of what to keep, relabel and review, in one call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from labeltrace.errors import InputError


def audit(
    X: Any,
    y: Any = None,
    *,
    learner: str = "rolr",
    controller: str | None = "trace",
    preset: str | None = None,
    epochs: int | None = None,
    model: Any = None,
    labels: str | Path | None = None,
    label_column: str | None = None,
    path_column: str | None = None,
    image_size: int | None = None,
    bad_images: str | None = None,
    seed: int = 0,
    device: str = "auto",
    run_dir: str | Path | None = None,
    verbose: bool = False,
) -> Any:
    """Train on `X` and `y` and return what the run says of every label.

    Args:
        X: features [N, D] (an array, a data frame), uint8 images [N, H, W(, C)], or the path of what
            `labeltrace train --data` reads, such as a folder with one folder of images per class.
        y: [N] labels, numbers or strings, some of them wrong; None with a path.
        learner: training method by name.
        controller: "trace", "coupled", or None for a learner that takes none.
        preset: recipe of the learner (default: by the kind of data).
        epochs: length of training (default: by the kind and number of samples).
        model: network by name, or a function that returns one (default: by the kind of data).
        labels: with a path: file of the labels, where the data carries none.
        label_column: with a path: column of the labels in a table.
        path_column: with a path: column of the image files in a table.
        image_size: with a path: side in pixels of what the network sees (default: by the size of the images).
        bad_images: with a path: "stop" (default) at an image that cannot be read, or "skip" it: it has no row then.
        seed: of everything that is drawn.
        device: "auto", "cpu", "cuda" or "cuda:N".
        run_dir: keep the run in this folder; None for a temporary one.
        verbose: show the progress.

    Returns:
        A row per sample in the order of `X`: its `id`, `observed` and `suggested` class, `observed_reliability`,
        `confidence`, `decision` (keep, relabel, review) and the other columns of the samples table. A data frame where
        pandas is installed, else a pyarrow table.

    Raises:
        ValueError: what cannot be trained on; the message says why.

    >>> import labeltrace
    >>> from sklearn.datasets import load_iris
    >>> report = labeltrace.audit(*load_iris(return_X_y=True), epochs=5, device="cpu")
    >>> len(report)
    150
    """
    from labeltrace.sklearn import TraceClassifier

    given = {"labels": labels, "label_column": label_column, "path_column": path_column, "image_size": image_size,
             "bad_images": bad_images}  # fmt: skip
    read = {name: str(value) if name == "labels" else value for name, value in given.items() if value is not None}
    with _without_flags():
        estimator = TraceClassifier(
            learner, controller, preset=preset, epochs=epochs, model=model, read=read, random_state=seed,
            device=device, run_dir=run_dir, verbose=verbose,
        )  # fmt: skip
        return estimator.fit(X, y).label_report_


@contextmanager
def _without_flags() -> Iterator[None]:
    """Name the parameter in an error that advises a flag of the command."""
    known = {"out": "run_dir"} | {name.replace("_", "-"): name for name in inspect.signature(audit).parameters}

    def parameter(found: re.Match[str]) -> str:
        flag, value = found.groups()
        if flag not in known:
            return found[0]
        return known[flag] if value is None else f"{known[flag]}={value!r}"

    try:
        yield
    except InputError as error:
        error.args = (re.sub(r"--([a-z-]+[a-z])(?: (skip|cpu)\b)?", parameter, str(error)),)
        raise


class CallableFolder(ModuleType):
    """The folder `labeltrace.audit`, which can also be called: see `audit`."""

    __call__ = staticmethod(audit)
    __signature__ = inspect.signature(audit)  # or the first argument would be taken for the folder itself

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the call takes, then what the folder holds: `help` takes it for a folder."""
        first, _, rest = inspect.cleandoc(audit.__doc__ or "").partition(">>>")[0].partition("\n\n")
        folder = self.__dict__["__doc__"]
        return f"{first}\n\nlabeltrace.audit{inspect.signature(audit)}\n\n{rest.rstrip()}\n\nThe folder: {folder}"
