"""labeltrace audit: from a samples table to words, files and thresholds."""

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import samples
from ending import check_refusal, command, contents
from labeltrace.audit import decided, write_samples
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.audit.samples import values
from labeltrace.data.noise.inputs import read_matrix

T = 0.7 * np.eye(3) + 0.3 * np.roll(np.eye(3), 1, 1)
PETS = ["cat", "dog", "owl"]


@pytest.fixture(scope="module")
def table():
    """400 samples of calibrated networks, decided by the usual rule."""
    found = samples.drawn(400, T, 0.1)
    drop = {"observed_reliability", "clean", "pseudo_reliability", "decision"}
    columns = {name: found[name].to_numpy() for name in found.column_names if name not in drop}
    trust = columns["observed_probability"]
    return decided(samples.table(PETS, **columns, clean=trust, observed_reliability=trust, pseudo_reliability=trust))


@pytest.fixture
def folder(tmp_path, table):
    write_samples(table, tmp_path / "run" / "samples.parquet")
    return tmp_path


def ran(folder, *words):
    outcome = command(["audit", "run", *words], folder)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_summary(folder, table):
    out = ran(folder)
    counts = {name: int((values(table, "decision") == name).sum()) for name in ("keep", "relabel", "review")}
    assert out.splitlines()[0] == "400 samples: " + ", ".join(f"{name} {count}" for name, count in counts.items())
    for words in (
        "wrong labels: ",
        "(estimated noise rate, low where",
        "average precision",
        "ECE",
        "suggested instead",
        "… 390 more",
    ):
        assert words in out
    assert sorted(contents(folder)) == ["run", "run/samples.parquet"]


def test_the_rate_is_told_in_two_ways(folder, table):
    wrong = (values(table, "observed") != values(table, "truth")).mean()
    differs = (values(table, "observed") != values(table, "suggested")).mean()
    found = json.loads(ran(folder, "--json"))
    assert found["disagreement"] == pytest.approx(differs)
    line = next(line for line in ran(folder).splitlines() if line.startswith("wrong labels: "))
    fitted, counted = line.removeprefix("wrong labels: ").split(" or ")
    assert fitted.startswith(f"{100 * found['noise_rate']:.1f} % (estimated noise rate")
    assert counted.startswith(f"{100 * differs:.1f} % (suggestions that differ from the label)")
    assert found["noise_rate"] < wrong + 0.05 and wrong < differs + 0.05


def test_a_run_that_knows_little_says_so(folder, table):
    sure = (values(table, "confidence") >= 0.9).mean()
    assert json.loads(ran(folder, "--json"))["confident"] == pytest.approx(sure) and sure >= 0.2
    assert "know too little" not in ran(folder)
    column = table.column_names.index("confidence")
    unsure = np.where(np.arange(400) < 79, 0.95, 0.6).astype(np.float32)
    write_samples(table.set_column(column, "confidence", pa.array(unsure)), folder / "run" / "samples.parquet")
    assert "Only 19.8 % of the suggestions are sure: the networks know too little" in ran(folder)


LONG = [f"folder of photos/{i:03d}/a name as a camera gives it.jpg" for i in range(3)]


@pytest.fixture
def long_names(tmp_path):
    names = ["a rather long name of a class", "another name of a class that is long", "owl"]
    table = samples.table(names, observed=[0, 1, 2], suggested=[1, 0, 2], id=LONG)
    write_samples(table, tmp_path / "run" / "samples.parquet")
    return tmp_path


def test_nothing_is_wrapped_in_a_pipe(long_names):
    lines = ran(long_names).splitlines()
    headings = ["id", "label", "suggested", "label", "trust", "confidence", "score", "decision"]
    assert headings in [line.split() for line in lines]
    for name, label in zip(
        LONG, ["a rather long name of a class", "another name of a class that is long"], strict=False
    ):
        row = next(line for line in lines if line.startswith(name))
        assert label in row and row.split()[-1] == "keep"


# 52 columns of id, 16 of each class, 8 of the decision, 2 between them: 98; with numbers of 10, 5 and 11: 110, 117, 130
@pytest.mark.parametrize(("width", "shown"), [(160, 3), (130, 3), (129, 2), (116, 1), (109, 0), (98, 0), (40, 0)])
def test_a_narrow_terminal_breaks_no_id(long_names, monkeypatch, width, shown):
    narrow = Console(width=width, force_terminal=True, color_system=None, markup=False, highlight=False)
    monkeypatch.setattr("labeltrace.commands.audit_tables.console", narrow)
    lines = [line.rstrip() for line in ran(long_names).splitlines()]
    rows = [line for line in lines if line.startswith("folder of photos/")]
    assert [row[: len(LONG[0])] for row in rows] == LONG  # rows are in the order of equal scores
    heading = next(line for line in lines if line.startswith("id "))
    assert sum(words in heading for words in ("label trust", "confidence", "score")) == shown
    assert all(row.endswith("keep") for row in rows)
    assert all(len(row) <= max(width, 98) for row in rows)


@pytest.mark.parametrize("width", [80, 60, 50, 40, 30])
def test_a_narrow_terminal_leaves_no_class_out(long_names, monkeypatch, width):
    narrow = Console(width=width, force_terminal=True, color_system=None, markup=False, highlight=False)
    monkeypatch.setattr("labeltrace.commands.audit_tables.console", narrow)
    lines = ran(long_names).splitlines()
    heading = next(i for i, line in enumerate(lines) if line.split()[:2] == ["labelled", "samples"])
    counts = [line for line in lines[heading + 1 :] if re.search(r"\s1\s+\d\s+0\s+0\s", line)]  # a row's first line
    assert [line.split()[0] for line in counts] == ["a", "another", "owl"] and "review" in lines[heading]


def test_the_usual_thresholds_are_kept_for_what_is_not_given(folder):
    assert json.loads(ran(folder, "--json"))["thresholds"] is None
    assert json.loads(ran(folder, "--json", "--trust-label", 0.4))["thresholds"] == [0.4, 0.9]


def test_a_parquet_file_will_do(folder):
    assert command(["audit", "run/samples.parquet"], folder).out == ran(folder)


def test_json_is_whole(folder, table):
    found = json.loads(ran(folder, "--json"))
    assert found["samples"] == 400 and sum(found["decisions"].values()) == 400 and len(found["queue"]) == 10
    assert found["noise_rate"] == pytest.approx((values(table, "observed") != values(table, "truth")).mean(), abs=0.06)
    assert [row["name"] for row in found["classes"]] == PETS
    assert sum(row["samples"] for row in found["classes"]) == 400
    assert {"precision", "recall", "auroc", "average_precision", "ece_label"} < set(found["measures"])
    scores = [row["score"] for row in found["queue"]]
    assert scores == sorted(scores, reverse=True)


def test_without_truth_nothing_is_measured(folder, table):
    write_samples(table.drop_columns(["truth"]), folder / "run" / "samples.parquet")
    assert json.loads(ran(folder, "--json"))["measures"] is None
    assert "known truth" not in ran(folder)
    unknown = table.set_column(table.column_names.index("truth"), "truth", pa.array([-1] * 400, pa.int32()))
    write_samples(unknown, folder / "run" / "samples.parquet")
    assert json.loads(ran(folder, "--json"))["measures"] is None


def test_figures_of_a_part_say_of_how_many(folder, table):
    assert "against the known truth\n" in ran(folder)
    truth = values(table, "truth").copy()
    truth[::3] = -1
    write_samples(
        table.set_column(table.column_names.index("truth"), "truth", pa.array(truth, pa.int32())),
        folder / "run" / "samples.parquet",
    )
    relabels = int(((values(table, "decision") == "relabel") & (truth >= 0)).sum())
    out = ran(folder)
    assert "against the known truth, over the 266 samples whose truth is known\n" in out
    assert f"suggestions right, of {relabels} relabels" in out
    assert json.loads(ran(folder, "--json"))["known_truth"] == 266


def test_the_queue_in_a_file(folder):
    ran(folder, "--out", "q.csv")
    scores = [float(row["score"]) for row in rows_of(folder / "q.csv")]
    assert len(scores) == 400 and scores == sorted(scores, reverse=True)
    ran(folder, "--out", "i.csv", "--sort", "index")
    assert [row["index"] for row in rows_of(folder / "i.csv")] == [str(i) for i in range(400)]
    ran(folder, "--out", "q.parquet")
    assert pq.read_table(folder / "q.parquet")["id"].to_pylist() == [row["id"] for row in rows_of(folder / "q.csv")]


def test_filters_and_limit(folder, table):
    out = ran(folder, "--out", "q.csv", "--decision", "relabel", "--class", "dog", "--limit", 3)
    rows = rows_of(folder / "q.csv")
    assert len(rows) == 3 and {(row["decision"], row["observed_class"]) for row in rows} == {("relabel", "dog")}
    mask = (values(table, "decision") == "relabel") & (values(table, "observed") == 1)
    assert {int(row["index"]) for row in rows} <= set(np.flatnonzero(mask).tolist())
    assert "400 samples" in out and rows[2]["id"] in out
    ran(folder, "--out", "n.csv", "--decision", "relabel", "--class", "1", "--limit", 3)
    assert (folder / "n.csv").read_bytes() == (folder / "q.csv").read_bytes()


def test_rankings_by_name(folder):
    orders = {}
    for name in ("reliability", "margin"):
        found = json.loads(ran(folder, "--score", name, "--json", "--limit", 400))
        assert found["ranking"] == name
        orders[name] = [row["id"] for row in found["queue"]]
    assert orders["reliability"] != orders["margin"] and sorted(orders["margin"]) == sorted(orders["reliability"])


def test_help_names_every_ranking_and_the_default(folder):
    words = " ".join(command(["audit", "--help"], folder).out.split())
    listed = words.partition("what is worst: ")[2].partition(".")[0].split(", ")
    assert sorted(listed) == sorted([*(name for name in rankings if name != DEFAULT), f"{DEFAULT} (default)"])


def test_cleanlabs_columns(folder, table):
    ran(folder, "--cleanlab", "c.csv", "--decision", "review")  # filters are of the queue
    rows = rows_of(folder / "c.csv")
    assert list(rows[0]) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert [row["given_label"] for row in rows] == [str(code) for code in values(table, "observed")]


def test_the_matrix_can_make_noise(folder):
    ran(folder, "--matrix", "t.csv")
    found = read_matrix(folder / "t.csv", PETS)
    assert found.sum(1) == pytest.approx([1, 1, 1], abs=1e-4)
    assert np.abs(found - T).max() < 0.15


def test_other_thresholds_decide_anew(folder):
    found = json.loads(ran(folder, "--trust-suggestion", 1.01, "--json"))
    assert found["decisions"]["relabel"] == 0 and found["thresholds"] == [0.9, 1.01]
    assert "relabel 0" in ran(folder, "--trust-suggestion", 1.01)


def checked_file(folder, table, count):
    with (folder / "checked.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "correct"])
        for row in table.slice(0, count).to_pylist():
            writer.writerow([row["id"], PETS[row["truth"]]])


def test_thresholds_from_checked_samples(folder, table):
    checked_file(folder, table, 300)
    found = json.loads(ran(folder, "--checked", "checked.csv", "--precision", 0.8, "--json"))
    share = found["checked"]["relabel"]
    assert share["right"] / share["count"] == share["precision"] >= 0.8
    low, high = share["interval"]
    assert low < share["precision"] < high
    label, suggestion = found["thresholds"]
    ran(folder, "--trust-label", label, "--trust-suggestion", suggestion, "--out", "q.csv", "--decision", "relabel")
    ids = set(table["id"].to_pylist()[:300])
    rows = [row for row in rows_of(folder / "q.csv") if row["id"] in ids]
    assert len(rows) == share["count"]
    assert sum(row["suggested"] == row["truth"] for row in rows) == share["right"]
    out = ran(folder, "--checked", "checked.csv", "--precision", 0.8)
    assert "chosen from the checked samples" in out
    keep = np.array([row["decision"] == "keep" for row in table.slice(0, 300).to_pylist()])
    right = (values(table, "observed") == values(table, "truth"))[:300]
    found = found["checked"]["keep"]
    assert (found["right"], found["count"]) == (right[keep].sum(), keep.sum())
    assert f"keep    {right[keep].sum()} of {keep.sum()} right" in out


def test_a_diff(folder, table):
    out = ran(folder, "--diff", "labels.diff.csv")
    rows = rows_of(folder / "labels.diff.csv")
    relabel = values(table, "decision") == "relabel"
    assert list(rows[0]) == ["id", "from", "to", "why"] and len(rows) == relabel.sum()
    expected = {row["id"]: (PETS[row["observed"]], PETS[row["suggested"]]) for row in table.to_pylist()}
    assert all((row["from"], row["to"]) == expected[row["id"]] for row in rows)
    assert "labeltrace labels apply" in out
    ran(folder, "--diff", "few.csv", "--class", "owl", "--limit", 5)
    assert {row["from"] for row in rows_of(folder / "few.csv")} <= {"owl"}
    out = ran(folder, "--diff", "none.csv", "--decision", "keep")
    assert rows_of(folder / "none.csv") == [] and "none.csv  0 labels, so there is nothing to apply\n" in out


@pytest.mark.parametrize("flag", ["--out", "--cleanlab", "--diff", "--matrix"])
@pytest.mark.parametrize("name", ["labels.csv", "link.csv", "checked.csv", "other.csv"])
def test_what_is_read_is_not_written_over(folder, flag, name):
    (folder / "labels.csv").write_text("the only labels there are")
    (folder / "link.csv").symlink_to(folder / "labels.csv")
    (folder / "checked.csv").write_text("id,correct\n")
    config = f"data: {folder / 'x.npy'}\nread: {{labels: {folder / 'labels.csv'}}}\n"
    (folder / "run" / "config.yaml").write_text(config)
    before = contents(folder)
    other = "--out" if flag == "--matrix" else "--matrix"
    outcome = command(["audit", "run", flag, name, other, "other.csv", "--checked", "checked.csv"], folder)
    check_refusal(outcome)
    assert ("writes that file" if name == "other.csv" else "would be lost") in outcome.err
    assert contents(folder) == before


def test_the_table_of_the_run_is_not_written_over(folder):
    before = contents(folder)
    for run in ("run", "run/samples.parquet"):
        check_refusal(command(["audit", run, "--out", "run/samples.parquet"], folder))
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing: no such run or file"),
        (["run", "--out", "q.txt"], "--out q.txt: expected a name that ends in .csv, .parquet, .jsonl"),
        (["run", "--diff", "d.parquet"], "--diff d.parquet: expected a name that ends in .csv"),
        (["run", "--matrix", "."], "--matrix .: expected"),
        (["run", "--sort", "best"], "--sort 'best'"),
        (["run", "--decision", "reveiw"], "did you mean 'review'"),
        (["run", "--class", "cow"], "--class: no class 'cow'"),
        (["run", "--score", "x"], "unknown ranking 'x': known: "),
        (["run", "--limit", "0"], "--limit 0"),
        (["run", "--trust-label", "-1"], "--trust-label -1"),
        (["run", "--trust-suggestion", "nan"], "--trust-suggestion nan"),
        (["run", "--precision", "0.9"], "without --checked"),
        (["run", "--checked", "c.csv", "--trust-label", "0.5"], "give one of the two"),
        (["run", "--checked", "c.csv"], "--checked c.csv: expected"),
        (["run", "--checked", "few.csv"], "at least 10"),
        (["run", "--checked", "few.csv", "--precision", "2"], "precision 2: expected"),
    ],
)
def test_refusals_write_nothing(folder, words, message):
    (folder / "few.csv").write_text("id,correct\ns0,cat\n")
    before = contents(folder)
    outcome = command(["audit", *words, "--cleanlab", "c.parquet"], folder)
    check_refusal(outcome)
    assert message in outcome.err
    assert contents(folder) == before


def test_a_table_of_somebody_else_is_refused(folder, table):
    for broken in (table.replace_schema_metadata({}), table.drop_columns(["observed_probability"])):
        write_samples(broken, folder / "run" / "samples.parquet")
        check_refusal(command(["audit", "run"], folder))
