"""Risk against coverage: the error rate when only the most confident pictures are answered."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.metrics import RiskCoverageCurve
from dtpt.report.figures.style import Variant, add_legend, looks_for, new_figure, tidy

POINTS = 200  # drawn per curve; more cannot be seen and only make files large


def risk_coverage_figure(
    curves: Sequence[tuple[Variant, str, RiskCoverageCurve]], *, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw one curve per method.

    Args:
        curves: ((method, λ) for the look, legend text, curve).
        title: Shown above; empty for none.

    Returns:
        The figure and its axes; line i is curve i, thinned to at most 200 points.
    """
    figure = new_figure(4.6, 3.4, top=0.34 if title else 0.14)
    axes = figure.subplots()
    looks = looks_for(variant for variant, _, _ in curves)
    for variant, text, curve in curves:
        chosen = np.unique(np.linspace(0, len(curve.risk) - 1, POINTS).astype(int))
        look = looks[variant]
        axes.plot(
            curve.coverage[chosen],
            curve.risk[chosen],
            color=look.colour,
            linestyle=look.dash,
            linewidth=1.6,
            marker=look.marker,
            markersize=4.5,
            markevery=max(len(chosen) // 8, 1),
            label=text,
        )
    axes.set(xlim=(0, 1), xlabel="coverage (share of pictures answered)", ylabel="error rate")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    tidy(axes, grid="both")
    add_legend(axes)
    return figure, axes
