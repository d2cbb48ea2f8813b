import pytest
import torch

from labeltrace.scoring import Field, SampleMemory


def memory():
    return SampleMemory(4, {"posterior": Field((2,), fill=1.0), "seen": Field(dtype=torch.int32)})


def test_declared_fields_start_filled():
    m = memory()
    assert m["posterior"].tolist() == [[1.0, 1.0]] * 4 and m["seen"].dtype == torch.int32
    assert m.bytes_per_sample == 2 * 4 + 4


def test_writing_keeps_the_storage():
    m = memory()
    held = m["posterior"]
    m["posterior"] = torch.zeros(4, 2)
    assert held.sum() == 0


def test_saved_and_taken_back():
    m, other = memory(), memory()
    m["seen"] = torch.arange(4)
    other.load_state_dict(m.state_dict())
    assert other["seen"].tolist() == [0, 1, 2, 3]


def test_another_learners_memory_is_refused():
    with pytest.raises(ValueError, match="fields"):
        memory().load_state_dict({"seen": torch.zeros(4)})
    with pytest.raises(ValueError, match="shape"):
        memory().load_state_dict({"posterior": torch.zeros(3, 2), "seen": torch.zeros(4)})
