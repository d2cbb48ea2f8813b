"""True labels from a file: what people (or another model) say of some samples of a run whose truth is not known."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from labeltrace.data.own.table import find_column, open_table
from labeltrace.diagnostics.runs import Run
from labeltrace.errors import InputError, nearest


def surrogate_truth(run: Run, path: Path) -> Tensor:
    """Return reference classes [N] for a run's samples, −1 where the file says nothing.

    Args:
        run: whose table has ids and names of classes.
        path: table (.csv, .tsv, .parquet) with the columns id and label; a label is a class name, or its number
            where no class has a number for a name.

    Raises:
        InputError: a column that is missing, an id or a class that the run does not have, an id that comes twice.
    """
    table = open_table(path)
    ids, labels = (
        find_column(table.names, None, names, role, path)
        for names, role in ((("id", "index"), "id"), (("label", "truth", "class"), "label"))
    )
    if ids is None or labels is None:
        raise InputError(f"{path}: expected the columns id and label, found {', '.join(table.names)}")
    columns, _ = table.read([ids, labels])
    place = {name: number for number, name in enumerate(run.samples["id"].to_pylist())}
    classes = {name: number for number, name in enumerate(run.classes)}
    numbered = not any(name.isdecimal() for name in classes)  # else "1" might mean either
    truth = torch.full((len(place),), -1)
    for sample, label in zip(*(columns[name].to_pylist() for name in (ids, labels)), strict=True):
        name, said = str(sample), str(label)
        if name not in place:
            raise InputError(f"{path}: id {name!r} is no sample of {run.name}")
        if said not in classes and not (numbered and said.isdecimal() and int(said) < len(classes)):
            raise InputError(f"{path}: label {said!r} of id {name!r}: unknown class: {nearest(said, classes)}")
        if truth[place[name]] >= 0:
            raise InputError(f"{path}: id {name!r} comes twice")
        truth[place[name]] = classes[said] if said in classes else int(said)
    if not bool((truth >= 0).any()):
        raise InputError(f"{path}: no labels in it")
    return truth
