"""The seam: `Evidence` in, `Supervision` out. `Coupled` is the base methods' mix, `Trace` the paper."""

from labeltrace.control.coupled import Coupled
from labeltrace.control.evidence import Controller, Evidence, Supervision
from labeltrace.control.trace import VARIANTS, Trace, TraceConfig

__all__ = ["VARIANTS", "Controller", "Coupled", "Evidence", "Supervision", "Trace", "TraceConfig"]
