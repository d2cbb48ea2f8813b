"""Fuzzed inputs for tests: files as people have them, right in most places and wrong in one or two."""

import csv
import datetime
import io

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from PIL import Image


def rarely(strategy, usual, odds=6):
    """`usual` in most cases, now and then something of `strategy`."""
    return st.integers(0, odds).flatmap(lambda n: strategy if n == 0 else usual)


def shot(seed, side=8, mode="RGB", suffix="png"):
    """The bytes of a small picture."""
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, suffix)
    return file.getvalue()


PICTURES = [shot(seed) for seed in range(8)]


ODD_WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "nan",
            "NaN",
            "None",
            "null",
            "-1",
            "0",
            "1",
            "1.0",
            "01",
            "1e300",
            "9" * 5000,
            "x" * 3000,
            "🐱",
            "a/b",
            "../x",
            "two\nlines",
            "tab\tbed",
            '"',
            "'",
            "\\",
            ",",
            ";",
            "é",
            "e\u0301",
            "\u202etxt",
            "\x1b[31mred",
            "\x00",
            "\ufeff",
            "train",
            "test",
            "True",
            "[1, 2]",
            "=1+1",
            "%s {x}",
            "$HOME",
            "\u2028",
            "\x85",
            "\x1c1",
        ]
    ),
    st.text(max_size=8),
)


ODD_PATHS = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "/",
            "~",
            "~nobody-here/x.png",
            "missing.png",
            "im",
            "im/",
            "../im/0.png",
            "im/../im/1.png",
            "/dev/null",
            "http://example.org/a.png",
            "file:///etc/passwd",
            "C:\\a.png",
            "im/0.png ",
            "IM/0.PNG",
            "x" * 300,
            "x/" * 3000,
            "im/0.png\x00",
            "im/\x00.png",
            "im/0.png/more",
            "im//2.png",
            "./im/3.png",
            "data.csv",
            "im/🐱.png",
            "*.png",
        ]
    ),
    st.text(max_size=8),
)


_SOME_FLAGS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["--path-column", "--label-column", "--split-column", "--id-column", "--truth-column"]),
            st.sampled_from(["path", "label", "label", "split", "id", "truth", "extra", "Label", "", "no such"]),
        ),
        st.tuples(st.just("--bad-images"), st.sampled_from(["stop", "skip", "skip", "skip", "ignore", ""])),
        st.tuples(st.just("--image-size"), st.sampled_from(["8", "9", "12", "12", "10", "7", "-1", "many"])),
        st.tuples(st.just("--subset"), st.sampled_from(["1", "2", "2", "3", "4", "0", "-3", "99"])),
        st.tuples(st.just("--cache-gb"), st.sampled_from(["0", "0", "1e-9", "1e-6", "nan", "inf", "-1", "1"])),
        st.tuples(st.just("--memory-gb"), st.sampled_from(["0", "0", "1e-9", "1e-6", "nan", "inf", "-1"])),
        st.tuples(
            st.just("--test"), st.sampled_from(["data.csv", "im", "missing.csv", ".", "im/0.png", "~nobody-here"])
        ),
        st.tuples(st.just("--labels"), st.sampled_from(["data.csv", "im", "missing.npy", "im/0.png", "x" * 400])),
        st.tuples(st.just("--noise"), st.sampled_from(["symmetric", "pair", "instance", "open-set", "nonsense"])),
        st.tuples(st.just("--rate"), st.sampled_from(["0.3", "nan", "-1", "1"])),
        st.just(("--no-flip",)),
    ),
    max_size=2,
).map(lambda flags: [word for flag in flags for word in flag])


FLAGS = rarely(_SOME_FLAGS, st.just([]), 3)


def pictures_in(folder):
    (folder / "im").mkdir()
    for i, content in enumerate(PICTURES):
        (folder / "im" / f"{i}.png").write_bytes(content)


@st.composite
def manifests(draw):
    """A CSV or TSV file as bytes, its name, and every cell that was meant to be in it."""
    count = draw(st.integers(2, 8) | st.integers(0, 8))
    features = draw(st.integers(0, 3)) == 0
    columns = {}
    if features:
        for name in draw(st.sampled_from([["f1"], ["f1", "f2"], ["", "f1"], ["Unnamed: 0", "a b"]])):
            number = st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
            odd = st.sampled_from(
                ["", "nan", "inf", "1e39", "1e999", "one", "0x1f", "1_0", "\x1c1", " 2 ", "１", "1,5"]
            )
            columns[name] = [draw(rarely(odd, number, 40)) for _ in range(count)]
    else:
        name = draw(st.sampled_from(["path", "file", "Filename", "image_path"]))
        columns[name] = [draw(rarely(ODD_PATHS, st.just(f"im/{i}.png"), 25)) for i in range(count)]
    kinds = draw(rarely(st.lists(ODD_WORDS, min_size=2, max_size=4), st.just(["cat", "dog"]), 2))
    label = draw(st.sampled_from(["label", "Class", "target", "y"]))
    columns[label] = [draw(rarely(ODD_WORDS, st.just(kinds[i % len(kinds)]), 25)) for i in range(count)]
    if draw(st.booleans()):
        word = rarely(ODD_WORDS, st.sampled_from(["train", "train", "train", "test", "val", "Train"]), 40)
        columns["split"] = [draw(word) for _ in range(count)]
    if draw(st.integers(0, 3)) == 0:
        columns["id"] = [draw(rarely(ODD_WORDS, st.just(f"n{i}"), 20)) for i in range(count)]
    if draw(st.integers(0, 3)) == 0:
        columns["truth"] = [draw(rarely(ODD_WORDS, st.sampled_from(kinds), 20)) for _ in range(count)]
    if draw(st.integers(0, 3)) == 0:
        columns["extra"] = [draw(ODD_WORDS if not features else st.just("1")) for _ in range(count)]
    header = draw(st.permutations(list(columns)))
    rows = [list(header), *([columns[name][i] for name in header] for i in range(count))]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        _spoil_rows(draw, rows)
    text = io.StringIO()
    suffix = draw(st.sampled_from([".csv", ".csv", ".tsv"]))
    usual = "\t" if suffix == ".tsv" else ","
    csv.writer(
        text,
        delimiter=draw(rarely(st.sampled_from([",", ";", "\t", "|"]), st.just(usual), 10)),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        lineterminator=draw(rarely(st.sampled_from(["\r\n", "\r", "\n\n"]), st.just("\n"), 5)),
    ).writerows(rows)
    encoding = draw(
        rarely(st.sampled_from(["utf-8-sig", "latin-1", "utf-16", "utf-32", "cp1252"]), st.just("utf-8"), 8)
    )
    content = text.getvalue().encode(encoding, "replace")
    if draw(st.integers(0, 8)) == 0:
        content = spoilt(draw, content)
    return f"data{suffix}", content, {cell.strip() for row in rows for cell in row}


def _spoil_rows(draw, rows):
    """Change the shape of a table in one place."""
    row = draw(st.integers(0, len(rows) - 1))
    how = draw(st.sampled_from(["short", "long", "twice", "empty", "blank", "gone", "header", "case", "spaces"]))
    if how == "short" and rows[row]:
        del rows[row][-1]
    elif how == "long":
        rows[row].append(draw(ODD_WORDS))
    elif how == "twice":
        rows.insert(row, list(rows[row]))
    elif how == "empty":
        rows.insert(row, [])
    elif how == "blank":
        rows[row] = [""] * len(rows[row])
    elif how == "gone" and len(rows) > 1:
        del rows[row]
    elif how == "header" and rows[0]:
        rows[0][draw(st.integers(0, len(rows[0]) - 1))] = draw(ODD_WORDS | st.sampled_from(["path", "label", "split"]))
    elif how == "case":
        rows[row] = [cell.upper() for cell in rows[row]]
    elif how == "spaces":
        rows[row] = [f"  {cell} " for cell in rows[row]]


def spoilt(draw, content):
    """Change some bytes: flipped, cut off, put in, taken out, or the whole twice."""
    how = draw(st.sampled_from(["flip", "flip", "cut", "insert", "delete", "twice", "zero"]))
    if not content:
        return content
    place = draw(st.integers(0, len(content) - 1))
    if how == "flip":
        changed = bytearray(content)
        for _ in range(draw(st.integers(1, 4))):
            changed[draw(st.integers(0, len(content) - 1))] ^= draw(st.integers(1, 255))
        return bytes(changed)
    if how == "cut":
        return content[:place]
    if how == "insert":
        return content[:place] + draw(st.binary(min_size=1, max_size=8)) + content[place:]
    if how == "delete":
        return content[:place] + content[place + draw(st.integers(1, 16)) :]
    if how == "zero":
        return content[:place] + bytes(min(16, len(content) - place)) + content[place + 16 :]
    return content + content


def sized(flags):
    """Small squares, whatever the pictures: a larger side would mean a larger network."""
    return flags if "--image-size" in flags else ["--image-size", "8", *flags]


NOT_UTF8 = pa.Array.from_buffers(pa.string(), 4, pa.array([b"a\xff", b"b", b"\xc3", b"a\xff"], pa.binary()).buffers())


@st.composite
def columns_of(draw, count, kind):
    """A column of Parquet: of the kind that is right for it, or of any other."""
    flat = {
        "paths": lambda: pa.array([f"im/{i}.png" for i in range(count)]),
        "words": lambda: pa.array(["cat" if i % 2 else "dog" for i in range(count)]),
        "large": lambda: pa.array(["cat" if i % 2 else "dog" for i in range(count)], pa.large_string()),
        "view": lambda: pa.array(["cat" if i % 2 else "dog" for i in range(count)], pa.string_view()),
        "dictionary": lambda: pa.array(["cat" if i % 2 else "dog" for i in range(count)]).dictionary_encode(),
        "numbers in a dictionary": lambda: pa.array([i % 2 for i in range(count)]).dictionary_encode(),
        "ints": lambda: pa.array([i % 2 - 1 for i in range(count)], pa.int8()),
        "unsigned": lambda: pa.array([2**64 - 1 - i % 2 for i in range(count)], pa.uint64()),
        "floats": lambda: pa.array([float(i % 2) for i in range(count)], pa.float32()),
        "half": lambda: pa.array(np.arange(count).astype(np.float16) % 2),
        "fractions": lambda: pa.array([i / 2 for i in range(count)]),
        "huge": lambda: pa.array([1e300 * (i % 2) for i in range(count)]),
        "not finite": lambda: pa.array([[0.0, np.inf, np.nan, 1.0][i % 4] for i in range(count)]),
        "truth": lambda: pa.array([i % 2 == 0 for i in range(count)]),
        "dates": lambda: pa.array([datetime.date(2020, 1, 1 + i % 2) for i in range(count)]),
        "times": lambda: pa.array([datetime.datetime(2020, 1, 1 + i % 2) for i in range(count)]),
        "spans": lambda: pa.array([i % 2 for i in range(count)], pa.duration("s")),
        "decimals": lambda: pa.array([i % 2 for i in range(count)], pa.int32()).cast(pa.decimal128(12, 2)),
        "bytes": lambda: pa.array([PICTURES[i % 8] for i in range(count)], pa.binary()),
        "fixed bytes": lambda: pa.array([bytes([97 + i % 2]) for i in range(count)], pa.binary(1)),
        "not UTF-8": lambda: pa.concat_arrays([NOT_UTF8] * 2)[:count],
        "NUL": lambda: pa.array([f"a\0{i % 2}" for i in range(count)]),
        "odd": lambda: pa.array([draw(ODD_WORDS) for _ in range(count)]),
        "odd paths": lambda: pa.array([draw(ODD_PATHS) for _ in range(count)]),
        "some null": lambda: pa.array([None if i == 1 else f"{i % 3}" for i in range(count)]),
        "null ints": lambda: pa.array([None if i == 1 else i % 3 for i in range(count)]),
        "nulls": lambda: pa.nulls(count),
        "null words": lambda: pa.nulls(count, pa.string()),
        "vectors": lambda: pa.array([[float(i), 1.0, -float(i)] for i in range(count)], pa.list_(pa.float32())),
        "fixed vectors": lambda: pa.array([[float(i), 1.0] for i in range(count)], pa.list_(pa.float64(), 2)),
        "whole vectors": lambda: pa.array([[i, 1] for i in range(count)], pa.large_list(pa.int64())),
        "half vectors": lambda: pa.array([[np.float16(i)] for i in range(count)], pa.list_(pa.float16())),
        "ragged": lambda: pa.array([[1.0] * (1 + i % 2) for i in range(count)]),
        "no vectors": lambda: pa.array([[] for _ in range(count)], pa.list_(pa.float32())),
        "holes": lambda: pa.array([[1.0, None] for _ in range(count)], pa.list_(pa.float32())),
        "null vectors": lambda: pa.array([None if i == 1 else [1.0] for i in range(count)], pa.list_(pa.float32(), 1)),
        "huge vectors": lambda: pa.array([[1e300, float(i)] for i in range(count)]),
        "structs": lambda: pa.array([{"bytes": PICTURES[i % 8], "path": None} for i in range(count)]),
        "maps": lambda: pa.array([[("a", i)] for i in range(count)], pa.map_(pa.string(), pa.int64())),
        "nested": lambda: pa.array([[[1.0]] for _ in range(count)]),
    }
    if kind not in flat:
        kind = draw(st.sampled_from(sorted(flat)))
    return kind, flat[kind]()


@st.composite
def parquet_tables(draw):
    count = draw(st.integers(2, 8) | st.integers(0, 8))
    features = draw(st.booleans())
    wanted = {}
    if features:
        right = st.sampled_from(["vectors", "fixed vectors", "whole vectors", "floats", "ints", "half", "half vectors"])
        wanted[draw(st.sampled_from(["f", "a.b", "__index_level_0__", "x"]))] = draw(rarely(st.just("any"), right, 3))
    else:
        wanted["path"] = draw(rarely(st.just("any"), st.just("paths"), 3))
    right = st.sampled_from(["words", "large", "dictionary", "ints", "truth", "floats", "numbers in a dictionary"])
    wanted[draw(rarely(st.sampled_from(["f", "lab"]), st.just("label"), 12))] = draw(rarely(st.just("any"), right, 3))
    for name in ("split", "id", "truth", "extra"):
        if draw(st.integers(0, 9)) == 0:
            wanted[name] = "any"
    made = {name: draw(columns_of(count, kind)) for name, kind in wanted.items()}
    names = [draw(rarely(ODD_WORDS, st.just(name), 30)) for name in made]
    return pa.Table.from_arrays([column for _, column in made.values()], names=names)


MODES = {
    "png": ["RGB", "RGBA", "L", "LA", "P", "1", "I;16", "I"],
    "jpeg": ["RGB", "L", "CMYK"],
    "gif": ["P", "L", "1"],
    "bmp": ["RGB", "L", "P", "1"],
    "webp": ["RGB", "RGBA"],
    "tiff": ["RGB", "RGBA", "L", "P", "1", "CMYK", "F", "I;16", "YCbCr", "LAB"],
    "ppm": ["RGB", "L", "1"],
    "avif": ["RGB"],
    "tga": ["RGB", "RGBA", "L"],
    "ico": ["RGBA"],
    "jpeg2000": ["RGB", "L"],
    "pcx": ["RGB"],
    "sgi": ["RGB"],
}


SIDES = st.sampled_from([(8, 8), (8, 8), (12, 9), (1, 1), (1, 40), (500, 1), (2, 2), (33, 7)])


SUFFIXES = st.sampled_from([".png", ".jpg", ".JPEG", ".bmp", ".gif", ".tif", ".webp", ".ppm", ".pgm"])


@st.composite
def images(draw):
    """The bytes of an image: whole, of any kind and size; or with a defect."""
    kind = draw(st.sampled_from(["png", "png", "png", "jpeg", "jpeg", *MODES]))
    mode, size = draw(st.sampled_from(MODES[kind])), draw(SIDES)
    pixels = np.random.default_rng(draw(st.integers(0, 3))).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture = picture.convert("L").convert(mode) if mode in ("I;16", "I", "F") else picture.convert(mode)
    file, more = io.BytesIO(), {}
    if kind == "jpeg" and draw(st.booleans()):
        exif = Image.Exif()
        exif[0x0112] = draw(st.sampled_from([1, 3, 6, 8, 0, 99]))
        more["exif"] = exif
    if kind == "tiff":
        more["compression"] = draw(st.sampled_from([None, "tiff_lzw", "tiff_adobe_deflate", "packbits"]))
    if kind in ("gif", "webp") and draw(st.integers(0, 4)) == 0:
        more |= {"save_all": True, "append_images": [picture.rotate(90)]}
    try:
        picture.save(file, kind, **more)
    except (OSError, ValueError, KeyError):  # a mode that this kind does not have
        picture.convert("RGB").save(file := io.BytesIO(), "png")
    content = file.getvalue()
    if draw(st.integers(0, 2)):
        return content
    return (
        draw(st.sampled_from([b"", b"no picture", PICTURES[0] + content]))
        if draw(st.integers(0, 4)) == 0
        else (spoilt(draw, content))
    )


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=10
).filter(lambda name: name not in (".", ".."))


@st.composite
def trees(draw):
    """Paths of files (with a slash at the end: of folders), and links, of a folder that is nearly one of classes."""
    classes = draw(st.lists(NAMES | ODD_WORDS.filter(_is_name), min_size=1, max_size=3) | st.just(["cat", "dog"]))
    paths = [f"{name}/{i}.png" for name in classes for i in range(draw(st.integers(1, 2)))]
    if draw(st.booleans()):
        top = draw(st.sampled_from(["train", "Train", "training"]))
        test = [f"{draw(st.sampled_from(['test', 'val', 'dev']))}/{path}" for path in paths[:1]]
        paths = [f"{top}/{path}" for path in paths] + test
    odd = st.sampled_from(
        [
            "loose.png",
            "empty/",
            "notes.txt",
            "cat/.hidden.png",
            "__MACOSX/cat/0.png",
            "cat/deep/er/1.png",
            "0.png/x.png",
            "cat/list.txt",
            "train/",
            "test/",
            "test/owl/1.png",
            "cat/sub/",
            ".git/x",
            "state.json",
            "dataset_dict.json",
        ]
    )
    paths += draw(rarely(st.lists(odd, max_size=2), st.just([]), 2))
    links = draw(
        rarely(
            st.sampled_from(
                [
                    ("cat/l.png", "nowhere"),
                    ("dog/l.png", "../cat/0.png"),
                    ("cat/up", ".."),
                    ("owl", "cat"),
                    ("cat/null.png", "/dev/null"),
                ]
            ),
            st.none(),
            4,
        )
    )
    return paths, links


def _is_name(name):
    return 0 < len(name.encode()) < 200 and not set("/\0") & set(name)


@st.composite
def numpy_bytes(draw, array):
    """An .npy file, perhaps with a defect."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    content = file.getvalue()
    return spoilt(draw, content) if draw(st.integers(0, 25)) == 0 else content


@st.composite
def inputs_of(draw, count):
    """Features or images, in most cases right."""
    rng = np.random.default_rng(draw(st.integers(0, 2)))
    kind = draw(st.sampled_from(["features"] * 8 + ["images"] * 6 + ["any"]))
    if kind == "features":
        array = rng.normal(size=(count, draw(st.integers(1, 4)))) * draw(
            st.sampled_from([1, 1, 1, 1, 1, 1e-30, 1e30, 1e38, 1e300])
        )
        if count and draw(st.integers(0, 5)) == 0:
            array[:, 0] = draw(st.sampled_from([0.0, 5.0, np.nan, np.inf, -np.inf, 1e39, 1e-45]))
        with np.errstate(over="ignore"):
            array = array.astype(draw(st.sampled_from(["f4", "f4", "f8", "f2", ">f4", "longdouble"])))
    elif kind == "images":
        side = draw(st.sampled_from([8, 8, 8, 9, 16, 12, 1, 7]))
        shape = draw(
            st.sampled_from([(side, side), (side, side, 3), (3, side, side), (side, side, 1), (side, 2 * side)])
        )
        array = rng.integers(0, 255, (count, *shape), dtype=np.uint8)
    else:
        array = draw(
            st.sampled_from(
                [
                    np.zeros((count, 3), np.int64),
                    np.zeros((count, 3), bool),
                    np.zeros((count, 3), np.complex64),
                    np.zeros((count, 8, 8), np.float32),
                    np.zeros((count, 8, 8, 4), np.uint8),
                    np.zeros(count),
                    np.zeros(()),
                    np.zeros((count, 0)),
                    np.zeros((count, 8, 0), np.uint8),
                    np.array([[None, "a"]] * count, object),
                    np.array([["1", "2"]] * count),
                    np.zeros((count, 2), "M8[s]"),
                    np.zeros(count, [("a", "f4"), ("b", "i4")]),
                    np.zeros((count, 2, 2, 2, 2), np.uint8),
                    np.ma.masked_array(np.ones((count, 2)), True),
                ]
            )
        )
    return np.asfortranarray(array) if draw(st.booleans()) else array


@st.composite
def labels_of(draw, count):
    """Labels of any type numpy has, in most cases right."""
    kinds = draw(st.sampled_from([2, 2, 2, 2, 3, 3, 3, 3, 1]))
    codes = np.arange(count) % kinds
    words = np.array([f"k{i}" for i in range(kinds)])
    return draw(
        rarely(
            st.sampled_from(
                [
                    codes.astype(">i4"),
                    codes.astype(np.float64),
                    codes.astype("longdouble"),
                    codes * 1e300,
                    codes / 2,
                    np.where(codes == 1, np.nan, codes),
                    np.where(codes == 1, np.inf, codes),
                    codes.astype(np.float16),
                    codes.astype(bool),
                    codes.astype(np.complex64),
                    codes[:, None],
                    np.eye(kinds)[codes],
                    codes[:-1],
                    words[codes].astype("S4"),
                    words[codes].astype(object),
                    np.array(["\ud800", "b"])[codes % 2],
                    np.array(["", " "])[codes % 2],
                    np.array([b"\xff", b"b"])[codes % 2],
                    codes.astype("M8[D]"),
                    codes - 1,
                    np.uint64(2**64 - 1) - codes.astype(np.uint64),
                    np.array(["a\0b", "c"])[codes % 2],
                    np.array(3),
                    np.array(["x" * 4000, "y"])[codes % 2],
                    codes.astype("V4"),
                    words[codes].astype(">U4"),
                ]
            ),
            st.sampled_from([codes, codes.astype(np.uint8), words[codes]]),
            7,
        )
    )


COUNTS = st.sampled_from([8, 8, 8, 8, 8, 5, 9, 6, 4, 3, 2, 2, 1, 0])


def at_each_entry(content, local, central, value):
    """Put two bytes into both headers of every file in a zip archive."""
    changed = bytearray(content)
    for mark, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        start = content.find(mark)
        while start >= 0:
            changed[start + place : start + place + 2] = value
            start = content.find(mark, start + 4)
    return bytes(changed)


ODD_NUMBERS = st.sampled_from(
    ["0", "0.5", "1", "-1", "nan", "inf", "1e-300", "many", "", "2", str(2**64), "0.999999999999"]
)


ODD_VALUES = st.sampled_from(
    [
        "",
        "~",
        "yes",
        "-1",
        "0",
        ".nan",
        ".inf",
        "1e400",
        "2001-99-99",
        "2001-01-01",
        "[1, 2]",
        "{a: b}",
        "[",
        "'",
        "&a [*a]",
        "!!python/object:os.system x",
        "!!binary aGk=",
        "9" * 5000,
        "0o17",
        "é",
        "'\\x00'",
        '"\\uD800"',
        "x",
        "8",
        "12",
        "skip",
        "stop",
        "data.csv",
        "missing.csv",
        "~nobody-here/x",
        "im",
        "label",
        "path",
        "? {a: b}",
        "*none",
        "<<: 1",
        "[" * 3000,
    ]
)


RIGHT_PAIRS = st.sampled_from(
    [
        ("image_size", "8"),
        ("image_size", "12"),
        ("flip", "no"),
        ("flip", "true"),
        ("bad_images", "skip"),
        ("cache_gb", "0"),
        ("cache_gb", ".inf"),
        ("memory_gb", "0"),
        ("memory_gb", "1e-6"),
        ("test", "data.csv"),
        ("path_column", "path"),
        ("label_column", "label"),
        ("labels", "~"),
        ("split_column", "~"),
    ]
)
