"""Figures of a run."""

from labeltrace.report.gallery import draw_gallery

__all__ = ["draw_gallery"]
