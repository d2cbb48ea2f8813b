"""Whatever data a person may have: a whole run, or one clear line with exit code 2 and nothing written.

Inputs are right in most places and wrong in one or two, so that the readers are reached behind their first checks.
"""

import csv
import io
import json
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from ending import check_run, command, settled
from fuzz import (
    COUNTS,
    FLAGS,
    NAMES,
    ODD_NUMBERS,
    ODD_VALUES,
    ODD_WORDS,
    PICTURES,
    RIGHT_PAIRS,
    SUFFIXES,
    at_each_entry,
    columns_of,
    images,
    inputs_of,
    labels_of,
    manifests,
    numpy_bytes,
    parquet_tables,
    pictures_in,
    rarely,
    sized,
    spoilt,
    trees,
)
from labeltrace.audit import read_samples
from labeltrace.audit.samples import class_names

TRAIN = ["train", "--learner", "cross_entropy", "--epochs", "1", "--device", "cpu", "--workers", "0"]
QUICK = [*TRAIN, "--set", "settings.batch_size=4", "--out", "run"]
SHARES = {}  # name of a test → how many cases were whole runs, how many were refused


MANY = {}  # name of a test → the same with ten times as many cases, other ones each time


def fuzzed(number, /, **strategies):
    """Run a test on `number` cases, the same ones every time."""
    alike = settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def decorate(body):
        more = settings(alike, max_examples=10 * number, derandomize=False)
        MANY[body.__name__] = more(given(**strategies)(body))
        return alike(given(**strategies)(body))

    return decorate


@pytest.fixture
def space(tmp_path, request):
    """Return a function that gives an empty folder for each case and takes note of how it ended."""

    class Space:
        def __enter__(self):
            self.held = tempfile.TemporaryDirectory(dir=tmp_path)
            return Path(self.held.name)

        def __exit__(self, kind, *_):
            self.held.cleanup()

    def note(whole):
        counts = SHARES.setdefault(request.node.originalname, [0, 0])
        counts[0 if whole else 1] += 1
        event("a whole run" if whole else "refused")

    Space.note = staticmethod(note)
    return Space


# Manifests


@fuzzed(100, manifest=manifests(), flags=FLAGS, absolute=st.booleans())
def test_manifests(space, manifest, flags, absolute):
    name, content, cells = manifest
    with space() as folder:
        pictures_in(folder)
        (folder / name).write_bytes(content)
        images = any(word in content[:200].lower() for word in (b"path", b"file", b"image"))
        data = folder / name if absolute else name
        whole = settled([*QUICK, "--data", data, *(sized(flags) if images else flags)], folder)
        space.note(whole)
        if whole and _is_text(content):
            table = read_samples(folder / "run")
            assert set(class_names(table)) <= cells | {word.strip("\ufeff") for word in cells}


def _is_text(content):
    try:
        return "\0" not in content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False


@fuzzed(110, table=parquet_tables(), flags=FLAGS, spoil=st.data(), chunk=st.sampled_from([1, 3, 1000]))
def test_parquet(space, table, flags, spoil, chunk):
    with space() as folder:
        pictures_in(folder)
        try:
            pq.write_table(table, folder / "data.parquet", row_group_size=chunk)
        except (pa.ArrowException, ValueError):  # what cannot be written is not read either
            pq.write_table(pa.table({"label": ["a", "b"]}), folder / "data.parquet")
        if spoil.draw(st.integers(0, 5)) == 0:
            content = (folder / "data.parquet").read_bytes()
            (folder / "data.parquet").write_bytes(spoilt(spoil.draw, content))
        flags = sized(flags) if "path" in table.column_names else flags
        space.note(settled([*QUICK, "--data", "data.parquet", *flags], folder))


# Images


@fuzzed(
    80,
    files=st.lists(
        st.tuples(images(), SUFFIXES, rarely(NAMES, st.just("")), st.integers(0, 2)), min_size=2, max_size=6
    ),
    bad=st.sampled_from(["stop", "skip", "skip", "skip"]),
    flags=FLAGS,
)
def test_images(space, files, bad, flags):
    with space() as folder:
        expected = 0
        for label in ("cat", "dog"):  # one that is right in each class
            (folder / "data" / label).mkdir(parents=True)
            (folder / "data" / label / "right.png").write_bytes(PICTURES[0])
        for i, (content, suffix, name, label) in enumerate(files):
            place = folder / "data" / ("cat", "dog", "pie")[label]
            place.mkdir(exist_ok=True)
            (place / f"{name}{i}{suffix}").write_bytes(content)
            expected += not name.startswith(".")
        words = [*QUICK, "--data", "data", "--bad-images", bad, *sized(flags)]
        whole = settled(words, folder)
        space.note(whole)
        if whole and not flags:
            table, classes, skipped = check_run(folder / "run")
            assert table.num_rows + len(skipped) == expected + 2
            assert set(classes) <= {"cat", "dog", "pie"}
            assert all((folder / "data" / name).is_file() for name in table["id"].to_pylist())


@fuzzed(80, tree=trees(), flags=FLAGS, data=rarely(st.sampled_from(["data/", "./data", "data/.."]), st.just("data"), 8))
def test_folders(space, tree, flags, data):
    paths, link = tree
    with space() as folder:
        (folder / "data").mkdir()
        for i, name in enumerate(paths):
            path = folder / "data" / name
            try:
                (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
                if not name.endswith("/") and not path.exists():
                    path.write_bytes(PICTURES[i % 8] if name.lower().endswith(".png") else b"{}")
            except (FileExistsError, NotADirectoryError):
                continue
        if link and (folder / "data" / link[0]).parent.is_dir() and not (folder / "data" / link[0]).exists():
            (folder / "data" / link[0]).symlink_to(link[1])
        whole = settled([*QUICK, "--data", data, *sized(flags)], folder)
        space.note(whole)


# Arrays


@fuzzed(110, spoil=st.data(), count=COUNTS, flags=FLAGS)
def test_npz(space, spoil, count, flags):
    draw = spoil.draw
    names = [draw(st.sampled_from(["x", "X", "images", "features"])), draw(st.sampled_from(["y", "Labels", "y_train"]))]
    arrays = {names[0]: draw(inputs_of(count)), names[1]: draw(labels_of(count))}
    if draw(st.integers(0, 4)) == 0:
        arrays["truth"] = draw(labels_of(count))
    if draw(st.integers(0, 4)) == 0:
        arrays["ids"] = draw(st.sampled_from([np.arange(count), np.zeros(count), np.array(["a"] * count), np.eye(2)]))
    if draw(st.integers(0, 3)) == 0:
        arrays |= {
            "x_test": arrays[names[0]][:2] if arrays[names[0]].ndim else 0,
            "y_test": draw(labels_of(min(count, 2))),
        }
    members = {f"{name}.npy": draw(numpy_bytes(array)) for name, array in arrays.items()}
    odd = draw(
        rarely(
            st.sampled_from(["bare", "twice", "dropped", "bomb", "method", "secret", "huge", "renamed"]), st.none(), 8
        )
    )
    if odd == "bare":
        members = {name.removesuffix(".npy"): content[20:] for name, content in members.items()}
    elif odd == "dropped":
        members.popitem()
    elif odd == "bomb":
        bomb = io.BytesIO()
        np.save(bomb, np.zeros((count, 200_000), np.float32))
        members[f"{names[0]}.npy"] = bomb.getvalue()
    elif odd == "huge":
        head = {"descr": "<f4", "fortran_order": False, "shape": (10**13, 4)}
        np.lib.format.write_array_header_1_0(file := io.BytesIO(), head)
        members[f"{names[0]}.npy"] = file.getvalue()
    with space() as folder:
        path = folder / "data.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if draw(st.booleans()) else zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        content = path.read_bytes()
        if odd == "method":
            content = at_each_entry(content, 8, 10, struct.pack("<H", 99))
        elif odd == "secret":
            content = at_each_entry(content, 6, 8, struct.pack("<H", 1))
        elif draw(st.integers(0, 8)) == 0:
            content = spoilt(draw, content)
        path.write_bytes(content)
        if odd == "renamed":
            path = path.rename(folder / "data.npy")
            flags = [*flags, "--labels", "data.npy"]
        space.note(settled([*QUICK, "--data", path.name, *flags], folder))


@fuzzed(90, spoil=st.data(), count=COUNTS, flags=FLAGS)
def test_npy_and_labels(space, spoil, count, flags):
    draw = spoil.draw
    suffix = draw(st.sampled_from([".npy", ".npy", ".txt", ".csv", ".parquet", ".tsv", ".json", ""]))
    labels = draw(labels_of(count))
    with space() as folder:
        (folder / "x.npy").write_bytes(draw(numpy_bytes(draw(inputs_of(count)))))
        path = folder / f"y{suffix}"
        if suffix == ".parquet":
            try:
                pq.write_table(pa.table({"label": pa.array(labels)}), path)
            except (pa.ArrowException, ValueError):
                pq.write_table(pa.table({"label": ["a", "b"] * (count // 2)}), path)
        elif suffix == ".npy":
            path.write_bytes(draw(numpy_bytes(labels)))
        else:
            words = [str(word) for word in labels.ravel()] if draw(st.booleans()) else ["a", "b", "a", "b"] * 2
            words = [draw(rarely(ODD_WORDS, st.just(word), 30)) for word in words]
            text = "\n".join(([] if suffix == ".txt" else ["label"]) + words) + draw(
                st.sampled_from(["", "\n", "\n\n"])
            )
            path.write_bytes(text.encode("utf-8", "replace"))
        space.note(settled([*QUICK, "--data", "x.npy", "--labels", path.name, *flags], folder))


# Folders saved by Hugging Face's datasets


@fuzzed(60, spoil=st.data(), count=st.integers(2, 8), flags=FLAGS)
def test_huggingface(space, spoil, count, flags):
    draw = spoil.draw
    images_or = draw(st.booleans())
    right = (
        pa.array([{"bytes": PICTURES[i % 8], "path": None} for i in range(count)])
        if images_or
        else pa.array([[float(i), 1.0] for i in range(count)])
    )
    codes = pa.array([i % 2 for i in range(count)])
    inputs = draw(rarely(columns_of(count, "any").map(lambda made: made[1]), st.just(right), 5))
    labels = draw(rarely(columns_of(count, "any").map(lambda made: made[1]), st.just(codes), 5))
    table = pa.table({"image": inputs, "label": labels})
    features = {
        "image": {"_type": "Image"} if images_or else {"_type": "Sequence"},
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }
    info, state = {"features": features}, {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    odd = st.one_of(st.none(), st.integers(-1, 3), st.lists(st.integers(), max_size=2), st.just({}), ODD_WORDS)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        place, key = draw(
            st.sampled_from(
                [
                    (info, "features"),
                    (features, "image"),
                    (features, "label"),
                    (features["label"], "names"),
                    (features["label"], "_type"),
                    (state, "_data_files"),
                    (state["_data_files"][0], "filename"),
                    (state, "_indices_files"),
                ]
            )
        )
        place[key] = draw(odd | st.lists(odd, max_size=3))
    with space() as folder:
        root = folder / "data"
        root.mkdir()
        with pa.ipc.new_stream(sink := pa.BufferOutputStream(), table.schema) as stream:
            stream.write_table(table)
        content = sink.getvalue().to_pybytes()
        texts = [json.dumps(info).encode(), json.dumps(state).encode()]
        if draw(st.integers(0, 3)) == 0:
            which = draw(st.integers(0, 2))
            if which == 2:
                content = spoilt(draw, content)
            else:
                texts[which] = spoilt(draw, texts[which])
        (root / "data-00000-of-00001.arrow").write_bytes(content)
        (root / "dataset_info.json").write_bytes(texts[0])
        (root / "state.json").write_bytes(texts[1])
        if draw(st.integers(0, 3)) == 0:
            (folder / "all").mkdir()
            root = root.rename(folder / "all" / "train").parent
            splits = draw(rarely(odd | st.lists(odd), st.just(["train"]), 3))
            (root / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
        space.note(settled([*QUICK, "--data", root.name, *(sized(flags) if images_or else flags)], folder))


# Noise

DATA = {"x": np.arange(24, dtype=np.float32).reshape(12, 2), "y": np.array(["cat", "dog", "owl"] * 4)}


@pytest.fixture(scope="module")
def noise_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    np.savez(folder / "data.npz", **DATA)
    assert command(["noise", "symmetric", "--rate", "0.3", "--data", "data.npz", "--out", "n.npz"], folder).code == 0
    with np.load(folder / "n.npz") as content:
        return dict(content)


@fuzzed(110, spoil=st.data())
def test_noise_files(space, noise_file, spoil):
    draw = spoil.draw
    suffix = draw(st.sampled_from([".npz"] * 4 + [".json", ".npy", ".pt", ".csv", ".txt", ""]))
    codes = np.arange(12) % 3
    odd = rarely(labels_of(12), st.just(codes), 1)
    path = f"n{suffix}"
    with space() as folder:
        np.savez(folder / "data.npz", **DATA)
        if suffix == ".npz" and draw(st.integers(0, 4)):
            arrays = dict(noise_file)
            record = json.loads(arrays["record"].item())
            how = draw(
                st.sampled_from(["none", "none", "record", "record", "record", "labels", "transitions", "drop", "text"])
            )
            if how == "record":
                wrong = st.one_of(
                    st.none(),
                    st.integers(-2, 13),
                    st.floats(),
                    st.text(max_size=3),
                    st.just([]),
                    st.just({}),
                    st.just(["cat", 1, None]),
                    st.just(["owl", "cat", "dog"]),
                    st.just(10**30),
                )
                record[draw(st.sampled_from([*record, "foreign", "more"]))] = draw(wrong)
                arrays["record"] = np.array(json.dumps(record))
            elif how == "labels":
                arrays["labels"] = draw(odd)
            elif how == "transitions":
                arrays["transitions"] = draw(
                    st.sampled_from(
                        [
                            np.eye(3),
                            np.eye(2),
                            np.array(0),
                            np.array(["a"]),
                            -arrays["transitions"],
                            arrays["transitions"] * 2,
                            arrays["transitions"] * 10**18,
                            np.zeros((0, 3)),
                        ]
                    )
                )
            elif how == "drop":
                arrays.pop(draw(st.sampled_from(sorted(arrays))))
            elif how == "text":
                arrays["record"] = draw(
                    st.sampled_from(
                        [
                            np.array("[]"),
                            np.array("{"),
                            np.array(3),
                            np.array("1" * 9000),
                            np.array(["{}"] * 2),
                            np.array("[" * 9000),
                        ]
                    )
                )
            np.savez(folder / path, **arrays)
        elif suffix == ".npz":
            np.savez(folder / path, label=draw(odd))
        elif suffix == ".npy":
            np.save(folder / path, draw(odd), allow_pickle=True)
        elif suffix == ".pt":
            tensor = torch.from_numpy(codes)
            torch.save(
                draw(
                    st.sampled_from(
                        [
                            tensor,
                            codes.tolist(),
                            tensor.float().requires_grad_(),
                            tensor.bfloat16(),
                            {"a": tensor},
                            tensor.to_sparse(),
                            tensor + 1,
                            tensor[:3],
                            "words",
                            None,
                        ]
                    )
                ),
                folder / path,
            )
        elif suffix == ".csv":
            rows = [[draw(rarely(ODD_WORDS, st.just(str(code)), 30)), str(code)] for code in codes]
            with (folder / path).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(
                    [draw(rarely(st.just(["a", "b"]), st.just(["label_noisy", "label"]))), *rows]
                )
        else:
            value = draw(
                rarely(
                    st.sampled_from(
                        [[], {}, 3, [[0]], [1.5] * 12, [None] * 12, [10**400] * 12, ["0"] * 12, [True] * 12]
                    ),
                    st.just(codes.tolist()),
                    2,
                )
            )
            (folder / path).write_text(json.dumps(value))
        if draw(st.integers(0, 3)) == 0:
            (folder / path).write_bytes(spoilt(draw, (folder / path).read_bytes()))
        given_path = draw(
            rarely(
                st.sampled_from(["missing.npz", "data.npz", ".", "~nobody-here/n.npz", "x" * 300 + ".npz"]),
                st.just(path),
                10,
            )
        )
        space.note(settled([*QUICK, "--data", "data.npz", "--noise-file", given_path], folder))


@fuzzed(
    70,
    kind=st.sampled_from(
        ["symmetric", "symmetric-exact", "symmetric-inclusive", "pair", "transition", "instance-idn", "instance", "no"]
    ),
    flags=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["--rate", "--open-share"]), ODD_NUMBERS),
            st.tuples(st.sampled_from(["--seed", "--noise-seed", "--subset"]), ODD_NUMBERS),
            st.tuples(
                st.sampled_from(["--matrix", "--scores"]),
                st.sampled_from(["m.csv", "m.npy", "s.npy", "bad.csv", "bad.npy", "data.npz", "no.npy", "."]),
            ),
            st.tuples(st.just("--foreign"), st.sampled_from(["data.npz", "digits", "im", "missing", ".", ""])),
            st.tuples(st.just("--foreign-root"), st.sampled_from([".", "missing"])),
        ),
        max_size=1,
    ),
    right=st.integers(0, 4),
    out=st.sampled_from(["n.npz"] * 12 + ["n.txt", "im", "im.npz/n.npz", "x" * 300 + ".npz", "data.npz"]),
    content=st.binary(max_size=20)
    | st.sampled_from([b"1,0,0\n0,1,0\n0,0,1\n", b"1,nan,0\n0,1,0\n0,0,1\n", b"cat,dog,owl\n0,1,0\n0,0,1\n1,0,0\n"]),
)
def test_the_noise_command(space, kind, flags, right, out, content):
    with space() as folder:
        np.savez(folder / "data.npz", **DATA)
        (folder / "m.csv").write_text("true,owl,dog,cat\ncat,0.1,0.1,0.8\ndog,0,1,0\nowl,1,0,0\n")
        np.save(folder / "m.npy", np.full((3, 3), 1 / 3))
        np.save(folder / "s.npy", np.random.default_rng(0).random((12, 3)))
        (folder / "bad.csv").write_bytes(content)
        (folder / "bad.npy").write_bytes(content)
        needs = {
            "transition": ["--matrix", "m.csv"],
            "instance-idn": ["--scores", "s.npy", "--rate", "0.3"],
            "open-set": ["--foreign", "data.npz", "--open-share", "0.5", "--rate", "0.3"],
        }.get(kind, ["--rate", "0.3"])
        words = ["noise", kind, "--data", "data.npz", *(needs if right else []), *(w for flag in flags for w in flag)]
        whole = settled([*words, "--out", out, "--workers", "0"], folder, out)
        space.note(whole)
        if whole:
            assert (
                settled([*QUICK, "--data", "data.npz", "--noise-file", out, *_seed(flags)], folder)
                or "--subset" in words
            )


def _seed(flags):
    return next((["--seed", value] for flag, value in flags if flag == "--seed"), [])


# YAML


@fuzzed(
    60,
    pairs=st.lists(
        st.tuples(
            rarely(
                st.sampled_from(["labls", "1", "? x", "[a]", "read", "image size", "<<"]),
                st.sampled_from(
                    [
                        "labels",
                        "test",
                        "path_column",
                        "label_column",
                        "split_column",
                        "id_column",
                        "truth_column",
                        "image_size",
                        "flip",
                        "bad_images",
                        "cache_gb",
                        "memory_gb",
                    ]
                ),
                8,
            ),
            ODD_VALUES,
        )
        | RIGHT_PAIRS
        | RIGHT_PAIRS
        | RIGHT_PAIRS,
        max_size=3,
    ),
    top=rarely(
        st.tuples(
            st.sampled_from(
                ["read", "data", "seed", "epochs", "settings", "out", "noise_file", "weights", "device", "subset"]
            ),
            ODD_VALUES,
        ),
        st.none(),
        3,
    ),
    pair=rarely(
        st.tuples(
            st.sampled_from(["read.labels", "read.image_size", "read", "subset", "noise_file", "data"]),
            ODD_VALUES.filter(lambda v: v != "~"),
        ),
        st.none(),
        3,
    ),
    spoil=st.data(),
)
def test_yaml(space, pairs, top, pair, spoil):
    with space() as folder:
        pictures_in(folder)
        rows = "".join(f"im/{i}.png,{'ab'[i % 2]}\n" for i in range(6))
        (folder / "data.csv").write_text("path,label\n" + rows)
        text = "data: data.csv\nread:\n  workers: 0\n" + "".join(
            f"  {key}: {value}\n" for key, value in dict(pairs).items()
        )
        if not any(key == "image_size" for key, _ in pairs):
            text += "  image_size: 8\n"
        if top is not None:
            text += f"{top[0]}: {top[1]}\n"
        content = text.encode("utf-8", "replace")
        if spoil.draw(st.integers(0, 7)) == 0:
            content = spoilt(spoil.draw, content)
        (folder / "run.yaml").write_bytes(content)
        more = [] if pair is None else ["--set", f"{pair[0]}={pair[1]}"]
        words = [word for word in QUICK if word not in ("--workers", "0")]
        space.note(settled([words[0], "run.yaml", *words[1:], "--set", "read.workers=0", *more], folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MANY))
def test_ten_times_as_many(space, noise_file, name):
    MANY[name](space=space, **({"noise_file": noise_file} if name == "test_noise_files" else {}))


def test_both_outcomes_are_reached():
    """Runs after the others: cases that were all refused at the door would prove little."""
    if not SHARES:
        pytest.skip("the fuzzed tests were not run in this process")
    for name, (whole, refused) in SHARES.items():
        assert whole >= 0.1 * (whole + refused), f"{name}: {whole} runs, {refused} refusals"
        assert refused >= 0.05 * (whole + refused), f"{name}: {whole} runs, {refused} refusals"
