"""The page about the plug-ins is what the code says."""

from pathlib import Path

from labeltrace.plugins import plugins
from labeltrace.plugins.page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m labeltrace.plugins.page > docs/plugins.md"


def test_it_names_every_plugin_and_what_it_attaches_to():
    text = page()
    for name in plugins:
        assert f"## {name}" in text and all(f"`{learner}`" in text for learner in plugins[name].attached)
