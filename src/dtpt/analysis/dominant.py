"""Dominant dimensions of both modalities and the spread of every dimension (figure 2).

TDD and IDD are the dimensions with the largest mean |value| over classes and over images. Images
arrive one by one, so what can be summed is summed; only quantiles need the features themselves, of
a bounded number of images.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError

Floats = npt.NDArray[np.float64]
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class DominantDimension:
    """The dimension with the largest mean |value|: TDD of text features, IDD of image features."""

    index: int  # from 0
    mean: float  # over classes or images; DEM lowers only a positive one
    mean_absolute: float
    norm_fraction: float  # of the squared norm of all features
    consistency: float  # fraction of the features whose own largest |value| is in this dimension
    runner_up: int | None  # with the second largest mean |value|; None when D is 1
    runner_up_absolute: float | None


@dataclass(frozen=True)
class DimensionProfile:
    """How the feature values of one modality spread in each of the D dimensions."""

    rows: int  # features behind mean, minimum and maximum
    quantile_rows: int  # features behind the quantiles: a fixed subset when there are many
    mean: tuple[float, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    low: tuple[float, ...]  # 5 % quantile
    median: tuple[float, ...]
    high: tuple[float, ...]  # 95 % quantile


@dataclass(frozen=True)
class ModalityAnalysis:
    dominant: DominantDimension
    profile: DimensionProfile


class RunningProfile:
    """Sums over unit features that arrive bit by bit."""

    def __init__(self, dimensions: int) -> None:
        self.rows = 0
        self._sums = np.zeros((3, dimensions))  # of values, absolute values and squares
        self._minimum = np.full(dimensions, np.inf)
        self._maximum = np.full(dimensions, -np.inf)
        self._wins = np.zeros(dimensions, dtype=np.int64)  # rows with their largest |value| here
        self._kept: list[Floats] = []

    def add(self, features: npt.ArrayLike, *, keep: bool = True) -> None:
        """Count (n, D) features; `keep` them for the quantiles."""
        values = np.asarray(features, dtype=np.float64)
        if values.ndim != 2 or len(values) == 0 or values.shape[1] != len(self._wins):
            raise MetricError(f"Features must be (n, {len(self._wins)}), not {values.shape}.")
        if not np.isfinite(values).all():
            raise MetricError("Features contain numbers that are not finite.")
        absolute = np.abs(values)
        self.rows += len(values)
        self._sums += [values.sum(axis=0), absolute.sum(axis=0), (values**2).sum(axis=0)]
        self._minimum = np.minimum(self._minimum, values.min(axis=0))
        self._maximum = np.maximum(self._maximum, values.max(axis=0))
        self._wins += np.bincount(absolute.argmax(axis=1), minlength=len(self._wins))
        if keep:
            self._kept.append(values)

    @property
    def mean(self) -> Floats:
        """(D,) the centroid."""
        return np.asarray(self._sums[0] / self.rows)

    @property
    def kept(self) -> Floats:
        """(k, D) the features kept for the quantiles."""
        return np.concatenate(self._kept)

    def result(self) -> ModalityAnalysis:
        return ModalityAnalysis(self._dominant(), self._profile())

    def _dominant(self) -> DominantDimension:
        absolute, squares = self._sums[1] / self.rows, self._sums[2]
        index, *others = np.argsort(-absolute, kind="stable").tolist()
        total = float(squares.sum())
        return DominantDimension(
            index=index,
            mean=float(self.mean[index]),
            mean_absolute=float(absolute[index]),
            norm_fraction=float(squares[index]) / total if total > 0 else 0.0,
            consistency=int(self._wins[index]) / self.rows,
            runner_up=others[0] if others else None,
            runner_up_absolute=float(absolute[others[0]]) if others else None,
        )

    def _profile(self) -> DimensionProfile:
        kept = self.kept
        spread = (self.mean, self._minimum, self._maximum, *np.quantile(kept, QUANTILES, axis=0))
        return DimensionProfile(self.rows, len(kept), *(tuple(row.tolist()) for row in spread))
