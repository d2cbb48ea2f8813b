"""The review page in a real browser: what is seen, what the keys do, and what a kill leaves."""

import signal
import time

import pytest

import reviewing
from browser import chromium
from reviewing import Browser

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 30  # seconds; a busy machine is slow
MANY = tuple(f"kind {number:04}" for number in range(1000))


class Page:
    """The page as a person has it before them."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, address):
        self.driver.get(address)
        self.until(lambda: self.text("position"), "the page shows a sample")

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name):
        return self.find(name).text

    def until(self, holds, what):
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"waited in vain: {what}; {self.text('alert')} {self.console()}"
            time.sleep(0.05)

    def press(self, *keys, to=None):
        """Press keys one after the other, each when what the one before asked for is done."""
        for key in keys:
            self.driver.find_element(By.TAG_NAME, "body").send_keys(key) if to is None else self.find(to).send_keys(key)
            self.until(lambda: not self.script("return busy"), f"{key!r} is done")

    def script(self, code):
        return self.driver.execute_script(code)

    @property
    def row(self):
        return self.script("return sample && sample.row")

    def console(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver():
    with chromium("--window-size=1280,860") as driver:
        yield driver


@pytest.fixture
def page(driver):
    """One empty tab; whatever a test does, the console stays quiet."""
    driver.switch_to.new_window("tab")
    kept = driver.current_window_handle
    for handle in driver.window_handles:
        if handle != kept:
            driver.switch_to.window(handle)
            driver.close()
    driver.switch_to.window(kept)
    page = Page(driver)
    page.console()
    yield page
    assert page.console() == []
    driver.get("about:blank")


def test_pictures_and_similar_samples_load(server, page):
    page.open(server.address)
    page.until(lambda: page.script("return document.querySelectorAll('#similar img').length") == 8, "similar samples")
    loaded = (
        "return [...document.querySelectorAll('#picture, #similar img')].every(i => i.complete && i.naturalWidth == 8)"
    )
    page.until(lambda: page.script(loaded), "all pictures load")
    assert page.driver.current_url == f"http://127.0.0.1:{server.port}/"  # the token is not left in the address
    assert page.script("return document.cookie") == ""
    first = Browser(server).look(move="next")
    names = server.classes
    assert page.row == first["row"]
    assert page.text("position") == "1 of 40" and page.text("says") == first["sample"]["decision"]
    assert (page.text("label"), page.text("suggestion")) == (
        names[first["sample"]["observed"]], names[first["sample"]["suggested"]],
    )  # fmt: skip
    assert f"{first['sample']['label_reliability']:.2f}" in page.text("label-words")


def test_the_keys(server, page):
    page.open(server.address)
    rows = [page.row]
    page.press("k")
    rows.append(page.row)
    page.press("r", "s")
    rows.insert(2, next(event.row for event in server.store.decisions() if event.action == "skip"))
    held = {event.row: event.action for event in server.store.decisions()}
    assert held == dict(zip(rows, ("keep", "relabel", "skip"), strict=True)) and len(set(rows)) == 3
    assert "kept 1, suggestion taken 1, another class 0, skipped 1" in page.text("counts")
    assert "37 not yet seen" in page.text("counts")
    page.press(Keys.ARROW_LEFT)
    assert page.row == rows[2] and "You skipped it" in page.text("held")
    page.press("u")
    assert page.row == rows[2] and "You skipped" not in page.text("held")
    page.press("u")
    assert page.row == rows[1]
    page.press(Keys.ARROW_RIGHT)
    assert page.row == rows[2]
    assert {event.row: event.action for event in server.store.decisions()} == {rows[0]: "keep"}
    assert len(server.store.history()) == 5
    for name in ("next", "previous", "skip"):  # the buttons do the same
        page.find(name).click()
        page.until(lambda: not page.script("return busy"), name)
    assert server.store.decisions()[-1].row == rows[2]


def test_a_dialog_keeps_the_keys(server, page):
    page.open(server.address)
    page.press("?")
    assert page.find("help").is_displayed()
    page.press("k")
    page.press(Keys.ESCAPE)
    assert not page.find("help").is_displayed() and server.store.history() == []
    page.press("?")
    page.find("letters").click()
    page.press(Keys.ESCAPE)
    page.press("k")
    assert server.store.history() == []
    page.find("open-help").click()
    page.find("letters").click()
    page.press(Keys.ESCAPE)
    page.find("open-export").click()
    page.until(lambda: page.find("export").is_displayed(), "the dialog is open")
    assert page.text("export-counts").endswith("The run's own, which you have not decided: 20.")
    links = [link.get_attribute("href") for link in page.driver.find_elements(By.CSS_SELECTOR, "#export a")]
    assert links == [f"http://127.0.0.1:{server.port}/labels.diff.csv{query}" for query in ("", "?only_reviewed=true")]


def test_filters(server, page):
    page.open(server.address)
    page.script("document.getElementById('decision').value = 'review';"
                "document.getElementById('decision').dispatchEvent(new Event('change'))")  # fmt: skip
    page.until(lambda: page.text("position") == "1 of 20", "only review")
    assert page.text("says") == "review"
    page.press("k")
    assert page.text("position") == "2 of 20" and server.table["decision"][page.row].as_py() == "review"
    page.script("document.getElementById('state').value = 'skipped';"
                "document.getElementById('state').dispatchEvent(new Event('change'))")  # fmt: skip
    page.until(lambda: page.find("empty").is_displayed(), "nothing is skipped")
    page.press("k", "r", "s")  # there is nothing to decide
    assert len(server.store.history()) == 1


def test_one_of_a_thousand_classes_is_chosen(opened, page, tmp_path):
    server = opened(reviewing.features_run(tmp_path / "run", 2000, 5, MANY))
    page.open(server.address)
    assert len(page.driver.find_elements(By.CSS_SELECTOR, "#features tbody tr")) == 5
    row = page.row
    page.press("c")
    assert len(page.driver.find_elements(By.CSS_SELECTOR, "#found li")) == 100
    assert "900 more" in page.text("found-more")
    page.press("kind 077", to="search")
    assert len(page.driver.find_elements(By.CSS_SELECTOR, "#found li")) == 11  # 0770 to 0779, then 0077
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER, to="search")
    assert [(event.row, event.label) for event in server.store.decisions()] == [(row, "kind 0772")]
    assert not page.find("chooser").is_displayed() and page.row != row


def test_names_are_text(opened, page, tmp_path):
    server = opened(reviewing.features_run(tmp_path / "run"))
    page.open(server.address)
    seen = set()
    for _ in range(6):
        seen |= {page.text("label"), page.text("suggestion")}
        page.press(Keys.ARROW_RIGHT)
    page.press("c")
    assert seen == set(reviewing.NAMES)
    assert [item.text.split("\n")[0] for item in page.driver.find_elements(By.CSS_SELECTOR, "#found li")] == sorted(
        reviewing.NAMES
    )
    assert page.script("return document.querySelectorAll('[onclick]').length") == 0


def test_two_tabs(server, page):
    page.open(server.address)
    one, row = page.driver.current_window_handle, page.row
    page.driver.switch_to.new_window("tab")
    page.open(f"http://127.0.0.1:{server.port}/")  # the cookie is enough
    assert page.row == row
    page.press("k")
    two = page.driver.current_window_handle
    page.driver.switch_to.window(one)
    page.press("r")  # of the same sample, which this tab still shows
    assert [event.action for event in server.store.history(row)] == ["keep", "relabel"]
    page.driver.switch_to.window(two)
    page.press(Keys.ARROW_LEFT)
    assert page.row == row and "You relabelled it" in page.text("held")
    page.driver.close()
    page.driver.switch_to.window(one)


def test_decisions_survive_a_kill(page, folder):
    process, address = reviewing.command(folder)
    page.open(address)
    rows = []
    for key in "krs":
        rows.append(page.row)
        page.press(key)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    stays = page.row
    page.press("k")
    assert page.row == stays and "The server does not answer" in page.text("alert")
    assert [message for message in page.console() if "net::ERR_" not in message] == []  # only requests failed
    process, address = reviewing.command(folder)
    try:
        page.open(address)
        assert "kept 1, suggestion taken 1, another class 0, skipped 1" in page.text("counts")
        assert page.row == stays
        page.press("u")  # also what was decided before the kill
        assert page.row == rows[2] and page.console() == []
        page.driver.get("about:blank")
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in err


def test_a_phone_and_the_dark(server, page):
    driver = page.driver
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        page.open(server.address)
        assert page.script("return document.documentElement.scrollWidth") == 360
        colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        back, ink = (sum(map(int, c[4:-1].split(","))) for c in page.script(colours))
        assert back < 100 < 600 < ink
        row = page.row
        page.find("keep").click()
        page.until(lambda: page.row != row, "the button decides")
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert [event.row for event in server.store.decisions()] == [row]
