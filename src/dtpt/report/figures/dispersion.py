"""Dispersion of the text features against calibration error (figure 1 of the paper)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.results import DispersionScatter
from dtpt.methods import method_title, parse_label
from dtpt.report.figures.style import add_legend_beside, looks_for, new_figure, tidy


def dispersion_figure(scatter: DispersionScatter, *, title: str = "") -> tuple[Figure, Axes]:
    """Draw ATFD (x) against ECE (y, %), one point per data set, template and method.

    Args:
        scatter: Points and correlations.
        title: Shown above; empty for the correlations.
    """
    figure = new_figure(4.8, 3.5)
    axes = figure.subplots()
    names = [parse_label(point.label).name for point in scatter.points]
    looks = looks_for((name, None) for name in names)
    for name in dict.fromkeys(names):
        mine = [p for p, other in zip(scatter.points, names, strict=True) if other == name]
        look = looks[name, None]
        axes.plot(
            [point.atfd for point in mine],
            [100 * point.ece for point in mine],
            linestyle="none",
            marker=look.marker,
            markersize=5.5,
            markerfacecolor="none",
            markeredgewidth=1.3,
            color=look.colour,
            label=method_title(name),
        )
    axes.set(xlabel="average text feature dispersion (ATFD)", ylabel="ECE (%)")
    axes.set_title(title or correlation_text(scatter))
    tidy(axes, grid="both")
    add_legend_beside(figure, axes)
    return figure, axes


def correlation_text(scatter: DispersionScatter) -> str:
    """Say the correlations in one line; nothing where there are too few points."""
    parts = [
        f"{name} {value:+.2f}".replace("-", "−")
        for name, value in (
            ("Pearson", scatter.pearson),
            ("Spearman", scatter.spearman),
            ("within sets", scatter.pearson_within),
        )
        if value is not None
    ]
    return ", ".join(parts)
