"""All metrics of one set of predictions in one frozen, serialisable record."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dtpt.metrics.binning import Closed, MassTies
from dtpt.metrics.bootstrap import Interval, bootstrap_intervals
from dtpt.metrics.calibration import aece, classwise_errors, ece, mce, smooth_ece
from dtpt.metrics.scores import brier_losses, nll_losses, top_prediction
from dtpt.metrics.selective import RankTies, risk_coverage_curve
from dtpt.metrics.validation import BoolArray, FloatArray, check_pair, check_predictions


class Conventions(BaseModel):
    """The choices behind the numbers; the defaults are the paper's.

    Attributes:
        bins: equal-width bins of ECE, MCE and classwise ECE.
        closed: the end of a bin that belongs to it.
        aece_bins: equal-mass bins of AECE; `None` for the same number as `bins`.
        aece_ties: see `equal_mass_bins`.
        drop_smallest: O-TPT's quirk, see `aece`.
        aurc_ties: see `risk_coverage_curve`.
        nll_floor: see `nll`.

    Example:
        >>> Conventions().bins
        20
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bins: int = 20
    closed: Closed = "right"
    aece_bins: int | None = None
    aece_ties: MassTies = "together"
    drop_smallest: bool = False
    aurc_ties: RankTies = "average"
    nll_floor: float = 1e-12


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
    """Metrics as fractions (NLL in nats); `None` where only confidences were known.

    Attributes:
        n: number of samples.
        intervals: confidence interval by metric name, `None` without bootstrap. Smooth and
            classwise ECE have none, nor has a metric under a convention that is not the default.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    accuracy: float
    ece: float
    aece: float
    mce: float
    aurc: float
    augrc: float
    smooth_ece: float
    brier: float | None = None
    nll: float | None = None
    classwise_ece: float | None = None
    conventions: Conventions = Conventions()
    bootstrap: Bootstrap | None = None
    intervals: dict[str, Interval] | None = None


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
    rows, truth = check_predictions(probabilities, labels)
    conventions = Conventions(
        bins=bins,
        closed=closed,
        aece_bins=aece_bins,
        aece_ties=aece_ties,
        drop_smallest=drop_smallest,
        aurc_ties=aurc_ties,
        nll_floor=nll_floor,
    )
    losses = {"brier": brier_losses(rows, truth), "nll": nll_losses(rows, truth, floor=nll_floor)}
    confidence, correct = top_prediction(rows, truth)
    classwise = classwise_errors(rows, truth, bins=bins, closed=closed).mean()
    return _build(
        (confidence, correct),
        conventions,
        losses=losses,
        classwise=float(classwise),
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
        >>> report.accuracy, report.brier
        (0.5, None)
    """
    conventions = Conventions(
        bins=bins,
        closed=closed,
        aece_bins=aece_bins,
        aece_ties=aece_ties,
        drop_smallest=drop_smallest,
        aurc_ties=aurc_ties,
    )
    return _build(
        check_pair(confidence, correct),
        conventions,
        losses={},
        classwise=None,
        bootstrap=Bootstrap(resamples=resamples, level=level, seed=seed) if resamples else None,
    )


def _build(
    pair: tuple[FloatArray, BoolArray],
    conventions: Conventions,
    *,
    losses: Mapping[str, FloatArray],
    classwise: float | None,
    bootstrap: Bootstrap | None,
) -> CalibrationReport:
    confidence, correct = pair
    bins, closed = conventions.bins, conventions.closed
    curve = risk_coverage_curve(confidence, correct, ties=conventions.aurc_ties)
    adaptive = aece(
        confidence,
        correct,
        bins=bins if conventions.aece_bins is None else conventions.aece_bins,
        ties=conventions.aece_ties,
        drop_smallest=conventions.drop_smallest,
    )
    return CalibrationReport(
        n=len(confidence),
        accuracy=float(correct.mean()),
        ece=ece(confidence, correct, bins=bins, closed=closed),
        aece=adaptive,
        mce=mce(confidence, correct, bins=bins, closed=closed),
        aurc=curve.aurc,
        augrc=curve.augrc,
        smooth_ece=smooth_ece(confidence, correct),
        brier=_mean(losses.get("brier")),
        nll=_mean(losses.get("nll")),
        classwise_ece=classwise,
        conventions=conventions,
        bootstrap=bootstrap,
        intervals=_intervals(pair, conventions, losses, bootstrap) if bootstrap else None,
    )


def _mean(values: FloatArray | None) -> float | None:
    return None if values is None else float(values.mean())


def _intervals(
    pair: tuple[FloatArray, BoolArray],
    conventions: Conventions,
    losses: Mapping[str, FloatArray],
    bootstrap: Bootstrap,
) -> dict[str, Interval]:
    found = bootstrap_intervals(
        *pair,
        generator=np.random.default_rng(bootstrap.seed),
        losses=losses,
        bins=conventions.bins,
        closed=conventions.closed,
        aece_bins=conventions.aece_bins,
        resamples=bootstrap.resamples,
        level=bootstrap.level,
    )
    # The resampling knows the default conventions only: better no interval than a wrong one.
    unknown = set()
    if conventions.drop_smallest or conventions.aece_ties != "together":
        unknown.add("aece")
    if conventions.aurc_ties != "average":
        unknown |= {"aurc", "augrc"}
    return {name: interval for name, interval in found.items() if name not in unknown}
