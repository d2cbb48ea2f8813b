"""The samples table and what follows from it: keep, relabel, review."""

from labeltrace.audit.decisions import decide
from labeltrace.audit.samples import (
    class_names,
    cleanlab_view,
    detection,
    read_samples,
    samples_table,
    write_samples,
)

__all__ = ["class_names", "cleanlab_view", "decide", "detection", "read_samples", "samples_table", "write_samples"]
