"""`labeltrace.audit(X, y)`: from samples and labels to a table of what to keep, relabel and review, in one call."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any


def audit(
    X: Any,
    y: Any = None,
    *,
    learner: str = "rolr",
    controller: str | None = "trace",
    epochs: int | None = None,
    model: Any = None,
    seed: int = 0,
    device: str = "auto",
    run_dir: str | Path | None = None,
    verbose: bool = False,
) -> Any:
    """Train on `X` and `y` and return what the run says of every label.

    Args:
        X: features [N, D] (an array, a data frame), uint8 images [N, H, W(, C)], or the path of a folder of images.
        y: [N] labels, numbers or strings, some of them wrong; None with a path.
        learner: training method by name.
        controller: "trace", "coupled", or None for a learner that takes none.
        epochs: length of training (default: by the kind and number of samples).
        model: network by name, or a function that returns one (default: by the kind of data).
        seed: of everything that is drawn.
        device: "auto", "cpu", "cuda" or "cuda:N".
        run_dir: keep the run in this folder; None for a temporary one.
        verbose: show the progress.

    Returns:
        A row per sample in the order of `X`: `observed` and `suggested` class, `observed_reliability`, `confidence`,
        `decision` (keep, relabel, review) and the other columns of the samples table. A data frame where pandas is
        installed, else a pyarrow table.

    Raises:
        ValueError: what cannot be trained on; the message says why.

    >>> from sklearn.datasets import load_iris
    >>> report = audit(*load_iris(return_X_y=True), epochs=5, device="cpu")
    >>> len(report)
    150
    """
    from labeltrace.sklearn import TraceClassifier

    model = TraceClassifier(
        learner, controller, epochs=epochs, model=model, random_state=seed, device=device, run_dir=run_dir,
        verbose=verbose,
    )  # fmt: skip
    return model.fit(X, y).label_report_


class CallableFolder(ModuleType):
    """The folder `labeltrace.audit`, which can also be called: see `audit`."""

    __call__ = staticmethod(audit)
    __signature__ = inspect.signature(audit)  # or the first argument would be taken for the folder itself
