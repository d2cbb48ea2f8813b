"""Run folders made by hand, and a reader of the report, for tests of it."""

import base64
import io
import json
from html.parser import HTMLParser

import numpy as np
from PIL import Image

import samples
from labeltrace.audit import write_samples
from labeltrace.data.noise.record import label_hash
from labeltrace.engine import RunConfig
from labeltrace.engine.config import dump_config

EMPTY = {"img", "meta", "br"}


def table(count=40, classes=("cat", "dog", "owl"), seed=0, truth=True, **columns):
    """A samples table of random verdicts in which every decision occurs; truth is drawn, given or left out."""
    rng = np.random.default_rng(seed)
    observed, suggested = rng.integers(0, len(classes), (2, count))
    made = {
        "observed": observed,
        "suggested": suggested,
        "a": rng.random(count),
        "b": rng.random(count),
        "observed_reliability": rng.random(count),
        "pseudo_reliability": rng.random(count),
        "confidence": rng.random(count),
        "observed_probability": rng.random(count),
        "decision": [("keep", "relabel", "review")[i % 3] for i in range(count)],
    }
    if truth is not False:
        made["truth"] = rng.integers(0, len(classes), count) if truth is True else truth
    return samples.table(classes, **{**made, **columns})


def run_folder(folder, of, accuracy=(0.5, 0.75), **config):
    """Write what a finished run leaves, but for its checkpoints; `of` is its samples table."""
    folder.mkdir(parents=True)
    run = RunConfig(**{"data": "memory:toy", "epochs": len(accuracy), "controller": "trace", **config})
    (folder / "config.yaml").write_text(dump_config(run), encoding="utf-8")
    environment = {"labeltrace": "0.1.0", "device": "CPU", "labels_sha256": label_hash(of["observed"].to_numpy())}
    (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    lines = [{"epoch": n, "loss": 1.5 - n, "test_accuracy": value, "seconds": 2.0} for n, value in enumerate(accuracy)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_samples(of, folder / "samples.parquet")
    return folder


class Element:
    """An element of a page: its tag, its attributes, what is inside."""

    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, attributes, []

    def all(self, tag=None, **attributes):
        """Every element below of a tag and with attributes (`class_`: one of its classes)."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                found += [child] if child._is(tag, attributes) else []
                found += child.all(tag, **attributes)
        return found

    def _is(self, tag, attributes):
        for name, value in attributes.items():
            has = self.attributes.get(name.rstrip("_").replace("_", "-"))
            if has is None or value not in (has.split() if name == "class_" else [has]):
                return False
        return tag in (None, self.tag)

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes))
        self.open[-1].children.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.open[-1].children.append(data)


def read(path):
    """The page in a file, every element closed in its place."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def section(page, id_):
    """The section of an id."""
    (found,) = page.all("section", id=id_)
    return found


def rows(element):
    """The cells of the only table in an element, the heading of each row first, without the head of the table."""
    (body,) = element.all("tbody")
    return [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in body.all("tr")]


def pixels(uri):
    """The picture in a data URI, and its format."""
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        return np.asarray(picture), picture.format
