"""labeltrace: classification with wrong labels. Train a robust model, learn what to keep, relabel or review.

`import labeltrace` loads torch and numpy and nothing heavier; the rest is imported where it is used.
"""

from labeltrace.control import Coupled, Evidence, Supervision, Trace, TraceConfig
from labeltrace.scoring import Scores, score

__version__ = "0.1.0"

__all__ = ["Coupled", "Evidence", "Scores", "Supervision", "Trace", "TraceConfig", "score"]
