"""Dominant dimensions of both modalities and the spread of every dimension (figure 2).

TDD and IDD are the dimensions with the largest mean |value| over classes and over images. Images
come one by one, so what can be summed is summed; only quantiles need the features themselves, of a
bounded number of images.
"""

import numpy as np
import numpy.typing as npt

from dtpt.analysis.feature_results import (
    DimensionProfile,
    DominantDimension,
    Modality,
    ModalityAnalysis,
)
from dtpt.errors import MetricError

FloatArray = npt.NDArray[np.float64]
QUANTILES = (0.05, 0.5, 0.95)


class RunningProfile:
    """Sums over unit features that arrive bit by bit.

    Args:
        dimensions: D of the features.
    """

    def __init__(self, dimensions: int) -> None:
        self.rows = 0
        self.total = np.zeros(dimensions)
        self.total_absolute = np.zeros(dimensions)
        self.total_squares = np.zeros(dimensions)
        self.minimum = np.full(dimensions, np.inf)
        self.maximum = np.full(dimensions, -np.inf)
        self.wins = np.zeros(dimensions, dtype=np.int64)
        self._kept: list[FloatArray] = []

    def add(self, features: npt.ArrayLike, *, keep: bool = True) -> None:
        """Count (n, D) features; `keep` them for the quantiles."""
        values = checked_features(features, dimensions=len(self.total))
        self.rows += len(values)
        self.total += values.sum(axis=0)
        self.total_absolute += np.abs(values).sum(axis=0)
        self.total_squares += (values**2).sum(axis=0)
        self.minimum = np.minimum(self.minimum, values.min(axis=0))
        self.maximum = np.maximum(self.maximum, values.max(axis=0))
        winners = np.abs(values).argmax(axis=1)
        self.wins += np.bincount(winners, minlength=len(self.wins))
        if keep:
            self._kept.append(values)

    @property
    def mean(self) -> FloatArray:
        """(D,) the centroid."""
        return np.asarray(self.total / self.rows)

    @property
    def kept(self) -> FloatArray:
        """(k, D) the features kept for the quantiles."""
        return np.concatenate(self._kept) if self._kept else np.zeros((0, len(self.total)))


def checked_features(features: npt.ArrayLike, *, dimensions: int | None = None) -> FloatArray:
    """Return (n, D) features in float64, or say what is wrong with them."""
    values = np.asarray(features, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise MetricError(f"Features must be (rows, dimensions), got shape {values.shape}.")
    if dimensions is not None and values.shape[1] != dimensions:
        raise MetricError(f"Features have {values.shape[1]} dimensions, expected {dimensions}.")
    if not np.isfinite(values).all():
        raise MetricError("Features contain numbers that are not finite.")
    return values


def analyse_features(features: npt.ArrayLike, modality: Modality) -> ModalityAnalysis:
    """Find dominant dimension and profile of (n, D) features that fit into memory."""
    values = checked_features(features)
    running = RunningProfile(values.shape[1])
    running.add(values)
    return analyse_profile(running, modality)


def analyse_profile(running: RunningProfile, modality: Modality) -> ModalityAnalysis:
    """Read dominant dimension and profile from the sums."""
    if running.rows == 0:
        raise MetricError(f"There are no {modality} features to analyse.")
    return ModalityAnalysis(_dominant(running, modality), _profile(running))


def _dominant(running: RunningProfile, modality: Modality) -> DominantDimension:
    absolute = running.total_absolute / running.rows
    order = np.argsort(-absolute, kind="stable")
    index = int(order[0])
    second = int(order[1]) if len(order) > 1 else None
    squares = float(running.total_squares.sum())
    mean = float(running.mean[index])
    return DominantDimension(
        modality=modality,
        index=index,
        sign=1 if mean >= 0 else -1,
        mean=mean,
        mean_absolute=float(absolute[index]),
        norm_share=float(running.total_squares[index]) / squares if squares > 0 else 0.0,
        consistency=int(running.wins[index]) / running.rows,
        runner_up=second,
        runner_up_absolute=None if second is None else float(absolute[second]),
    )


def _profile(running: RunningProfile) -> DimensionProfile:
    kept = running.kept
    if len(kept) == 0:
        raise MetricError("No features were kept for the quantiles.")
    low, median, high = np.quantile(kept, QUANTILES, axis=0)
    return DimensionProfile(
        rows=running.rows,
        quantile_rows=len(kept),
        mean=plain(running.mean),
        minimum=plain(running.minimum),
        maximum=plain(running.maximum),
        low=plain(low),
        median=plain(median),
        high=plain(high),
    )


def plain(values: FloatArray) -> tuple[float, ...]:
    """Return a vector as a tuple of Python numbers."""
    return tuple(float(value) for value in values)
