"""Scores of predictions: signed gap, Brier score and its parts, log-likelihood, selective risk.

Selective prediction accepts samples from the most to the least confident. The selective risk at
coverage k/n is the fraction of errors among the first k; the generalised risk divides the same
errors by n, so that a few errors at the top do not dominate it. Equal confidences (common in half
precision) have no order. By default each tie group is averaged over all its orders, exactly: in
expectation its errors accumulate linearly.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_pair,
    check_predictions,
    float64_blocks,
)

# Smaller probabilities of the label count as this: a half-precision softmax underflows to 0.
NLL_FLOOR = 1e-12

RankTies = Literal["average", "stable"]


def signed_gap(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return mean confidence minus accuracy: above 0 for an overconfident model.

    It has no bins and no bias, but over- and underconfidence cancel each other.
    """
    values, hits = check_pair(confidence, correct)
    return float(values.mean() - hits.mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score: the mean squared error summed over classes (0 to 2)."""
    rows, truth = check_predictions(probabilities, labels)
    return float(brier_losses(label_probability(rows, truth), sum_of_squares(rows)).mean())


def brier_losses(p_label: FloatArray, sum_squares: FloatArray) -> FloatArray:
    """Return each sample's Brier score from its label's probability and its sum of squares."""
    return np.asarray(np.maximum(sum_squares - 2 * p_label + 1, 0.0))  # rounding may fall below 0


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the mean negative log-likelihood in nats."""
    return float(nll_losses(label_probability(*check_predictions(probabilities, labels))).mean())


def nll_losses(p_label: FloatArray) -> FloatArray:
    """Return each sample's negative log-likelihood from the probability of its label."""
    return np.asarray(-np.log(np.clip(p_label, NLL_FLOOR, 1.0)), dtype=np.float64)


@dataclass(frozen=True)
class BrierParts:
    """The Brier score of the confidence and its two parts; calibration + refinement = score."""

    score: float  # mean of (correct - confidence)², from 0 to 1
    calibration: float  # what a perfect monotone recalibration would gain
    refinement: float  # what would remain


def top_brier_parts(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> BrierParts:
    """Split the Brier score of "the prediction is right" into calibration and refinement.

    The best non-decreasing map from confidence to accuracy (isotonic regression) is fitted to the
    same samples; no bins are chosen. The map knows the labels, so that in a small sample it gains a
    little even for a perfectly calibrated model.
    """
    from scipy.optimize import isotonic_regression

    values, hits = check_pair(confidence, correct)
    # equal confidences are one point of the map
    distinct, group, size = np.unique(values, return_inverse=True, return_counts=True)
    accuracy_at = np.bincount(group, weights=hits, minlength=len(distinct)) / size
    fitted = isotonic_regression(accuracy_at, weights=size).x[group]  # (samples,)
    score = float(((hits - values) ** 2).mean())
    refinement = float(((hits - fitted) ** 2).mean())
    return BrierParts(score, max(score - refinement, 0.0), refinement)


def top_prediction(probabilities: Probabilities, labels: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return confidence and correctness from checked arrays; of equal classes the first counts."""
    prediction = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(labels)), prediction].astype(np.float64)
    return np.minimum(confidence, 1.0), prediction == labels


def label_probability(probabilities: Probabilities, labels: IntArray) -> FloatArray:
    """Return the probability of each sample's label from checked arrays, shape (samples,)."""
    return probabilities[np.arange(len(labels)), labels].astype(np.float64)


def sum_of_squares(probabilities: Probabilities) -> FloatArray:
    """Return each sample's sum over classes of the squared probabilities, shape (samples,)."""
    squares = np.empty(len(probabilities))
    for part, block in float64_blocks(probabilities):
        squares[part] = np.vecdot(block, block)
    return squares


@dataclass(frozen=True)
class RiskCoverageCurve:
    """Risk against coverage, all fractions, one point per accepted sample (shape (samples,))."""

    coverage: FloatArray  # k/n for k = 1..n
    risk: FloatArray  # errors among the k most confident samples, divided by k
    generalized_risk: FloatArray  # the same errors divided by n
    threshold: FloatArray  # confidence of the k-th sample

    @property
    def aurc(self) -> float:
        """Mean selective risk over k = 1..n."""
        return float(self.risk.mean())

    @property
    def augrc(self) -> float:
        """Area under the generalised risk from coverage 0 to 1, by the trapezoid rule.

        It equals the closed form of Traub et al., NeurIPS 2024:
        (1 - AUROC) * acc * (1 - acc) + (1 - acc)^2 / 2.
        """
        total = self.generalized_risk.sum() - self.generalized_risk[-1] / 2
        return float(total / len(self.generalized_risk))


def risk_coverage_curve(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, ties: RankTies = "average"
) -> RiskCoverageCurve:
    """Return the risk-coverage curve.

    `ties="average"` takes the expectation over all orders of equally confident samples; "stable"
    keeps their input order, as most published code does.

    Example:
        >>> curve = risk_coverage_curve([0.9, 0.8, 0.7, 0.6], [True, True, False, True])
        >>> curve.risk.round(3).tolist()
        [0.0, 0.0, 0.333, 0.25]
    """
    values, hits = check_pair(confidence, correct)
    if ties not in get_args(RankTies):
        raise MetricError(f"ties is {ties!r}; expected one of {', '.join(get_args(RankTies))}.")
    order = np.argsort(-values, kind="stable")
    threshold = values[order]
    errors = _accumulated_errors(threshold, hits[order], ties=ties)
    accepted = np.arange(1, len(values) + 1)
    return RiskCoverageCurve(
        coverage=accepted / len(values),
        risk=errors / accepted,
        generalized_risk=errors / len(values),
        threshold=threshold,
    )


def aurc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return the area under the risk-coverage curve: the mean selective risk over k = 1..n.

    The paper prints it times 1000.
    """
    return risk_coverage_curve(confidence, correct).aurc


def augrc(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return the area under the generalised risk-coverage curve (0 to 0.5)."""
    return risk_coverage_curve(confidence, correct).augrc


def _accumulated_errors(threshold: FloatArray, hits: BoolArray, *, ties: RankTies) -> FloatArray:
    """Return the (expected) number of errors among the first k samples, k = 1..n."""
    exact = np.cumsum(~hits).astype(np.float64)
    if ties == "stable":
        return exact
    last = np.flatnonzero(np.append(threshold[1:] != threshold[:-1], True))  # end of each group
    # linear between the ends of the groups, starting with no error at k = 0
    ends = np.concatenate(([0], last + 1))
    return np.interp(np.arange(1, len(hits) + 1), ends, np.concatenate(([0.0], exact[last])))
