"""The report: its numbers are those of the run, its pictures those of the data, its names only text, its file whole."""

import base64
import hashlib
import json
import math
import re
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import torch

import labeltrace.demo
import reported
from labeltrace.audit import read_samples
from labeltrace.audit.ranking import DEFAULT, rankings, worst_first
from labeltrace.cli import main
from labeltrace.data import Split, from_arrays
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig
from labeltrace.errors import InputError
from labeltrace.report import html, write_report
from labeltrace.report.charts import Line, bar_chart, heat_grid, line_chart, nice_ticks
from labeltrace.report.markup import Html, tag
from labeltrace.report.pictures import data_uri, draw_cards
from labeltrace.runs import run as train_run
from toy import blobs


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """One quick epoch on a few digits with wrong labels, by two controllers; the data can be found again."""
    root = tmp_path_factory.mktemp("digits")
    for controller in ("coupled", "trace"):
        quick = {"batch_size": 16, "warmup": 1, "passes": 1}
        config = {"data": "digits", "subset": 90, "noise": "symmetric", "rate": 0.3, "epochs": 2, "device": "cpu"}
        train_run(RunConfig(**config, controller=controller, settings=quick), root / controller)
    return root


@pytest.fixture
def one(tmp_path):
    """A run made by hand: 40 samples of three classes, each decision, truth known."""
    return reported.run_folder(tmp_path / "one", reported.table())


@pytest.fixture
def command(capfd):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        return (stop.value.code, *capfd.readouterr())

    return call


def report(*folders, out=None, **options):
    out = out or folders[0] / "report.html"
    write_report([Run(folder) for folder in folders], out, **options)
    return reported.read(out)


def per_cent(flags, digits=1):
    return f"{100 * sum(flags) / len(flags):.{digits}f}" if flags else "–"


# Numbers


def test_figures_are_those_of_the_table_and_the_metrics(one):
    samples = read_samples(one).to_pylist()
    shown = dict(reported.rows(reported.section(report(one), "figures")))
    wrong = [s["observed"] != s["truth"] for s in samples]
    found = [s["decision"] != "keep" for s in samples]
    right = [s["suggested"] == s["truth"] for s in samples]
    assert shown["test accuracy, best epoch, %"] == shown["test accuracy, last epoch, %"] == "75.00"
    assert shown["test accuracy, mean of the last 10, %"] == "62.50"
    assert shown["training samples"] == "40"
    assert [shown[f"{d}, %"] for d in ("keep", "relabel", "review")] == ["35.0", "32.5", "32.5"]  # 14, 13, 13 of 40
    assert shown["wrong labels, known, %"] == per_cent(wrong)
    assert shown["wrong labels found: precision, %"] == per_cent([w for w, f in zip(wrong, found, strict=True) if f])
    assert shown["wrong labels found: recall, %"] == per_cent([f for w, f in zip(wrong, found, strict=True) if w])
    assert shown["suggestions right, %"] == per_cent(right)
    confident = [not r for r, s in zip(right, samples, strict=True) if s["confidence"] >= 0.9]
    assert shown["suggestions wrong at confidence ≥ 0.9, %"] == per_cent(confident, 2)
    assert shown["seconds of training"] == "4"


def test_bins_cells_and_subsets_recounted_by_hand(one):
    samples, page = read_samples(one).to_pylist(), report(one)
    bins = reported.rows(reported.section(page, "reliability"))
    assert len(bins) == 10
    for number, (name, n, label, suggestion, follows) in enumerate(bins):
        inside = [s for s in samples if min(int(s["observed_reliability"] * 10), 9) == number]
        assert name == f"{number / 10:.1f} to {(number + 1) / 10:.1f}"
        assert int(n) == len(inside)
        assert label == per_cent([s["observed"] == s["truth"] for s in inside])
        assert suggestion == per_cent([s["suggested"] == s["truth"] for s in inside])
        misled = [s["suggested"] == s["observed"] for s in inside if s["observed"] != s["truth"]]
        assert follows == per_cent(misled)
    (grid,) = reported.section(page, "landscape").all("svg")
    words = [text.text for text in grid.all("text") if text.attributes.get("class") != "small soft"]
    expected = []
    for row in range(5):
        for column in range(5):
            inside = [
                s["suggested"] == s["truth"]
                for s in samples
                if min(int(s["pseudo_reliability"] * 5), 4) == row
                and min(int(s["observed_reliability"] * 5), 4) == column
            ]
            expected += [per_cent(inside), str(len(inside))] if inside else []
    assert words[: len(expected)] == expected and len(words) == len(expected) + 2  # and the names of the axes
    low = [s for s in samples if s["observed_reliability"] < 0.3]
    subsets = {row[0]: row[1:] for row in reported.rows(reported.section(page, "targets"))}
    assert subsets["low-clean"][:3] == [
        str(len(low)),
        str(sum(s["observed"] != s["truth"] for s in low)),
        per_cent([s["suggested"] == s["truth"] for s in low]),
    ]
    assert list(subsets) == ["all", "low-clean", "observed-noisy", "low-clean+noisy", "high-confidence"]


def test_classes_and_confusion_recounted_by_hand(one):
    samples, page = read_samples(one).to_pylist(), report(one)
    names = ["cat", "dog", "owl"]
    counts = Counter((s["observed"], s["suggested"]) for s in samples)
    matrix = reported.rows(reported.section(page, "confusion"))
    assert matrix == [[name, *(str(counts[i, j]) for j in range(3))] for i, name in enumerate(names)]
    for c, row in enumerate(reported.rows(reported.section(page, "classes"))):
        members = [s for s in samples if s["observed"] == c]
        assert row[:2] == [names[c], str(len(members))]
        assert row[3:7] == [
            str(sum(s["truth"] != c for s in members)),
            per_cent([s["suggested"] == s["truth"] for s in members]),
            str(sum(s["decision"] == "relabel" for s in members)),
            str(sum(s["decision"] == "review" for s in members)),
        ]


def test_the_accuracy_curve_has_every_epoch(one):
    rows = reported.rows(reported.section(report(one), "accuracy"))
    assert rows == [["1", "50.00"], ["2", "75.00"]]


def test_many_classes_show_their_largest_confusions(tmp_path):
    names = [f"class {i}" for i in range(130)]
    observed = np.array([5] * 9 + [7] * 6 + [8] * 5)
    suggested = np.array([6] * 9 + [7] * 6 + [1] * 4 + [2])
    table = reported.table(20, names, observed=observed, suggested=suggested)
    page = report(reported.run_folder(tmp_path / "many", table))
    pairs = [["class 5", "class 6", "9"], ["class 8", "class 1", "4"], ["class 8", "class 2", "1"]]
    assert reported.rows(reported.section(page, "confusion")) == pairs
    assert len(reported.rows(reported.section(page, "classes"))) == 100


def test_without_truth_nothing_is_said_about_who_is_right(tmp_path):
    table = reported.table(truth=False)
    page = report(reported.run_folder(tmp_path / "run", table, accuracy=(None, None)))
    assert "No true label is known" in reported.section(page, "reliability").text
    assert not re.search(r"(label|suggestion) is right|wrong \(known\)|AUROC|true class", page.all("main")[0].text)
    agrees = [s["observed"] == s["suggested"] for s in table.to_pylist()]
    assert reported.rows(reported.section(page, "targets"))[0][:3] == ["all", "40", per_cent(agrees)]
    assert "Training loss" in reported.section(page, "accuracy").text
    assert [row[1] for row in reported.rows(reported.section(page, "accuracy"))] == ["1.5000", "0.5000"]


def test_samples_of_unknown_truth_are_left_out_of_what_needs_it(tmp_path):
    truth = reported.table()["truth"].to_numpy().copy()
    truth[:15] = -1
    page = report(reported.run_folder(tmp_path / "run", reported.table(truth=truth)))
    assert reported.rows(reported.section(page, "targets"))[0][1] == "25"
    assert "25 samples of known truth" in page.text
    ids = {card.all(class_="id")[0].text: card for card in page.all(class_="cards")[0].all("li")}
    for id_, card in ids.items():
        assert ("true" in [dt.text for dt in card.all("dt")]) == (int(id_[2:]) >= 15)


def test_the_page_does_not_grow_with_the_samples(tmp_path):
    sizes = []
    for count in (1000, 50_000):
        folder = reported.run_folder(tmp_path / str(count), reported.table(count))
        report(folder)
        sizes.append((folder / "report.html").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 2000


# Pictures


def test_pictures_are_those_of_the_samples_they_stand_with(digits):
    run = Run(digits / "trace")
    page, table, classes = report(digits / "trace", samples=5), read_samples(digits / "trace"), run.classes
    rows = {row["id"]: (number, row) for number, row in enumerate(table.to_pylist())}
    cards = [card for part in page.all(class_="cards") for card in part.all("li")]
    decisions = Counter(table["decision"].to_pylist())
    assert len(cards) == sum(min(5, n) for n in decisions.values())
    for card in cards:
        number, row = rows[card.all(class_="id")[0].text[1:]]
        words = dict(zip([e.text for e in card.all("dt")], [e.text for e in card.all("dd")], strict=True))
        assert words["label"] == classes[row["observed"]] and words["suggested"] == classes[row["suggested"]]
        assert words["true"] == classes[row["truth"]]
        assert (words["a"], words["b"]) == (f"{row['a']:.2f}", f"{row['b']:.2f}")
        assert row["decision"] in card.attributes["class"]
        (image,) = card.all("img")
        shown, kind = reported.pixels(image.attributes["src"])
        assert kind == "PNG" and np.array_equal(shown, run.train.read([number])[0, 0].numpy())
        assert row["id"] in image.attributes["alt"]


def test_large_images_become_small_jpegs():
    shown, kind = reported.pixels(data_uri(torch.randint(0, 256, (3, 300, 200), dtype=torch.uint8)))
    assert kind == "JPEG" and shown.shape == (160, 107, 3)


def test_cards_come_in_the_order_of_the_whole_queue():
    """The default ranking estimates a matrix from all samples; a dozen of them would give another one."""
    table = reported.table(400)
    place = {table["id"][row].as_py(): rank for rank, row in enumerate(worst_first(rankings[DEFAULT](table)).tolist())}
    shown = [place[card.id] for card in draw_cards(table, None, 4)]
    assert len(shown) > 4 and shown == sorted(shown)


def test_features_are_summed_up():
    rng = np.random.default_rng(0)
    split = Split(torch.from_numpy(rng.normal(3, 2, (30, 7)).astype(np.float32)), torch.zeros(30, dtype=torch.int64))
    table = reported.table(30, id=[str(i) for i in range(30)])
    values = split.inputs.numpy().astype(np.float64)
    for card in draw_cards(table, split, 2):
        deviations = (values[int(card.id)] - values.mean(0)) / values.std(0)
        assert np.allclose(card.strip, deviations)
        named = [int(i) for i in re.findall(r"(\d+): [+-]", card.words)]
        assert named == sorted(range(7), key=lambda i: -abs(deviations[i]))[:3]


def test_many_features_are_one_strip_of_the_farthest():
    values = torch.zeros(4, 320)
    values[0, 17] = 5.0
    table = reported.table(4, id=list("0123"), decision=["keep"] * 4)
    split = Split(values, torch.zeros(4, dtype=torch.int64))
    (card,) = [card for card in draw_cards(table, split, 4) if card.id == "0"]
    assert len(card.strip) == 32
    assert [n for n, v in enumerate(card.strip) if v] == [1]  # features 10 to 19


def test_other_samples_in_the_place_of_the_old_ones_are_not_shown():
    split = Split(torch.zeros(40, 1, 8, 8, dtype=torch.uint8), torch.zeros(40, dtype=torch.int64))
    with pytest.raises(InputError, match=r"sample \d+ is '(\d+)' now, it was 's\1'"):
        draw_cards(reported.table(), split, 40)


def test_data_in_memory_comes_with_the_run(tmp_path):
    data = blobs()
    train_run(RunConfig(epochs=1, device="cpu", settings={"batch_size": 16}), tmp_path / "run", dataset=data)
    (without,) = write_report([Run(tmp_path / "run")], tmp_path / "without.html")
    assert "data in memory" in without.no_pictures and without.cards[0].strip == ()
    (found,) = write_report([Run(tmp_path / "run", dataset=data)], tmp_path / "with.html")
    assert found.no_pictures is None and len(found.cards[0].strip) == 6


@pytest.mark.parametrize("what", ["gone", "relabelled"])
def test_data_that_is_not_what_it_was_leaves_a_report_without_pictures(tmp_path, command, what):
    images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 3
    table = reported.table(observed=labels, id=[str(i) for i in range(40)])
    folder = reported.run_folder(tmp_path / "run", table, data=str(tmp_path / "set.npz"), noise=None)
    np.savez(tmp_path / "set.npz", X=images, y=labels)
    code, out, _ = command("report", folder)
    assert code == 0 and "without pictures" not in out
    assert len(reported.read(folder / "report.html").all("img")) == 36
    if what == "gone":
        (tmp_path / "set.npz").unlink()
    else:
        np.savez(tmp_path / "set.npz", X=images, y=labels[::-1])
    code, out, _ = command("report", folder)
    assert code == 0 and "without pictures" in out
    page = reported.read(folder / "report.html")
    (note,) = page.all(role="note")
    assert ("set.npz" if what == "gone" else "has changed since it began") in note.text
    assert page.all("img") == [] and len(page.all(class_="cards")) == 3


# Names


NASTY = ('<script>alert("x")</script>', "</style></title>&amp;", "\" onload='x' \u2028 ü")


def test_names_are_text_and_nothing_else(tmp_path):
    ids = [f'{i}"><img src=http://example.com onerror=alert(1)>' for i in range(40)]
    table = reported.table(classes=NASTY, id=ids)
    folder = reported.run_folder(tmp_path / "<b>run & co", table)
    page = report(folder, samples=40)
    assert [len(page.all(name)) for name in ("script", "style", "h1")] == [1, 1, 1]
    assert len(page.all("head")[0].all("title")) == 1
    assert [row[0] for row in reported.rows(reported.section(page, "classes"))] == list(NASTY)
    assert {e.text[1:] for e in page.all(class_="id")} == set(ids)
    assert page.all("h1")[0].text == "labeltrace report: <b>run & co"
    assert page.all("img") == []
    assert not any(name.startswith("on") for e in page.all() for name in e.attributes)


def test_markup_escapes_what_is_not_markup():
    assert tag("td", "<b>", Html("<br>"), None, 3, title='"&') == '<td title="&quot;&amp;">&lt;b&gt;<br>3</td>'


def test_nothing_in_the_file_leads_to_a_network(digits):
    page = report(digits / "trace", digits / "coupled", out=digits / "both.html")
    for element in page.all():
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert element.attributes.get(name, "#").startswith(("#", "data:image/"))
    assert page.all("link") == []
    (script,), (style,) = page.all("script"), page.all("style")
    assert "url(" not in style.text and "@import" not in style.text
    (policy,) = page.all("meta", http_equiv="Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert "default-src 'none'" in policy.attributes["content"]
    assert f"script-src 'sha256-{digest}'" in policy.attributes["content"]


# Several runs


def test_runs_stand_side_by_side_and_the_best_is_bold(tmp_path):
    one = reported.run_folder(tmp_path / "one", reported.table(), accuracy=(0.5, 0.75))
    two = reported.run_folder(tmp_path / "two", reported.table(seed=1), accuracy=(0.9, 0.25), controller="coupled")
    page = report(one, two)
    figures = reported.section(page, "figures")
    assert [e.text for e in figures.all("th", scope="col")] == ["", "A  one", "B  two"]
    cells = {row.all("th")[0].text: row.all("td") for row in figures.all("tbody")[0].all("tr")}
    best = cells["test accuracy, best epoch, %"]
    assert [cell.text for cell in best] == ["75.00", "90.00"]
    assert [len(cell.all("b")) for cell in best] == [0, 1]
    assert [len(cell.all("b")) for cell in cells["test accuracy, last epoch, %"]] == [1, 0]
    assert not any(cell.all("b") for cell in cells["training samples"])
    panels = page.all(role="tabpanel")
    assert [panel.all("h3")[0].text for panel in panels] == ["A  one", "B  two"]
    for tab, panel in zip(page.all(role="tab"), panels, strict=True):
        assert tab.attributes["aria-controls"] == panel.attributes["id"]
        assert panel.attributes["aria-labelledby"] == tab.attributes["id"]
    assert [len(reported.section(page, name).all("figure")) for name in ("reliability", "landscape")] == [2, 2]
    assert "confidence of the suggestion" in reported.section(page, "landscape").all("svg")[1].text


def test_a_run_without_truth_beside_one_with_it(tmp_path):
    one = reported.run_folder(tmp_path / "one", reported.table())
    two = reported.run_folder(tmp_path / "two", reported.table(truth=False))
    page = report(one, two)
    shown = {row[0]: row[1:] for row in reported.rows(reported.section(page, "figures"))}
    assert shown["wrong labels, known, %"][1] == "–" != shown["wrong labels, known, %"][0]


def test_folders_of_one_name_are_told_apart(tmp_path):
    folders = [reported.run_folder(tmp_path / where / "run", reported.table()) for where in ("a", "b")]
    found = write_report([Run(folder) for folder in folders], tmp_path / "report.html", samples=0)
    assert [f.name for f in found] == ["a/run", "b/run"]
    with pytest.raises(InputError, match="given twice"):
        write_report([Run(folders[0]), Run(folders[0] / ".." / "run")], tmp_path / "report.html")


def test_every_table_has_headings_every_picture_words_and_every_id_is_one(tmp_path):
    one = reported.run_folder(tmp_path / "one", reported.table())
    page = report(one, reported.run_folder(tmp_path / "two", reported.table(seed=1)))
    for table in page.all("table"):
        assert table.all("caption")[0].text
        assert all(th.attributes["scope"] in ("row", "col") for th in table.all("th"))
    for box in page.all(class_="scroll"):
        assert box.attributes["tabindex"] == "0" and box.attributes["aria-label"]
    for svg in page.all("svg"):
        assert svg.attributes.get("aria-label") or svg.attributes.get("aria-hidden") == "true"
    ids = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {a.attributes["href"][1:] for a in page.all("a")} <= set(ids)
    assert [len(page.all(name)) for name in ("header", "nav", "main", "footer", "h1")] == [1] * 5


# The command and its file


def test_the_command_writes_into_the_run_or_beside_the_first(digits, command, tmp_path):
    code, out, err = command("report", digits / "trace", "--samples", 2)
    assert code == 0, err
    assert str(digits / "trace" / "report.html") in out
    code, out, _ = command("report", digits / "coupled", digits / "trace", "--samples", 1, "--json")
    said = json.loads(out)
    assert code == 0 and said["file"] == str(digits / "report.html")
    assert said["bytes"] == (digits / "report.html").stat().st_size
    assert list(said["runs"]) == ["coupled", "trace"]
    table = read_samples(digits / "coupled")
    shares = Counter(table["decision"].to_pylist())
    assert math.isclose(said["runs"]["coupled"]["keep"], shares["keep"] / table.num_rows)
    code, out, _ = command("report", digits / "trace", "--out", tmp_path / "new" / "x.html", "--samples", 0)
    assert code == 0 and "No samples were asked for" in reported.read(tmp_path / "new" / "x.html").text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "no run here"),
        (["one", "--out", "x.txt"], "ends in .html"),
        (["one", "--out", "folder.html"], "is a folder"),
        (["one", "--out", "one/config.yaml/x.html"], "x.html"),
        (["one", "--samples", "-1"], "0 to 500"),
        (["one", "one"], "given twice"),
        ([], "RUN"),
    ],
)
def test_a_mistake_is_one_line(one, tmp_path, monkeypatch, command, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    before = sorted(tmp_path.rglob("*"))
    code, out, err = command("report", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unfinished_run_is_refused_and_an_old_report_stays(one, command):
    (one / "report.html").write_text("old")
    (one / "samples.parquet").unlink()
    code, _, err = command("report", one)
    assert code == 2 and "has not finished" in err
    assert (one / "report.html").read_text() == "old"


def test_a_report_that_fails_half_way_leaves_the_old_one(one, monkeypatch):
    (one / "report.html").write_text("old")

    class Torn(str):
        def encode(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(html, "page", lambda found: Torn("new"))
    before = sorted(one.iterdir())
    with pytest.raises(KeyboardInterrupt):
        write_report([Run(one)], one / "report.html")
    assert (one / "report.html").read_text() == "old" and sorted(one.iterdir()) == before


def test_the_same_run_gives_the_same_file(digits, tmp_path):
    for name in ("one.html", "two.html"):
        report(digits / "trace", out=tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_dataset_that_has_moved_is_found_where_it_is_now(tmp_path, command, monkeypatch):
    moved = []

    def load(name, root, seed, read):
        moved.append(root)
        data = from_arrays(np.zeros((40, 8, 8), np.uint8), [str(i) for i in reported.table()["observed"].to_pylist()])
        return data if root == tmp_path / "here" else pytest.fail("looked where it was")

    monkeypatch.setattr(sys.modules["labeltrace.engine.plan"], "load_dataset", load)
    table = reported.table(id=[str(i) for i in range(40)])
    folder = reported.run_folder(tmp_path / "run", table, data="digits", root=tmp_path / "there")
    code, out, err = command("report", folder, "--root", tmp_path / "here")
    assert code == 0 and "without pictures" not in out, err
    assert moved == [tmp_path / "here"]


def test_the_demo_has_a_report_of_its_four_runs(tmp_path):
    for name in labeltrace.demo.RUNS:
        reported.run_folder(tmp_path / name, reported.table())
    path = labeltrace.demo.report_demo(tmp_path)
    heads = reported.section(reported.read(path), "figures").all("th", scope="col")
    assert path == tmp_path / "report.html"
    assert [e.text[3:] for e in heads[1:]] == list(labeltrace.demo.RUNS)


# Charts


@pytest.mark.parametrize("ends", [(0, 1), (0.83, 0.97), (-3, 11), (1, 515), (0, 1e-3), (0.1, 0.1), (99.5, 100)])
def test_ticks_cover_their_range_in_equal_steps(ends):
    ticks = nice_ticks(*ends)
    steps = np.diff(ticks)
    assert ticks[0] <= ends[0] and ticks[-1] >= ends[1] and 2 <= len(ticks) <= 8
    assert np.allclose(steps, steps[0])


def test_a_line_goes_where_its_numbers_are_and_stops_where_there_are_none():
    half, full = [0.0, 0.5, 1.0], [(0.0, 0.0), (0.5, math.nan), (0.75, 0.5), (1.0, 1.0)]
    chart = line_chart([Line("x", full)], "t", "x", "y", x_ticks=half, y_ticks=half)
    (path,) = re.findall(r'd="(M[^"]*)" class="line s0"', chart)
    # the plot spans 46..406 and 14..228; the lone first point has a marker and no line
    assert path == "M316.0 121.0L406.0 14.0"
    assert re.findall(r"translate\(([\d. ]+)\)\"><title>", chart) == ["46.0 228.0", "316.0 121.0", "406.0 14.0"]


@pytest.mark.parametrize("ends", [(2.3011, 2.3026), (0.0012, 0.0031), (0, 1.5), (1, 1200)])
def test_numbers_on_an_axis_differ_and_leave_room_for_its_name(ends):
    """A loss that hardly moves needs five digits."""
    ticks = nice_ticks(*ends)
    line = Line("x", [(1, ends[1]), (2, ends[0])])
    chart = line_chart([line], "t", "x", "y", x_ticks=[1, 2], y_ticks=ticks, y_scale=1)
    numbers = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end"[^>]*>([^<]+)<', chart)
    assert [float(words) for _, words in numbers] == pytest.approx(ticks)
    assert all(float(x) - 6.5 * len(words) >= 13.9 for x, words in numbers)  # the name of the axis stands at 11


def test_bars_are_as_high_as_their_numbers():
    series = [Line("one", [(0, 0.5), (1, math.nan)], "A"), Line("two", [(0, 1.0), (1, 0.25)], "B")]
    chart = bar_chart(["left", "right"], series, "t", "y", y_ticks=[0.0, 0.5, 1.0])
    heights = [float(h) for h in re.findall(r'height="([\d.]+)"', chart)]
    assert heights == [107.0, 214.0, 0.0, 53.5]
    assert re.findall(r">(50\.0|100\.0|–|25\.0)<", chart) == ["50.0", "100.0", "–", "25.0"]


def test_cells_of_a_grid_start_at_the_bottom():
    grid = heat_grid([[0.25, math.nan], [1.0, 0.5]], lambda y, x: (f"{y}{x}", "n"), "t", "x", "y")
    places = re.findall(r'<rect x="(\d+)" y="(\d+)"[^>]*class="(\w+)"(?: fill-opacity="([\d.]+)")?', grid)
    assert [(x, opacity) for x, _, _, opacity in places] == [("46", "0.25"), ("116", ""), ("46", "1"), ("116", "0.5")]
    assert [kind for _, _, kind, _ in places] == ["heat", "blank", "heat", "heat"]
    assert int(places[0][1]) > int(places[2][1])


def test_runs_with_and_without_truth_are_told_apart(one, tmp_path):
    two = reported.run_folder(tmp_path / "two", reported.table(truth=False))
    said = {
        "both": report(one, two, out=tmp_path / "both.html"),
        "known": report(one),
        "unknown": report(two),
    }
    words = {name: reported.section(page, "landscape").all("p")[0].text for name, page in said.items()}
    true, share = "how often the suggestion is the true class", "the share of the samples"
    assert f"{true} (where no truth is known, {share})" in words["both"]
    assert true in words["known"] and share not in words["known"]
    assert share in words["unknown"] and true not in words["unknown"]
    noisy = {
        name: "label is wrong" in reported.section(page, "targets").all("p")[0].text for name, page in said.items()
    }
    assert noisy == {"both": True, "known": True, "unknown": False}


def test_the_verdict_names_two_estimates_of_the_noise_rate(one):
    page, (found,) = report(one), write_report([Run(one)], one / "again.html")
    table = read_samples(one)
    differs = (table["observed"].to_numpy() != table["suggested"].to_numpy()).mean()
    assert found.figures["disagreement"] == differs
    fitted, words = found.figures["noise_rate"], page.all("header")[0].text
    assert f": {100 * fitted:.1f}\N{NO-BREAK SPACE}% by the label noise that best explains" in words
    assert f"; {100 * differs:.1f}\N{NO-BREAK SPACE}% by counting suggestions that differ from the label" in words
    assert "between" not in words and words.index("too few") < words.index("by counting") < words.index("too many")
    assert "Both are too few where wrong labels were learnt by heart." in words


@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_networks_that_know_little_are_told(tmp_path, confidence):
    table = reported.table()
    place = table.column_names.index("confidence")
    table = table.set_column(place, "confidence", pa.array(np.full(table.num_rows, confidence)))
    words = report(reported.run_folder(tmp_path / "run", table)).all("header")[0].text
    assert ("Only 0.0 % of the suggestions are sure" in words) == (confidence < 0.9)


def test_what_a_stranger_may_not_know_is_said(one, tmp_path):
    page = report(one)
    (terms,) = page.all("dl", class_="terms")
    said = {term.all("dt")[0].text: term.all("dd")[0].text for term in terms.all("div")}
    shown = [name.removesuffix(", %") for name, _ in reported.rows(reported.section(page, "figures"))]
    assert list(said) == [name for name in shown if name in said]  # each is a row of the table, in its order
    assert {name for name in shown if "AUROC" in name or "precision" in name or "calibration" in name} <= said.keys()
    assert "from 0 to 1" in reported.section(page, "reliability").all("p")[0].text
    assert "how sure the networks are" in reported.section(page, "landscape").all("p")[0].text
    weights = {w.all("dt")[0].text: w.attributes["title"] for w in page.all("div", class_="weight")}
    assert weights == {"a": "weight of the label", "b": "weight of the suggestion"}
    unknown = report(reported.run_folder(tmp_path / "unknown", reported.table(truth=False)))
    named = [term.text for term in unknown.all("dl", class_="terms")[0].all("dt")]
    assert named == ["wrong labels, estimated", "suggestion is not the label"]  # the others are not in the table
