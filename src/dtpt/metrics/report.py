"""All metrics of one set of predictions in one frozen, serialisable record."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from dtpt.metrics.binning import Closed, MassTies
from dtpt.metrics.comparison import bootstrap_intervals
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.resampling import Interval
from dtpt.metrics.selective import RankTies
from dtpt.metrics.table import score


class Bootstrap(BaseModel):
    """How the confidence intervals of a report were drawn.

    Example:
        >>> Bootstrap(resamples=1000).level
        0.95
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    resamples: int
    level: float = 0.95
    seed: int = 0


class CalibrationReport(BaseModel):
    """Metrics as fractions (NLL in nats), each an attribute under its key in `METRICS`.

    A metric that the predictions do not allow (NLL from confidences alone) is absent.

    Attributes:
        n: number of samples.
        conventions: the choices behind the numbers.
        bootstrap: how the intervals were drawn, `None` without them.
        intervals: confidence interval by metric, `None` without bootstrap. Metrics that cannot be
            resampled have none, nor has one under a convention that is not the default.

    Example:
        >>> report = calibration_report_from_confidence([0.9, 0.6], [True, False])
        >>> report.accuracy, report.metrics["accuracy"], "nll" in report.metrics
        (0.5, 0.5, False)
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float] = Field(init=False)

    n: int
    conventions: Conventions = Conventions()
    bootstrap: Bootstrap | None = None
    intervals: dict[str, Interval] | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float: ...

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
    bins: int = 20,
    closed: Closed = "right",
    aece_bins: int | None = None,
    aece_ties: MassTies = "together",
    drop_smallest: bool = False,
    aurc_ties: RankTies = "average",
    nll_floor: float = 1e-12,
    resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> CalibrationReport:
    """Compute every metric from class probabilities and labels.

    Args:
        probabilities: (samples, classes); rows sum to one within 1e-3.
        labels: (samples,) integers.
        bins: equal-width bins of ECE, MCE and classwise ECE.
        closed: the end of a bin that belongs to it.
        aece_bins: equal-mass bins of AECE; `None` for the same number as `bins`.
        aece_ties: see `equal_mass_bins`.
        drop_smallest: O-TPT's quirk, see `aece`.
        aurc_ties: see `risk_coverage_curve`.
        nll_floor: see `nll`.
        resamples: bootstrap resamples; 0 for no confidence intervals.
        level: coverage of the intervals.
        seed: seed of the resampling.

    Raises:
        MetricError: for NaN, wrong shapes, sums or labels, naming the first sample at fault.

    Example:
        >>> report = calibration_report([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]], [0, 0, 1])
        >>> report.n, round(report.accuracy, 3), round(report.ece, 3)
        (3, 0.667, 0.333)
    """
    conventions = Conventions(
        bins=bins,
        closed=closed,
        aece_bins=aece_bins,
        aece_ties=aece_ties,
        drop_smallest=drop_smallest,
        aurc_ties=aurc_ties,
        nll_floor=nll_floor,
    )
    return report_of(
        Predictions.from_probabilities(probabilities, labels),
        conventions,
        bootstrap=Bootstrap(resamples=resamples, level=level, seed=seed) if resamples else None,
    )


def calibration_report_from_confidence(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    bins: int = 20,
    closed: Closed = "right",
    aece_bins: int | None = None,
    aece_ties: MassTies = "together",
    drop_smallest: bool = False,
    aurc_ties: RankTies = "average",
    resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> CalibrationReport:
    """Compute what confidence and correctness alone allow: all but Brier, NLL and classwise ECE.

    The parameters are those of `calibration_report`.

    Example:
        >>> report = calibration_report_from_confidence([0.9, 0.6], [True, False])
        >>> report.accuracy, round(report.signed_gap, 3)
        (0.5, 0.25)
    """
    conventions = Conventions(
        bins=bins,
        closed=closed,
        aece_bins=aece_bins,
        aece_ties=aece_ties,
        drop_smallest=drop_smallest,
        aurc_ties=aurc_ties,
    )
    return report_of(
        Predictions.from_confidence(confidence, correct),
        conventions,
        bootstrap=Bootstrap(resamples=resamples, level=level, seed=seed) if resamples else None,
    )


def report_of(
    predictions: Predictions,
    conventions: Conventions | None = None,
    *,
    bootstrap: Bootstrap | None = None,
) -> CalibrationReport:
    """Compute every metric that the predictions allow.

    Example:
        >>> report_of(Predictions.from_confidence([0.9, 0.6], [True, False])).n
        2
    """
    chosen = conventions or Conventions()
    fields: dict[str, Any] = {"n": len(predictions), "conventions": chosen, "bootstrap": bootstrap}
    if bootstrap is not None:
        fields["intervals"] = bootstrap_intervals(
            predictions,
            generator=np.random.default_rng(bootstrap.seed),
            conventions=chosen,
            resamples=bootstrap.resamples,
            level=bootstrap.level,
        )
    return CalibrationReport.model_validate(fields | score(predictions, chosen))
