"""The measured tables of docs/performance.md are what results/ says."""

import json
from pathlib import Path

from labeltrace.bench.page import MEASUREMENTS, PLACE, page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"


def test_the_page_is_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, ROOT / "results") == text, "python -m labeltrace.bench.page"


def test_every_measurement_has_its_place():
    assert {place[2] for place in PLACE.finditer(PAGE.read_text(encoding="utf-8"))} >= set(MEASUREMENTS)


def test_a_place_is_filled_and_filled_again(tmp_path):
    text = "# Before\n\n<!-- bench_growth.json -->\nold\n<!-- end -->\n\nAfter.\n"
    empty = page(text, tmp_path)
    assert "Not measured yet: `labeltrace bench growth --out results/bench_growth.json`" in empty and "old" not in empty
    record = {"part": "fit", "samples": 1000, "seconds": 0.002, "passes": [], "result_bytes": 4000, "peak_bytes": None}
    where = {"date": "2026-01-02", "device": "CPU (x)", "cores": 2, "torch": "2.6", "revision": "abc"}
    result = {"records": [record], "exponents": {"fit": None}, "memory": {}, "threads": 2, "environment": where}
    (tmp_path / "bench_growth.json").write_text(json.dumps(result), encoding="utf-8")
    filled = page(empty, tmp_path)
    assert filled.startswith("# Before\n") and filled.endswith("<!-- end -->\n\nAfter.\n")
    assert "2026-01-02: CPU (x), 2 cores, 2 threads, torch 2.6, revision abc" in filled
    assert "| mixture fit, scikit-learn | 0.002 | 2 | – |" in filled
    assert page(filled, tmp_path) == filled
