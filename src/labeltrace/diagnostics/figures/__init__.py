"""The paper's figures by name; each is drawn from runs and written as PNG, SVG and CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from labeltrace.diagnostics.figures.cases import draw_cases
from labeltrace.diagnostics.figures.depth import draw_depth
from labeltrace.diagnostics.figures.landscape import draw_landscape
from labeltrace.diagnostics.figures.mismatch import draw_mismatch, draw_surrogate
from labeltrace.diagnostics.figures.reliability import draw_reliability
from labeltrace.diagnostics.figures.representation import draw_representation
from labeltrace.diagnostics.figures.request import Drawn, Request
from labeltrace.diagnostics.figures.strata import draw_strata
from labeltrace.diagnostics.figures.style import styled, write_figure
from labeltrace.registry import Registry

__all__ = ["Drawn", "Request", "draw", "figures"]

figures = Registry[Callable[[Request], Drawn]]("figure")
figures.add("mismatch", draw_mismatch, "Fig. 1: right and noise-following pseudo targets by cleanliness")
figures.add("depth", draw_depth, "Fig. 2: gradients, prototypes and probes by depth; several backbones and rates")
figures.add("drift-strata", draw_strata, "Fig. 3: right labels at low and high drift, at equal loss posterior")
figures.add("reliability", draw_reliability, "Fig. 4: bins, subsets, confident errors, calibration; runs side by side")
figures.add("cases", draw_cases, "case study: images whose label was replaced, or whose replacement was held back")
figures.add("landscape", draw_landscape, "accuracy of pseudo targets over both reliabilities; runs side by side")
figures.add("surrogate", draw_surrogate, "Clothing1M's diagnostic: Fig. 1 with reference labels from --labels FILE")
figures.add("representation", draw_representation, "Appendix B beside --clean RUN: CKA, Fisher ratio, P9, surgery")


def draw(name: str, request: Request, out: Path) -> tuple[list[Path], Drawn]:
    """Draw a figure by name to OUT/NAME.png, .svg and .csv; return the files and what was drawn.

    Raises:
        InputError: an unknown name, runs that lack what the figure needs, a folder that cannot be written.
    """
    make = figures[name]
    with styled():
        drawn = make(request)
        return write_figure(drawn.figure, drawn.rows, out, name), drawn
