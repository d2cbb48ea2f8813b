"""The server of the review page: who may talk to it, what it shows, and what the command says."""

import csv
import errno
import io
import json
import os
import shlex
import shutil
import signal
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from PIL import Image

import reviewing
from labeltrace import cli
from labeltrace.audit import read_samples
from labeltrace.audit.ranking import DEFAULT, rankings
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig
from labeltrace.errors import InputError
from labeltrace.review.pictures import Pictures
from labeltrace.review.queue import Queue, Selection
from labeltrace.review.store import Event, Store
from labeltrace.runs import run
from reviewing import Browser, serving

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from labeltrace.review.server import ReviewServer


@pytest.fixture(scope="module")
def with_features(tmp_path_factory):
    return reviewing.features_run(tmp_path_factory.mktemp("features") / "run")


@pytest.fixture
def browser(server):
    return Browser(server)


@pytest.fixture(scope="module")
def still(trained, tmp_path_factory):
    """A server that nobody is to write to."""
    with serving(shutil.copytree(trained, tmp_path_factory.mktemp("still") / "run")) as server:
        yield server
        assert server.store.history() == []


@pytest.fixture(scope="module")
def reader(still):
    return Browser(still)


PATHS = ("/", "/page.js", "/page.css", "/api/about", "/api/look", "/api/similar/0", "/pictures/0", "/labels.diff.csv")


# Who may talk to it


@pytest.mark.parametrize("path", [*PATHS, "/nothing"])
def test_without_the_token_nothing_is_answered(still, path):
    stranger = Browser(still, opened=False)
    for query in ("", "?token=", "?token=wrong", f"?token={still.token[:-1]}"):
        answer = stranger.get(path + query)
        assert answer.code == 403 and "set-cookie" not in answer.headers
        assert still.token not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_the_address_opens_it_and_the_cookie_keeps_it_open(reader, path):
    assert reader.get(path).code == 200


def test_the_cookie_is_for_this_page_only(still):
    cookie = Browser(still, opened=False).get(f"/?token={still.token}").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert cookie.startswith(f"labeltrace-review-{still.port}={still.token};")
    assert len(still.token) >= 43  # 32 bytes


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{port}"]
)
def test_a_foreign_host_is_refused_whatever_it_brings(still, reader, host):
    name = host.format(port=still.port)
    for path in (f"/?token={still.token}", "/api/about"):
        answer = reader.get(path, Host=name)
        assert answer.code == 403 and "loopback" in answer.text
        assert "set-cookie" not in answer.headers


def test_localhost_is_this_machine(still, reader):
    assert reader.get("/api/about", Host=f"localhost:{still.port}").code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://127.0.0.1", "https://127.0.0.1:{port}", None]
)
def test_only_the_page_itself_writes(still, reader, origin):
    headers = {} if origin is None else {"Origin": origin.format(port=still.port)}
    for path, body in (("/api/decide", {"row": 0, "action": "keep"}), ("/api/undo", {})):
        answer = reader.post(path, body, {"Content-Type": "application/json", **headers})
        assert answer.code == 403 and "review page itself" in answer.text
    assert still.store.history() == []


def test_a_form_of_another_site_cannot_be_taken_for_a_decision(still, reader):
    """Forms can send text without asking; a decision is JSON."""
    headers = {"Origin": reader.home, "Content-Type": "text/plain"}
    answer = reader.post("/api/decide", {"row": 0, "action": "keep"}, headers)
    assert answer.code == 422 and still.store.history() == []


@pytest.mark.parametrize("path", [*PATHS, "/nothing", "/pictures/x"])
@pytest.mark.parametrize("opened", [True, False])
def test_every_answer_locks_the_page(still, path, opened):
    headers = Browser(still, opened).get(path, Origin="http://evil.example").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "no-store" in headers["cache-control"] or path == "/pictures/0"


@pytest.mark.parametrize(
    "path",
    ["/pictures/../config.yaml", "/pictures/..%2fconfig.yaml", "/pictures/%2e%2e/%2e%2e/etc/passwd",
     "/pictures//etc/passwd", "/config.yaml", "/page.py", "/server.py", "/../server.py", "/pictures/0/../../x", "/docs",
     "/openapi.json"],
)  # fmt: skip
def test_there_are_no_files_to_ask_for(reader, path):
    answer = reader.get(path)
    assert answer.code in (404, 422) and "learner" not in answer.text and "import" not in answer.text


@pytest.mark.parametrize("row", ["-1", "60", "99999999999999999999", "1.5", "a"])
def test_only_rows_of_the_run_have_pictures(reader, row):
    assert reader.get(f"/pictures/{row}").code in (400, 422)
    assert reader.get(f"/api/similar/{row}").code in (400, 422)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.com", "::", ""])
def test_other_hosts_than_this_machine_are_refused(folder, host):
    with pytest.raises(InputError, match="this machine only"):
        ReviewServer(Run(folder, device="cpu"), host=host)


# What it shows


def test_what_is_told_of_the_run(reader):
    about = reader.get("/api/about").json()
    assert about["decisions"] == {"doubted": 40, "review": 20, "relabel": 20, "keep": 20, "all": 60}
    assert about["classes"] == [str(i) for i in range(10)] and about["images"]


def walked(browser, **asked):
    rows, found = [], browser.look(move="next", **asked)
    for _ in range(found["total"]):
        rows.append(found["row"])
        found = browser.look(row=found["row"], move="next", **asked)
    assert found["row"] == rows[0]  # behind the last comes the first
    return rows


def test_the_queue_is_the_audits_with_doubted_samples_first(reader, trained):
    table = read_samples(trained)
    score, decision = rankings[DEFAULT](table), table["decision"].to_pylist()
    expected = sorted(range(60), key=lambda row: (decision[row] == "keep", -score[row], row))
    assert walked(reader, decision="all") == expected
    assert walked(reader) == expected[:40]
    assert walked(reader, decision="relabel") == [row for row in expected if decision[row] == "relabel"]
    observed = table["observed"].to_pylist()
    assert walked(reader, decision="all", observed=3) == [row for row in expected if observed[row] == 3]


def test_the_way_back_is_the_way_forth(reader):
    first, second = walked(reader)[:2]
    assert reader.look(row=second, move="previous")["row"] == first
    assert reader.look(row=first, move="previous")["row"] == walked(reader)[-1]
    assert [reader.look(row=row)["position"] for row in (first, second)] == [1, 2]
    assert reader.look(row=first)["ahead"][0].startswith(f"pictures/{second}?v=")


def test_a_sample_in_words_and_numbers(reader, trained):
    table = read_samples(trained)
    row = 58  # relabel
    sample = reader.look(row=row)["sample"]
    told = table.slice(row, 1).to_pylist()[0]
    assert (sample["id"], sample["decision"]) == (told["id"], "relabel")
    assert (sample["observed"], sample["suggested"]) == (told["observed"], (told["observed"] + 1) % 10)
    assert sample["label_reliability"] == told["observed_reliability"]
    assert sample["suggestion_reliability"] == told["confidence"]
    assert sample["why"] == "The label is not reliable, the suggestion is."
    assert "truth" not in sample and sample["held"] is None


def test_pictures_are_what_the_run_trains_on(reader, still):
    for row in (0, 59):
        answer = reader.get(f"/pictures/{row}")
        pixels = np.asarray(Image.open(io.BytesIO(answer.content)))
        assert answer.headers["content-type"] == "image/png"
        assert (pixels == still.run.train.inputs[row, 0].numpy()).all()


@pytest.mark.parametrize(
    "asked", ["decision=wrong", "state=x", "move=up", "observed=10", "observed=-1", "row=60", "row=-1", "row=x"]
)
def test_nonsense_is_refused_in_one_line(reader, asked):
    answer = reader.get(f"/api/look?{asked}")
    assert answer.code in (400, 422) and len(answer.text.strip().splitlines()) == 1


# Deciding


def test_decisions_are_kept_and_shown(browser, server):
    rows = walked(browser)
    observed = browser.look(row=rows[1])["sample"]["observed"]
    browser.decide(rows[0], "keep")
    browser.decide(rows[1], "relabel", (observed + 1) % 10)
    browser.decide(rows[2], "relabel", (browser.look(row=rows[2])["sample"]["observed"] + 5) % 10)
    browser.decide(rows[3], "skip")
    found = browser.look(state="open", move="next")
    assert found["row"] == rows[4]
    assert found["made"] == {"keep": 1, "suggestion": 1, "other": 1, "skip": 1}
    assert (found["total"], found["decided"], found["skipped"]) == (40, 3, 1)
    assert browser.look(state="skipped", move="next")["row"] == rows[3]
    assert browser.look(state="decided", row=rows[0], move="next")["row"] == rows[1]
    assert browser.look(row=rows[1])["sample"]["held"]["label"] == str((observed + 1) % 10)
    assert [event.row for event in server.store.decisions()] == rows[:4]


def test_the_label_itself_chosen_is_a_keep(browser, server):
    browser.decide(7, "relabel", browser.look(row=7)["sample"]["observed"])
    assert [(e.action, e.label) for e in server.store.decisions()] == [("keep", None)]


def test_two_tabs_see_each_other_and_the_last_wins(server):
    one, two = Browser(server), Browser(server)
    one.decide(5, "keep", tab="one")
    assert two.look(row=5)["sample"]["held"]["action"] == "keep"
    two.decide(5, "relabel", 9 if two.look(row=5)["sample"]["observed"] != 9 else 8, tab="two")
    two.decide(6, "skip", tab="two")
    assert one.look(row=5)["sample"]["held"]["action"] == "relabel"
    assert len(server.store.history(5)) == 2
    assert one.post("/api/undo", {"tab": "one"}).json()["row"] == 5  # its own, which another has replaced
    assert one.look(row=5)["sample"]["held"]["action"] == "relabel"
    assert one.post("/api/undo", {"tab": "one"}).json() is None
    assert two.post("/api/undo", {"tab": "two"}).json()["row"] == 6


@pytest.mark.parametrize(
    "body",
    [{}, {"row": 0}, {"row": 60, "action": "keep"}, {"row": -1, "action": "keep"}, {"row": 0, "action": "undo"},
     {"row": 0, "action": "keep", "label": 1}, {"row": 0, "action": "relabel"},
     {"row": 0, "action": "relabel", "label": 10}, {"row": 0, "action": "relabel", "label": -1},
     {"row": 0, "action": "keep", "tab": "x" * 65}, [], "keep"],
)  # fmt: skip
def test_no_other_decision_is_written(browser, server, body):
    assert browser.post("/api/decide", body).code in (400, 422)
    assert server.store.history() == []


def test_a_disk_that_is_full_is_told_and_what_was_kept_stays(browser, server):
    connection = server.store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")  # as if there were no room for another
    kept = 0
    while (answer := browser.post("/api/decide", {"row": kept % 60, "action": "keep"})).code == 200:
        kept += 1
    assert answer.code == 503 and answer.text == (
        f"{server.store.path}: database or disk is full; this is not kept, try again once that is put right\n"
    )
    assert len(server.store.history()) == kept
    connection.execute(f"PRAGMA max_page_count = {pages + 9}")
    assert browser.decide(5, "skip")["number"] == kept + 1


def test_the_export_is_the_label_diff(browser, folder, tmp_path, capsys):
    table = read_samples(folder).to_pylist()
    kept, other = (row for row in (58, 55))  # both relabelled by the run
    browser.decide(kept, "keep")
    browser.decide(other, "relabel", (table[other]["observed"] + 4) % 10)
    answer = browser.get("/labels.diff.csv")
    assert "attachment" in answer.headers["content-disposition"]
    found = {row["id"]: (row["from"], row["to"]) for row in csv.DictReader(io.StringIO(answer.text))}
    expected = {
        row["id"]: (str(row["observed"]), str(row["suggested"]))
        for row in table
        if row["decision"] == "relabel" and row["index"] != kept
    }
    expected[table[other]["id"]] = (str(table[other]["observed"]), str((table[other]["observed"] + 4) % 10))
    assert found == expected
    mine = browser.get("/labels.diff.csv?only_reviewed=true").text
    assert [row["id"] for row in csv.DictReader(io.StringIO(mine))] == [table[other]["id"]]
    # The command writes the same, also while the page is open.
    assert cli._main(["review", str(folder), "--export", str(tmp_path / "all.csv")]) == 0
    assert cli._main(["review", str(folder), "--export", str(tmp_path / "mine.csv"), "--only-reviewed", "--json"]) == 0
    assert (tmp_path / "all.csv").read_text() == answer.text and (tmp_path / "mine.csv").read_text() == mine
    out = capsys.readouterr().out
    assert "reviewed: keep 1, relabel 1, skip 0\n" in out
    assert "19 labels: 1 decided by a person, 18 by the run alone (--only-reviewed leaves these 18 out)\n" in out
    told = json.loads(out[out.index("{") :])
    assert (told["labels"], told["by_people"], told["by_run"]) == (1, 1, 0)


def test_an_export_takes_the_place_of_its_own_files_only(server, browser, folder, tmp_path, capsys):
    file = tmp_path / "d.csv"

    def export(*words):
        code = cli._main(["review", str(folder), "--export", str(file), *words])
        return code, capsys.readouterr().err

    def refused():
        code, told = export()
        return code == 2 and "d.csv: exists and is no label diff of this run; --overwrite" in told

    table = read_samples(folder).to_pylist()
    assert export() == (0, "")
    browser.decide(55, "relabel", (table[55]["observed"] + 4) % 10)
    assert export() == (0, "")  # a person's class, which then is taken back: it still stands in the history
    browser.post("/api/undo", {"tab": "one"})
    assert export("--only-reviewed") == (0, "") and len(file.read_text().splitlines()) == 1
    assert export() == (0, "")  # over a header alone
    ours = file.read_text()
    first, third = ours.splitlines()[1], str((table[1]["observed"] + 3) % 10)
    id_, before, _, why = next(csv.reader([first]))
    other = {
        "edited": ours.replace(first, f'"{id_}","{before}","{third}","{why}"'),
        "more": ours + '"my own","1","2","x"\n',
        "columns": ours.replace("id,from,to,why", "id,from,to,because"),
        "a manifest": "path,label\na.png,cat\n",
        "no table": "\0\1\2",
    }
    for name, text in other.items():
        file.write_text(text)
        assert refused(), name
        assert file.read_text() == text
    assert export("--overwrite") == (0, "") and file.read_text() == ours


def test_skips_are_counted_apart_when_the_page_opens_again(folder, monkeypatch, capsys):
    store = Store(folder / "review.sqlite", read_samples(folder))
    for row, decision in enumerate([("keep",), ("relabel", "3"), ("skip",), ("keep",)]):
        store.record(row, *decision)
    store.close()

    def serve(self, ready):
        ready()
        self.close()

    monkeypatch.setattr(ReviewServer, "serve", serve)
    assert cli._main(["review", str(folder), "--device", "cpu"]) == 0
    told = capsys.readouterr()
    assert "3 decided, 1 skipped so far" in told.out and "--only-reviewed leaves those out" in told.err


def test_what_is_told_to_type_can_be_typed_for_a_run_with_a_space_in_its_name(folder, tmp_path, monkeypatch, capsys):
    run, out = folder.rename(tmp_path / "my run"), tmp_path / "labels.csv"
    monkeypatch.setattr(ReviewServer, "serve", lambda self, ready: self.close())
    assert cli._main(["review", str(run), "--device", "cpu"]) == 0
    told = capsys.readouterr().err.removeprefix("ended; ").partition(" writes ")[0]
    assert shlex.split(told) == ["labeltrace", "review", str(run), "--export", "labels.diff.csv"]
    (run / "review.sqlite").unlink()
    assert cli._main(["review", str(run), "--export", str(out), "--only-reviewed"]) == 2
    told = capsys.readouterr().err.partition("anything yet; ")[2].removesuffix(" opens the page\n")
    assert shlex.split(told) == ["labeltrace", "review", str(run)]


# Similar samples


def ready(server, browser, row):
    browser.get(f"/api/similar/{row}")
    server.similar.wait()
    return browser.get(f"/api/similar/{row}").json()


def test_similar_samples_are_those_of_the_network(server, browser):
    found = ready(server, browser, 3)
    network, plan = server.run.network(), server.run.plan
    with torch.no_grad():
        features = network(plan.dataset.views.plain(server.run.train.inputs)).features[-1]
    cosine = [float(torch.cosine_similarity(features[3], features[i], dim=0)) for i in range(60)]
    expected = sorted((i for i in range(60) if i != 3), key=lambda i: -cosine[i])[:8]
    assert [row["row"] for row in found["rows"]] == expected
    assert [row["cosine"] for row in found["rows"]] == pytest.approx([cosine[i] for i in expected], abs=1e-3)
    assert found["by"] == "the network's last stage" and found["total"] == 60
    assert [row["observed"] for row in found["rows"]] == [int(server.run.train.labels[i]) for i in expected]


def test_without_a_checkpoint_pixels_are_compared(server, browser):
    server.run.checkpoint.unlink()
    found = ready(server, browser, 3)
    assert "pixels" in found["by"] and "checkpoint has gone" in found["by"] and len(found["rows"]) == 8


def test_that_there_are_none_is_said(server, browser, monkeypatch):
    monkeypatch.setattr("labeltrace.review.similar.SMALL", 10)
    server.run.checkpoint.unlink()
    found = ready(server, browser, 3)
    assert found["rows"] is None and "has gone" in found["problem"]


# Features, and names that need care


def test_features_that_stand_out(with_features, tmp_path, opened):
    server = opened(shutil.copytree(with_features, tmp_path / "run"))
    browser = Browser(server)
    sample = browser.look(row=4)["sample"]
    inputs = server.run.train.inputs.double().numpy()
    scores = (inputs[4] - inputs.mean(0)) / inputs.std(0)
    assert [f["number"] for f in sample["features"]] == np.argsort(-np.abs(scores)).tolist()
    assert [f["score"] for f in sample["features"]] == pytest.approx(sorted(scores, key=lambda s: -abs(s)))
    assert sample["picture"] is None and browser.get("/pictures/4").code == 400
    assert browser.get("/api/about").json()["classes"] == sorted(reviewing.NAMES)
    assert [row["picture"] for row in ready(server, browser, 4)["rows"]] == [None] * 8
    browser.decide(4, "relabel", (sample["observed"] + 1) % 3)
    told = next(csv.DictReader(io.StringIO(browser.get("/labels.diff.csv?only_reviewed=true").text)))
    assert told["from"] == sorted(reviewing.NAMES)[sample["observed"]]


def test_a_file_outside_the_folder_is_shown_only_because_the_run_trained_on_it(tmp_path, opened):
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    outside.mkdir()
    rows = ["path,label"]
    for i in range(8):
        place = outside if i == 7 else data
        Image.new("RGB", (8, 8), (30 * i, 0, 0)).save(place / f"{i}.png")
        rows.append(f"{'../outside' if i == 7 else '.'}/{i}.png,{'ab'[i % 2]}")
    (outside / "secret.png").write_bytes((outside / "7.png").read_bytes())
    (data / "labels.csv").write_text("\n".join(rows) + "\n")
    config = {"data": str(data / "labels.csv"), "epochs": 1, "device": "cpu", "learner": "cross_entropy"}
    run(RunConfig.model_validate(config), tmp_path / "run")
    browser = Browser(opened(tmp_path / "run"))
    shown = [np.asarray(Image.open(io.BytesIO(browser.get(f"/pictures/{i}").content)))[0, 0, 0] for i in range(8)]
    assert shown == [30 * i for i in range(8)]
    for path in ("/pictures/8", "/pictures/../outside/secret.png", "/pictures/secret.png"):
        assert browser.get(path).code in (400, 404, 422)


def test_pictures_of_a_split_of_colours():
    from labeltrace.data import Split

    images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
    png = Pictures(Split(images, torch.tensor([0, 1]))).png(1)
    assert (np.asarray(Image.open(io.BytesIO(png))) == images[1].permute(1, 2, 0).numpy()).all()


def test_the_queue_alone(folder):
    """An empty selection has no sample; one outside it is shown where it is asked for."""
    queue = Queue(read_samples(folder))
    kept = [Event(row, "", "", row, "", "keep") for row in range(60)]
    assert queue.find(Selection(state="open"), kept).row is None
    assert queue.find(Selection(state="open"), kept, row=2).row == 2
    place = queue.find(Selection(decision="review"), [], row=2)  # the run keeps sample 2
    assert (place.row, place.position) == (2, 0)


# The command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "this machine only"),
        (["--port", "70000"], "expected 1 to 65535"),
        (["--only-reviewed"], "--only-reviewed is given without --export"),
        (["--overwrite"], "--overwrite is given without --export"),
        (["--export", "labels.txt"], "expected a name that ends in .csv"),
        (["--export", "labels.csv", "--only-reviewed"], "nobody has decided anything yet"),
        (["--export", "labels.csv", "--trust-label", "-1"], "--trust-label -1: expected"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert cli._main(["review", "run", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and len(captured.err.splitlines()) == 1 and captured.out == ""
    assert not (tmp_path / "labels.csv").exists() and not (folder / "review.sqlite").exists()


def test_a_taken_port_and_a_folder_without_a_run(folder, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert cli._main(["review", str(folder), "--port", str(taken.getsockname()[1])]) == 2
        port, why = taken.getsockname()[1], os.strerror(errno.EADDRINUSE)
    told = capsys.readouterr().err
    assert told == f"labeltrace: port {port} of 127.0.0.1: {why}; leave --port out to take a free one\n"
    assert cli._main(["review", str(tmp_path)]) == 2
    assert "no run here" in capsys.readouterr().err


def test_an_export_before_any_decision_is_the_runs(folder, tmp_path, capsys):
    assert cli._main(["review", str(folder), "--export", str(tmp_path / "d.csv")]) == 0
    out = capsys.readouterr().out
    assert "reviewed: keep 0, relabel 0, skip 0\n" in out and "20 labels: 0 decided by a person, 20 by the run" in out
    assert not (folder / "review.sqlite").exists()


def test_other_thresholds_decide_anew_on_the_page_and_in_the_export(folder, tmp_path, capsys):
    table = read_samples(folder)  # all suggestions differ from the label
    label, confidence = (table[name].to_numpy() for name in ("observed_reliability", "confidence"))
    relabel = (label < 0.7) & (confidence >= 0.6)
    assert relabel.any() and not relabel.all()
    server = ReviewServer(Run(folder, device="cpu"), trust=(0.7, 0.6))
    try:
        about = server.about()
        assert about["enough"] == {"label": 0.7, "suggestion": 0.6}
        counts = about["decisions"]
        assert (counts["relabel"], counts["review"], counts["keep"]) == (relabel.sum(), (~relabel).sum(), 0)
        unsure = int(np.flatnonzero((label < 0.7) & (label >= 0.5) & (confidence < 0.6))[0])
        assert "not reliable enough to replace" in server.sample(unsure, None)["why"]
        trusted = int(np.flatnonzero(label >= 0.7)[0])
        assert "the label looks reliable" in server.sample(trusted, None)["why"]
    finally:
        server.close()
    words = ["--trust-label", "0.7", "--trust-suggestion", "0.6", "--export", str(tmp_path / "d.csv")]
    assert cli._main(["review", str(folder), *words]) == 0
    with (tmp_path / "d.csv").open(newline="") as file:
        found = {row["id"] for row in csv.DictReader(file)}
    assert found == {table["id"][int(i)].as_py() for i in np.flatnonzero(relabel)}


def test_data_that_has_gone_or_changed_is_told(with_features, tmp_path, capsys):
    folder = shutil.copytree(with_features, tmp_path / "run")
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace(str(with_features.parent), str(tmp_path)))
    assert cli._main(["review", str(folder)]) == 2
    assert "no such file" in capsys.readouterr().err
    found = dict(np.load(with_features.parent / "data.npz"))
    np.savez(tmp_path / "data.npz", features=found["features"], labels=found["labels"][::-1])
    assert cli._main(["review", str(folder)]) == 2
    assert "the dataset has changed since it began" in capsys.readouterr().err
    count = len(found["labels"])
    np.savez(tmp_path / "data.npz", features=found["features"][:-1], labels=found["labels"][:-1])
    assert cli._main(["review", str(folder)]) == 2
    told = f"it began with {count:,} samples, now there are {count - 1:,}, without {count - 1};"
    assert told in capsys.readouterr().err


def test_the_command_serves_and_ctrl_c_ends_it(folder):
    process, address = reviewing.command(folder)
    with urllib.request.urlopen(address) as answer:
        assert b"labeltrace review" in answer.read() and "server" not in answer.headers
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.partition("?")[0])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "") and "Traceback" not in err
