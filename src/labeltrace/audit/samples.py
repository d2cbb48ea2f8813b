"""The samples table: one row per training sample, from the run that trained the model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch import Tensor

from labeltrace.audit.decisions import KEEP, TRUST_LABEL, TRUST_SUGGESTION, decide
from labeltrace.data import Split
from labeltrace.engine import Trained
from labeltrace.engine.folder import NO_RUN
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

#: Order of the columns; `truth` only where it is known.
COLUMNS = (
    "index", "id", "observed", "suggested", "clean", "structure", "agreement", "observed_reliability",
    "pseudo_reliability", "a", "b", "weight", "decision", "truth", "confidence", "drift",
    "observed_probability", "loss",
)  # fmt: skip


def samples_table(trained: Trained) -> pa.Table:
    """Return the samples table of a finished run.

    Scores are those of a last pass after training: plain view, eval mode, posteriors and structure confidence averaged
    over the networks; reliabilities, a, b and weight (mean 1 over the set) are what the run's controller says of them.
    `confidence` is max_c of the pseudo target, `observed_probability` what the networks on average give the observed
    class, `loss` their mean cross-entropy with it; `drift` is the first network's.
    """
    train, classes = trained.plan.dataset.train, trained.plan.dataset.classes
    judged, scores = trained.judgement, trained.judgement.scores
    observed, suggested = train.labels, judged.suggested.cpu()
    columns: dict[str, pa.Array] = {
        "index": pa.array(np.arange(len(train))),
        "id": _ids(train),
        "observed": pa.array(observed.numpy(), pa.int32()),
        "suggested": pa.array(suggested.numpy(), pa.int32()),
        "clean": _numbers(judged.clean),
        "structure": _numbers(scores.structure, len(train)),
        "agreement": pa.nulls(len(train), pa.bool_()) if judged.agree is None else pa.array(judged.agree.cpu().numpy()),
        "observed_reliability": _numbers(judged.observed_reliability),
        "pseudo_reliability": _numbers(judged.pseudo_reliability),
        "a": _numbers(judged.a),
        "b": _numbers(judged.b),
        "weight": _numbers(judged.weight),
        "decision": decide(observed, suggested, judged.observed_reliability.cpu(), judged.confidence.cpu()),
        "confidence": _numbers(judged.confidence),
        "drift": _numbers(None if scores.drift is None else scores.drift[0], len(train)),
        "observed_probability": _numbers((-scores.loss.double()).exp().mean(0)),
        "loss": _numbers(scores.loss.mean(0)),
    }
    if train.truth is not None:
        columns["truth"] = pa.array(train.truth.numpy(), pa.int32())
    table = pa.table({name: columns[name] for name in COLUMNS if name in columns})
    return table.replace_schema_metadata({"labeltrace.classes": json.dumps(list(classes), ensure_ascii=False)})


def write_samples(table: pa.Table, path: Path) -> None:
    """Write the table as Parquet, whole or not at all."""
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def read_samples(path: Path) -> pa.Table:
    """Return the samples table of a run folder or of a Parquet file."""
    if path.is_dir() and not (path / "samples.parquet").exists():
        why = NO_RUN
        if (path / "config.yaml").exists():
            why = f"the run has not finished; labeltrace train --resume {shlex.quote(str(path))} goes on"
        raise InputError(f"{path}: no samples table; {why}")
    if not path.exists():
        raise InputError(f"{path}: no such run or file")
    try:
        return pq.read_table(path / "samples.parquet" if path.is_dir() else path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a samples table ({str(error).splitlines()[0]})") from None


def class_names(table: pa.Table) -> list[str]:
    """Return the names of the classes, from the table's schema."""
    metadata = table.schema.metadata or {}
    if b"labeltrace.classes" not in metadata:
        raise InputError("not a samples table: it does not name its classes (labeltrace.classes in the schema)")
    names: list[str] = json.loads(metadata[b"labeltrace.classes"])
    return names


def cleanlab_view(table: pa.Table) -> pa.Table:
    """Return the table under cleanlab's column names, in the same order of rows.

    `is_label_issue` is every decision but keep, `label_quality` the reliability of the observed label; labels are
    numbers of classes, as cleanlab's are, whose names are in the schema.
    """
    view = pa.table(
        {
            "is_label_issue": pc.not_equal(table["decision"], KEEP),
            "label_quality": table["observed_reliability"],
            "given_label": table["observed"],
            "predicted_label": table["suggested"],
        }
    )
    return view.replace_schema_metadata(table.schema.metadata)


def decided(
    table: pa.Table, *, trust_label: float = TRUST_LABEL, trust_suggestion: float = TRUST_SUGGESTION
) -> pa.Table:
    """Return the table with every sample decided anew by other thresholds; see `decide`."""
    sources = (values(table, name) for name in ("observed", "suggested", "observed_reliability", "confidence"))
    again = decide(*sources, trust_label=trust_label, trust_suggestion=trust_suggestion)
    return table.set_column(table.column_names.index("decision"), "decision", again)


def decided_by(table: pa.Table, trust: tuple[float, float] | None) -> pa.Table:
    """Return the table decided anew by both thresholds; None leaves it as the run has decided."""
    return table if trust is None else decided(table, trust_label=trust[0], trust_suggestion=trust[1])


def values(table: pa.Table, name: str) -> Any:
    """Return a column as a numpy array [N].

    Raises:
        InputError: the table has no such column.
    """
    if name not in table.column_names:
        raise InputError(f"the samples table has no column {name!r}; train the run again to have it")
    return table[name].to_numpy()


def _ids(train: Split) -> pa.Array:
    if train.ids is None:
        return pa.array(np.arange(len(train))).cast(pa.string())
    return pa.array(iter(train.ids), pa.string(), size=len(train))


def _numbers(tensor: Tensor | None, count: int = 0) -> pa.Array:
    if tensor is None:
        return pa.nulls(count, pa.float32())
    return pa.array(tensor.detach().float().cpu().numpy(), pa.float32())
