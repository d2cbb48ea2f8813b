"""The examples run as they stand."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_loop_finds_better_labels_than_it_was_given(capsys):
    source = (EXAMPLES / "own_loop.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 80
    accuracy, found = runpy.run_path(str(EXAMPLES / "own_loop.py"))["main"](18)
    assert accuracy > 0.85 and found > 0.85  # six in ten of the given labels are right
    assert "test accuracy" in capsys.readouterr().out
