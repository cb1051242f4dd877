"""Calibration and selective-prediction metrics in NumPy; they need no model.

Inputs are class probabilities with labels, or confidence with correctness. Results are fractions.
"""

from dtpt.metrics.binning import (
    ReliabilityBins,
    equal_mass_bins,
    equal_width_bins,
    reliability_bins,
    width_edges,
)
from dtpt.metrics.bootstrap import Interval, bootstrap_intervals, bootstrap_statistic
from dtpt.metrics.calibration import aece, classwise_ece, ece, mce, smooth_ece
from dtpt.metrics.report import (
    Bootstrap,
    CalibrationReport,
    Conventions,
    calibration_report,
    calibration_report_from_confidence,
)
from dtpt.metrics.scores import accuracy, brier, confidence_and_correct, nll
from dtpt.metrics.selective import RiskCoverageCurve, augrc, aurc, risk_coverage_curve

__all__ = [
    "Bootstrap",
    "CalibrationReport",
    "Conventions",
    "Interval",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "accuracy",
    "aece",
    "augrc",
    "aurc",
    "bootstrap_intervals",
    "bootstrap_statistic",
    "brier",
    "calibration_report",
    "calibration_report_from_confidence",
    "classwise_ece",
    "confidence_and_correct",
    "ece",
    "equal_mass_bins",
    "equal_width_bins",
    "mce",
    "nll",
    "reliability_bins",
    "risk_coverage_curve",
    "smooth_ece",
    "width_edges",
]
