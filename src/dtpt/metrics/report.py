"""All metrics of one set of predictions in one serialisable record, and a verdict in one sentence.

The verdict rests on two tests, each of which rejects about one in twenty calibrated models:

* Over- or underconfident: the interval of the signed gap excludes 0.
* Miscalibrated: the ECE lies above the 95 % quantile of the ECE of a perfectly calibrated model
  with the same confidences. That holds for independent samples; where some share a cluster, the
  squared calibration error is tested instead, by drawing clusters.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from dtpt.metrics.calibration_errors import calibrated_ece, ece
from dtpt.metrics.comparison import bootstrap_intervals, draw_metrics, pool
from dtpt.metrics.distributions import student_quantile
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.resampling import Interval
from dtpt.metrics.scores import signed_gap
from dtpt.metrics.table import score
from dtpt.metrics.validation import check_level
from dtpt.tables import signed_text


class Bootstrap(BaseModel):
    """How the confidence intervals of a report are drawn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    resamples: int = 1000
    level: float = 0.95
    seed: int = 0


class CalibrationReport(BaseModel):
    """Metrics as fractions (NLL in nats), each an attribute under its key in `METRICS`.

    A metric that the predictions do not allow (NLL from confidences alone) is absent. A metric that
    cannot be resampled, or not under these conventions, has no interval.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    n: int
    conventions: Conventions = Conventions()
    bootstrap: Bootstrap | None = None
    intervals: dict[str, Interval] | None = None  # by metric; None without bootstrap

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...

    @classmethod
    def of(
        cls,
        predictions: Predictions,
        conventions: Conventions | None = None,
        *,
        bootstrap: Bootstrap | None = None,
    ) -> "CalibrationReport":
        """Compute every metric that the predictions allow."""
        chosen = conventions or Conventions()
        fields: dict[str, Any] = dict(n=len(predictions), conventions=chosen, bootstrap=bootstrap)
        if bootstrap is not None:
            fields["intervals"] = bootstrap_intervals(
                predictions,
                generator=np.random.default_rng(bootstrap.seed),
                conventions=chosen,
                resamples=bootstrap.resamples,
                level=bootstrap.level,
            )
        return cls.model_validate(fields | score(predictions, chosen))

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics by key, in the order of printing."""
        return dict(self.__pydantic_extra__)

    @model_serializer(mode="wrap")
    def _metrics_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Put the numbers before the conventions: people read these files too."""
        fields: dict[str, Any] = handler(self)
        return {"n": fields["n"], **self.metrics, **fields}


def calibration_report(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    conventions: Conventions | None = None,
    bootstrap: Bootstrap | None = None,
) -> CalibrationReport:
    """Compute every metric from class probabilities (samples, classes) and labels (samples,).

    From confidence and correctness alone:
    `CalibrationReport.of(Predictions.from_confidence(confidence, correct))`.

    Raises:
        MetricError: for NaN, wrong shapes, sums or labels; the message names the first sample.

    Example:
        >>> report = calibration_report([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]], [0, 0, 1])
        >>> report.n, round(report.accuracy, 3), round(report.ece, 3)
        (3, 0.667, 0.333)
    """
    predictions = Predictions.from_probabilities(probabilities, labels)
    return CalibrationReport.of(predictions, conventions, bootstrap=bootstrap)


def gap_interval(predictions: Predictions, *, level: float = 0.95) -> Interval:
    """Return the interval of the signed gap: mean confidence - accuracy ± t × standard error.

    The variance is at least that of a perfectly calibrated model, so that a few right predictions
    are not significant. For one cluster the interval is -1 to 1.
    """
    confidence, n = predictions.confidence, len(predictions)
    gap = signed_gap(confidence, predictions.correct)
    codes = predictions.cluster_codes
    clusters = int(codes.max()) + 1
    if clusters == 1:
        return Interval(low=-1.0, high=1.0)
    sums = np.bincount(codes, weights=confidence - predictions.correct - gap)  # (clusters,)
    variance = (sums**2).sum() * clusters / (clusters - 1)
    variance = max(variance, (confidence * (1 - confidence)).sum()) / n**2
    half = student_quantile(check_level(level), clusters - 1) * math.sqrt(variance)
    return Interval(low=gap - half, high=gap + half)


def calibration_verdict(
    predictions: Predictions, conventions: Conventions | None = None, *, level: float = 0.95
) -> str:
    """Return the outcome of both tests (see above) in one sentence; points are percent."""
    chosen = conventions or Conventions()
    error = ece(predictions.confidence, predictions.correct, bins=chosen.bins)
    floor = calibrated_ece(predictions.confidence, bins=chosen.bins)
    is_above = error > floor.quantile(level)
    points = 100 * signed_gap(predictions.confidence, predictions.correct)
    gap = _gap_text(points, gap_interval(predictions, level=level))
    if not _is_miscalibrated(predictions, chosen, is_above=is_above, level=level):
        return (
            f"{gap}; ECE {100 * error:.1f} % is not significantly above its noise floor "
            f"({100 * floor.mean:.1f} %)."
        )
    return f"{gap}; ECE {100 * error:.1f} %, noise floor {100 * floor.mean:.1f} %."


def _is_miscalibrated(
    predictions: Predictions, conventions: Conventions, *, is_above: bool, level: float
) -> bool:
    """Return the test of the ECE for independent samples, else that of the squared error."""
    clusters = int(predictions.cluster_codes.max()) + 1
    if clusters == len(predictions) or clusters == 1:
        return is_above and clusters > 1
    drawn = draw_metrics(
        {"": pool({"": [predictions]})},
        generator=np.random.default_rng(0),
        metrics=["squared_ce"],
        conventions=conventions,
    )[""]["squared_ce"]
    return drawn.interval(level).low > 0


def _gap_text(points: float, interval: Interval) -> str:
    low, high = 100 * interval.low, 100 * interval.high
    if low > 0:
        return f"Overconfident by {points:.1f} points [{low:.1f}, {high:.1f}]"
    if high < 0:
        return f"Underconfident by {-points:.1f} points [{-high:.1f}, {-low:.1f}]"
    return (
        "Neither over- nor underconfident on average "
        f"({signed_text(points, 1)} points [{signed_text(low, 1)}, {signed_text(high, 1)}])"
    )
