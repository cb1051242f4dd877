"""The table of metrics: everything that prints, stores, compares or ranks a metric reads it here.

A new metric is its function and one entry below. It then appears in `dtpt score`, in the summary of
every run and in results.json; its roles add it to the report's tables and comparisons.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from dtpt.errors import MetricError
from dtpt.metrics.calibration_errors import (
    CalibratedEce,
    aece,
    assign_width_bins,
    calibrated_ece,
    classwise_errors,
    ece,
    mce,
    smooth_ece,
)
from dtpt.metrics.predictions import Conventions, Needs, Predictions
from dtpt.metrics.scores import (
    BrierParts,
    brier_losses,
    nll_losses,
    risk_coverage_curve,
    signed_gap,
    top_brier_parts,
)
from dtpt.metrics.squared_error import SquaredError
from dtpt.metrics.validation import FloatArray

if TYPE_CHECKING:
    from dtpt.metrics.resampling import Resamples

Role = Literal["paper", "headline", "pooled", "compared", "summary"]
"""Where a metric is shown beside the full lists: `paper` the columns of the paper's tables,
`headline` means over the data sets of a family, `pooled` tables over all its images, `compared`
differences of methods (their intervals cover), `summary` the few numbers to choose a method by."""


@dataclass(frozen=True)
class Metric:
    """One metric: its names, how it is printed, where it is shown, how it is computed.

    Values are fractions (NLL in nats). A mean over samples needs only `per_sample`; any other
    metric has a `function`, and `resampled` if the bootstrap supports it.
    """

    key: str  # in results and files
    heading: str
    meaning: str
    _: KW_ONLY
    short: str = ""  # for narrow tables; the heading where empty
    unit: str = "%"  # of the printed number; empty where it has none
    range: tuple[float, float] = (0.0, 1.0)  # possible values
    higher_is_better: bool | None = False  # None: a signed quantity, best at 0, or a plain fact
    needs: Needs = "confidence"
    roles: tuple[Role, ...] = ()
    tolerance: float = 0.005  # between machines of different kinds, for a pooled value
    per_sample: Callable[[Predictions, Conventions], FloatArray] | None = None  # (samples,)
    function: Callable[[Predictions, Conventions], float] | None = None
    resampled: Callable[["Resamples"], FloatArray] | None = None  # (resamples,)

    def __post_init__(self) -> None:
        if not self.short:
            object.__setattr__(self, "short", self.heading)

    @property
    def factor(self) -> float:
        """Printed number = value times this."""
        return {"%": 100.0, "%²": 10_000.0, "×10³": 1000.0}.get(self.unit, 1.0)

    @property
    def title(self) -> str:
        """Heading with unit and direction: `ECE (%) ↓`."""
        unit = f" ({self.unit})" if self.unit else ""
        arrow = {True: " ↑", False: " ↓", None: ""}[self.higher_is_better]
        return self.heading + unit + arrow

    def text(self, value: float) -> str:
        """Return a value as it is printed, without unit."""
        return f"{value * self.factor:z.{2 if self.factor > 1 else 4}f}"

    @property
    def file_unit(self) -> str:
        """Unit of the value itself."""
        return "nats" if self.unit == "nats" else "fraction"

    @property
    def has_resamples(self) -> bool:
        """Whether bootstrap draws of it can be computed."""
        return self.per_sample is not None or self.resampled is not None

    def value(self, predictions: Predictions, conventions: Conventions) -> float:
        """Compute the metric."""
        if self.function is not None:
            return self.function(predictions, conventions)
        if self.per_sample is None:
            raise MetricError(f"Metric {self.key!r} has neither `function` nor `per_sample`.")
        return float(self.per_sample(predictions, conventions).mean())

    def draws(self, resamples: "Resamples") -> FloatArray:
        """Compute the metric of every resample, shape (resamples,)."""
        return resamples.mean(self.key) if self.resampled is None else self.resampled(resamples)


def _ece(p: Predictions, c: Conventions) -> float:
    return ece(p.confidence, p.correct, bins=c.bins)


def _noise_floor(p: Predictions, c: Conventions) -> CalibratedEce:
    key = ("calibrated_ece", c.bins)
    return p.once(key, lambda: calibrated_ece(p.confidence, bins=c.bins))


def _squared_ce(p: Predictions, c: Conventions) -> float:
    bins = assign_width_bins(p.confidence, c.bins)
    return SquaredError(p.correct - p.confidence, bins, clusters=p.cluster_codes).value


def _aece(p: Predictions, c: Conventions) -> float:
    return aece(p.confidence, p.correct, bins=c.mass_bins, drop_smallest=c.drop_smallest)


def _areas(p: Predictions, c: Conventions) -> tuple[float, float]:
    """Return AURC and AUGRC; the curve itself is not kept."""

    def compute() -> tuple[float, float]:
        curve = risk_coverage_curve(p.confidence, p.correct, ties=c.aurc_ties)
        return curve.aurc, curve.augrc

    return p.once(("areas", c.aurc_ties), compute)


def _top_brier(p: Predictions) -> BrierParts:
    return p.once("top_brier_parts", lambda: top_brier_parts(p.confidence, p.correct))


def _classwise_ece(p: Predictions, c: Conventions) -> float:
    return float(classwise_errors(*p.of_classes(), bins=c.bins).mean())


_ALL = (
    Metric(
        "accuracy",
        "Acc.",
        "Fraction of images that are classified correctly.",
        higher_is_better=True,
        roles=("paper", "headline", "pooled", "compared", "summary"),
        tolerance=0.002,
        per_sample=lambda p, _: p.correct.astype(float),
    ),
    Metric(
        "mean_confidence",
        "Confidence",
        "Mean confidence; for a calibrated model it equals the accuracy.",
        higher_is_better=None,
        per_sample=lambda p, _: p.confidence,
    ),
    Metric(
        "signed_gap",
        "Signed gap",
        "Mean confidence minus accuracy: above 0 is overconfident, below 0 underconfident.",
        short="gap",
        range=(-1.0, 1.0),
        higher_is_better=None,
        roles=("pooled", "compared"),
        tolerance=0.002,
        per_sample=lambda p, _: p.confidence - p.correct,
        function=lambda p, _: signed_gap(p.confidence, p.correct),
    ),
    Metric(
        "absolute_gap",
        "|Gap|",
        "Distance between mean confidence and accuracy.",
        roles=("headline", "compared", "summary"),
        tolerance=0.002,
        function=lambda p, _: abs(signed_gap(p.confidence, p.correct)),
        resampled=lambda r: r.absolute_gap,
    ),
    Metric(
        "ece",
        "ECE",
        "Expected calibration error: mean distance between confidence and accuracy over 20 "
        "equal-width bins of confidence, weighted by their size.",
        roles=("paper", "pooled"),
        function=_ece,
        resampled=lambda r: r.ece,
    ),
    Metric(
        "floor",
        "ECE noise floor",
        "Expected ECE of a perfectly calibrated model with the same confidences.",
        short="floor",
        higher_is_better=None,
        function=lambda p, c: _noise_floor(p, c).mean,
    ),
    Metric(
        "ece_above_floor",
        "ECE above floor",
        "ECE minus its noise floor: around 0, of either sign, for a calibrated model; for one far "
        "from calibrated too small by up to the floor.",
        short="ECE*",
        range=(-1.0, 1.0),
        roles=("headline", "summary"),
        function=lambda p, c: _ece(p, c) - _noise_floor(p, c).mean,
        resampled=lambda r: r.ece_above_floor,
    ),
    Metric(
        "squared_ce",
        "Squared CE",
        "Squared calibration error over 20 equal-width bins, without the bias of small bins: "
        "around 0, of either sign, for a calibrated model.",
        short="CE²",
        unit="%²",
        range=(-1.0, 1.0),
        roles=("headline", "compared"),
        function=_squared_ce,
        resampled=lambda r: r.squared_ce,
    ),
    Metric(
        "aece",
        "AECE",
        "Adaptive ECE: the same over 20 bins that hold equally many images.",
        roles=("paper",),
        function=_aece,
        resampled=lambda r: r.aece,
    ),
    Metric(
        "mce",
        "MCE",
        "Maximum calibration error: the worst of the 20 bins, however few images it holds.",
        roles=("paper",),
        function=lambda p, c: mce(p.confidence, p.correct, bins=c.bins),
        resampled=lambda r: r.mce,
    ),
    Metric(
        "smooth_ece",
        "Smooth ECE",
        "Calibration error after smoothing by a kernel as wide as the error itself; no bins.",
        function=lambda p, _: smooth_ece(p.confidence, p.correct),
        resampled=lambda r: r.smooth_ece,
    ),
    Metric(
        "classwise_ece",
        "Classwise ECE",
        "Mean over classes of the ECE of the class's own probability.",
        needs="probabilities",
        function=_classwise_ece,
    ),
    Metric(
        "brier",
        "Brier",
        "Squared distance between probabilities and the truth, summed over classes (0 to 2).",
        unit="",
        range=(0.0, 2.0),
        needs="label",
        roles=("headline", "pooled", "compared", "summary"),
        tolerance=0.002,
        per_sample=lambda p, _: brier_losses(*p.of_label()),
    ),
    Metric(
        "nll",
        "NLL",
        "Negative log-likelihood: minus the mean logarithm of the label's probability.",
        unit="nats",
        range=(0.0, math.inf),
        needs="label",
        roles=("headline", "pooled", "compared"),
        tolerance=0.01,
        per_sample=lambda p, _: nll_losses(p.of_label()[0]),
    ),
    Metric(
        "top_brier",
        "Top Brier",
        "Brier score of the confidence alone: mean squared distance to right (1) or wrong (0).",
        unit="",
        per_sample=lambda p, _: (p.correct - p.confidence) ** 2,
    ),
    Metric(
        "top_brier_calibration",
        "Top Brier, calibration",
        "The part of the top Brier score that the best monotone recalibration would remove.",
        unit="",
        function=lambda p, _: _top_brier(p).calibration,
    ),
    Metric(
        "top_brier_refinement",
        "Top Brier, refinement",
        "The part that would remain: confidence that does not separate right from wrong.",
        unit="",
        function=lambda p, _: _top_brier(p).refinement,
    ),
    Metric(
        "aurc",
        "AURC",
        "Area under the risk-coverage curve: the error rate among the k most confident images, "
        "averaged over all k.",
        unit="×10³",
        roles=("paper", "pooled", "compared", "summary"),
        tolerance=0.003,
        function=lambda p, c: _areas(p, c)[0],
        resampled=lambda r: r.aurc,
    ),
    Metric(
        "augrc",
        "AUGRC",
        "Area under the generalised risk-coverage curve: errors among the k most confident images, "
        "as a fraction of all images, averaged over all coverages.",
        unit="×10³",
        range=(0.0, 0.5),
        function=lambda p, c: _areas(p, c)[1],
        resampled=lambda r: r.augrc,
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
"""Every metric by key, in the order of printing."""


def metrics_with(
    role: Role | None = None, *, known: Collection[Needs] | None = None
) -> tuple[Metric, ...]:
    """Return the metrics of a role (all when not given), in the order of printing.

    `known` (`Predictions.known`, or what a store keeps) leaves out metrics that need more.

    Example:
        >>> [metric.key for metric in metrics_with("paper")]
        ['accuracy', 'ece', 'aece', 'mce', 'aurc']
    """
    return tuple(
        metric
        for metric in METRICS.values()
        if (role is None or role in metric.roles) and (known is None or metric.needs in known)
    )


def score(predictions: Predictions, conventions: Conventions | None = None) -> dict[str, float]:
    """Compute every metric whose needs are met, as fractions (NLL in nats), by key.

    Example:
        >>> values = score(Predictions.from_confidence([0.9, 0.6], [True, False]))
        >>> values["accuracy"], round(values["ece"], 3), "nll" in values
        (0.5, 0.35, False)
    """
    chosen = conventions or Conventions()
    allowed = metrics_with(known=predictions.known)
    return {metric.key: metric.value(predictions, chosen) for metric in allowed}
