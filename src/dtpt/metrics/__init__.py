"""Calibration and selective-prediction metrics; they need no model.

Inputs are class probabilities with labels, or confidence with correctness. Results are fractions.
"""

from dtpt.metrics.calibration_errors import (
    CalibratedBand,
    ReliabilityBins,
    aece,
    calibrated_band,
    calibrated_ece,
    classwise_ece,
    ece,
    mce,
    reliability_bins,
    reliability_columns,
    smooth_ece,
)
from dtpt.metrics.comparison import (
    COMPARED,
    Comparison,
    Estimate,
    PooledPredictions,
    bootstrap_intervals,
    compare_table,
    draw_metrics,
    pool,
)
from dtpt.metrics.distributions import binomial_cdf, binomial_interval, binomial_upper_bound
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.report import (
    Bootstrap,
    CalibrationReport,
    calibration_report,
    calibration_verdict,
    gap_interval,
)
from dtpt.metrics.resampling import Interval, centred_interval
from dtpt.metrics.scores import (
    RiskCoverageCurve,
    augrc,
    aurc,
    brier,
    nll,
    risk_coverage_curve,
    signed_gap,
    top_brier_parts,
)
from dtpt.metrics.table import METRICS, Metric, Role, metrics_with, score
from dtpt.metrics.temperature import fit_shared_temperature, fit_temperature, tempered

__all__ = [
    "COMPARED",
    "METRICS",
    "Bootstrap",
    "CalibratedBand",
    "CalibrationReport",
    "Comparison",
    "Conventions",
    "Estimate",
    "Interval",
    "Metric",
    "PooledPredictions",
    "Predictions",
    "ReliabilityBins",
    "RiskCoverageCurve",
    "Role",
    "aece",
    "augrc",
    "aurc",
    "binomial_cdf",
    "binomial_interval",
    "binomial_upper_bound",
    "bootstrap_intervals",
    "brier",
    "calibrated_band",
    "calibrated_ece",
    "calibration_report",
    "calibration_verdict",
    "centred_interval",
    "classwise_ece",
    "compare_table",
    "draw_metrics",
    "ece",
    "fit_shared_temperature",
    "fit_temperature",
    "gap_interval",
    "mce",
    "metrics_with",
    "nll",
    "pool",
    "reliability_bins",
    "reliability_columns",
    "risk_coverage_curve",
    "score",
    "signed_gap",
    "smooth_ece",
    "tempered",
    "top_brier_parts",
]
