"""What is found in the features before any tuning, as frozen records of plain numbers.

Shares are fractions, divergences nats; dimension indices count from 0.
"""

from dataclasses import dataclass
from typing import Literal

Modality = Literal["text", "image"]
Masked = Literal["product", "text", "image"]


@dataclass(frozen=True)
class DimensionProfile:
    """How the feature values of one modality spread in every dimension (figure 2).

    All tuples have one entry per dimension.

    Attributes:
        rows: Features behind mean, minimum and maximum.
        quantile_rows: Features behind the quantiles (a fixed subset when there are many).
        mean: Mean value.
        minimum: Smallest value.
        maximum: Largest value.
        low: 5 % quantile.
        median: 50 % quantile.
        high: 95 % quantile.
    """

    rows: int
    quantile_rows: int
    mean: tuple[float, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class DominantDimension:
    """The dimension with the largest mean |value|: TDD for text, IDD for images.

    Attributes:
        modality: Whose features.
        index: Of the dimension.
        sign: +1 or -1, of the mean value; DEM lowers only a positive one.
        mean: Mean value over classes or images.
        mean_absolute: Mean |value|.
        norm_share: Share of the squared norm that this dimension carries, over all features.
        consistency: Share of classes or images whose own largest |value| is in this dimension.
        runner_up: The dimension with the second largest mean |value|; None when D is 1.
        runner_up_absolute: Its mean |value|.
    """

    modality: Modality
    index: int
    sign: int
    mean: float
    mean_absolute: float
    norm_share: float
    consistency: float
    runner_up: int | None
    runner_up_absolute: float | None


@dataclass(frozen=True)
class ModalityAnalysis:
    """Dominant dimension and profile of one modality."""

    dominant: DominantDimension
    profile: DimensionProfile


@dataclass(frozen=True)
class GapShare:
    """What one dimension adds to the gap between the centroids.

    Attributes:
        dimension: Index.
        difference: Text centroid minus image centroid in this dimension.
        share: Of the squared distance between the centroids.
    """

    dimension: int
    difference: float
    share: float


@dataclass(frozen=True)
class ModalityGap:
    """How far text and image features are apart.

    Attributes:
        distance: Between the centroids (means of unit vectors, not normalised again).
        cosine: Between the centroids.
        matched_cosine: Mean cosine of an image and the text of its true class.
        all_pairs_cosine: Mean cosine of every image and every class.
        shares: The dimensions with the largest shares, largest first.
    """

    distance: float
    cosine: float
    matched_cosine: float
    all_pairs_cosine: float
    shares: tuple[GapShare, ...]


@dataclass(frozen=True)
class DimensionValue:
    """A dimension and its value in some ranking."""

    dimension: int
    value: float


@dataclass(frozen=True)
class Sensitivity:
    """Equation (2): KL(p_m ‖ q) in nats, averaged over images, for every dimension m set to 0.

    Attributes:
        masked: "product": no side is normalised again, so masking text or image is the same;
            "text" or "image": that side is masked and normalised again.
        images: Images behind the average.
        values: (D) sensitivity of each dimension.
        top: The largest ones, largest first (figure 3a shows ten).
    """

    masked: Masked
    images: int
    values: tuple[float, ...]
    top: tuple[DimensionValue, ...]
