"""Bootstrap: the fast resampling equals the slow one, and intervals cover what they claim."""

import numpy as np
import pytest

from dtpt.errors import MetricError
from dtpt.metrics import (
    accuracy,
    aece,
    augrc,
    aurc,
    bootstrap_intervals,
    bootstrap_statistic,
    ece,
    mce,
)
from dtpt.metrics import bootstrap as module


def simulate(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    confidence = rng.beta(4, 2, size=count)
    return confidence, rng.uniform(size=count) < confidence**1.4


@pytest.mark.parametrize("digits", [1, 2, 12])  # many ties, some, none
def test_fast_resampling_equals_metrics_of_the_resampled_samples(digits: int) -> None:
    confidence, correct = simulate(np.random.default_rng(1), 90)
    confidence = confidence.round(digits)
    found = bootstrap_intervals(
        confidence, correct, generator=np.random.default_rng(2), resamples=60, bins=7, aece_bins=5
    )
    drawn = np.random.default_rng(2).integers(90, size=(60, 90))  # positions in the input
    slow = {
        "accuracy": lambda i: accuracy(correct[i]),
        "ece": lambda i: ece(confidence[i], correct[i], bins=7),
        "mce": lambda i: mce(confidence[i], correct[i], bins=7),
        "aece": lambda i: aece(confidence[i], correct[i], bins=5),
        "aurc": lambda i: aurc(confidence[i], correct[i]),
        "augrc": lambda i: augrc(confidence[i], correct[i]),
    }
    assert set(slow) == set(found)
    for name, metric in slow.items():
        low, high = np.quantile([metric(i) for i in drawn], [0.025, 0.975])
        assert (found[name].low, found[name].high) == pytest.approx((low, high), abs=1e-12)


def test_same_seed_same_interval_and_chunks_do_not_matter(monkeypatch) -> None:
    confidence, correct = simulate(np.random.default_rng(1), 64)
    intervals = [
        bootstrap_intervals(confidence, correct, generator=np.random.default_rng(s), resamples=50)
        for s in (3, 3, 4)
    ]
    assert intervals[0] == intervals[1]
    assert intervals[0] != intervals[2]
    monkeypatch.setattr(module, "CHUNK", 64 * 7)
    chunked = bootstrap_intervals(
        confidence, correct, generator=np.random.default_rng(3), resamples=50
    )
    assert chunked == intervals[0]


def test_intervals_cover_the_true_value_as_often_as_they_claim() -> None:
    rng = np.random.default_rng(11)
    many = simulate(rng, 1_000_000)
    truth = {
        "accuracy": accuracy(many[1]),
        "augrc": augrc(*many),
        "loss": float(((many[0] - many[1]) ** 2).mean()),
    }
    covered = dict.fromkeys(truth, 0)
    for _ in range(400):
        confidence, correct = simulate(rng, 150)
        losses = {"loss": (confidence - correct) ** 2}
        found = bootstrap_intervals(
            confidence, correct, generator=rng, losses=losses, resamples=300
        )
        for name, value in truth.items():
            covered[name] += found[name].low <= value <= found[name].high
    for name, count in covered.items():
        assert 0.93 <= count / 400 <= 0.97, (name, count / 400)


def test_a_higher_level_gives_a_wider_interval() -> None:
    confidence, correct = simulate(np.random.default_rng(1), 100)
    narrow, wide = (
        bootstrap_intervals(
            confidence, correct, generator=np.random.default_rng(0), resamples=300, level=level
        )["aurc"]
        for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


def test_any_statistic_can_be_resampled() -> None:
    values = np.random.default_rng(0).normal(5, 1, size=400)
    found = bootstrap_statistic(
        lambda i: float(values[i].mean()), 400, generator=np.random.default_rng(1), resamples=400
    )
    half = 1.96 * values.std() / 20
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)


def test_nonsense_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(MetricError, match="level"):
        bootstrap_intervals([0.5], [True], generator=rng, level=95)
    with pytest.raises(MetricError, match="resamples"):
        bootstrap_intervals([0.5], [True], generator=rng, resamples=0)
    with pytest.raises(MetricError, match="'x'"):
        bootstrap_intervals([0.5], [True], generator=rng, losses={"x": [1.0, 2.0]})
    with pytest.raises(MetricError, match="aece_bins"):
        bootstrap_intervals([0.5], [True], generator=rng, aece_bins=0)
