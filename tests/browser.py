"""Headless Chromium for tests of pages; a module that imports this is skipped where there is none."""

import contextlib
import shutil

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip(
        "no chromium with its driver here (Debian: apt install chromium chromium-driver)", allow_module_level=True
    )


@contextlib.contextmanager
def chromium(*words, logs=("browser",)):
    """A browser until the end of the block, started with `words`, which keeps these logs."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *words):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()
