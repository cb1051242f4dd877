"""Simulated labelled predictions with a known distribution, calibrated or overconfident."""

from dataclasses import replace

import numpy as np

from dtpt.calibration import LabelledPredictions
from dtpt.calibration.fitting import one_per_cluster


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


def clustered(count, *, seed, classes=10, sharpness=2.0, noise=0.6, sizes=None):
    """Predictions on clusters of six images of one thing: same label, similar mistakes.

    `sizes`: how many images of a cluster stay, by its largest probability; both (clusters,).
    """
    rng = np.random.default_rng(seed)
    shared = sharpness * rng.normal(size=(count, 1, classes))
    labels = (shared[:, 0] + rng.gumbel(size=(count, classes))).argmax(axis=1)
    logits = shared + noise * rng.normal(size=(count, 6, classes))
    log_p = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    left = np.full(count, 6) if sizes is None else sizes(np.exp(log_p.max(axis=(1, 2))))
    kept = (np.arange(6) < left[:, None]).ravel()
    flat = log_p.reshape(-1, classes)[kept]  # (clusters, 6, C) -> (n, C)
    return LabelledPredictions.of(
        flat,
        np.repeat(labels, left),
        predictions=flat.argmax(axis=1),
        clusters=[f"{k:05d}" for k in np.repeat(np.arange(count), left)],
    )


def resampled(population, count, *, rng):
    """Independent draws of whole clusters; one that is drawn twice is two clusters."""
    parts = np.split(np.arange(len(population)), np.flatnonzero(np.diff(population.clusters)) + 1)
    drawn = [parts[k] for k in rng.integers(len(parts), size=count)]
    taken = population.take(np.concatenate(drawn))
    clusters = np.repeat(np.arange(count), list(map(len, drawn)))
    return replace(taken, clusters=clusters, chosen=one_per_cluster(clusters, rng.random(count)))
