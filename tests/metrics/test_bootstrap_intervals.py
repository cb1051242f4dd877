"""Bootstrap: the fast resampling equals the slow one, and intervals cover what they claim."""

import numpy as np
import pytest

from dtpt.errors import MetricError
from dtpt.metrics import (
    METRICS,
    Conventions,
    Predictions,
    augrc,
    bootstrap_intervals,
    centred_interval,
    draw_metrics,
    pool,
    score,
    top_brier_parts,
)
from dtpt.metrics import resampling as module
from dtpt.metrics.resampling import resampled_counts

RESAMPLED = [key for key, metric in METRICS.items() if metric.has_resamples]


def simulate(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    confidence = rng.beta(4, 2, size=count)
    return confidence, rng.uniform(size=count) < confidence**1.4


def with_labels(confidence: np.ndarray, correct: np.ndarray) -> Predictions:
    """Predictions of two classes, so that all probabilities follow from the confidence."""
    return Predictions.from_confidence(
        confidence,
        correct,
        p_label=np.where(correct, confidence, 1 - confidence),
        sum_squares=confidence**2 + (1 - confidence) ** 2,
    )


def redrawn(made: Predictions, counts: np.ndarray) -> Predictions:
    index = np.repeat(np.arange(len(made)), counts.astype(int))
    return with_labels(made.confidence[index], made.correct[index])


@pytest.mark.parametrize("digits", [1, 2, 12])  # many ties, some, none
def test_fast_resampling_equals_metrics_of_the_resampled_samples(digits: int) -> None:
    confidence, correct = simulate(np.random.default_rng(1), 90)
    made = with_labels(confidence.round(digits), correct)
    conventions = Conventions(bins=7, aece_bins=5)
    drawn = draw_metrics(
        {"": pool({"": [made]})},
        generator=np.random.default_rng(2),
        metrics=RESAMPLED,
        conventions=conventions,
        resamples=40,
    )
    found = {key: one.draws for key, one in drawn[""].items()}
    assert set(found) == {key for key, metric in METRICS.items() if metric.has_resamples}
    counts = np.concatenate(list(resampled_counts([90], 40, generator=np.random.default_rng(2))))
    slow = [score(redrawn(made, row), conventions) for row in counts]
    for key, values in found.items():
        expected = np.array([metrics[key] for metrics in slow])
        if key == "smooth_ece":  # on a coarser grid
            assert values == pytest.approx(expected, abs=2e-3)
        elif key == "absolute_gap":  # linear: the sign of the estimate holds for all draws
            assert np.abs(values) == pytest.approx(expected, abs=1e-12)
        elif key == "squared_ce":  # its draws are not values of resamples: test_squared_error.py
            assert values.mean() == pytest.approx(METRICS[key].value(made, conventions), abs=0.01)
        elif key == "ece_above_floor":  # an approximate floor, alike in all draws
            off = values - expected
            assert np.abs(off - off.mean()).max() < 0.01
        else:
            assert values == pytest.approx(expected, abs=1e-12), key


def test_samples_are_drawn_within_their_stratum() -> None:
    counts = np.concatenate(
        list(resampled_counts([3, 1, 5], 50, generator=np.random.default_rng(0)))
    )
    assert counts.shape == (50, 9)
    assert (counts[:, :3].sum(axis=1) == 3).all()
    assert (counts[:, 3] == 1).all()
    assert (counts[:, 4:].sum(axis=1) == 5).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(9), abs=0.45)


def test_same_seed_same_interval_and_chunks_do_not_matter(monkeypatch) -> None:
    made = with_labels(*simulate(np.random.default_rng(1), 64))
    intervals = [
        bootstrap_intervals(made, generator=np.random.default_rng(s), resamples=50)
        for s in (3, 3, 4)
    ]
    assert intervals[0] == intervals[1]
    assert intervals[0] != intervals[2]
    monkeypatch.setattr(module, "CHUNK", 64 * 7)
    chunked = bootstrap_intervals(made, generator=np.random.default_rng(3), resamples=50)
    assert chunked.keys() == intervals[0].keys()
    for key, interval in chunked.items():
        if key == "smooth_ece":  # a chunk is solved until all of its rows are exact enough
            assert interval.low == pytest.approx(intervals[0][key].low, abs=1e-5)
        else:
            assert interval.low == pytest.approx(intervals[0][key].low, abs=1e-14)
            assert interval.high == pytest.approx(intervals[0][key].high, abs=1e-14)


@pytest.mark.parametrize("size", [5, 64, 700])
def test_every_interval_contains_its_estimate(size: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        made = with_labels(*simulate(rng, size))
        values = score(made)
        for key, interval in bootstrap_intervals(made, generator=rng, resamples=200).items():
            assert interval.low <= values[key] <= interval.high, (key, seed)
            if METRICS[key].range[0] >= 0 and key != "absolute_gap":
                assert interval.low >= 0, (key, seed)


def test_draws_that_all_lie_above_the_estimate_are_centred_on_it() -> None:
    draws = np.random.default_rng(0).normal(0.22, 0.02, size=1_000)
    interval = centred_interval(draws, 0.1797, level=0.95)
    assert interval.low == pytest.approx(0.1797 - 0.04, abs=0.006)
    assert interval.high == pytest.approx(0.1797 + 0.04, abs=0.006)
    skewed = np.array([0.0] * 99 + [100.0])  # its mean is no typical draw
    assert centred_interval(skewed, 1.0, level=0.5).high == 1.0
    assert centred_interval(np.array([0.0, 0.4]), 0.01, level=0.95).low == 0.0
    assert centred_interval(np.array([0.6, 1.0]), 0.99, level=0.95).high == 1.0


def test_intervals_cover_the_true_value_as_often_as_they_claim() -> None:
    rng = np.random.default_rng(11)
    many = simulate(rng, 1_000_000)
    truth = {
        "accuracy": many[1].mean(),
        "augrc": augrc(*many),
        "top_brier": top_brier_parts(*many).score,
    }
    covered = dict.fromkeys(truth, 0)
    for _ in range(400):
        made = Predictions.from_confidence(*simulate(rng, 150))
        found = bootstrap_intervals(made, metrics=list(truth), generator=rng, resamples=300)
        for name, value in truth.items():
            covered[name] += found[name].low <= value <= found[name].high
    for name, count in covered.items():
        assert 0.93 <= count / 400 <= 0.97, (name, count / 400)


def test_a_higher_level_gives_a_wider_interval() -> None:
    made = with_labels(*simulate(np.random.default_rng(1), 100))
    narrow, wide = (
        bootstrap_intervals(
            made, metrics=["aurc"], generator=np.random.default_rng(0), resamples=300, level=level
        )["aurc"]
        for level in (0.5, 0.99)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


def test_nonsense_is_refused() -> None:
    rng = np.random.default_rng(0)
    made = Predictions.from_confidence([0.5], [True])
    with pytest.raises(MetricError, match="level"):
        bootstrap_intervals(made, generator=rng, level=95)
    for resamples in (0, 10**9):
        with pytest.raises(MetricError, match=f"resamples is {resamples}; expected 1 to 100,000"):
            bootstrap_intervals(made, generator=rng, resamples=resamples)
    with pytest.raises(MetricError, match="aece_bins"):
        bootstrap_intervals(made, generator=rng, conventions=Conventions(aece_bins=0))
