"""Have the images changed since the calibration? Confidence alone can tell, without labels.

The calibration file has a histogram of the calibrated confidence of its labelled images, in ten
bins of equal width. The drift score is the population stability index of new images against it:

    PSI = Σ_b (q_b - p_b) · ln(q_b / p_b)

with p and q the fractions of labelled and of new images in bin b, each count raised by one half so
that no bin is empty. It is 0 for equal histograms. By chance alone, with n labelled and m new
images, it is about (B - 1) · (1/n + 1/m) for the B bins that are used. A usual reading is: above
0.1 look, above 0.25 calibrate again. A low score proves nothing: images can change, and the
accuracy with them, while the confidence stays as it was.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.errors import CalibrationError

BINS = 10
EDGES = np.arange(BINS + 1) / BINS
RAISED = 0.5  # added to every count


@dataclass(frozen=True)
class Drift:
    """How much a histogram of confidence differs from that of the calibration."""

    index: float  # population stability index
    chance: float  # what it is on average without any change
    images: int


def confidence_counts(confidence: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return how many values lie in each of ten bins of equal width, the upper edges included.

    Example:
        >>> confidence_counts([0.05, 0.1, 0.11, 1.0]).tolist()
        [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    """
    values = np.asarray(confidence, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise CalibrationError("Confidences must be a list of numbers between 0 and 1.")
    places = np.searchsorted(EDGES[1:-1], values, side="left")
    return np.bincount(places, minlength=BINS)


def drift(reference: npt.ArrayLike, counts: npt.ArrayLike) -> Drift:
    """Compare the counts of new images with those of the calibration, bin by bin.

    Example:
        >>> drift([50, 50], [500, 500]).index, round(drift([50, 50], [90, 10]).index, 2)
        (0.0, 0.85)
    """
    old, new = np.asarray(reference, np.float64), np.asarray(counts, np.float64)
    if old.shape != new.shape or not old.sum() or not new.sum():
        raise CalibrationError("The drift score needs labelled and new images, in equal bins.")
    p, q = ((side + RAISED) / (side + RAISED).sum() for side in (old, new))
    used = int(((old > 0) | (new > 0)).sum())
    chance = (used - 1) * (1 / old.sum() + 1 / new.sum())
    return Drift(float(((q - p) * np.log(q / p)).sum()), float(chance), int(new.sum()))
