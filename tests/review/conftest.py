"""A finished run to review, copied for each test, and a server for it."""

import contextlib
import shutil

import pytest

import reviewing
from reviewing import serving


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return reviewing.digits_run(tmp_path_factory.mktemp("digits") / "run")


@pytest.fixture
def folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def opened():
    """Serve a run until the test ends; taken before a page, so that the page is gone before the server."""
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(serving(folder))


@pytest.fixture
def server(folder, opened):
    return opened(folder)
