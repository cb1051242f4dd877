"""Calibration of one method on labelled images: confidence, prediction sets, abstention.

Temperature scaling makes confidence honest, split conformal prediction gives sets that contain the
true class with a chosen frequency (coverage), and selective prediction abstains below a threshold
so that errors among the accepted predictions stay rare. `dtpt calibrate` writes them to a file.

>>> from dtpt.calibration import read_calibration
>>> read_calibration("calibration.json").guarantees                             # doctest: +SKIP
"""

from dtpt.calibration.calibration import (
    CalibratedPrediction,
    Calibration,
    Provenance,
    Setup,
    as_calibration,
    read_calibration,
)
from dtpt.calibration.checking import HeldOut, SplitCheck, check_splits, concatenate, cross_fit
from dtpt.calibration.fitting import Fit, LabelledPredictions, SetKind, Targets, apply, fit

__all__ = [
    "CalibratedPrediction",
    "Calibration",
    "Fit",
    "HeldOut",
    "LabelledPredictions",
    "Provenance",
    "SetKind",
    "Setup",
    "SplitCheck",
    "Targets",
    "apply",
    "as_calibration",
    "check_splits",
    "concatenate",
    "cross_fit",
    "fit",
    "read_calibration",
]
