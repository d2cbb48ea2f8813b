"""The report in a real browser: pictures load, keys work, nothing leaves the file, phone, dark mode and print."""

import base64
import json

import pytest

import reported
from browser import chromium
from labeltrace.diagnostics.runs import Run
from labeltrace.engine import RunConfig
from labeltrace.report import write_report
from labeltrace.runs import run as train_run

LONG = "a-name-of-a-class-that-nobody-would-call-short-and-that-has-no-spaces-at-all"


@pytest.fixture(scope="module")
def browser():
    with chromium("--disable-gpu", logs=("browser", "performance")) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of one run with pictures, and one of three runs, one of them with names that could do harm."""
    root = tmp_path_factory.mktemp("pages")
    quick = {"batch_size": 16, "warmup": 1, "passes": 1}
    config = {"data": "digits", "subset": 90, "noise": "symmetric", "rate": 0.3, "epochs": 2, "device": "cpu"}
    train_run(RunConfig(**config, settings=quick), root / "digits")
    names = [LONG, '<script>document.title = "taken"</script>', "<img src=x onerror=alert(1)>"]
    names += [f"class {i}" for i in range(12)]
    reported.run_folder(root / LONG, reported.table(200, names))
    reported.run_folder(root / "unknown", reported.table(60, truth=False))
    write_report([Run(root / "digits")], root / "one.html", samples=6)
    write_report([Run(root / name) for name in ("digits", LONG, "unknown")], root / "three.html", samples=6)
    return root


@pytest.fixture
def opened(browser, pages):
    """Open a page at a width, light or dark; the logs begin with it."""

    def open_(name, width=1200, dark=False, media=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get("about:blank")
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get((pages / name).as_uri())
        return browser

    return open_


def press(browser, *keys):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        ActionChains(browser).send_keys(getattr(Keys, key)).perform()


def focus(browser, script="e => e.id || e.textContent"):
    return browser.execute_script(f"return ({script})(document.activeElement)")


def shown(browser):
    """The runs whose panel can be seen."""
    script = "return [...document.querySelectorAll('.panel')].filter(e => e.offsetHeight > 0).map(e => e.id)"
    return browser.execute_script(script)


@pytest.mark.parametrize("name", ["one.html", "three.html"])
def test_pictures_load_and_nothing_goes_wrong_or_out(opened, name):
    browser = opened(name)
    widths = browser.execute_script("return [...document.images].map(e => e.complete ? e.naturalWidth : 0)")
    assert len(widths) >= 6 and set(widths) == {8}
    assert browser.get_log("browser") == []
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert sum(url.startswith("file:") for url in asked) == 1  # the page itself
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert browser.title.startswith("labeltrace: ")


@pytest.mark.parametrize("name", ["one.html", "three.html"])
@pytest.mark.parametrize("width", [320, 375, 768])
def test_a_narrow_screen_scrolls_one_way_only(opened, name, width):
    browser = opened(name, width)
    wide = "return [document.documentElement.scrollWidth, document.body.scrollWidth]"
    assert max(browser.execute_script(wide)) <= width
    cut = """const over = e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll');
        return [...document.querySelectorAll('.cards li, figure, dd, h2, .chart')].filter(over).length"""
    assert browser.execute_script(cut) == 0


def test_dark_mode_has_other_colours_that_can_be_read(opened):
    script = """const of = (e, what) => getComputedStyle(e)[what], body = document.body;
        return [of(body, 'backgroundColor'), of(body, 'color'), of(document.querySelector('.line.s0'), 'stroke'),
                of(document.querySelector('svg text'), 'fill'), of(document.querySelector('caption'), 'color')]"""
    light, dark = (opened("three.html", dark=d).execute_script(script) for d in (False, True))
    assert all(one != two for one, two in zip(light, dark, strict=True))
    for paper, *inks in (light, dark):
        for ink in inks:
            assert contrast(paper, ink) >= (3.0 if ink is inks[1] else 4.5)  # WCAG: lines 3, text 4.5


def contrast(one, two):
    """The contrast ratio of WCAG 2 between two colours rgb(r, g, b)."""

    def luminance(colour):
        parts = [int(part) / 255 for part in colour.strip("rgba()").split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_tabs_by_mouse_and_by_keys(opened):
    browser = opened("three.html")
    assert shown(browser) == ["run-A"]
    browser.find_element("id", "tab-B").click()
    assert shown(browser) == ["run-B"]
    for key, run in (("ARROW_RIGHT", "C"), ("ARROW_RIGHT", "A"), ("ARROW_LEFT", "C"), ("HOME", "A"), ("END", "C")):
        press(browser, key)
        assert shown(browser) == [f"run-{run}"] and focus(browser) == f"tab-{run}"
        selected = browser.execute_script(
            "return [...document.querySelectorAll('[aria-selected=true]')].map(e => e.id)"
        )
        assert selected == [f"tab-{run}"]


def test_the_keyboard_reaches_everything_and_focus_can_be_seen(opened):
    browser = opened("three.html")
    reached, lines = [], set()
    for _ in range(60):
        press(browser, "TAB")
        if focus(browser, "e => e === document.body"):
            break
        reached.append(focus(browser, "e => e.getAttribute('role') || e.tagName.toLowerCase()"))
        lines.add(focus(browser, "e => getComputedStyle(e).outlineStyle"))
    assert reached[0] == "a"
    assert {"a", "region", "summary", "tab"} <= set(reached)
    assert reached.count("tab") == 1  # the arrows lead to the others
    assert "none" not in lines


def test_the_skip_link_leads_to_the_figures(opened):
    browser = opened("one.html")
    press(browser, "TAB")
    assert focus(browser, "e => e.getBoundingClientRect().left") >= 0
    press(browser, "ENTER")
    assert browser.current_url.endswith("#figures")


def test_names_do_nothing(opened):
    browser = opened("three.html")
    browser.find_element("id", "tab-B").click()
    assert browser.title == "labeltrace: 3 runs"
    assert "document.title" in browser.find_element("id", "run-B").text


def test_print_shows_every_run_in_dark_ink_on_white(opened):
    browser = opened("three.html", dark=True, media="print")
    assert shown(browser) == ["run-A", "run-B", "run-C"]
    script = "return [document.body, document.querySelector('td')].map(e => getComputedStyle(e).color)"
    assert all(contrast("rgb(255, 255, 255)", ink) >= 7 for ink in browser.execute_script(script))
    made = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert base64.b64decode(made["data"]).startswith(b"%PDF")


def test_without_scripts_all_runs_are_there(opened):
    opened("one.html").execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser = opened("three.html")
        runs = [browser.find_element("id", f"run-{sign}").is_displayed() for sign in "ABC"]
        assert runs == [True] * 3
        assert not browser.find_element("css selector", "[role=tablist]").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
