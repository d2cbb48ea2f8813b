"""The samples table and what follows from it: keep, relabel, review."""

from labeltrace.audit.decisions import decide
from labeltrace.audit.measures import average_precision, detection, expected_calibration_error, measure
from labeltrace.audit.samples import class_names, cleanlab_view, decided, read_samples, samples_table, write_samples

__all__ = [
    "average_precision",
    "class_names",
    "cleanlab_view",
    "decide",
    "decided",
    "detection",
    "expected_calibration_error",
    "measure",
    "read_samples",
    "samples_table",
    "write_samples",
]
