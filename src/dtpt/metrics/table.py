"""The table of metrics: everything that prints, stores or ranks a metric reads it here.

A new metric is its function and one entry below. It then appears in `dtpt score`, in the summary of
every run, in results.json and on request in tables.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from dtpt.metrics.calibration import aece, classwise_errors, ece, mce, smooth_ece
from dtpt.metrics.floor import CalibratedEce, calibrated_ece
from dtpt.metrics.isotonic import BrierParts, top_brier_parts
from dtpt.metrics.predictions import Conventions, Needs, Predictions
from dtpt.metrics.scores import brier_losses, nll_losses, signed_gap
from dtpt.metrics.selective import risk_coverage_curve


@dataclass(frozen=True)
class Metric:
    """One metric: what it is called, how it is printed, how it is computed.

    Attributes:
        key: name in results and reports.
        heading: short name for headings.
        factor: printed number = stored number times this.
        unit: what the printed number is in; empty where it has no unit.
        higher_is_better: direction; `None` where neither is (a signed gap is best at 0).
        meaning: one sentence for readers.
        needs: what must be known of the predictions.
        function: computes it, as a fraction (NLL in nats).
    """

    key: str
    heading: str
    _: KW_ONLY
    factor: float
    unit: str
    higher_is_better: bool | None
    meaning: str
    needs: Needs
    function: Callable[[Predictions, Conventions], float]

    @property
    def arrow(self) -> str:
        """↑ where more is better, ↓ where less is, empty where neither is."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def title(self) -> str:
        """Heading with unit and arrow: `ECE (%) ↓`."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.heading}{unit} {self.arrow}".rstrip()

    def text(self, value: float) -> str:
        """Return a stored number as it is printed, without unit.

        Example:
            >>> METRICS["ece"].text(0.1284), METRICS["brier"].text(0.1284)
            ('12.84', '0.1284')
        """
        return f"{value * self.factor:.{2 if self.factor > 1 else 4}f}"

    @property
    def file_unit(self) -> str:
        """What the stored number is in."""
        return "nats" if self.unit == "nats" else "fraction"


def _ece(p: Predictions, c: Conventions) -> float:
    return ece(p.confidence, p.correct, bins=c.bins, closed=c.closed)


def _chance(p: Predictions, c: Conventions) -> CalibratedEce:
    key = ("calibrated_ece", c.bins, c.closed)
    return p.once(key, lambda: calibrated_ece(p.confidence, bins=c.bins, closed=c.closed))


def _aece(p: Predictions, c: Conventions) -> float:
    return aece(
        p.confidence,
        p.correct,
        bins=c.mass_bins,
        ties=c.aece_ties,
        drop_smallest=c.drop_smallest,
    )


def _areas(p: Predictions, c: Conventions) -> tuple[float, float]:
    """Return AURC and AUGRC; the curve itself is not kept."""

    def compute() -> tuple[float, float]:
        curve = risk_coverage_curve(p.confidence, p.correct, ties=c.aurc_ties)
        return curve.aurc, curve.augrc

    return p.once(("areas", c.aurc_ties), compute)


def _top_brier(p: Predictions) -> BrierParts:
    return p.once("top_brier_parts", lambda: top_brier_parts(p.confidence, p.correct))


def _brier(p: Predictions, _: Conventions) -> float:
    return float(brier_losses(*p.of_label()).mean())


def _nll(p: Predictions, c: Conventions) -> float:
    return float(nll_losses(p.of_label()[0], floor=c.nll_floor).mean())


def _classwise_ece(p: Predictions, c: Conventions) -> float:
    return float(classwise_errors(*p.of_classes(), bins=c.bins, closed=c.closed).mean())


_ALL = (
    Metric(
        "accuracy",
        "Acc.",
        factor=100.0,
        unit="%",
        higher_is_better=True,
        meaning="Share of pictures classified correctly.",
        needs="confidence",
        function=lambda p, _: float(p.correct.mean()),
    ),
    Metric(
        "ece",
        "ECE",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning=(
            "Expected calibration error: mean distance between confidence and accuracy over 20 "
            "equal bins of confidence, weighted by their size."
        ),
        needs="confidence",
        function=_ece,
    ),
    Metric(
        "floor",
        "ECE by chance",
        factor=100.0,
        unit="%",
        higher_is_better=None,
        meaning=(
            "The ECE that a perfectly calibrated model with the same confidences has on average at "
            "this number of pictures."
        ),
        needs="confidence",
        function=lambda p, c: _chance(p, c).mean,
    ),
    Metric(
        "ece_above_floor",
        "ECE above chance",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning=(
            "ECE minus what chance alone gives: around 0, of either sign, for a calibrated model; "
            "for one far from it too small by up to that chance."
        ),
        needs="confidence",
        function=lambda p, c: _ece(p, c) - _chance(p, c).mean,
    ),
    Metric(
        "aece",
        "AECE",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning="Adaptive ECE: the same over 20 bins that hold equally many pictures.",
        needs="confidence",
        function=_aece,
    ),
    Metric(
        "mce",
        "MCE",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning=(
            "Maximum calibration error: the worst of the 20 bins, however few pictures it holds."
        ),
        needs="confidence",
        function=lambda p, c: mce(p.confidence, p.correct, bins=c.bins, closed=c.closed),
    ),
    Metric(
        "aurc",
        "AURC",
        factor=1000.0,
        unit="×10³",
        higher_is_better=False,
        meaning=(
            "Area under the risk-coverage curve: the mean error rate when only the k most "
            "confident pictures are answered, over all k."
        ),
        needs="confidence",
        function=lambda p, c: _areas(p, c)[0],
    ),
    Metric(
        "augrc",
        "AUGRC",
        factor=1000.0,
        unit="×10³",
        higher_is_better=False,
        meaning=(
            "Area under the generalised risk-coverage curve: the mean share of all pictures that "
            "are answered wrongly, over all coverages."
        ),
        needs="confidence",
        function=lambda p, c: _areas(p, c)[1],
    ),
    Metric(
        "mean_confidence",
        "Confidence",
        factor=100.0,
        unit="%",
        higher_is_better=None,
        meaning="Mean confidence; a calibrated model has as much accuracy.",
        needs="confidence",
        function=lambda p, _: float(p.confidence.mean()),
    ),
    Metric(
        "signed_gap",
        "Signed gap",
        factor=100.0,
        unit="%",
        higher_is_better=None,
        meaning="Mean confidence minus accuracy: above 0 is overconfident, below 0 underconfident.",
        needs="confidence",
        function=lambda p, _: signed_gap(p.confidence, p.correct),
    ),
    Metric(
        "absolute_gap",
        "|Gap|",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning="Distance between mean confidence and accuracy.",
        needs="confidence",
        function=lambda p, _: abs(signed_gap(p.confidence, p.correct)),
    ),
    Metric(
        "smooth_ece",
        "Smooth ECE",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning=(
            "Calibration error after smoothing by a kernel whose width is the error itself; no "
            "bins."
        ),
        needs="confidence",
        function=lambda p, _: smooth_ece(p.confidence, p.correct),
    ),
    Metric(
        "classwise_ece",
        "Classwise ECE",
        factor=100.0,
        unit="%",
        higher_is_better=False,
        meaning="Mean over classes of the ECE of the class's own probability.",
        needs="probabilities",
        function=_classwise_ece,
    ),
    Metric(
        "brier",
        "Brier",
        factor=1.0,
        unit="",
        higher_is_better=False,
        meaning=(
            "Squared distance between probabilities and the truth, summed over all classes (0 to "
            "2)."
        ),
        needs="label",
        function=_brier,
    ),
    Metric(
        "nll",
        "NLL",
        factor=1.0,
        unit="nats",
        higher_is_better=False,
        meaning="Negative log-likelihood: minus the mean logarithm of the label's probability.",
        needs="label",
        function=_nll,
    ),
    Metric(
        "top_brier",
        "Top Brier",
        factor=1.0,
        unit="",
        higher_is_better=False,
        meaning=(
            "Brier score of the confidence alone: mean squared distance to right (1) or wrong (0)."
        ),
        needs="confidence",
        function=lambda p, _: _top_brier(p).score,
    ),
    Metric(
        "top_brier_calibration",
        "Top Brier, calibration",
        factor=1.0,
        unit="",
        higher_is_better=False,
        meaning=(
            "The part of the top Brier score that the best monotone recalibration (isotonic "
            "regression) would remove."
        ),
        needs="confidence",
        function=lambda p, _: _top_brier(p).calibration,
    ),
    Metric(
        "top_brier_refinement",
        "Top Brier, refinement",
        factor=1.0,
        unit="",
        higher_is_better=False,
        meaning="The part that would remain: confidence that does not tell right from wrong.",
        needs="confidence",
        function=lambda p, _: _top_brier(p).refinement,
    ),
)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
"""Every metric by key, in the order of printing."""

PAPER_METRICS = ("accuracy", "ece", "aece", "mce", "aurc")
"""The columns of the paper's tables."""


def score(predictions: Predictions, conventions: Conventions | None = None) -> dict[str, float]:
    """Compute every metric whose needs are met, as fractions (NLL in nats), by key.

    Example:
        >>> found = score(Predictions.from_confidence([0.9, 0.6], [True, False]))
        >>> found["accuracy"], round(found["ece"], 3), "nll" in found
        (0.5, 0.35, False)
    """
    chosen = conventions or Conventions()
    return {
        key: metric.function(predictions, chosen)
        for key, metric in METRICS.items()
        if metric.needs in predictions.known
    }


def metrics_with(*needs: Needs) -> tuple[Metric, ...]:
    """Return the metrics that some knowledge allows, in the order of printing.

    Example:
        >>> [metric.key for metric in metrics_with("probabilities")]
        ['classwise_ece']
    """
    return tuple(metric for metric in METRICS.values() if metric.needs in needs)
