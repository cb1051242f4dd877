"""A threshold below which no answer is given, so that the given answers are seldom wrong.

What is promised of a threshold t: among new pictures whose calibrated confidence is at least t, the
share of wrong answers is at most ε. For one t fixed beforehand the exact binomial bound (Clopper
and Pearson) on labelled pictures proves it with a confidence of 1 - δ. Looking at many t and taking
the best would spoil that. Here the thresholds are tested in an order fixed beforehand, from strict
to lenient, each at the full δ, and the search ends at the first that fails: fixed-sequence testing.
A false promise needs the first t whose true error is above ε to pass its test, which happens with a
probability of at most δ, however many t are tried.

Order and thresholds come from other pictures than those of the test: the same that gave the
temperature. Equal confidences (votes) are answered together or not at all.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from dtpt.calibration.scores import FloatArray
from dtpt.calibration.splitting import BoolArray
from dtpt.metrics import binomial_cdf, binomial_upper_bound

STEPS = 50
# With just as many answers as a test needs, one slip would end the search. With far more, the
# strictest threshold would be too lenient for a weak model. The same start for most levels of error
# also means that what passes at one level passes at every larger one.
HEADROOM, FIRST_ANSWERS, FIRST_SHARE = 1.5, 90, 0.25


@dataclass(frozen=True)
class Threshold:
    """The most lenient threshold that passed, and the labelled answers behind it.

    Attributes:
        value: least calibrated confidence of an answer; None where no threshold passed.
        given: answers at or above it among the tested pictures.
        wrong: those of them that are wrong.
        bound: upper bound of the share of wrong answers; 1 where no threshold passed.
    """

    value: float | None
    given: int
    wrong: int
    bound: float


def least_answers(error: float, confidence: float) -> int:
    """Return how many answers, all right, prove that at most a share `error` is wrong.

    Example:
        >>> least_answers(0.05, 0.95), least_answers(0.1, 0.95)
        (59, 29)
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - error) - 1e-9)


def threshold_sequence(
    confidence: FloatArray, pictures: int, *, error: float, level: float
) -> FloatArray:
    """Return thresholds from strict to lenient, the last of which answers everything.

    The strictest is expected to leave 90 answers, or of few pictures a quarter; more where a test
    needs more.

    Args:
        confidence: (m,) calibrated, of pictures that are not tested.
        pictures: how many will be tested.
        error: promised share of wrong answers.
        level: confidence of the promise, such as 0.95.

    Example:
        >>> threshold_sequence(np.arange(1, 101) / 100, 900, error=0.05, level=0.95)[:3].tolist()
        [0.9, 0.88, 0.86]
    """
    wanted = min(FIRST_ANSWERS, FIRST_SHARE * pictures)
    first = min(1.0, max(wanted, HEADROOM * least_answers(error, level)) / pictures)
    found = np.quantile(confidence, 1 - np.linspace(first, 1.0, STEPS + 1), method="lower")
    found[-1] = 0.0
    return np.unique(found)[::-1]


def most_lenient(
    confidence: FloatArray,
    wrong: BoolArray,
    *,
    thresholds: FloatArray,
    error: float,
    level: float,
) -> Threshold:
    """Test the thresholds in their order and return the last before the first failure.

    Args:
        confidence: (n,) calibrated, of the labelled pictures to test on.
        wrong: (n,) whether their answers are wrong.
        thresholds: (J,) in the order of testing, chosen without looking at these pictures.
        error: promised share of wrong answers.
        level: confidence of the promise.

    Example:
        >>> sure = np.repeat([0.9, 0.5], 100)
        >>> slips = np.arange(200) >= 120
        >>> strict_first = np.array([0.8, 0.4])
        >>> found = most_lenient(sure, slips, thresholds=strict_first, error=0.05, level=0.95)
        >>> found.value, found.given, found.wrong, round(found.bound, 4)
        (0.8, 100, 0, 0.0295)
    """
    answered = confidence[None, :] >= thresholds[:, None]  # (J, n)
    given, slips = answered.sum(axis=1), (answered & wrong[None, :]).sum(axis=1)
    # so few slips would be rare (1 - level) at the promised error: the bound is below it
    chance = binomial_cdf(slips, np.maximum(given, 1), probability=error)
    fails = (chance > 1 - level) | (given == 0)
    passed = int(np.argmax(np.append(fails, True)))  # how many before the first failure
    if passed == 0:
        return Threshold(None, 0, 0, 1.0)
    last = passed - 1
    seen = int(given[last]), int(slips[last])
    return Threshold(float(thresholds[last]), *seen, _bound(*seen, level=level))


@functools.lru_cache(maxsize=4096)  # many splits meet the same counts
def _bound(given: int, wrong: int, *, level: float) -> float:
    return binomial_upper_bound(wrong, given, level=level)
