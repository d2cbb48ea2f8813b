"""What all tests share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors on busy machines: threads cost more than they give, and sums keep one order."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Decoded images of tests go nowhere near the user's."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("LABELTRACE_CACHE", str(folder))
    return folder


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device here")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)
