"""The tables hold what the paper prints, and every run they name can be built."""

import re
from pathlib import Path

import pytest

from labeltrace.control import TraceConfig
from labeltrace.data import datasets, noises
from labeltrace.errors import InputError
from labeltrace.experiments import TABLES, load_table, read_table
from labeltrace.experiments.cells import config_hash, config_of, noise_of, run_key
from labeltrace.experiments.plan import plan_runs
from labeltrace.experiments.tables import pick
from labeltrace.learners import learners
from labeltrace.models import models
from labeltrace.plugins import plugins

PAPER = next(
    (path for up in Path(__file__).resolve().parents if (path := up / "shared" / "paper" / "trace.tex").exists()), None
)
PRINTED = [name for name in TABLES if load_table(name).label]
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?|--")


@pytest.fixture(scope="module")
def paper():
    if PAPER is None:
        pytest.skip("the paper (shared/paper/trace.tex) is not beside this checkout")
    return PAPER.read_text(encoding="utf-8")


def body(paper, label):
    """The lines of a tabular as lists of cells, without commands that only change the look."""
    place = paper.index(f"\\label{{{label}}}")
    text = paper[paper.rindex("\\begin{table", 0, place) : place]
    text = text[text.index("\\begin{tabular}") : text.index("\\end{tabular}")]
    text = re.sub(
        r"\\(mid|top|bottom)rule|\\cmidrule(\(.*?\))?\{.*?\}|\\cite\{.*?\}|\\quad|\\shortstack(\[.\])?", "", text
    )
    text = re.sub(r"\\multi(column|row)\{.*?\}\{.*?\}", "", text)
    text = re.sub(r"\\(textbf|underline|textit)", "", text).replace("\\%", "%")
    lines = [[re.sub(r"[{}]", "", cell).strip() for cell in line.split("&")] for line in re.split(r"\\\\", text)]
    return [line for line in lines if any(line)]


def numbers(line):
    cells = [part.strip() for cell in line for part in cell.split(" / ")]
    return [cell for cell in cells if NUMBER.fullmatch(cell)]


def test_the_reader_of_latex_reads(paper):
    lines = body(paper, "tab:main_ablation")
    assert ["TRACE", "76.95", "76.22"] in lines
    assert numbers(["CIFAR10-Sym20", "98.38 / 98.58", "\\(0.5\\)", "--", "+0.70", ""]) == [
        "98.38",
        "98.58",
        "--",
        "+0.70",
    ]


def test_all_tables_but_one_are_the_papers():
    assert set(TABLES) - set(PRINTED) == {"choices"}
    assert not any(cell.published for cell in load_table("choices").cells)


@pytest.mark.parametrize("name", PRINTED)
def test_every_number_is_the_papers(name, paper):
    table = load_table(name)
    printed = [line for line in body(paper, table.label) if len(numbers(line)) > 1]
    rows = [row for row in table.rows if any(cell.published for cell in table.cells if cell.row == row)]
    assert len(printed) == len(rows)
    for row, line in zip(rows, printed, strict=True):
        ours = [table.cell(row, column).published for column in table.columns]
        assert [number for number in ours if number is not None] == numbers(line), row
        told = re.sub(r"[\\()]", "", line[0] if name not in ("sensitivity", "sensitivity-appendix") else line[1])
        assert told.split()[-1].lower() in row.lower() or told.split()[0].lower() in row.lower(), (row, line)


def test_rates_and_kinds_of_columns_are_the_papers(paper):
    head = next(line for line in body(paper, "tab:main_1") if line[0].startswith("Method"))
    cells = [table_cell for table_cell in load_table("main").cells if table_cell.row == "RoLR" and table_cell.run]
    assert [f"{cell.run['rate']:.0%}" for cell in cells] == head[1:11]
    kinds = {"sym": "symmetric", "pair": "pair", "ins": "instance"}
    assert [cell.run["noise"] for cell in cells] == [kinds[cell.column.split()[1]] for cell in cells]
    small = next(line for line in body(paper, "tab:appendix_pair_ins_20") if "Pair-20%" in line)
    columns = [column.split() for column in load_table("pair-instance-20").columns]
    assert [f"{kind.title()}-{rate}%" for _, kind, rate, _ in columns] == small[1:]


@pytest.mark.parametrize("name", TABLES)
def test_rows_times_columns(name):
    table = load_table(name)
    assert len(table.cells) == len(table.rows) * len(table.columns) == len({cell.id for cell in table.cells})
    assert all(table.cell(cell.row, cell.column) is cell for cell in table.cells)


@pytest.mark.parametrize("name, gain", [("main", "Avg. Δ"), ("cifar-n", "Avg. Δ"), ("large-scale", "Avg. Δ")])
def test_the_papers_mean_gains_are_those_of_its_cells(name, gain):
    table = load_table(name)
    columns = [column for column in table.columns if column != gain]
    checked = 0
    for row in table.rows:
        printed = table.cell(row, gain).number
        if printed is not None:
            base = row.partition(" + ")[0]
            gaps = [table.cell(row, column).number - table.cell(base, column).number for column in columns]
            if row == "DISC + TRACE" and name == "large-scale":  # the paper's own slip, said in `about`
                assert (printed, sum(gaps) / len(gaps)) == (0.48, pytest.approx(0.40))
                continue
            assert printed == pytest.approx(sum(gaps) / len(gaps), abs=0.0051), row
            checked += 1
    assert checked == {"main": 4, "cifar-n": 3, "large-scale": 7}[name]


def test_one_number_in_two_tables_is_one_number():
    summary, full = load_table("pseudo-summary"), load_table("pseudo-reliability")
    for row in summary.rows:
        for method in ("RoLR", "TRACE"):
            assert summary.cell(row, method).published == full.cell(row, f"Low-clean+noisy {method}").published
    trace = load_table("ablation").cell("TRACE", "Best").published
    for name in ("sensitivity", "sensitivity-appendix"):
        table = load_table(name)
        standard = [
            row for row in table.rows if not [c for c, _ in table.pairs if c.row == row] and "0.5" not in row[:7]
        ]
        assert all(table.cell(row, "Best").published == trace for row in standard) and len(standard) >= 2


@pytest.mark.parametrize("name", TABLES)
def test_every_run_names_what_exists(name):
    seen = set()
    for cell in load_table(name).cells:
        if not cell.run:
            assert cell.measure is None
            continue
        assert cell.run["data"] in datasets and cell.run["learner"] in learners and cell.run["model"] in models
        assert ("noise" in cell.run) == ("rate" in cell.run)
        assert cell.run.get("noise", "symmetric") in noises
        if not cell.refused and run_key(cell) not in seen:
            seen.add(run_key(cell))
            config = config_of(cell, 100, seed=7)
            assert (config.epochs, config.seed, config.settings["epochs"]) == (100, 7, 100)
            assert not str(config.preset).startswith("oracle")


def test_what_is_refused_really_cannot_be_run():
    cells = [cell for name in TABLES for cell in load_table(name).cells if cell.refused and cell.run]
    assert {cell.row for cell in cells} == {"ρ = 0.5"}
    for cell in cells:
        with pytest.raises(InputError, match="rho"):
            config_of(cell, 100, seed=0)


def test_every_number_of_the_paper_has_a_run_or_a_reason():
    """All that is left are columns of differences."""
    left = {c.column for name in PRINTED for c in load_table(name).cells if c.published and not c.run and not c.refused}
    assert left == {"Avg. Δ", "Gain"}


def test_methods_that_are_not_here_have_numbers_a_reason_and_no_run():
    absent = set()
    for name in ("main", "cifar-n"):
        table = load_table(name)
        for cell in table.cells:
            if cell.refused == "this method is not in the package":
                assert cell.number is not None or cell.published in ("--", None)
                assert not cell.run
                absent |= {cell.row.replace("-", "_").lower(), cell.row.rpartition(" + ")[2].lower()}
        assert any("not in the package" in words for words in table.refusals())
    assert absent == {"rankmatch", "ccl", "negscale"}
    assert not absent & {*learners, *plugins}, "its row can have a run now"


def test_refusals_name_rows_or_columns():
    table = load_table("large-scale")
    assert table.refusals() == [
        "WebVision Top5, ILSVRC12 Top5: a run keeps top-1 accuracy alone",
    ]
    main = load_table("main")
    assert main.refusals(main.pick(["CCL"])) == ["CCL: this method is not in the package"]
    assert load_table("ablation").refusals() == []


def test_several_tables_are_picked_from_where_the_texts_fit():
    main, human = load_table("main"), load_table("cifar-n")
    assert {cell.id for cell in pick([main, human], ["RoLR", "Worst"])} == {"cifar-n/RoLR/CIFAR-10N Worst"}
    both = pick([main, human], ["RoLR + TRACE"])
    assert len(both) == 16 and {cell.table for cell in both} == {"main", "cifar-n"}
    with pytest.raises(InputError, match="no such row or column of main, cifar-n"):
        pick([main, human], ["nobody"])
    with pytest.raises(InputError, match="none of these tables has them all"):
        pick([main, human], ["DISC", "Worst"])
    with pytest.raises(InputError, match="no such row or column of main; it has: JoCoR"):
        pick([main], ["Worst"])


def test_choices_change_one_thing():
    table = load_table("choices")
    configs = {row: config_of(table.cell(row, "Best"), 60, seed=0) for row in table.rows}
    assert len({config_hash(config) for config in configs.values()}) == len(table.rows)
    trace = configs["TRACE"].trace
    for row in table.rows:
        if " = " in row or row == "without structure":
            other = configs[row].trace
            (changed,) = [key for key in trace if trace[key] != other[key]]
            assert changed in row and configs[row].settings == configs["TRACE"].settings
    for row in ("plain scoring view", "batches of Appendix A"):
        base, ours = configs[f"RoLR, {row}"], configs[f"TRACE, {row}"]
        assert base.settings == ours.settings != configs["RoLR"].settings
    main = load_table("main").cell("RoLR + TRACE", "CIFAR-100 sym 50 %")
    assert config_hash(config_of(main, 60, seed=0)) == config_hash(configs["TRACE"])


def test_variants_are_options_of_trace():
    table = load_table("ablation")
    trace = {row: config_of(table.cell(row, "Best"), None, seed=0).trace for row in table.rows}
    paper = {**vars(TraceConfig())}
    assert trace["RoLR (base)"] == {} and trace["TRACE"] == paper
    assert trace["Decoupled w/o c_str"] == {**paper, "structure": False, "reweight": False}
    assert trace["Decoupled w/o g_agr"] == {**paper, "agreement": False, "reweight": False}
    assert trace["TRACE without structure"] == {**paper, "structure": False}


def test_two_names_of_one_computation_are_one_run():
    cells = [cell for cell in load_table("ablation").cells if cell.column == "Best"]
    hashes = {cell.row: config_hash(config_of(cell, 100, seed=0)) for cell in cells}
    assert hashes["Refined s_obs only"] == hashes["Coupled null (b = 1 − s_obs)"]
    assert len(set(hashes.values())) == len(cells) - 1


def test_the_same_run_in_several_tables_has_one_hash():
    places = [
        ("main", "RoLR + TRACE", "CIFAR-100 sym 50 %"),
        ("ablation", "TRACE", "Last"),
        ("sensitivity", "α = 0.7", "Best"),
        ("sensitivity-appendix", "pseudo start = 30", "HC Wrong"),
        ("pseudo-summary", "CIFAR100-Sym50", "TRACE"),
        ("pseudo-reliability", "CIFAR100-Sym50", "clean < 0.3 TRACE"),
    ]
    cells = [load_table(name).cell(row, column) for name, row, column in places]
    assert len({config_hash(config_of(cell, 60, seed=0)) for cell in cells}) == 1
    assert {noise_of(cell) for cell in cells} == {("symmetric", 0.5)}


def test_epochs_of_trace_shrink_with_the_run():
    cell = load_table("sensitivity-appendix").cell("pseudo start = 40", "Best")
    whole, fifth = config_of(cell, None, seed=0), config_of(cell, 103, seed=0)
    assert (whole.epochs, whole.trace["pseudo_start"], whole.trace["start"]) == (515, 40, 30)
    assert (fifth.trace["pseudo_start"], fifth.trace["start"], fifth.trace["ramp"], fifth.settings["warmup"]) == (
        8,
        6,
        4,
        3,
    )


def test_recipes_of_a_hundred_classes_are_taken_where_there_are_some():
    table = load_table("main")
    assert config_of(table.cell("DivideMix", "CIFAR-100 sym 50 %"), None, seed=0).preset == "cifar100"
    assert config_of(table.cell("RoLR", "CIFAR-100 sym 50 %"), None, seed=0).preset == "cifar"


def test_only_picks_by_name_or_by_text():
    table = load_table("main")
    assert {cell.row for cell in table.pick(["rolr"])} == {"RoLR"}
    assert {cell.row for cell in table.pick(["RoLR +"])} == {"RoLR + TRACE", "RoLR + TRACE without structure"}
    picked = table.pick(["RoLR", "DISC", "sym 50"])
    assert {(cell.row, cell.column) for cell in picked} == {
        (row, column) for row in ("RoLR", "DISC") for column in ("CIFAR-10 sym 50 %", "CIFAR-100 sym 50 %")
    }
    assert all(cell.refused and not cell.run for cell in table.pick(["RankMatch"]))
    with pytest.raises(InputError, match="no such row or column of main"):
        table.pick(["RoLRR"])


GOOD = """
title: t
label: l
about: a
measure: best
run: {data: digits, model: small_cnn}
columns: {One: {}, Two: {}}
rows: {A: {run: {learner: rolr, controller: coupled}, published: 1.0 2.0}}
"""


@pytest.mark.parametrize(
    "change, message",
    [
        (("1.0 2.0", "1.0 2.0 3.0"), "A: 3 published numbers for 2 columns"),
        (("published:", "publshed:"), "publshed"),
        (("published:", "against: [B], published:"), "tested against B"),
        (("title: t", "titel: t"), "did you mean 'title'"),
        (("{data: digits,", "{data: digits, noise_file: own.npz,"), "A, One: 'noise_file' is no key of a table's run"),
        (("Two: {}", "Two: {run: {noise_seed: 1}}"), "A, Two: 'noise_seed' is no key"),
        (
            ("One: {}, Two: {}", "One: {run: {data: a/x.npz}}, Two: {run: {data: b/x.npz}}"),
            "A, Two: .*b/x.npz and",
        ),
        (("Two: {}", "Two: {run: {read: {test: b/x}}}, Three: {run: {read: {test: a/x}}, ours: true}"), "rename one"),
        (("Two: {}", "Two: {run: {noise: symmetric}}"), "A, Two: noise and rate go together"),
        (("Two: {}", "Two: {run: {rate: 0.4}}"), "A, Two: noise and rate go together"),
        (("Two: {}", "Two: {run: {trace: 5}}"), "run: trace: expected keys and values, got 5"),
        (("model: small_cnn}", "model: small_cnn, settings: [lr]}"), r"run: settings: expected keys .* \['lr'\]"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(change, message, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD, encoding="utf-8")
    assert read_table(file).cell("A", "Two").number == 2.0
    file.write_text(GOOD.replace(*change), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_table(file)


def test_the_table_in_the_documentation_can_be_planned(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", page, re.S)[0], encoding="utf-8")
    planned = plan_runs(read_table(file).pick([]), [0], tmp_path / "runs", [])
    assert len(planned) == 4 == len({run.name for run in planned}) and len(read_table(file).pairs) == 2


def test_a_cell_without_a_recipe_or_with_the_wrong_controller_is_refused(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(InputError, match="rolr has no recipe"):
        config_of(read_table(file).cells[0], None, seed=0)
    text = GOOD.replace("columns:", "recipes: [small]\ncolumns:")
    file.write_text(text, encoding="utf-8")
    assert config_of(read_table(file).cells[0], None, seed=0).preset == "small"
    file.write_text(text.replace(", controller: coupled", ""), encoding="utf-8")
    with pytest.raises(InputError, match="needs a controller"):
        config_of(read_table(file).cells[0], None, seed=0)
