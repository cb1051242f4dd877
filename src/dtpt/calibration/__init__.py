"""Promises: from calibrated scores to confidence that one can rely on.

On labelled pictures of one method a promise fits a temperature, prediction sets with a chosen share
of hits, and a threshold that keeps errors among the given answers rare. NumPy only.

>>> from dtpt.calibration import read_promise
>>> read_promise("promise.json").promised                                       # doctest: +SKIP
"""

from dtpt.calibration.fitting import Fit, Levels, SetKind, Statement, fit, state
from dtpt.calibration.judging import (
    Judged,
    Splits,
    cross_fit,
    cross_fits,
    judge,
    judge_both,
    random_splits,
    together,
)
from dtpt.calibration.promise import Basis, Promise, Subject, as_promise, read_promise
from dtpt.calibration.splitting import Labelled, hash_shares, temperature_part

__all__ = [
    "Basis",
    "Fit",
    "Judged",
    "Labelled",
    "Levels",
    "Promise",
    "SetKind",
    "Splits",
    "Statement",
    "Subject",
    "as_promise",
    "cross_fit",
    "cross_fits",
    "fit",
    "hash_shares",
    "judge",
    "judge_both",
    "random_splits",
    "read_promise",
    "state",
    "temperature_part",
    "together",
]
