"""Runs to be reviewed, small enough to be trained in a second or two; a server, and a client that asks anything."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np

from labeltrace.audit import read_samples, write_samples
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig
from labeltrace.runs import run

#: names that would break a page or a table that did not take care
NAMES = ("cat", "<b onclick=alert(1)>dog</b>", 'a, "b" & c')


def digits_run(out, count=60):
    """A run on digits whose table says review, relabel and keep in turn, more doubtful the later the sample."""
    config = {"data": "digits", "subset": count, "noise": "symmetric", "rate": 0.4, "epochs": 1, "device": "cpu"}
    run(RunConfig.model_validate({**config, "learner": "cross_entropy"}), out)
    retell(out, suggested=lambda observed: (observed + 1) % 10)
    return out


def features_run(out, count=30, width=5, names=NAMES):
    """Likewise on features, with class names that need care, or as many as there are to be."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % len(names)
    features = rng.normal(size=(count, width)).astype(np.float32) + labels[:, None]
    np.savez(out.parent / "data.npz", features=features, labels=np.array(names)[labels])
    config = {"data": str(out.parent / "data.npz"), "epochs": 1, "device": "cpu", "learner": "cross_entropy"}
    run(RunConfig.model_validate(config), out)
    retell(out, suggested=lambda observed: (observed + 1) % len(names))
    return out


def retell(out, suggested):
    """Let a table say what a test knows: decisions in turn, probabilities of the label that fall, other suggestions."""
    table = read_samples(out)
    count = table.num_rows
    observed = table["observed"].to_numpy()
    told = {
        "suggested": suggested(observed).astype(np.int32),
        "decision": np.array(["review", "relabel", "keep"])[np.arange(count) % 3],
        "observed_probability": np.linspace(0.9, 0.1, count).astype(np.float32),
        "observed_reliability": np.linspace(0.9, 0.1, count).astype(np.float32),
        "confidence": np.linspace(0.3, 0.99, count).astype(np.float32),
    }
    for name, values in told.items():
        table = table.set_column(table.column_names.index(name), name, [values])
    write_samples(table, out / "samples.parquet")


@contextlib.contextmanager
def serving(folder):
    """The server of a run, answering in a thread."""
    from labeltrace.review.server import ReviewServer

    server = ReviewServer(Run(folder, device="cpu"))
    begun = threading.Event()
    thread = threading.Thread(target=server.serve, args=(begun.set,))
    thread.start()
    begun.wait()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def command(folder, *words):
    """The command on a run, in a process of its own: the process and the address that it prints."""
    words = [sys.executable, "-m", "labeltrace", "review", str(folder), "--device", "cpu", "--json", *words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    text = ""
    while "}" not in text:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        text += line
    return process, json.loads(text)["address"]


@dataclass
class Answer:
    """What came back."""

    code: int
    headers: dict
    content: bytes

    @property
    def text(self):
        return self.content.decode()

    def json(self):
        return json.loads(self.content)


class Browser:
    """A client that has opened the address, or a stranger that has not; it sends paths and headers as they are."""

    def __init__(self, server, opened=True):
        self.server, self.cookie, self.home = server, {}, f"http://127.0.0.1:{server.port}"
        if opened:
            found = self.get(f"/?token={server.token}")
            assert found.code == 200
            self.cookie = {"Cookie": found.headers["set-cookie"].partition(";")[0]}

    def ask(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        headers = {"Host": f"127.0.0.1:{self.server.port}", **self.cookie, **dict(headers)}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        found = connection.getresponse()
        answer = Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        connection.close()
        return answer

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, value, headers=None):
        own = {"Origin": self.home, "Content-Type": "application/json"}
        return self.ask("POST", path, json.dumps(value).encode(), own if headers is None else headers)

    def look(self, **asked):
        answer = self.get("/api/look?" + "&".join(f"{name}={value}" for name, value in asked.items()))
        assert answer.code == 200, answer.text
        return answer.json()

    def decide(self, row, action, label=None, tab="one"):
        answer = self.post("/api/decide", {"row": row, "action": action, "label": label, "tab": tab})
        assert answer.code == 200, answer.text
        return answer.json()
