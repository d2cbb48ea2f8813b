"""The samples table: one row per training sample, from the run that trained the model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch import Tensor

from labeltrace.audit.decisions import KEEP, decide
from labeltrace.engine import Trained
from labeltrace.errors import InputError
from labeltrace.files import write_atomically

#: Order of the columns; `truth` only where it is known.
COLUMNS = (
    "index", "id", "observed", "suggested", "clean", "structure", "agreement", "observed_reliability",
    "pseudo_reliability", "a", "b", "weight", "decision", "truth", "confidence", "drift",
)  # fmt: skip


def samples_table(trained: Trained) -> pa.Table:
    """Return the samples table of a finished run.

    Scores are those of a last pass after training: plain view, eval mode, posteriors and structure confidence averaged
    over the networks; reliabilities, a, b and weight (mean 1 over the set) are what the run's controller says of them.
    `confidence` is max_c of the pseudo target; `drift` is the first network's.
    """
    train, classes = trained.plan.dataset.train, trained.plan.dataset.classes
    judged, scores = trained.judgement, trained.judgement.scores
    observed, suggested = train.labels, judged.suggested.cpu()
    columns: dict[str, pa.Array] = {
        "index": pa.array(range(len(train)), pa.int64()),
        "id": pa.array([train.id_of(i) for i in range(len(train))], pa.string()),
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
        "decision": pa.array(
            decide(observed, suggested, judged.observed_reliability.cpu(), judged.confidence.cpu()), pa.string()
        ),
        "confidence": _numbers(judged.confidence),
        "drift": _numbers(None if scores.drift is None else scores.drift[0], len(train)),
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
    path = path / "samples.parquet" if path.is_dir() else path
    if not path.exists():
        raise InputError(f"{path}: no samples table; the run has not finished")
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a samples table ({str(error).splitlines()[0]})") from None


def class_names(table: pa.Table) -> list[str]:
    """Return the names of the classes, from the table's schema."""
    names: list[str] = json.loads(table.schema.metadata[b"labeltrace.classes"])
    return names


def cleanlab_view(table: pa.Table) -> pa.Table:
    """Return the table under cleanlab's column names, in the same order of rows.

    `is_label_issue` is every decision but keep, `label_quality` the reliability of the observed label.
    """
    return pa.table(
        {
            "is_label_issue": pc.not_equal(table["decision"], KEEP),
            "label_quality": table["observed_reliability"],
            "given_label": table["observed"],
            "predicted_label": table["suggested"],
        }
    )


def detection(table: pa.Table) -> dict[str, float]:
    """Return how well wrong labels were found, for a table with known truth.

    `precision` and `recall` are of the samples not to be kept (relabel and review together); `suggestion_accuracy` is
    how often the suggested class is the true one over all samples, `relabel_accuracy` over those marked relabel.
    """
    known = table.filter(pc.greater_equal(table["truth"], 0))
    wrong = pc.not_equal(known["observed"], known["truth"]).to_numpy()
    found = pc.not_equal(known["decision"], KEEP).to_numpy()
    right = pc.equal(known["suggested"], known["truth"]).to_numpy()
    relabel = pc.equal(known["decision"], "relabel").to_numpy()
    return {
        "precision": _share(wrong[found]),
        "recall": _share(found[wrong]),
        "suggestion_accuracy": _share(right),
        "relabel_accuracy": _share(right[relabel]),
    }


def _share(flags: object) -> float:
    return float(flags.mean()) if len(flags) else math.nan  # type: ignore[attr-defined, arg-type]


def _numbers(values: Tensor | None, count: int = 0) -> pa.Array:
    if values is None:
        return pa.nulls(count, pa.float32())
    return pa.array(values.detach().float().cpu().numpy(), pa.float32())
