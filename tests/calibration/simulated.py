"""Simulated labelled predictions with a known distribution, calibrated or overconfident."""

import numpy as np

from dtpt.calibration import LabelledPredictions


def drawn(count, *, seed, classes=10, sharpness=6.0, overconfidence=1.0):
    """Predictions whose log-probabilities are right up to a factor (the overconfidence)."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(count, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    stated = overconfidence * logits
    log_p = stated - np.logaddexp.reduce(stated, axis=1, keepdims=True)
    return LabelledPredictions.of(log_p, labels, predictions=log_p.argmax(axis=1))


def voted(count, *, seed, classes=10, voters=6, sharpness=6.0):
    """Predictions by few votes: many ties, and classes with no vote at all."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(count, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    votes = (logits[:, None, :] + rng.gumbel(size=(count, voters, classes))).argmax(axis=2)
    shares = (votes[:, :, None] == np.arange(classes)).mean(axis=1)  # (n, C)
    with np.errstate(divide="ignore"):
        log_p = np.log(shares)
    return LabelledPredictions.of(log_p, labels, predictions=shares.argmax(axis=1))
