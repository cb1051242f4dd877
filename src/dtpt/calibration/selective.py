"""Selective prediction: a threshold below which the classifier abstains, so that errors stay rare.

The guarantee of a threshold t: among new images whose calibrated confidence is at least t, the
fraction of wrong predictions is at most ε. For one t fixed beforehand the exact binomial bound
(Clopper-Pearson) on labelled images proves it with a confidence of 1 - δ. Trying many t and taking
the best would invalidate that. Here thresholds are tested in an order fixed beforehand, from strict
to lenient, each at the full δ, and the search ends at the first that fails (fixed-sequence
testing). A false guarantee requires that the first t whose true error is above ε passes its test,
which has a probability of at most δ, however many t are tried.

Order and thresholds come from other images than those of the test: the ones that gave the
temperature. Images of equal confidence (votes) are accepted together or not at all.

The test needs independent images, so it gets one of each cluster. A bound that uses all of them is
no better: betting on cluster means accepts as many images where errors are as similar within
clusters as on OpenMoji (`python -m benchmarks guarantees`).
"""

import functools
import math

import numpy as np
import numpy.typing as npt

from dtpt.calibration.conformal import FloatArray
from dtpt.metrics import binomial_cdf, binomial_upper_bound

STEPS = 50
# With just as many accepted images as a test needs, one error would end the search. With far more,
# the strictest threshold would be too lenient for a weak model. The same start for most target
# errors also means that a threshold that passes at one error passes at every larger one.
HEADROOM, FIRST_ACCEPTED, FIRST_FRACTION = 1.5, 90, 0.25
LEAST_SHARE, MOST_NEEDED = 0.1, 10**6  # of what `needed_images` looks at


def least_accepted(error: float, confidence: float) -> int:
    """Return how many predictions, all right, prove an error rate of at most `error`.

    Example:
        >>> least_accepted(0.05, 0.95), least_accepted(0.1, 0.95)
        (59, 29)
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - error) - 1e-9)


def threshold_sequence(
    confidence: FloatArray, images: int, *, error: float, level: float
) -> FloatArray:
    """Return thresholds from strict to lenient, the last of which accepts everything.

    The strictest is expected to accept 90 images, or of few images a quarter; more where a test
    needs more.

    Args:
        confidence: (m,) calibrated, of images that are not tested.
        images: how many will be tested.
        error: target error rate.
        level: confidence of the guarantee, such as 0.95.
    """
    wanted = min(FIRST_ACCEPTED, FIRST_FRACTION * images)
    first = min(1.0, max(wanted, HEADROOM * least_accepted(error, level)) / images)
    thresholds = np.quantile(confidence, 1 - np.linspace(first, 1.0, STEPS + 1), method="lower")
    thresholds[-1] = 0.0
    return np.unique(thresholds)[::-1]


def lowest_valid_threshold(
    confidence: FloatArray,
    wrong: npt.NDArray[np.bool_],
    *,
    thresholds: FloatArray,
    error: float,
    level: float,
) -> tuple[float | None, int, int, float]:
    """Test thresholds in their order and return the last before the first failure.

    Args:
        confidence: (n,) calibrated, of the labelled images to test on.
        wrong: (n,) whether their predictions are wrong.
        thresholds: (J,) in the order of testing, chosen without these images.
        error: target error rate.
        level: confidence of the guarantee.

    Returns:
        The threshold, accepted images, wrong ones among them, and the upper bound of the error
        rate; None, 0, 0 and 1 where no threshold passes.
    """
    is_accepted = confidence[None, :] >= thresholds[:, None]  # (J, n)
    accepted, errors = is_accepted.sum(axis=1), (is_accepted & wrong[None, :]).sum(axis=1)
    # so few errors have a probability of at most 1 - level at the target: the bound is below it
    p = binomial_cdf(errors, np.maximum(accepted, 1), probability=error)
    fails = (p > 1 - level) | (accepted == 0)
    passed = int(np.argmax(np.append(fails, True)))  # how many before the first failure
    if passed == 0:
        return None, 0, 0, 1.0
    last = passed - 1
    counts = int(accepted[last]), int(errors[last])
    return float(thresholds[last]), *counts, _bound(*counts, level=level)


@functools.lru_cache(maxsize=4096)  # many splits have the same counts
def _bound(accepted: int, errors: int, *, level: float) -> float:
    return float(binomial_upper_bound(errors, accepted, level=level))


def passing_error(
    apart: FloatArray, confidence: FloatArray, *, wrong: npt.NDArray[np.bool_], level: float
) -> float | None:
    """Return the smallest of the error rates 1 %, 2 %, ... for which a threshold passes.

    Chosen after the fact: it describes the labelled images, and guarantees nothing. The arguments
    are those of `threshold_sequence` and `lowest_valid_threshold`.
    """
    for error in np.arange(1, 100) / 100:
        thresholds = threshold_sequence(apart, len(confidence), error=error, level=level)
        found = lowest_valid_threshold(
            confidence, wrong, thresholds=thresholds, error=error, level=level
        )
        if found[0] is not None:
            return float(error)
    return None


def needed_images(
    confidence: FloatArray,
    wrong: npt.NDArray[np.bool_],
    *,
    weights: FloatArray,
    error: float,
    level: float,
) -> int | None:
    """Estimate how many independent images to test would let a threshold pass.

    For every fraction of the most confident images: how many it takes until the exact bound passes
    with as many errors as expected, if the error rate stays as it is. The smallest number is
    returned, None if the rate is nowhere below the target. As an estimate it is optimistic: the
    best of many fractions is taken.

    Args:
        confidence: (n,) calibrated, of all labelled images.
        wrong: (n,) whether their predictions are wrong.
        weights: (n,) of the images.
        error: target error rate.
        level: confidence of the guarantee.
    """
    order = np.argsort(-confidence, kind="stable")
    accepted, errors = np.cumsum(weights[order]), np.cumsum((weights * wrong)[order])
    last = (np.linspace(LEAST_SHARE, 1, STEPS) * (len(order) - 1)).astype(np.int64)  # (J,)
    # few images without errors do not prove a rate of 0
    rates = (errors[last] + 0.5) / (accepted[last] + 1)
    sizes = np.unique(np.geomspace(1, MOST_NEEDED, 300).astype(np.int64))  # (S,)
    expected = np.ceil(rates[:, None] * sizes).astype(np.int64)  # errors
    p = binomial_cdf(expected, sizes, probability=error)  # (J, S)
    passes = (p <= 1 - level) & (rates[:, None] < error)
    needed = sizes[passes.argmax(axis=1)] * accepted[-1] / accepted[last]
    return math.ceil(needed[passes.any(axis=1)].min()) if passes.any() else None
