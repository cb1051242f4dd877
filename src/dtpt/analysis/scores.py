"""Accuracy and ECE of methods: which are efficient (figure 7), and dispersion (figure 1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.analysis.features import Floats
from dtpt.methods import parse_label
from dtpt.metrics import METRICS, Conventions, Predictions

FEWEST_POINTS = 3  # of a correlation
WITHOUT = ("no-tdd", "no-idd")
TEMPERATURES = np.geomspace(0.25, 4, 65)


@dataclass(frozen=True)
class MethodScore:
    """Accuracy and calibration of one method on one data set, as fractions."""

    label: str  # name and λ: `d-tpt@1e5`
    images: int
    accuracy: float
    ece: float  # 20 bins
    confidence: float  # mean
    # no other unmodified method is as good in accuracy and ECE and better in one; None: modified
    efficient: bool | None = None


def score_method(label: str, *, confidence: Floats, correct: npt.NDArray[np.bool_]) -> MethodScore:
    """Score one method from (n,) confidences and whether they were right."""
    predictions = Predictions.from_confidence(confidence, correct)
    accuracy, ece = (METRICS[k].value(predictions, Conventions()) for k in ("accuracy", "ece"))
    return MethodScore(label, len(predictions), accuracy, ece, float(np.mean(confidence)))


def efficient(accuracy: Sequence[float], ece: Sequence[float]) -> list[bool]:
    """Return for each point whether no other is at least as good in both and better in one.

    Equal points do not exclude each other.
    """
    points = list(zip(accuracy, ece, strict=True))
    best, front = np.inf, set()
    for a, e in sorted(points, key=lambda point: (-point[0], point[1])):
        if e < best:  # the smallest ECE at this accuracy, and below all that are more accurate
            best = e
            front.add((a, e))
    return [point in front for point in points]


@dataclass(frozen=True)
class TemperatureControl:
    """A temperature that gives an unmodified method the mean confidence of a modified one."""

    label: str  # the modified method: `tpt+no-tdd`
    temperature: float
    ece: float  # of the unmodified method at this temperature; its accuracy stays


def match_confidence(
    label: str, target: float, *, curves: Floats, correct: npt.NDArray[np.bool_]
) -> TemperatureControl:
    """Find the temperature with a mean confidence, on (n, T) confidences at `TEMPERATURES`.

    Between two temperatures the confidence of every image is taken to be linear in log T.
    """
    steps, means = np.log(TEMPERATURES), curves.mean(axis=0)  # means fall with the temperature
    found = float(np.interp(target, means[::-1], steps[::-1]))
    above = int(np.clip(np.searchsorted(steps, found), 1, len(steps) - 1))
    part = (found - steps[above - 1]) / (steps[above] - steps[above - 1])
    confidence = (1 - part) * curves[:, above - 1] + part * curves[:, above]
    ece = score_method(label, confidence=confidence, correct=correct).ece
    return TemperatureControl(label, float(np.exp(found)), ece)


def without_labels(label: str) -> list[str]:
    """Return a method without TDD and without IDD."""
    return [str(parse_label(label).with_modifier(modifier)) for modifier in WITHOUT]


def without_dominant(scores: Sequence[MethodScore]) -> list[tuple[MethodScore, ...]]:
    """Return (as it is, without TDD, without IDD) of every method that has all three (fig. 3b)."""
    by_label = {score.label: score for score in scores}
    rows = []
    for label, score in by_label.items():
        others = without_labels(label)
        row = (score, *(by_label[other] for other in others if other in by_label))
        if len(row) == 1 + len(WITHOUT):
            rows.append(row)
    return rows


@dataclass(frozen=True)
class DispersionPoint:
    dataset: str
    template: str
    label: str
    atfd: float
    ece: float


@dataclass(frozen=True)
class DispersionScatter:
    """ATFD against ECE over methods, templates and data sets.

    A correlation is None with fewer than three points or without spread.
    """

    points: tuple[DispersionPoint, ...]
    pearson: float | None
    spearman: float | None  # of ranks, ties averaged
    pearson_within: float | None  # after the mean of each data set and template is taken off both


def dispersion_scatter(points: Iterable[DispersionPoint]) -> DispersionScatter:
    """Correlate dispersion and calibration error of all points."""
    from scipy.stats import rankdata

    given = tuple(points)
    both = np.array([[point.atfd for point in given], [point.ece for point in given]])  # (2, n)
    groups = [(point.dataset, point.template) for point in given]
    centred = both.copy()
    for group in dict.fromkeys(groups):
        members = [other == group for other in groups]
        centred[:, members] -= both[:, members].mean(axis=1, keepdims=True)
    ranks = rankdata(both, axis=1)
    return DispersionScatter(given, correlation(both), correlation(ranks), correlation(centred))


def correlation(both: Floats) -> float | None:
    """Return Pearson's coefficient of the rows of (2, n); None with n < 3 or without spread."""
    count = both.shape[1]
    if count < FEWEST_POINTS:
        return None
    x, y = both - both.mean(axis=1, keepdims=True)
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    scale = float(np.abs(both).max(axis=1).clip(1e-300).prod())
    if norms <= 1e-14 * count * scale:
        return None
    return float(np.clip(x @ y / norms, -1.0, 1.0))
