"""The review page: a person decides the queue of a run, on their own machine."""

from labeltrace.review.merge import reviewed_diff
from labeltrace.review.server import ReviewServer
from labeltrace.review.store import Store

__all__ = ["ReviewServer", "Store", "reviewed_diff"]
