"""What every metric is computed from: predictions, and the conventions behind the numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.scores import RankTies, label_probability, sum_of_squares, top_prediction
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_bins,
    check_fraction,
    check_pair,
    check_predictions,
    check_same_length,
)

Needs = Literal["confidence", "label", "probabilities"]
"""What a metric needs: confidence and correctness; also the probability of the label and the sum of
squared probabilities; or all probabilities."""

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """The choices behind the numbers; the defaults are the paper's."""

    bins: int = 20  # equal-width bins of ECE, MCE and classwise ECE
    aece_bins: int | None = None  # equal-mass bins of AECE; None for the same number as `bins`
    drop_smallest: bool = False  # as O-TPT's code does, see `aece`
    aurc_ties: RankTies = "average"  # see `risk_coverage_curve`

    def __post_init__(self) -> None:
        check_bins(self.bins)
        check_bins(self.mass_bins, "aece_bins")

    @property
    def mass_bins(self) -> int:
        """Equal-mass bins of AECE."""
        return self.bins if self.aece_bins is None else self.aece_bins


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for some samples, checked; make them with one of the two class methods."""

    confidence: FloatArray  # (samples,) probability of the predicted class
    correct: BoolArray  # (samples,)
    p_label: FloatArray | None = None  # (samples,) probability of the label
    sum_squares: FloatArray | None = None  # (samples,) sum over classes of squared probabilities
    probabilities: Probabilities | None = None  # (samples, classes)
    labels: IntArray | None = None  # (samples,)
    samples: npt.NDArray[np.str_] | None = None  # (samples,) ids; comparisons check the pairing
    # (samples,) samples of one cluster are not independent; None: every sample is its own
    clusters: npt.NDArray[np.str_] | None = None
    order: int | None = None  # of the images, where a method carries state from one to the next
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        samples: npt.ArrayLike | None = None,
        clusters: npt.ArrayLike | None = None,
    ) -> "Predictions":
        """Make predictions that allow every metric."""
        rows, truth = check_predictions(probabilities, labels)
        confidence, correct = top_prediction(rows, truth)
        return cls(
            confidence,
            correct,
            p_label=label_probability(rows, truth),
            sum_squares=sum_of_squares(rows),
            probabilities=rows,
            labels=truth,
            samples=_texts(samples, "samples", count=len(truth)),
            clusters=_texts(clusters, "clusters", count=len(truth)),
        )

    @classmethod
    def from_confidence(
        cls,
        confidence: npt.ArrayLike,
        correct: npt.ArrayLike,
        *,
        p_label: npt.ArrayLike | None = None,
        sum_squares: npt.ArrayLike | None = None,
        samples: npt.ArrayLike | None = None,
        clusters: npt.ArrayLike | None = None,
    ) -> "Predictions":
        """Make predictions from confidence and correctness, as stored runs have them."""
        values, hits = check_pair(confidence, correct)
        return cls(
            values,
            hits,
            p_label=_optional(p_label, "p_label", count=len(values)),
            sum_squares=_optional(sum_squares, "sum_squares", count=len(values)),
            samples=_texts(samples, "samples", count=len(values)),
            clusters=_texts(clusters, "clusters", count=len(values)),
        )

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def known(self) -> frozenset[Needs]:
        """Which needs of metrics are met."""
        met: set[Needs] = {"confidence"}
        if self.p_label is not None and self.sum_squares is not None:
            met.add("label")
        if self.probabilities is not None and self.labels is not None:
            met.add("probabilities")
        return frozenset(met)

    def of_label(self) -> tuple[FloatArray, FloatArray]:
        """Return `p_label` and `sum_squares`, or raise."""
        if self.p_label is None or self.sum_squares is None:
            raise MetricError("This metric needs the probability of the label; give probabilities.")
        return self.p_label, self.sum_squares

    def of_classes(self) -> tuple[Probabilities, IntArray]:
        """Return `probabilities` and `labels`, or raise."""
        if self.probabilities is None or self.labels is None:
            raise MetricError("This metric needs the probabilities of all classes.")
        return self.probabilities, self.labels

    @property
    def cluster_codes(self) -> IntArray:
        """The cluster of each sample as a number, (samples,), in order of appearance."""
        return self.once("cluster_codes", self._number_clusters)

    def _number_clusters(self) -> IntArray:
        if self.clusters is None:
            return np.arange(len(self))
        _, first, codes = np.unique(self.clusters, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[codes]

    def once(self, key: object, compute: Callable[[], Value]) -> Value:
        """Return what `compute` gives, computed once per key: several metrics share their work."""
        if key not in self._cache:
            self._cache[key] = compute()
        value: Value = self._cache[key]
        return value


def _optional(values: npt.ArrayLike | None, name: str, *, count: int) -> FloatArray | None:
    if values is None:
        return None
    array = check_fraction(values, name)
    check_same_length(len(array), count, names=(name, "confidence"))
    return array


def _texts(values: npt.ArrayLike | None, name: str, *, count: int) -> npt.NDArray[np.str_] | None:
    if values is None:
        return None
    texts = np.asarray(values, dtype=np.str_)
    if texts.shape != (count,):
        raise MetricError(f"{name} has shape {texts.shape}; expected ({count},).")
    return texts
