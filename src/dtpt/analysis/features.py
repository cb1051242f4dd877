"""The joint space before tuning: dominant dimensions, sensitivity, and the modality gap.

* Dominant dimensions (figure 2): TDD and IDD are the dimensions with the largest mean |value| over
  classes and over images. Images arrive one by one, so what can be summed is summed; only quantiles
  need the features themselves, of a bounded number of images.
* Sensitivity (equation (2), figure 3a): how much a prediction changes when a dimension is masked,

      s_m = KL(p_m ‖ q),   q = softmax(τ · T v),   p_m the same with coordinate m set to 0

  Setting t_m or v_m to 0 removes the same product t_m v_m from the logit, so without normalising
  again there is one chart for both modalities; two charts need the masked side normalised again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float64]
Masked = Literal["product", "text", "image"]
QUANTILES = (0.05, 0.5, 0.95)
GAP_PARTS = 10  # dimensions that are named
MASKED: tuple[Masked, ...] = ("product", "text", "image")
TOP = 10
DEFAULT_BYTES = 16 * 2**20
DIMENSIONS_AT_ONCE = 64
SMALLEST_SQUARE = 1e-12


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


@dataclass(frozen=True)
class GapPart:
    """What one dimension adds to the gap between the centroids."""

    dimension: int
    difference: float  # text centroid minus image centroid
    fraction: float  # of the squared distance between the centroids


@dataclass(frozen=True)
class ModalityGap:
    """How far text and image features are apart."""

    distance: float  # between the centroids (means of unit vectors, not normalised again)
    cosine: float  # between the centroids
    matched_cosine: float  # mean over images and the text of their true class
    all_pairs_cosine: float  # mean over every image and every class
    parts: tuple[GapPart, ...]  # the dimensions with the largest fractions, largest first


def modality_gap(text: Floats, image: Floats, *, matched_cosine: float) -> ModalityGap:
    """Measure the gap from the (D,) centroids of text and image features."""
    difference = text - image
    squared = float(difference @ difference)
    fractions = difference**2 / squared if squared > 0 else np.zeros_like(difference)
    product = float(text @ image)  # the mean cosine over all pairs of unit vectors
    norms = float(np.linalg.norm(text) * np.linalg.norm(image))
    largest = np.argsort(-fractions, kind="stable")[:GAP_PARTS].tolist()
    return ModalityGap(
        distance=squared**0.5,
        cosine=product / norms if norms > 0 else 0.0,
        matched_cosine=matched_cosine,
        all_pairs_cosine=product,
        parts=tuple(GapPart(i, float(difference[i]), float(fractions[i])) for i in largest),
    )


@dataclass(frozen=True)
class Sensitivity:
    """KL(p_m ‖ q) in nats, averaged over images, for every dimension m."""

    masked: Masked  # the side that is normalised again after masking; "product" for none
    images: int
    values: tuple[float, ...]  # (D)
    top: tuple[tuple[int, float], ...]  # dimensions with the largest values, largest first


def sensitivity(
    text: "Tensor",
    images: "Tensor",
    *,
    logit_scale: float,
    masked: Masked = "product",
    budget_bytes: int = DEFAULT_BYTES,
) -> Sensitivity:
    """Average the sensitivity of every dimension over images.

    Text (C, D) and images (n, D) are unit vectors; `budget_bytes` bounds a block in memory.
    """
    words, vectors = text.detach().cpu().double(), images.detach().cpu().double()
    classes, dimensions = words.shape
    columns = max(1, min(dimensions, DIMENSIONS_AT_ONCE, budget_bytes // (8 * classes)))
    rows = max(1, budget_bytes // (8 * classes * columns))
    total = words.new_zeros(dimensions)
    for some in _slices(len(vectors), rows):
        block = vectors[some]
        cosines = block @ words.T  # (n, C)
        for part in _slices(dimensions, columns):
            left = _masked_cosines(words, block, cosines=cosines, part=part, masked=masked)
            total[part] += _divergences(logit_scale * left, logit_scale * cosines)
    values = total / len(vectors)
    best = values.argsort(descending=True, stable=True)[:TOP].tolist()
    top = tuple((index, float(values[index])) for index in best)
    return Sensitivity(masked, len(vectors), tuple(values.tolist()), top)


def _slices(length: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, length)) for start in range(0, length, width))


def _masked_cosines(
    text: "Tensor", images: "Tensor", *, cosines: "Tensor", part: slice, masked: Masked
) -> "Tensor":
    """Return the cosines (n, d, C) after masking each of the d dimensions of `part`."""
    values = images[:, part]  # (n, d)
    words = text[:, part].T  # (d, C)
    left = cosines[:, None, :] - values[:, :, None] * words  # (n, d, C)
    if masked == "text":
        squares = (text**2).sum(dim=1) - words**2  # (d, C)
        left /= squares.clamp_min(SMALLEST_SQUARE).sqrt()
    elif masked == "image":
        squares = (images**2).sum(dim=1, keepdim=True) - values**2  # (n, d)
        left /= squares.clamp_min(SMALLEST_SQUARE).sqrt()[:, :, None]
    return left


def _divergences(masked: "Tensor", original: "Tensor") -> "Tensor":
    """Sum KL(p_m ‖ q) over images, (d,), from logits (n, d, C) and (n, C)."""
    log_q = original.log_softmax(dim=-1)[:, None, :]  # (n, 1, C)
    log_p = masked.log_softmax(dim=-1)
    # rounding can leave a tiny negative number where nothing changes
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).clamp_min(0).sum(dim=0)
