"""Figures: functions from data to (figure, axes), in one style, without pyplot's global state.

Every series differs in marker, dash or hatch as well as in colour, so that the figures can be read
in black and white and by colour-blind readers. `svg` turns any of them into a standalone file or
into markup for a page.
"""

from dtpt.report.figures.analysis_figures import analysis_figures
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.confidence import confidence_shift
from dtpt.report.figures.dimensions import dimension_profile, sensitivity_bars
from dtpt.report.figures.dispersion import dispersion_figure
from dtpt.report.figures.mosaic import view_mosaic
from dtpt.report.figures.movement import movement_drawing, movement_split
from dtpt.report.figures.pareto import pareto_figure, trade_offs
from dtpt.report.figures.reliability import reliability_diagram, reliability_row
from dtpt.report.figures.risk import risk_coverage_figure
from dtpt.report.figures.run_figures import run_figures
from dtpt.report.figures.svg import inline_svg, svg_size, svg_text

__all__ = [
    "CaptionedFigure",
    "analysis_figures",
    "confidence_shift",
    "dimension_profile",
    "dispersion_figure",
    "inline_svg",
    "movement_drawing",
    "movement_split",
    "pareto_figure",
    "reliability_diagram",
    "reliability_row",
    "risk_coverage_figure",
    "run_figures",
    "sensitivity_bars",
    "svg_size",
    "svg_text",
    "trade_offs",
    "view_mosaic",
]
