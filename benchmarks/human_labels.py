"""Labels of people on all of CIFAR-10, judged over features that no label has touched, on a CPU.

Run: python benchmarks/human_labels.py --root DATA   (a folder with CIFAR-10 and CIFAR-10_human.pt)
Writes results/human_labels.json and .md. The features are those of Coates, Lee and Ng (2011): distances to k-means
centres of whitened patches, summed over the quadrants of an image; a perceptron learns them by the recipe for features.
They stand in for the embeddings that a person with photos and no GPU would take. They and the runs' tables lie in
runs/human_labels; a second call makes what is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from features import quiet
from shared import RESULTS, parser_of, side_by_side, write_page
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from labeltrace.audit import measure, read_samples
from labeltrace.audit.samples import values
from labeltrace.bench.environment import environment
from labeltrace.data import Dataset, from_arrays, load_dataset
from labeltrace.engine import RunConfig, RunFolder
from labeltrace.engine.signals import auroc
from labeltrace.experiments.compare import paired_t
from labeltrace.experiments.page import in_words, spread
from labeltrace.features import feature_recipe
from labeltrace.learners import learners
from labeltrace.runs import figures, run

LABELS = ("cifar10n-aggre", "cifar10n-worst")
SEEDS = (0, 42, 1027)
USUAL, LARGE = "rolr+trace without structure", "the same, batches of 1024"
OTHERS = [name for name in learners if name not in ("cross_entropy", "rolr")]
WAYS: dict[str, dict[str, Any]] = {
    "cross_entropy": {"learner": "cross_entropy"},
    "rolr": {"controller": "coupled"},
    "rolr+trace": {"trace": {"structure": True}},
    USUAL: {"trace": {"structure": False}},
    LARGE: {"trace": {"structure": False}, "settings": {"batch_size": 1024, "warmup_batch_size": 1024, "passes": 1}},
    **{name: {"learner": name, "controller": "coupled" if learners[name].refurbishes else None} for name in OTHERS},
}
PAIRS = (
    ("rolr", "cross_entropy"),
    ("rolr+trace", "rolr"),
    (USUAL, "rolr"),
    ("rolr+trace", USUAL),
    (USUAL, LARGE),
    *((name, "cross_entropy") for name in OTHERS),
)
COLUMNS = {
    "last": "test accuracy",
    "average_precision": "average precision",
    "precision": "found: precision",
    "recall": "recall",
    "relabel_accuracy": "relabels right",
    "right_after": "labels right once relabelled",
    "auroc_clean": "AUROC of clean",
    "auroc_structure": "of structure",
    "auroc_observed": "of observed reliability",
}
PATCH, CENTRES, BATCH = 6, 400, 100
LOOKED_AT, DRAWN = 2_000, 50  # images that patches are learnt from, patches of each
OUT = Path("runs/human_labels")
FEATURES = OUT / "cifar10.npz"


def main() -> None:
    """Make the features, train every way on every kind of labels, and write what came out."""
    parser = parser_of(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder of the datasets")
    root = parser.parse_args().root
    if not FEATURES.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        np.savez(FEATURES, **describe(load_dataset("cifar10", root)))
    todo = [(labels, seed, way, root) for labels in LABELS for seed in SEEDS for way in WAYS]
    records = list(side_by_side(one, todo, None, "runs", lambda r: f"{r['labels']} {r['way']}", quiet))
    record = {
        "command": "python benchmarks/human_labels.py --root DATA",
        "features": f"{CENTRES} centres of {PATCH} × {PATCH} patches, 4 quadrants",
        "runs": records,
        "environment": environment(),
    }
    write_page(record, page(record), RESULTS / "human_labels")
    print(page(record))


def describe(data: Dataset) -> dict[str, np.ndarray]:
    """Return features [N, 4 · CENTRES] of the training and of the test images; no label is looked at."""
    assert data.test is not None
    describe_batch = learn_patches(data.train.inputs)
    found = {}
    for part, images in (("train", data.train.inputs), ("test", data.test.inputs)):
        found[part] = torch.cat([describe_batch(batch) for batch in images.split(BATCH)])
    mean, deviation = found["train"].mean(0), found["train"].std(0)
    return {part: ((x - mean) / deviation.clamp_min(1e-6)).numpy() for part, x in found.items()}


def learn_patches(images: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what describes a batch of images uint8 [B, C, H, W] by distances to patches that are common in a set."""
    generator = torch.Generator().manual_seed(0)
    patches = _patches(images[torch.randperm(len(images), generator=generator)[:LOOKED_AT]])  # [images, places, D]
    place = torch.randint(patches.shape[1], (len(patches), DRAWN), generator=generator)
    drawn = _normalised(patches.gather(1, place[..., None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
    mean = drawn.mean(0)
    spectrum, axes = torch.linalg.eigh((drawn - mean).T @ (drawn - mean) / len(drawn))
    whiten = axes @ torch.diag((spectrum + 0.1).rsqrt()) @ axes.T
    means = MiniBatchKMeans(CENTRES, batch_size=4096, n_init=1, random_state=0).fit(((drawn - mean) @ whiten).numpy())
    centres = torch.from_numpy(means.cluster_centers_).float()

    def describe_batch(batch: Tensor) -> Tensor:
        white = (_normalised(_patches(batch)) - mean) @ whiten
        distance = torch.cdist(white, centres)
        near = (distance.mean(-1, keepdim=True) - distance).relu()  # the "triangle" code
        side = round(near.shape[1] ** 0.5)
        grid, half = near.unflatten(1, (side, side)), side // 2
        quarters = [grid[:, y, x].sum((1, 2)) for y in _halves(half) for x in _halves(half)]
        return torch.cat(quarters, 1)

    return describe_batch


def _halves(half: int) -> tuple[slice, slice]:
    return slice(None, half), slice(half, None)


def _patches(images: Tensor) -> Tensor:
    """All patches of images uint8 [B, C, H, W] as float [B, places, C · PATCH²]."""
    return torch.nn.functional.unfold(images.float(), PATCH).transpose(1, 2)


def _normalised(patches: Tensor) -> Tensor:
    """Patches without their brightness and contrast."""
    return (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 10).sqrt()


def one(asked: tuple[str, int, str, Path]) -> dict[str, object]:
    """Return what one run comes to."""
    labels, seed, way, root = asked
    folder = OUT / f"{labels}-{way}-{seed}"
    if not RunFolder(folder).samples.exists():
        config = {
            **feature_recipe(50_000, WAYS[way].get("learner", "rolr")),
            "seed": seed,
            "device": "cpu",
            **WAYS[way],
        }
        run(RunConfig.model_validate(config), folder, dataset=over_features(labels, root), overwrite=True)
    table = read_samples(folder)
    right = torch.from_numpy(values(table, "observed") == values(table, "truth"))
    scores = {"clean": "clean", "structure": "structure", "observed": "observed_reliability"}
    signals = {f"auroc_{name}": auroc(torch.tensor(values(table, column)), right) for name, column in scores.items()}
    wrong = float((~right).double().mean())
    return {"labels": labels, "wrong": wrong, "seed": seed, "way": way, **figures(folder), **measure(table), **signals}


def over_features(labels: str, root: Path) -> Dataset:
    """Return a set with its images replaced by their features."""
    data = load_dataset(labels, root)
    assert data.test is not None and data.train.truth is not None
    with np.load(FEATURES) as found:
        return from_arrays(
            found["train"],
            data.train.labels,
            truth=data.train.truth,
            test=(found["test"], data.test.labels),
            classes=data.classes,
            name=labels,
        )


def page(record: dict[str, Any]) -> str:
    """Return the results as Markdown: mean ± standard deviation over the seeds, and pairs with a test."""
    where = record["environment"]
    lines = [
        "# Labels of people",
        "",
        f"`{record['command']}` on {where['date']}: all 50,000 images of CIFAR-10N as features "
        f"({record['features']}, no labels), perceptron, recipe for features, seeds {', '.join(map(str, SEEDS))}, "
        f"{where['device']}, torch {where['torch']}. Mean ± standard deviation over the seeds, per cent.",
        "",
        "| labels | wrong | method | " + " | ".join(COLUMNS.values()) + " |",
        "|---|--:|---" + "|--:" * len(COLUMNS) + "|",
    ]
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one_run in record["runs"]:
        by_kind.setdefault((one_run["labels"], one_run["way"]), []).append(one_run)
    for (labels, way), mine in by_kind.items():
        # a run that replaces nothing has no share of right ones
        cells = [spread([100 * each[key] for each in mine if not isnan(each[key])]) or "–" for key in COLUMNS]
        lines.append(f"| {labels} | {100 * mine[0]['wrong']:.1f} | {way} | {' | '.join(cells)} |")
    lines += [
        "",
        "Pairs on the same labels and seeds; p is of a two-sided paired t test, uncorrected.",
        "",
        "| labels | difference | test accuracy | p | average precision | p | labels right once relabelled | p |",
        "|---|---" + "|--:" * 6 + "|",
    ]
    for labels in dict.fromkeys(labels for labels, _ in by_kind):
        for first, second in PAIRS:
            cells = []
            for key in ("last", "average_precision", "right_after"):
                found = paired_t(*([100 * each[key] for each in by_kind[labels, way]] for way in (first, second)))
                cells += [f"{found.mean:+.2f}", in_words(found.p)]
            lines.append(f"| {labels} | {first} − {second} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
