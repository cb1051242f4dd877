"""One table of metrics: a new entry appears wherever metrics are printed or stored."""

import json

import numpy as np
import pytest

from dtpt.cli.calibrate import score as score_command
from dtpt.errors import MetricError
from dtpt.metrics import (
    METRICS,
    Bootstrap,
    CalibrationReport,
    Conventions,
    Metric,
    Predictions,
    compare_table,
    metrics_with,
    pool,
    score,
)


@pytest.fixture
def sure_fraction(monkeypatch) -> str:
    """A metric that the table does not have."""
    metric = Metric(
        "sure_fraction",
        "Sure",
        meaning="Fraction of predictions with a confidence of at least one half.",
        higher_is_better=None,
        roles=("compared",),
        per_sample=lambda p, _: (p.confidence >= 0.5).astype(float),
    )
    monkeypatch.setitem(METRICS, metric.key, metric)
    return metric.key


def test_an_added_mean_has_intervals_and_comparisons(sure_fraction) -> None:
    made = Predictions.from_confidence([0.9, 0.8, 0.6, 0.2], [1, 1, 0, 0])
    report = CalibrationReport.of(made, bootstrap=Bootstrap(resamples=200))
    interval = report.intervals[sure_fraction]
    assert interval.low < report.metrics[sure_fraction] == 0.75 < interval.high
    methods = {"a": pool({"x": [made]}), "b": pool({"x": [made]})}
    keys = [metric.key for metric in metrics_with("compared")]
    pairs = [("a", "b")]
    found = compare_table(methods, pairs, generator=np.random.default_rng(0), metrics=keys)
    assert sure_fraction in {comparison.metric for comparison in found}


def test_score_command_prints_and_stores_a_new_metric(sure_fraction, tmp_path, capsys) -> None:
    path = tmp_path / "a.csv"
    path.write_text("confidence,correct\n0.9,1\n0.8,1\n0.6,0\n0.2,0\n")
    score_command(path)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Sure" in line]
    assert "75.00" in line
    score_command(path, as_json=True)
    assert json.loads(capsys.readouterr().out)[sure_fraction] == 0.75


def test_score_computes_what_the_predictions_allow() -> None:
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(4), size=50), rng.integers(4, size=50)
    full = Predictions.from_probabilities(probabilities, labels)
    stored = Predictions.from_confidence(
        full.confidence, full.correct, p_label=full.p_label, sum_squares=full.sum_squares
    )
    bare = Predictions.from_confidence(full.confidence, full.correct)
    everything = score(full)
    assert list(everything) == list(METRICS)
    assert score(stored) == {k: v for k, v in everything.items() if k != "classwise_ece"}
    assert set(score(bare)) == {metric.key for metric in metrics_with(known=("confidence",))}


def test_conventions_reach_every_metric_that_has_bins() -> None:
    rng = np.random.default_rng(1)
    made = Predictions.from_probabilities(rng.dirichlet(np.ones(4), 80), rng.integers(4, size=80))
    few, many = (score(made, Conventions(bins=bins)) for bins in (3, 40))
    changed = {key for key in few if few[key] != many[key]}
    binned = {"ece", "floor", "ece_above_floor", "squared_ce", "aece", "mce", "classwise_ece"}
    assert changed == binned


def test_roles() -> None:
    roles = {
        role: [metric.key for metric in metrics_with(role)]
        for role in ("paper", "headline", "pooled", "compared", "summary")
    }
    assert roles == {
        "paper": ["accuracy", "ece", "aece", "mce", "aurc"],
        "headline": ["accuracy", "absolute_gap", "ece_above_floor", "squared_ce", "brier", "nll"],
        "pooled": ["accuracy", "signed_gap", "ece", "brier", "nll", "aurc"],
        "compared": [
            "accuracy",
            "signed_gap",
            "absolute_gap",
            "squared_ce",
            "brier",
            "nll",
            "aurc",
        ],
        "summary": ["accuracy", "absolute_gap", "ece_above_floor", "brier", "aurc"],
    }
    for role in roles:
        assert all(metric.has_resamples for metric in metrics_with(role)), role


def test_values_lie_in_the_declared_range() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        made = Predictions.from_probabilities(
            rng.dirichlet(np.full(3, 0.1), 30).clip(1e-9, 1), rng.integers(3, size=30)
        )
        for key, value in score(made).items():
            low, high = METRICS[key].range
            assert low <= value <= high, key


def test_entries_can_be_printed() -> None:
    for key, metric in METRICS.items():
        assert key == metric.key
        assert metric.meaning.endswith(".")
    assert METRICS["ece"].title == "ECE (%) ↓"
    assert METRICS["brier"].title == "Brier ↓"
    assert METRICS["signed_gap"].title == "Signed gap (%)"
    assert METRICS["nll"].file_unit == "nats"
    assert METRICS["aurc"].file_unit == "fraction"
    assert METRICS["aurc"].text(0.25) == "250.00"
    assert METRICS["ece_above_floor"].short == "ECE*"


def test_predictions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(MetricError, match="p_label has 1 samples but confidence has 2"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], p_label=[0.5], sum_squares=[0.5])
    with pytest.raises(MetricError, match=r"sum_squares\[1\] is 1.5"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], p_label=[0.5, 0.5], sum_squares=[0.5, 1.5])
    with pytest.raises(MetricError, match="samples has shape"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], samples=["a"])
    with pytest.raises(MetricError, match="clusters has shape"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], clusters=["a"])
    with pytest.raises(MetricError, match="needs the probability of the label"):
        METRICS["nll"].value(Predictions.from_confidence([0.5], [1]), Conventions())
