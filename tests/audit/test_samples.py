"""The samples table: its columns, what stands in them, how well wrong labels were found."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import toy
from labeltrace.audit import class_names, cleanlab_view, detection, read_samples, samples_table, write_samples
from labeltrace.data import from_arrays
from labeltrace.engine import train
from labeltrace.errors import InputError

# The design, section 6.
COLUMNS = [
    "index", "id", "observed", "suggested", "clean", "structure", "agreement", "observed_reliability",
    "pseudo_reliability", "a", "b", "weight", "decision", "truth",
]  # fmt: skip
NUMBERS = ["clean", "structure", "observed_reliability", "pseudo_reliability", "a", "b", "weight"]
PETS = ["owl", "cat", "dog"]  # not in alphabetical order


def pets(with_truth=True):
    """Blobs whose labels are words and whose samples are files."""
    data = toy.blobs()
    words = np.array(PETS)
    return from_arrays(
        data.train.inputs,
        words[data.train.labels],
        truth=words[data.train.truth] if with_truth else None,
        ids=[f"pets/{i:03}.png" for i in range(96)],
        name="pets",
    )


def table_of(folder, data, learner="rolr", **changes):
    trained = train(toy.config(learner, **changes), folder, dataset=data)
    return trained, samples_table(trained)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A run with TRACE at full strength."""
    trace = {"start": 0, "ramp": 0, "k": 5, "score_batch": 16}
    return table_of(tmp_path_factory.mktemp("samples") / "run", pets(), trace=trace)


@pytest.fixture(scope="module")
def table(traced):
    return traced[1]


def column(table, name):
    return np.array(table[name].to_pylist())


def test_the_columns_are_the_designs_and_extra_ones_come_after(table):
    assert table.column_names[: len(COLUMNS)] == COLUMNS
    assert len(set(table.column_names)) == len(table.column_names)


def test_the_types_of_the_columns(table):
    schema = table.schema
    for name in ("index", "observed", "suggested", "truth"):
        assert pa.types.is_integer(schema.field(name).type), name
    for name in ("id", "decision"):
        assert pa.types.is_string(schema.field(name).type), name
    for name in NUMBERS:
        assert pa.types.is_floating(schema.field(name).type), name
    assert pa.types.is_boolean(schema.field("agreement").type)
    assert all(table[name].null_count == 0 for name in COLUMNS)


def test_one_row_per_sample_under_its_name(table):
    assert column(table, "index").tolist() == list(range(96))
    assert column(table, "id").tolist() == [f"pets/{i:03}.png" for i in range(96)]


def test_samples_without_names_go_by_their_number(tmp_path):
    _, table = table_of(tmp_path / "run", toy.blobs(), "cross_entropy", epochs=1)
    assert column(table, "id").tolist() == [str(i) for i in range(96)]


def test_a_subset_keeps_the_names_of_the_originals(tmp_path):
    _, table = table_of(tmp_path / "run", pets(), "cross_entropy", epochs=1, subset=30)
    ids = column(table, "id").tolist()
    assert len(ids) == 30 and column(table, "index").tolist() == list(range(30))
    given = dict(zip((f"pets/{i:03}.png" for i in range(96)), np.array(PETS)[toy.blobs().train.labels], strict=True))
    names = class_names(table)
    assert [names[code] for code in column(table, "observed")] == [given[name] for name in ids]


def test_labels_come_back_as_the_words_they_were(table):
    assert json.loads(table.schema.metadata[b"labeltrace.classes"]) == class_names(table)
    assert sorted(class_names(table)) == sorted(PETS)
    names, data = np.array(class_names(table)), toy.blobs()
    assert names[column(table, "observed")].tolist() == np.array(PETS)[data.train.labels].tolist()
    assert names[column(table, "truth")].tolist() == np.array(PETS)[data.train.truth].tolist()


def test_class_names_of_other_alphabets_survive(tmp_path):
    inputs = np.random.default_rng(0).normal(size=(20, 4))
    data = from_arrays(inputs, ["猫", "Bär"] * 10, name="pets")
    _, table = table_of(tmp_path / "run", data, "cross_entropy", epochs=1)
    write_samples(table, tmp_path / "samples.parquet")
    assert sorted(class_names(read_samples(tmp_path / "samples.parquet"))) == ["Bär", "猫"]


def test_numbers_lie_where_they_should(table):
    for name in (*NUMBERS[:-1], "confidence"):
        values = column(table, name)
        assert (values >= 0).all() and (values <= 1).all(), name
    assert column(table, "weight").mean() == pytest.approx(1, abs=1e-5)
    assert set(column(table, "suggested")) <= {0, 1, 2}
    assert len(set(column(table, "clean"))) > 1 and len(set(column(table, "structure"))) > 1


def test_the_numbers_are_traces(table):
    """a = s_obs, b = (1 − s_obs) s_pseudo, w = max(a + b, 0.2) over its mean, row by row."""
    rows = table.to_pylist()
    strength = [max(row["a"] + row["b"], 0.2) for row in rows]
    mean = sum(strength) / len(rows)
    for row, raw in zip(rows, strength, strict=True):
        blend = 0.7 * row["clean"] + 0.3 * row["structure"]
        assert row["observed_reliability"] == pytest.approx(blend * (1.0 if row["agreement"] else 0.5), abs=1e-5)
        assert row["pseudo_reliability"] == pytest.approx(row["confidence"], abs=1e-6)
        assert row["a"] == pytest.approx(row["observed_reliability"], abs=1e-6)
        assert row["b"] == pytest.approx((1 - row["a"]) * row["pseudo_reliability"], abs=1e-5)
        assert row["weight"] == pytest.approx(raw / mean, abs=1e-5)


def test_decisions_follow_from_the_row(table):
    for row in table.to_pylist():
        label, suggestion = row["observed_reliability"] >= 0.5, row["confidence"] >= 0.9
        if row["observed"] == row["suggested"] or (label and not suggestion):
            expected = "keep"
        else:
            expected = "relabel" if suggestion and not label else "review"
        assert row["decision"] == expected


def test_suggestions_are_those_of_the_networks_after_training(traced):
    trained, table = traced
    data = trained.plan.dataset
    with torch.no_grad():
        votes = [network.eval()(data.views.plain(data.train.inputs)).logits.softmax(1) for network in trained.networks]
    mean = (votes[0] + votes[1]) / 2
    assert column(table, "suggested").tolist() == mean.argmax(1).tolist()
    assert column(table, "confidence") == pytest.approx(mean.amax(1).numpy(), abs=1e-5)
    assert column(table, "agreement").tolist() == (votes[0].argmax(1) == votes[1].argmax(1)).tolist()


def test_what_the_networks_think_of_the_label(traced):
    """Probability of the observed class and cross-entropy, each a mean over the networks."""
    trained, table = traced
    data = trained.plan.dataset
    with torch.no_grad():
        votes = [network.eval()(data.views.plain(data.train.inputs)).logits.softmax(1) for network in trained.networks]
    own = [[float(vote[i, label]) for i, label in enumerate(data.train.labels.tolist())] for vote in votes]
    expected = [sum(pair) / 2 for pair in zip(*own, strict=True)]
    assert column(table, "observed_probability") == pytest.approx(expected, abs=1e-5)
    losses = [-(math.log(one) + math.log(two)) / 2 for one, two in zip(*own, strict=True)]
    assert column(table, "loss") == pytest.approx(losses, abs=1e-4)


def test_the_coupled_mix_gives_what_the_label_loses(tmp_path):
    _, table = table_of(tmp_path / "run", toy.blobs(), controller="coupled")
    assert column(table, "a") == pytest.approx(column(table, "clean"), abs=1e-6)
    assert column(table, "b") == pytest.approx(1 - column(table, "clean"), abs=1e-6)
    assert (column(table, "weight") == 1).all()


def test_one_network_has_nobody_to_agree_with(tmp_path):
    _, table = table_of(tmp_path / "run", toy.blobs(), "cross_entropy")
    assert table.column_names[: len(COLUMNS)] == COLUMNS
    assert table["agreement"].null_count == 96
    assert pa.types.is_boolean(table.schema.field("agreement").type)
    assert (column(table, "a") == 1).all() and (column(table, "b") == 0).all() and (column(table, "weight") == 1).all()


def test_there_is_no_truth_where_it_is_not_known(tmp_path):
    _, table = table_of(tmp_path / "run", pets(with_truth=False), "cross_entropy", epochs=1)
    assert table.column_names[: len(COLUMNS) - 1] == COLUMNS[:-1]
    assert "truth" not in table.column_names


def test_writing_and_reading_changes_nothing(table, tmp_path):
    write_samples(table, tmp_path / "samples.parquet")
    for path in (tmp_path, tmp_path / "samples.parquet"):  # a run's folder, or the file itself
        assert read_samples(path).equals(table, check_metadata=True)
    assert [p.name for p in tmp_path.iterdir()] == ["samples.parquet"]
    assert pq.read_table(tmp_path / "samples.parquet").column_names == table.column_names


def test_a_run_without_a_table_is_named(tmp_path):
    for path in (tmp_path / "nothing", tmp_path / "samples.parquet"):
        with pytest.raises(InputError) as caught:
            read_samples(path)
        assert str(caught.value) == f"{path}: no such run or file"
    with pytest.raises(InputError, match="no samples table; no run here"):
        read_samples(tmp_path)
    begun = tmp_path / "my run"
    begun.mkdir()
    (begun / "config.yaml").touch()
    with pytest.raises(InputError, match=f"has not finished; labeltrace train --resume '{begun}' goes on"):
        read_samples(begun)


def test_a_file_that_is_no_table_is_named(tmp_path):
    (tmp_path / "samples.parquet").write_text("not parquet")
    with pytest.raises(InputError) as caught:
        read_samples(tmp_path)
    assert str(tmp_path / "samples.parquet") in str(caught.value)


# observed, suggested, truth, decision
ROWS = [
    (0, 0, 0, "keep"),  # right and kept
    (0, 1, 1, "relabel"),  # wrong, found, rightly relabelled
    (0, 1, 0, "relabel"),  # right, but called wrong, and relabelled wrongly
    (1, 0, 2, "review"),  # wrong, found, suggestion wrong
    (1, 1, 2, "keep"),  # wrong and missed
    (2, 2, 2, "keep"),
    (2, 0, 2, "review"),  # right, but called wrong
    (1, 0, -1, "relabel"),  # truth unknown: counts nowhere
]


def small(rows):
    observed, suggested, truth, decision = zip(*rows, strict=True) if rows else ([], [], [], [])
    return pa.table(
        {
            "observed": pa.array(observed, pa.int32()),
            "suggested": pa.array(suggested, pa.int32()),
            "decision": pa.array(decision, pa.string()),
            "observed_reliability": pa.array([0.1 * i for i in range(len(rows))], pa.float32()),
            "truth": pa.array(truth, pa.int32()),
        }
    )


def test_detection_by_hand():
    """Of seven known labels three are wrong (rows 1, 3, 4); four are called wrong (1, 2, 3, 6), two of them rightly.

    Two relabels (1, 2) make one label right and one wrong, so that as many are right after as before.
    """
    assert detection(small(ROWS)) == pytest.approx(
        {
            "precision": 2 / 4,
            "recall": 2 / 3,
            "suggestion_accuracy": 3 / 7,
            "relabel_accuracy": 1 / 2,
            "right_after": 4 / 7,
        }
    )


@pytest.mark.parametrize(
    ("rows", "empty"),
    [
        ([ROWS[0], ROWS[4]], {"precision", "relabel_accuracy"}),  # nothing was called wrong
        ([ROWS[0], ROWS[6]], {"recall", "relabel_accuracy"}),  # nothing was wrong
        ([ROWS[3]], {"relabel_accuracy"}),
        ([ROWS[7]], {"precision", "recall", "suggestion_accuracy", "relabel_accuracy", "right_after"}),  # no truth
        ([], {"precision", "recall", "suggestion_accuracy", "relabel_accuracy", "right_after"}),
    ],
)
def test_a_share_of_nothing_is_nan(rows, empty):
    assert {name for name, value in detection(small(rows)).items() if math.isnan(value)} == empty


def test_cleanlabs_names():
    view = cleanlab_view(small(ROWS))
    assert view.column_names == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert view["is_label_issue"].to_pylist() == [False, True, True, True, False, False, True, True]
    assert view["label_quality"].to_pylist() == pytest.approx([0.1 * i for i in range(8)])
    assert view["given_label"].to_pylist() == [row[0] for row in ROWS]
    assert view["predicted_label"].to_pylist() == [row[1] for row in ROWS]


def test_cleanlabs_view_of_a_run(table):
    view = cleanlab_view(table)
    assert view.num_rows == 96
    assert class_names(view) == class_names(table)
    assert view["label_quality"].to_pylist() == table["observed_reliability"].to_pylist()
