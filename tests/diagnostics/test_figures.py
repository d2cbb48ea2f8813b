"""Run folders, every figure and the command, on one small run each of an image set."""

import csv
import json
import math
import re
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from labeltrace.audit import read_samples, write_samples
from labeltrace.cli import main
from labeltrace.diagnostics.figures import Request, draw, figures
from labeltrace.diagnostics.figures.depth import depth_panels
from labeltrace.diagnostics.reliability import reliability_table
from labeltrace.diagnostics.runs import Run, clean_figures, depth_figures, layer_mean, score_again, strata_figures
from labeltrace.diagnostics.surrogate import surrogate_truth
from labeltrace.diagnostics.values import shown
from labeltrace.errors import InputError
from labeltrace.runs import run as train_run
from toy import blobs, config, pictures

pytestmark = pytest.mark.filterwarnings("ignore:.*not defined:UserWarning")
WITHOUT = {"surrogate", "representation"}  # those that need more than runs


def train(folder, data, **changes):
    return train_run(config(**changes), folder, dataset=data)


def right_labels():
    data = pictures()
    return data.with_labels(data.train.truth, data.train.truth)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two runs on the same wrong labels, one on clean ones."""
    root, data = tmp_path_factory.mktemp("diagnosed"), pictures()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(root / "base", data, controller="coupled")
        train(root / "traced", data, controller="trace")
        train(root / "plain", right_labels(), learner="cross_entropy")
    return root


@pytest.fixture
def runs(folders):
    return [Run(folders / name, dataset=pictures(), device="cpu") for name in ("base", "traced")]


@pytest.fixture
def clean(folders):
    return Run(folders / "plain", dataset=right_labels(), device="cpu")


def test_a_loaded_network_is_the_trained_one(tmp_path):
    data = pictures()
    trained, _ = train(tmp_path / "r", data, learner="cross_entropy")
    network = Run(tmp_path / "r", dataset=data, device="cpu").network()
    inputs = data.views.plain(data.test.inputs)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs).logits, trained.networks[0].eval()(inputs).logits)
    assert all(torch.equal(v, trained.networks[0].state_dict()[key]) for key, v in network.state_dict().items())


def test_any_checkpoint_of_the_run_can_be_measured(folders, tmp_path):
    """So the curve of a measurement over epochs is a loop over files."""
    early = shutil.copy(folders / "base" / "checkpoints" / "best.ckpt", tmp_path / "epoch1.ckpt")
    one, two = (
        Run(folders / "base", dataset=pictures(), checkpoint=c, device="cpu").network() for c in ("best", str(early))
    )
    assert all(torch.equal(v, two.state_dict()[key]) for key, v in one.state_dict().items())
    (tmp_path / "none.ckpt").write_bytes(b"no checkpoint")
    with pytest.raises(InputError, match="cannot be read as a checkpoint"):
        Run(folders / "base", dataset=pictures(), checkpoint=str(tmp_path / "none.ckpt"), device="cpu").network()


def test_verdicts_are_the_tables_columns(runs, folders):
    table, v = read_samples(folders / "traced"), runs[1].verdicts()
    assert v.score.tolist() == table["observed_reliability"].to_pylist()
    assert v.suggested.tolist() == table["suggested"].to_pylist()
    assert runs[1].verdicts("clean").score.tolist() == table["clean"].to_pylist()
    with pytest.raises(InputError, match="did you mean 'clean'"):
        runs[1].verdicts("clena")


def test_depth_has_a_row_per_stage(runs):
    heard = []
    rows = depth_figures(runs[0], batches=3, progress=lambda *told: heard.append(told))
    assert [row["stage"] for row in rows] == ["layer1", "layer2", "layer3", "layer4"]
    assert all(row["n_mislabelled"] == 12 and row["n_test"] == 16 and row["n_batches"] == 3 for row in rows)
    assert all(row["wrong_labels"] == 12 / 48 for row in rows)
    assert all(0 <= row["flip_rate"] <= 1 and row["gradient_sensitivity"] > 0 for row in rows)
    assert rows == depth_figures(runs[0], batches=3)
    assert heard[0] == ("base", 0, 7) and heard[-1] == ("base", 7, 7)
    assert layer_mean(rows, "probe_accuracy") == pytest.approx(np.mean([row["probe_accuracy"] for row in rows]))


def test_against_itself_a_run_is_alike(runs):
    rows, operated = clean_figures(runs[0], runs[0])
    assert all(row["cka"] == pytest.approx(1) for row in rows)
    assert operated.clean == operated.noisy and set(operated.recover.values()) == {0}


def test_scoring_again_gives_the_tables_drift(runs):
    """Same network, another order of the pass: groups differ, posteriors of one network alone do not."""
    clean, drift = score_again(runs[0], "gap")
    assert drift.shape == (48,) and bool((drift >= 0).all())
    assert torch.equal(clean, score_again(runs[0], "gap")[0])
    assert not torch.equal(drift, score_again(runs[0], "flatten")[1])
    for pooling in (None, "gap", "flatten"):
        assert sum(row["n"] for row in strata_figures(runs[0], pooling)) == 48


def test_a_set_of_one_group_has_one_drift(folders, runs):
    """48 samples are a single group, whatever the order: so the drift is the table's, to rounding."""
    torch.testing.assert_close(score_again(runs[0])[1], runs[0].column("drift"), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(figures) - WITHOUT))
def test_every_figure_is_written_whole(name, runs, tmp_path):
    chosen = runs[1:] if name == "cases" else runs
    paths, drawn = draw(name, Request(chosen, batches=2), tmp_path / "new" / "folder")
    assert [path.suffix for path in paths] == [".png", ".svg", ".csv"]
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {path.name for path in paths}
    assert paths[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and b"</svg>" in paths[1].read_bytes()
    with paths[2].open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(drawn.rows)
    for row, numbers in zip(written, drawn.rows, strict=True):
        for column, value in numbers.items():
            assert row[column] == ("" if value != value else str(value))


def test_the_same_run_gives_the_same_files(runs, tmp_path):
    one, two = (draw("drift-strata", Request(runs[:1]), tmp_path / name)[0] for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_the_representation_figure_needs_a_clean_run(runs, clean, tmp_path):
    _, drawn = draw("representation", Request(runs, clean=clean, batches=2), tmp_path)
    assert sum("cka" in row for row in drawn.rows) == 8 and sum("recover_Layer1" in row for row in drawn.rows) == 2
    with pytest.raises(InputError, match="--clean RUN"):
        draw("representation", Request(runs), tmp_path)


def test_reference_labels_from_a_file(runs, tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("id,label\n0,1\n5,0\n7,1\n", encoding="utf-8")
    truth = surrogate_truth(runs[0], path)
    assert {i: int(truth[i]) for i in range(48) if truth[i] >= 0} == {0: 1, 5: 0, 7: 1}
    _, drawn = draw("surrogate", Request(runs[:1], labels=path), tmp_path / "out")
    assert next(row for row in drawn.rows if row["panel"] == "regimes")["n"] == 3
    with pytest.raises(InputError, match="--labels FILE"):
        draw("surrogate", Request(runs), tmp_path)


def test_a_number_is_a_class_only_where_no_class_is_called_one(runs, tmp_path, monkeypatch):
    """Classes called 1 and 2: a 1 in the file is the first of them, and a 0 is none."""
    path = tmp_path / "said.csv"
    path.write_text("id,label\n0,1\n5,2\n", encoding="utf-8")
    monkeypatch.setattr(Run, "classes", property(lambda run: ["1", "2"]))
    truth = surrogate_truth(runs[0], path)
    assert (int(truth[0]), int(truth[5])) == (0, 1)
    path.write_text("id,label\n0,0\n", encoding="utf-8")
    with pytest.raises(InputError, match="label '0' of id '0': unknown class"):
        surrogate_truth(runs[0], path)
    monkeypatch.setattr(Run, "classes", property(lambda run: ["cat", "dog"]))
    assert int(surrogate_truth(runs[0], path)[0]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,label\n99,1\n", "id '99' is no sample"),
        ("id,label\n1,cat\n", "unknown class"),
        ("id,label\n1,2\n", "unknown class"),
        ("id,label\n1,1\n1,0\n", "comes twice"),
        ("name,label\n1,1\n", "expected the columns id and label, found name, label"),
        ("id,label\n", "nothing below it"),
        ("", "empty"),
    ],
)
def test_bad_reference_labels_are_refused(text, said, runs, tmp_path):
    (tmp_path / "said.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        surrogate_truth(runs[0], tmp_path / "said.csv")


def test_a_run_without_truth_is_refused_in_one_line(folders, tmp_path):
    shutil.copytree(folders / "base", tmp_path / "blind")
    write_samples(read_samples(folders / "base").drop_columns(["truth"]), tmp_path / "blind" / "samples.parquet")
    with pytest.raises(InputError, match="no true labels are known"):
        draw("mismatch", Request([Run(tmp_path / "blind")]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_clean_labels_draw_without_a_crash(clean, tmp_path):
    """No sample has a wrong label: what is about them is a dash."""
    for name in ("mismatch", "reliability", "depth"):
        _, drawn = draw(name, Request([clean], batches=2), tmp_path)
        assert drawn.rows
    assert all(math.isnan(row["flip_rate"]) for row in drawn.rows) and shown(drawn.rows[0]["flip_rate"]) == "–"
    with pytest.raises(InputError, match="no sample has a wrong label"):
        draw("cases", Request([clean]), tmp_path)


def test_other_labels_than_the_runs_are_refused(folders):
    run = Run(folders / "plain", dataset=pictures(), device="cpu")
    with pytest.raises(InputError, match="the dataset has changed since it began"):
        run.network()


def test_features_have_no_pictures(tmp_path):
    train(tmp_path / "r", blobs(), learner="cross_entropy")
    run = Run(tmp_path / "r", dataset=blobs(), device="cpu")
    with pytest.raises(InputError, match="shows images"):
        draw("cases", Request([run]), tmp_path / "out")
    rows = depth_figures(run, batches=2)
    assert math.isnan(rows[0]["gradient_sensitivity"]) and rows[1]["gradient_sensitivity"] > 0  # the bare input


def test_runs_in_folders_called_alike_are_both_there(folders, tmp_path, capsys):
    for name in ("one", "two"):
        shutil.copytree(folders / "base", tmp_path / name / "run")
    paths = [tmp_path / name / "run" for name in ("one", "two")]
    code, said, _ = command(capsys, *paths, "--json")
    assert code == 0 and list(json.loads(said)["reliability"]) == [str(path) for path in paths]
    _, drawn = draw("reliability", Request([Run(path) for path in paths]), tmp_path / "out")
    assert {row["run"] for row in drawn.rows} == {str(path) for path in paths}
    code, _, complaint = command(capsys, paths[0], paths[0])
    assert code == 2 and complaint == f"labeltrace: {paths[0]}: given twice\n"


def test_five_runs_with_long_names_fit(folders, tmp_path):
    """Room is left for the panels, and no two runs have the same words."""
    names = [f"cross-entropy-with-symmetric-noise-of-rate-0.{n}-and-seed-1027" for n in range(5)]
    for name in names:
        shutil.copytree(folders / "base", tmp_path / name)
    request = Request([Run(tmp_path / name, dataset=pictures(), device="cpu") for name in names], batches=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="constrained_layout not applied")
        for name in ("reliability", "depth"):
            _, drawn = draw(name, request, tmp_path / "out")
            assert {row["run"] for row in drawn.rows} == set(names)
            words = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
            assert len(set(words)) == 5 and max(map(len, words)) < 50


def test_an_axis_is_called_by_the_score_that_is_on_it(runs):
    for name in ("mismatch", "reliability", "landscape"):
        for score, word in (("clean", "loss posterior"), ("observed_reliability", "observed-label reliability")):
            drawn = figures[name](Request(runs, score=score))
            assert word in drawn.figure.axes[0].get_xlabel()


def test_curves_of_depth_are_told_apart_by_what_differs(runs):
    rows = depth_figures(runs[0], batches=1)

    def curves(*changes):
        drawn = depth_panels([{"run": str(n), **row, **change} for n, change in enumerate(changes) for row in rows])
        return [text.get_text() for text in drawn.figure.legends[0].get_texts()]

    assert curves({"model": "a"}, {"model": "b"}) == ["a, 25 % wrong", "b, 25 % wrong"]
    assert curves({"wrong_labels": 0.2}, {"wrong_labels": 0.5})[1] == f"{rows[0]['model']}, 50 % wrong"
    assert curves({"method": "x"}, {"method": "y"}) == ["x, 25 % wrong", "y, 25 % wrong"]
    assert curves({}, {}) == ["0, 25 % wrong", "1, 25 % wrong"]


def test_a_test_label_of_unknown_truth_is_the_observed_one(folders):
    data = pictures()
    truth = data.test.labels.clone()
    truth[:3] = torch.tensor([-1, 1 - int(truth[1]), -1])
    run = Run(folders / "base", dataset=replace(data, test=replace(data.test, truth=truth)), device="cpu")
    assert run.test_labels.tolist() == [int(data.test.labels[0]), int(truth[1]), *data.test.labels[2:].tolist()]
    assert all(math.isfinite(row["fisher_ratio"]) for row in depth_figures(run, batches=1))


def test_too_many_runs_and_a_misspelt_figure(runs, tmp_path):
    with pytest.raises(InputError, match="cases has room for 1 runs, got 2"):
        draw("cases", Request(runs), tmp_path)
    with pytest.raises(InputError, match="did you mean 'mismatch'"):
        draw("mismach", Request(runs), tmp_path)


def command(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", *map(str, words)])
    return ended.value.code, *capsys.readouterr()


def test_the_command_lists_and_draws(folders, tmp_path, capsys):
    code, said, _ = command(capsys, "--list")
    assert code == 0 and all(name in said for name in figures)
    words = "--figure", "reliability", "--figure", "landscape", "--out", tmp_path
    code, said, _ = command(capsys, folders / "base", folders / "traced", *words)
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.{kind}" for name in ("reliability", "landscape") for kind in ("png", "svg", "csv")
    }


def test_the_command_prints_what_it_measured(folders, tmp_path, capsys, runs):
    code, said, _ = command(capsys, folders / "traced", "--json")
    expected = json.loads(json.dumps(reliability_table(runs[1].verdicts())).replace("NaN", "null"))
    assert code == 0 and json.loads(said) == {"reliability": {"traced": expected}}
    code, said, _ = command(capsys, folders / "traced", "--figure", "mismatch", "--out", tmp_path, "--json")
    assert code == 0 and len(json.loads(said)["mismatch"]["rows"]) == 13
    code, said, _ = command(capsys, folders / "traced")
    assert code == 0 and "low-clean+noisy" in said and "…" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no run given"),
        (["nowhere"], "no run here"),
        (["RUN", "--figure", "depht"], "did you mean 'depth'"),
        (["RUN", "--figure", "depth"], "data in memory"),
        (["RUN", "--tau", "2"], "--tau 2: expected 0 to 1"),
        (["RUN", "--batches", "0"], "--batches 0"),
        (["RUN", "--checkpoint", "lst"], "did you mean 'last'"),
        (["RUN", "--figure", "drift-strata", "--pooling", "gpa"], "data in memory|did you mean 'gap'"),
        (["RUN", "--figure", "mismatch", "--out", "FILE"], "FILE"),
    ],
)
def test_the_command_refuses_in_one_line(words, said, folders, tmp_path, capsys):
    (tmp_path / "FILE").write_text("in the way")
    words = [str(folders / "base") if w == "RUN" else str(tmp_path / w) if w == "FILE" else w for w in words]
    code, _, complaint = command(capsys, *words)
    lines = [line for line in complaint.splitlines() if "not defined" not in line]
    assert code == 2 and len(lines) == 1
    assert re.search(said, lines[0])


def test_a_table_that_is_none(folders, tmp_path):
    shutil.copytree(folders / "base", tmp_path / "broken")
    write_samples(pa.table({"index": [0]}), tmp_path / "broken" / "samples.parquet")
    with pytest.raises(InputError, match="no column 'observed_reliability'"):
        Run(tmp_path / "broken").verdicts()
