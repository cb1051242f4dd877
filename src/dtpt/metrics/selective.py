"""Selective prediction: how well confidence ranks right before wrong predictions.

Accept samples from the most to the least confident. The selective risk at coverage k/n is the
fraction of errors among the first k; the generalised risk divides the same errors by n, so that a
few errors at the top do not dominate it.

Equal confidences (common in half precision) have no order. By default each tie group is averaged
over all its orders, exactly: in expectation its errors accumulate linearly.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import BoolArray, FloatArray, check_pair

RankTies = Literal["average", "stable"]


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
