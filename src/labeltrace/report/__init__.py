"""Figures of a run, and the report."""

from labeltrace.report.gallery import draw_gallery
from labeltrace.report.html import write_report

__all__ = ["draw_gallery", "write_report"]
