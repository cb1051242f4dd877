"""ATFD against ECE over methods, templates and data sets (figure 1)."""

from collections.abc import Iterable, Sequence

import numpy as np

from dtpt.analysis.dominant import FloatArray
from dtpt.analysis.results import DispersionPoint, DispersionScatter

FEWEST_POINTS = 3


def dispersion_scatter(points: Iterable[DispersionPoint]) -> DispersionScatter:
    """Correlate dispersion and calibration error of all points."""
    from scipy.stats import rankdata

    found = tuple(points)
    atfd = np.array([point.atfd for point in found])
    ece = np.array([point.ece for point in found])
    groups = [(point.dataset, point.template) for point in found]
    return DispersionScatter(
        points=found,
        pearson=correlation(atfd, ece),
        spearman=correlation(rankdata(atfd), rankdata(ece)),
        pearson_within=correlation(_centred(atfd, groups), _centred(ece, groups)),
    )


def correlation(first: FloatArray, second: FloatArray) -> float | None:
    """Pearson's coefficient; None with fewer than three points or without spread."""
    if len(first) < FEWEST_POINTS:
        return None
    x, y = first - first.mean(), second - second.mean()
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    scale = max(float(np.abs(first).max()), 1e-300) * max(float(np.abs(second).max()), 1e-300)
    if norms <= 1e-14 * len(first) * scale:
        return None
    return float(np.clip(x @ y / norms, -1.0, 1.0))


def _centred(values: FloatArray, groups: Sequence[object]) -> FloatArray:
    """Take the mean of its group off every value."""
    centred = values.copy()
    for group in dict.fromkeys(groups):
        mine = np.array([other == group for other in groups])
        centred[mine] -= values[mine].mean()
    return centred
