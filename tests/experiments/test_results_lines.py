"""From finished runs to lines to the page: every number recomputed here the slow way."""

import json
import math
import multiprocessing
import shutil
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import torch
from rich.console import Console

import saved
import toy
from labeltrace.audit import read_samples
from labeltrace.data import load_noise
from labeltrace.engine import RunFolder, load_config, plan
from labeltrace.errors import InputError
from labeltrace.experiments import TABLES, load_table, read_table
from labeltrace.experiments.cells import config_hash, config_of
from labeltrace.experiments.compare import paired_t
from labeltrace.experiments.findings import fill as fill_findings
from labeltrace.experiments.findings import holm
from labeltrace.experiments.matched import MATCHED_FILE, compare, pairs_in, read_pairs, write_pairs
from labeltrace.experiments.page import page, placed
from labeltrace.experiments.plan import DONE, FRESH, HALF, plan_runs, seconds_per_epoch
from labeltrace.experiments.results import add_line, line_id, line_of, read_lines, results_file, run_folders, value_of
from labeltrace.experiments.runner import drop_checkpoints, fill, with_noise_file
from labeltrace.grid import GridBars
from labeltrace.runs import run

ROOT = Path(__file__).resolve().parents[2]
TABLE = """
title: Digits
label: none
about: For tests.
measure: mean_last_10
run: {data: digits, subset: 80, model: small_cnn, noise: symmetric, rate: 0.4}
recipes: [small]
columns:
  Test: {}
  Best: {measure: best}
  Pseudo: {measure: low-clean+noisy.pseudo_accuracy}
  Wrong: {measure: observed-noisy.n}
rows:
  RoLR: {run: {learner: rolr, controller: coupled}, published: 30.0 31.0 32.00 33}
  RoLR + TRACE: {run: {learner: rolr, controller: trace}, against: [RoLR], published: 30.5 31.0 32.00 33}
  Coupled null: {run: {learner: rolr, controller: trace, trace: &null {pseudo_gate: false, reweight: false}}}
  Refined only: {run: {learner: rolr, controller: trace, trace: *null}, against: [Coupled null]}
  Elsewhere: {published: 1.0 -- _ 2}
"""
SEEDS = (0, 42)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Two seeds of the table's three computations, trained here and now, and their lines."""
    folder = tmp_path_factory.mktemp("reproduce")
    file = folder / "digits.yaml"
    file.write_text(TABLE, encoding="utf-8")
    table = read_table(file)
    planned = plan_runs(table.pick([]), SEEDS, folder / "runs", [], epochs=2, device="cpu")
    assert [one.state for one in planned] == [FRESH] * 6
    for one in planned:
        run(with_noise_file(one.config, folder / "runs" / "noise"), folder / "runs" / one.name)
    bars = GridBars(Console(quiet=True), {one.name: 2 for one in planned})
    failed = fill(planned, folder / "runs", folder / "digits.jsonl", table.cells, bars)
    assert failed == {}
    return folder, table, planned


def test_a_line_for_each_run_with_all_its_cells(work):
    folder, _, planned = work
    lines = read_lines(folder / "digits.jsonl")
    assert len(lines) == 6 == len({line["id"] for line in lines})
    for line, one in zip(lines, planned, strict=True):
        assert sorted(line["cells"]) == sorted(cell.id for cell in one.cells)
        assert (line["epochs"], line["recipe_epochs"], line["seed"]) == (2, 40, one.config.seed)
        assert len(line["test_accuracy"]) == 2 and line["device"] and line["versions"]["torch"] == torch.__version__
        assert line["command"].startswith("labeltrace reproduce digits.yaml --only")
        assert line["seconds"] > 0
    null = next(line for line in lines if "digits/Coupled null/Best" in line["cells"])
    assert len(null["cells"]) == 8 and "digits/Refined only/Wrong" in null["cells"]


def test_one_noise_file_per_seed_named_by_its_hash(work):
    folder, _, _ = work
    files = sorted((folder / "runs" / "noise").iterdir())
    assert len(files) == len(SEEDS)
    hashes = {line["seed"]: set() for line in read_lines(folder / "digits.jsonl")}
    for line in read_lines(folder / "digits.jsonl"):
        hashes[line["seed"]].add(line["noise_sha256"])
    assert all(len(found) == 1 for found in hashes.values())
    assert sorted(f"digits-80-symmetric0.4-s{seed}-{min(found)[:12]}.npz" for seed, found in hashes.items()) == [
        path.name for path in files
    ]


READ = """
title: Embeddings with two columns of labels
about: For tests.
measure: right_after
run: {data: in/emb.npy, model: mlp, noise: symmetric, rate: 0.3, read: {labels: in/labels.csv, workers: 0}}
recipes: [small]
columns: {One: {run: {read: FIRST}}, Two: {run: {read: SECOND}}}
rows: {CE: {run: {learner: cross_entropy}}}
"""


def test_columns_that_read_the_same_files_otherwise_are_runs_of_their_own(tmp_path, monkeypatch):
    """Read alike they are one, whoever names the files from where; the run in the folder fills its column alone."""
    monkeypatch.chdir(tmp_path)
    data, other = toy.blobs(count=40, noise=0), [number // 2 % 3 for number in range(40)]
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "emb.npy", data.train.inputs.numpy())
    rows = [f"{number},{label},{other[number]}" for number, label in enumerate(data.train.labels.tolist())]
    (tmp_path / "in" / "labels.csv").write_text("\n".join(["id,first,second", *rows]), encoding="utf-8")
    file = tmp_path / "mine.yaml"
    read = "{labels: in/labels.csv, label_column: COLUMN}"

    def planned(*columns):
        text = READ
        for place, column in zip(("FIRST", "SECOND"), columns, strict=True):
            text = text.replace(place, read.replace("COLUMN", column))
        file.write_text(text, encoding="utf-8")
        cells = read_table(file).pick([])
        return cells, plan_runs(cells, [0], tmp_path / "runs", [], epochs=1, device="cpu")

    assert [len(one.cells) for one in planned("first", "first")[1]] == [2]
    cells, (one, two) = planned("first", "second")
    files = [with_noise_file(each.config, tmp_path / "noise").noise_file for each in (one, two)]
    clean = [load_noise(path)[1].clean_sha256 for path in files]
    assert one.name != two.name and clean[0] != clean[1]
    run(with_noise_file(two.config, tmp_path / "noise"), tmp_path / "runs" / two.name)
    line = line_of(tmp_path / "runs" / two.name, cells)
    assert line["cells"] == ["mine/CE/Two"] and line["config_sha256"][:8] == two.name[-8:]
    assert config_hash(two.config) == config_hash(
        two.config.model_copy(update={"read": two.config.read | {"workers": 3}})
    )


def test_figures_are_those_of_the_run_counted_by_hand(work):
    folder, _, planned = work
    lines = read_lines(folder / "digits.jsonl")
    for one, line in zip(planned, lines, strict=True):
        accuracy = [record["test_accuracy"] for record in saved.metrics(folder / "runs" / one.name)]
        assert line["figures"]["best"] == max(accuracy) and line["figures"]["last"] == accuracy[-1]
        assert line["figures"]["mean_last_10"] == pytest.approx(sum(accuracy) / 2)
        rows = read_samples(folder / "runs" / one.name).to_pylist()
        wrong = [row for row in rows if row["observed"] != row["truth"]]
        for subset, score in (("low-clean", "observed_reliability"), ("matched low-clean", "clean")):
            low = [row for row in rows if row[score] < 0.3]
            both = [row for row in low if row["observed"] != row["truth"]]
            for name, chosen in ((subset, low), (f"{subset}+noisy", both)):
                found = line["reliability"][name]
                right = sum(row["suggested"] == row["truth"] for row in chosen)
                assert found["n"] == len(chosen)
                assert found["pseudo_accuracy"] == (pytest.approx(right / len(chosen)) if chosen else None)
        assert value_of(line, "observed-noisy.n") == len(wrong) == line["reliability"]["all"]["n_noisy"]
        right_label = [row["clean"] for row in rows if row["observed"] == row["truth"]]
        wins = sum((a > b["clean"]) + 0.5 * (a == b["clean"]) for a in right_label for b in wrong)
        assert line["auroc"]["clean"] == pytest.approx(wins / (len(right_label) * len(wrong)))
        yes, no = (
            [row["structure"] for row in rows if (row["suggested"] == row["truth"]) is told] for told in (True, False)
        )
        wins = sum((a > b) + 0.5 * (a == b) for a in yes for b in no)
        assert line["auroc"]["structure_suggestion"] == pytest.approx(wins / (len(yes) * len(no)))
        others = {"structure", "observed", "pseudo", "confidence"}
        assert set(line["auroc"]) == {"clean", "structure_suggestion", *others}


def test_the_planned_run_is_the_run_that_was_trained(work):
    folder, _, planned = work
    for one in planned:
        trained = load_config(RunFolder(folder / "runs" / one.name).config, {})
        assert config_hash(trained) == config_hash(one.config)
        asked = {key: value for key, value in one.config.model_dump().items() if key not in ("settings", "trace")}
        asked["trace"] = {} if one.config.controller != "trace" else {"structure": True}
        asked["trace"] |= {"pseudo_gate": False, "reweight": False} if "Coupled null" in str(one.cells) else {}
        loose = load_config(None, asked)  # as a person would type it
        assert config_hash(plan(loose).config) == config_hash(one.config)


def test_the_hash_knows_settings_and_not_places(work):
    _, table, _ = work
    config = config_of(table.cell("RoLR", "Best"), 2, 0)
    moved = config.model_copy(update={"root": Path("/elsewhere"), "device": "cuda:3", "seed": 5, "precision": "fp32"})
    assert config_hash(moved) == config_hash(config)
    for change in ({"epochs": 3}, {"model": "mlp"}, {"subset": None}, {"settings": {**config.settings, "lr": 0.5}}):
        assert config_hash(config.model_copy(update=change)) != config_hash(config)


def test_what_is_done_or_half_done_is_seen(work):
    folder, table, _ = work
    lines = read_lines(folder / "digits.jsonl")
    again = plan_runs(table.pick([]), SEEDS, folder / "runs", lines[1:], epochs=2)
    assert [one.state for one in again] == [HALF] + [DONE] * 5
    other = plan_runs(table.pick([]), (7,), folder / "runs", lines, epochs=2, device="cpu")
    assert {one.state for one in other} == {FRESH}
    seconds = [line["seconds"] / 2 for line in lines if line["controller"] == "coupled"]
    base = next(one for one in other if one.config.controller == "coupled")
    assert base.seconds == pytest.approx(2 * mean(seconds))


def test_a_run_is_in_once_and_replaced_only_when_asked(work, tmp_path):
    folder, table, planned = work
    results = tmp_path / "deep" / "runs.jsonl"
    line = line_of(folder / "runs" / planned[0].name, table.cells)
    assert add_line(results, line) and not add_line(results, {**line, "seconds": 1.0})
    assert add_line(results, {**line, "seed": 7, "id": line_id(line["config_sha256"], line["noise_sha256"], 7)})
    assert read_lines(results)[0]["seconds"] == line["seconds"]
    assert add_line(results, {**line, "seconds": 1.0}, again=True)
    assert [one["seconds"] for one in read_lines(results)] == [1.0, line["seconds"]]
    assert [path.name for path in results.parent.iterdir()] == ["runs.jsonl"]


def made_up(config, labels, seed, **more):
    """A line as far as it must fit itself."""
    own = {"id": line_id(config, labels, seed), "config_sha256": config, "noise_sha256": labels, "seed": seed}
    rest = {"cells": [], "figures": {}, "reliability": None, "auroc": None, "noise": None, "test_accuracy": []}
    return {**rest, **own, **more}


def _adds(path, worker):
    for number in range(10):
        add_line(path, made_up("config", f"labels {worker}", number % 5))


def test_several_processes_add_at_once(tmp_path):
    results = tmp_path / "runs.jsonl"
    workers = [multiprocessing.get_context("fork").Process(target=_adds, args=(results, worker)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = sorted((line["noise_sha256"], line["seed"]) for line in read_lines(results))
    assert found == [(f"labels {worker}", number) for worker in range(4) for number in range(5)]


def test_a_run_copied_without_checkpoints_is_collected(work, tmp_path):
    folder, table, planned = work
    copy = tmp_path / "from-elsewhere" / "one"
    shutil.copytree(folder / "runs" / planned[0].name, copy, ignore=shutil.ignore_patterns("checkpoints"))
    assert run_folders([copy.parent]) == [copy] == run_folders([copy])
    assert line_of(copy, table.cells) == read_lines(folder / "digits.jsonl")[0]
    with pytest.raises(InputError, match="fills no cell"):
        line_of(copy, load_table("main").cells)
    (copy / "samples.parquet").unlink()
    with pytest.raises(InputError, match="has not finished"):
        line_of(copy, table.cells)
    with pytest.raises(InputError, match="no run here"):
        run_folders([tmp_path / "nowhere"])


def test_labels_of_another_rate_fill_no_cell(work, tmp_path):
    folder, table, planned = work
    copy = tmp_path / "one"
    shutil.copytree(folder / "runs" / planned[0].name, copy)
    where = json.loads((copy / "environment.json").read_text(encoding="utf-8"))
    where["noise"]["nominal"] = 0.3
    (copy / "environment.json").write_text(json.dumps(where), encoding="utf-8")
    with pytest.raises(InputError, match="fills no cell"):
        line_of(copy, table.cells)


def test_checkpoints_can_be_dropped_and_the_line_stays(work, tmp_path):
    folder, table, planned = work
    copy = tmp_path / "one"
    shutil.copytree(folder / "runs" / planned[0].name, copy)
    before = line_of(copy, table.cells)
    drop_checkpoints(copy)
    assert list((copy / "checkpoints").iterdir()) == []
    assert line_of(copy, table.cells) == before


def test_a_changed_noise_file_is_refused(work, tmp_path):
    folder, _, planned = work
    file = next((folder / "runs" / "noise").glob("*-s0-*.npz"))
    shutil.copy(file, tmp_path / f"{file.stem[:-12]}0123456789ab.npz")
    with pytest.raises(InputError, match="not the one in its name"):
        with_noise_file(planned[0].config, tmp_path)
    shutil.copy(file, tmp_path)
    with pytest.raises(InputError, match="several files of the same noise"):
        with_noise_file(planned[0].config, tmp_path)


def test_a_damaged_results_file_is_refused(tmp_path):
    results = tmp_path / "runs.jsonl"
    good = made_up("config", "labels", 0, test_accuracy=[0.2, 0.5, 0.4], figures={"best": 0.5, "last": 0.4})
    good["figures"]["mean_last_10"] = 1.1 / 3
    for second, message in (
        ('{"id": "b"}', "line 2 is no record"),
        (json.dumps(good)[:50], "line 2 is no record"),
        ("[]", "line 2 is no record"),
        ("", "line 2 is no record"),
        (json.dumps(good), "line 2 is there already"),
        (json.dumps({**good, "seed": 1}), "line 2 has an id that is not that of its config, labels and seed"),
        (json.dumps({**made_up("c", "l", 0), **{k: good[k] for k in ("figures", "test_accuracy")}}), None),
        (
            json.dumps(made_up("c", "l", 0, test_accuracy=[0.2, 0.5], figures={**good["figures"], "best": 0.9})),
            "line 2 says best 0.9, but its epochs give 0.5",
        ),
    ):
        results.write_text(f"{json.dumps(good)}\n{second}\n", encoding="utf-8")
        if message is None:
            assert len(read_lines(results)) == 2
            continue
        with pytest.raises(InputError, match=message):
            read_lines(results)


def test_seconds_per_epoch_come_from_the_benchmark_first(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    line = {
        "data": "cifar100",
        "model": "resnet18",
        "learner": "rolr",
        "controller": "trace",
        "seconds": 100.0,
        "epochs": 10,
    }
    assert seconds_per_epoch([line], None) == {("cifar", "resnet18", "rolr", "trace"): 10.0}
    bench = tmp_path / "bench_gpu.json"
    records = [{"run": "rolr+trace", "way": way, "seconds": s} for way, s in (("compiled", 3.0), ("plain", 9.0))]
    bench.write_text(
        json.dumps({"epochs": [*records, {"run": "rolr", "way": "captured", "seconds": 4.0}]}), encoding="utf-8"
    )
    found = seconds_per_epoch([line], bench)
    assert found == {("cifar", "resnet18", "rolr", "trace"): 3.0, ("cifar", "resnet18", "rolr", ""): 4.0}
    cell = load_table("ablation").cell("TRACE", "Best")
    (planned,) = plan_runs([cell], [0], tmp_path, [], epochs=100, bench=bench)
    assert planned.seconds == 300.0


def test_a_paired_t_test_by_hand():
    first, second = [75.2, 76.1, 75.9], [74.8, 75.2, 75.5]
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    t = mean(gaps) / (stdev(gaps) / math.sqrt(3))
    # With two degrees of freedom the two-sided p is 1 − t/√(t² + 2).
    assert paired_t(first, second).p == pytest.approx(1 - t / math.sqrt(t**2 + 2))
    assert paired_t(second, first).p == pytest.approx(paired_t(first, second).p)
    assert paired_t([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]).p == 1.0
    assert paired_t([2.0, 2.1], [1.0, 1.0]).p is None
    assert paired_t([2.0, 2.1, 2.05], [1.0, 1.0, 1.0]).claim == "higher"
    assert paired_t([1.0, 1.0, 1.0], [2.0, 2.1, 2.05]).claim == "lower"
    alike = paired_t([70.01, 71.02, 72.01], [70.0, 71.01, 72.0])  # a hundredth more each time, but for rounding
    assert alike.p is None and alike.claim == "none: no spread"


def row_of(text, start):
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_page_says_what_the_lines_say(work):
    folder, table, _ = work
    lines = read_lines(folder / "digits.jsonl")
    text = page(lines, [table])
    base = [100 * line["figures"]["best"] for line in lines if "digits/RoLR/Best" in line["cells"]]
    cells = row_of(text, "RoLR · Best")
    assert cells[1] == f"{mean(base):.2f} ± {stdev(base):.2f}"
    assert cells[2:6] == ["31.0", f"{mean(base) - 31:+.2f}", "2", "2 of 40"]
    assert cells[7] == ", ".join(f"`{line['id']}`" for line in lines if "digits/RoLR/Best" in line["cells"])
    trace = [100 * line["figures"]["best"] for line in lines if "digits/RoLR + TRACE/Best" in line["cells"]]
    difference = row_of(text, "RoLR + TRACE − RoLR | Best")
    assert difference[3] == f"{mean(trace) - mean(base):+.2f}"
    assert difference[4] == f"0: {trace[0] - base[0]:+.2f}, 42: {trace[1] - base[1]:+.2f}"
    assert difference[5:] == ["", "none: n < 3"]
    assert "Refined only − Coupled null" not in text  # one run is no pair
    assert row_of(text, "Elsewhere") == ["Elsewhere", "published", "1.0", "--", "", "2"]
    wrong = row_of(text, "RoLR · Wrong")
    assert float(wrong[1].split()[0]) == round(mean(line["reliability"]["all"]["n_noisy"] for line in lines))
    assert all(f"`{line['id']}`" in text.partition("## Runs")[2] for line in lines)


def told(table, row, seed, epochs, value, noise="n"):
    """A line of a cell's run that nobody trained."""
    config = config_of(table.cell(row, "Best"), epochs, seed)
    like = {"recipe_epochs": 40, "device": "cpu", "precision": "32", "data": "digits", "learner": "rolr"}
    like |= {"controller": config.controller, "trace": config.trace, "revision": None, "started": "2026-01-01"}
    like |= {"noise": {"kind": "symmetric", "nominal": 0.4, "actual": 0.4}, "seconds": 1.0, "epochs": epochs}
    like |= {"cells": [f"digits/{row}/Best"], "figures": {"best": value, "mean_last_10": value}}
    return made_up(config_hash(config), f"{noise}{seed}", seed, **like)


def three_seeds(table):
    lines = [told(table, "RoLR", seed, 20, 0.70 + seed / 100) for seed in range(3)]
    return lines + [told(table, "RoLR + TRACE", seed, 20, 0.72 + seed / 100 + seed / 1000) for seed in range(3)]


def test_lengths_are_not_mixed_and_three_seeds_are_tested(work):
    _, table, _ = work
    lines = three_seeds(table)
    lines += [told(table, "RoLR", 0, 40, 0.9), told(table, "RoLR + TRACE", 0, 40, 0.8, noise="other")]
    text = page(lines, [table])
    rows = [row for row in text.splitlines() if row.startswith("| RoLR · Best")]
    assert [row.split("|")[2].strip() for row in rows] == ["90.00", "71.00 ± 1.00"]
    assert "| ours | 90.00 | 90.00 |" in text
    difference = row_of(text, "RoLR + TRACE − RoLR | Best")  # the forty-epoch runs had other labels
    t = 2.1 / (0.1 / math.sqrt(3))
    assert difference[2:] == [
        "20",
        "+2.10",
        "0: +2.00, 1: +2.10, 2: +2.20",
        f"{1 - t / math.sqrt(t**2 + 2):.3f}",
        "higher",
    ]


def test_a_line_that_is_not_of_its_cells_stands_apart(work):
    _, table, _ = work
    line = told(table, "RoLR", 0, 20, 0.7)
    (found,) = placed([line], [table])
    assert found["cells"] == [f"digits/RoLR/{column}" for column in table.columns] and not found["older"]
    others = [told(table, "RoLR", 1, 20, 0.8), told(table, "RoLR + TRACE", 0, 20, 0.9)]
    for change in (
        {"cells": ["digits/RoLR + TRACE/Best"]},
        {"config_sha256": "of an older recipe"},
        {"noise": {**line["noise"], "nominal": 0.3}},
        {"epochs": 40},
    ):
        text = page([{**line, **change}, *others], [table])
        assert "| RoLR · Best | 80.00 | 31.0 | +49.00 | 1 | 20 of 40 |" in text
        (older,) = [row for row in text.splitlines() if "older settings |" in row]
        assert "| 70.00 |" in older and f"`{line['id']}`" in older
        assert "RoLR + TRACE − RoLR" not in text
    with pytest.raises(InputError, match="'digits/Nobody/Best', which is no cell of a table"):
        page([{**line, "cells": ["digits/Nobody/Best"]}], [table])
    elsewhere = {**line, "cells": ["main/RoLR/CIFAR-10 sym 50 %", "digits/RoLR/Best"]}
    assert "RoLR · Best" in page([elsewhere], [table])  # a table that is not on this page


def test_one_seed_counts_once(work):
    _, table, _ = work
    lines = [told(table, "RoLR", 0, 20, 0.7), told(table, "RoLR", 0, 20, 0.8, noise="other")]
    with pytest.raises(InputError, match=f"{lines[0]['id']} and {lines[1]['id']} are one run on other labels"):
        page(lines, [table])


def test_findings_are_filled_from_the_lines(work):
    _, table, _ = work
    text = "# Mine\n\n<!-- effects -->\nold\n<!-- end -->\nwords\n<!-- signals -->\n<!-- end -->\n"
    empty = fill_findings(text, [], [table])
    assert empty.count("Not measured yet.") == 2 and "old" not in empty and "\nwords\n" in empty
    lines = [{**line, "auroc": {"clean": 0.96, "structure": None}} for line in three_seeds(table)]
    made = fill_findings(empty, lines, [table])
    assert fill_findings(made, lines, [table]) == made
    t = 2.1 / (0.1 / math.sqrt(3))
    p = 1 - t / math.sqrt(t**2 + 2)
    found = row_of(made, "digits | RoLR + TRACE − RoLR | Test")
    assert found[3:] == ["20", "3", "+2.10", "1.00", "+0.50", f"{p:.3f}", "higher", f"{p:.3f}"]
    assert "1 of 1 tested" in made and "Best" not in made  # one measure of a pair is enough here
    assert row_of(made, "digits | symmetric 0.4 | rolr+trace")[3:7] == ["20", "3", "96.00 ± 0.00", ""]
    with pytest.raises(InputError, match="did you mean 'parts'"):
        fill_findings("<!-- part -->\n<!-- end -->", [], [table])


def test_a_pair_of_the_ablation_is_not_shown_among_the_choices(work, tmp_path):
    swapped = TABLE.replace("controller: trace}, against: [RoLR]", "controller: trace}").replace(
        "controller: coupled}", "controller: coupled}, against: [RoLR + TRACE, Coupled null]"
    )
    tables = []
    for name, text in (("ablation", TABLE), ("choices", swapped)):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        tables.append(read_table(tmp_path / f"{name}.yaml"))
    lines = [*three_seeds(tables[0]), *(told(tables[0], "Coupled null", seed, 20, 0.6) for seed in range(3))]
    text = "\n".join(f"<!-- {name} -->\n<!-- end -->" for name in ("effects", "parts", "choices"))
    made = fill_findings(text, lines, tables)
    pairs = [row.split(" | ")[:2] for row in made.splitlines() if " − " in row]
    assert pairs == [["| ablation", "RoLR + TRACE − RoLR"], ["| choices", "RoLR − Coupled null"]]
    assert made.startswith("<!-- effects -->\n\nNot measured yet.")


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.04: 3 × 0.01, 2 × 0.02, then at least what stood before.
    assert holm([0.04, 0.01, None, 0.02]) == pytest.approx([0.04, 0.03, None, 0.04], nan_ok=True)
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_effects_of_a_real_grid(work):
    folder, table, _ = work
    lines = read_lines(folder / "digits.jsonl")
    text = "<!-- replacements -->\n<!-- end -->\n<!-- effects -->\n<!-- end -->\n"
    made = fill_findings(text, lines, [table])
    base = [line for line in lines if line["controller"] == "coupled"]
    shown = row_of(made, "digits | symmetric 0.4 | rolr")
    accuracy = [100 * line["reliability"]["observed-noisy"]["pseudo_accuracy"] for line in base]
    assert shown[-2:] == [
        f"{mean(accuracy):.2f} ± {stdev(accuracy):.2f}",
        f"{mean(line['reliability']['observed-noisy']['n'] for line in base):.0f} ± "
        f"{stdev([line['reliability']['observed-noisy']['n'] for line in base]):.0f}",
    ]
    assert "rolr+trace, pseudo_gate False, reweight False" in made and "none: n < 3" in made


def test_lists_are_tested_over_seeds(work):
    _, table, _ = work
    lines = three_seeds(table)
    assert fill_findings("<!-- lists -->\n<!-- end -->", lines, [table]).count("Not measured yet.") == 1
    for line in lines:
        better = 0.1 + line["seed"] / 100 if line["controller"] == "trace" else 0
        line["figures"] |= {"precision": 0.5 + better, "recall": 0.75}
    made = fill_findings("<!-- lists -->\n<!-- end -->", lines, [table])
    assert row_of(made, "digits | symmetric 0.4 | rolr+trace")[4:] == ["3", "61.00 ± 1.00", "75.00 ± 0.00", "", ""]
    t = 11 / (1 / math.sqrt(3))
    p = 2 * (1 - t / math.sqrt(t**2 + 2))  # of two tests
    assert row_of(made, "RoLR + TRACE − RoLR | Test")[2:] == ["20", "3", f"+11.00 ({p:.3f})", "+0.00 (1.000)", "", ""]


def test_two_runs_on_the_same_samples(work, tmp_path):
    folder, _, _ = work
    folders = run_folders([folder / "runs"])
    pairs = pairs_in(folders)
    assert len(pairs) == 4  # two variants of TRACE, two seeds
    lines = {line["id"]: line for line in read_lines(folder / "digits.jsonl")}
    found = [compare(*pair) for pair in pairs]
    for (base, other), pair in zip(pairs, found, strict=True):
        assert lines[pair["base"]]["controller"] == "coupled" and lines[pair["other"]]["controller"] == "trace"
        assert lines[pair["base"]]["seed"] == lines[pair["other"]]["seed"] == pair["seed"]
        one, two = (read_samples(path).to_pylist() for path in (base, other))
        low = [place for place, row in enumerate(one) if row["clean"] < 0.3]
        wrong = [place for place in low if one[place]["observed"] != one[place]["truth"]]
        both = [place for place in wrong if two[place]["clean"] < 0.3]
        for name, chosen in (
            ("base low-clean", low),
            ("base low-clean+noisy", wrong),
            ("both low-clean+noisy", both),
        ):
            ours = pair["sets"][name]
            assert ours["n"] == len(chosen)
            for side, rows in (("base", one), ("other", two)):
                right = sum(rows[place]["suggested"] == rows[place]["truth"] for place in chosen)
                assert ours[side] == (pytest.approx(right / len(chosen)) if chosen else None)
    file = tmp_path / "deep" / "matched.jsonl"
    assert (write_pairs(file, found[:1]), write_pairs(file, found)) == (1, 4) and read_pairs(file) == found
    with pytest.raises(InputError, match="not the same samples"):
        compare(pairs[0][0], next(two for one, two in pairs if one != pairs[0][0]))
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="not a file of pairs"):
        read_pairs(file)


def test_matched_sets_are_tested_over_seeds(work):
    _, table, _ = work
    like = {"data": "digits", "learner": "rolr", "trace": {}, "noise": None, "epochs": 2}
    pairs = [
        {**like, "seed": seed, "sets": {"all": {"n": 5, "base": 0.5, "other": 0.6 + seed / 100}}} for seed in range(3)
    ]
    pairs.append({**like, "seed": 3, "sets": {"all": {"n": 0, "base": None, "other": None}}})
    made = fill_findings("<!-- matched -->\n<!-- end -->", [], [table], pairs)
    t = 11 / (1 / math.sqrt(3))
    p = f"{1 - t / math.sqrt(t**2 + 2):.3f}"
    assert row_of(made, "digits | own | rolr+trace | 2 | all") == [
        *("digits", "own", "rolr+trace", "2", "all", "3", "5 ± 0", "50.00 ± 0.00", "61.00 ± 1.00", "+11.00", p),
        "higher",
    ]


def test_estimates_are_of_the_device(work):
    folder, table, _ = work
    lines = read_lines(folder / "digits.jsonl")
    assert all(line["device"].startswith("CPU") for line in lines)
    for device, known in (("cpu", True), ("cuda:0", False)):
        planned = plan_runs(table.pick(["RoLR"]), (7,), folder / "runs", lines, epochs=2, device=device)
        assert [one.seconds is not None for one in planned] == [known]


def test_data_that_is_not_there_stops_only_its_own_runs(work, tmp_path, monkeypatch):
    folder, table, planned = work

    def some_fail(config, noise, bars=None):
        if config.seed == 42:
            raise InputError("no such data")
        return config

    monkeypatch.setattr("labeltrace.experiments.runner.with_noise_file", some_fail)
    monkeypatch.setattr(
        "labeltrace.experiments.runner.run_all",
        lambda configs, *_, ended, **__: [ended(name, None) for name in configs],
    )
    bars = GridBars(Console(quiet=True), {one.name: 2 for one in planned})
    failed = fill(planned, folder / "runs", tmp_path / "runs.jsonl", table.cells, bars)
    assert failed == {one.name: "no such data" for one in planned if one.config.seed == 42}
    assert {line["seed"] for line in read_lines(tmp_path / "runs.jsonl")} == {0}
    with pytest.raises(InputError, match="no such data"):
        fill([one for one in planned if one.config.seed == 42], folder / "runs", tmp_path / "x", table.cells, bars)


def test_the_page_of_results_is_up_to_date():
    lines = read_lines(ROOT / results_file(TABLES))
    made = page(lines, map(load_table, TABLES))
    told = "python -m labeltrace.experiments.page > docs/results.md"
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == made, told


@pytest.mark.parametrize("name", ["findings.md", "findings_tables.md"])
def test_the_tables_of_the_findings_are_up_to_date(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    lines, tables = read_lines(ROOT / results_file(TABLES)), [load_table(name) for name in TABLES]
    made = fill_findings(text, lines, tables, read_pairs(ROOT / MATCHED_FILE))
    assert made == text, "python -m labeltrace.experiments.findings docs/findings*.md"


def test_a_failed_run_does_not_stop_the_others(work, tmp_path, monkeypatch):
    folder, table, planned = work

    def run_all(configs, out, bars, jobs, *, resume, ended):
        for place, name in enumerate(configs):
            ended(name, "the loss is not finite" if place == 1 else None)

    monkeypatch.setattr("labeltrace.experiments.runner.run_all", run_all)
    bars = GridBars(Console(quiet=True), {one.name: 2 for one in planned})
    failed = fill(planned, folder / "runs", tmp_path / "runs.jsonl", table.cells, bars)
    assert failed == {planned[1].name: "the loss is not finite"}
    assert len(read_lines(tmp_path / "runs.jsonl")) == 5
