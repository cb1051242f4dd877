"""One table of metrics: a new entry appears wherever metrics are printed or stored."""

import json

import numpy as np
import pytest

from dtpt.cli.score import score as score_command
from dtpt.errors import MetricError
from dtpt.metrics import METRICS, PAPER_METRICS, Conventions, Metric, Predictions, score
from dtpt.metrics.table import metrics_with


@pytest.fixture
def share_of_sure(monkeypatch) -> str:
    """A metric that nobody has yet."""
    metric = Metric(
        "share_of_sure",
        "Sure",
        factor=100.0,
        unit="%",
        higher_is_better=None,
        meaning="Share of predictions with a confidence of at least one half.",
        needs="confidence",
        function=lambda p, _: float((p.confidence >= 0.5).mean()),
    )
    monkeypatch.setitem(METRICS, metric.key, metric)
    return metric.key


def test_score_command_prints_and_stores_a_new_metric(share_of_sure, tmp_path, capsys) -> None:
    path = tmp_path / "a.csv"
    path.write_text("confidence,correct\n0.9,1\n0.8,1\n0.6,0\n0.2,0\n")
    score_command(path)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Sure" in line]
    assert "75.00" in line
    score_command(path, json=True)
    assert json.loads(capsys.readouterr().out)[share_of_sure] == 0.75


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
    assert set(score(bare)) == {metric.key for metric in metrics_with("confidence")}


def test_conventions_reach_every_metric_that_has_bins() -> None:
    rng = np.random.default_rng(1)
    made = Predictions.from_probabilities(rng.dirichlet(np.ones(4), 80), rng.integers(4, size=80))
    few, many = (score(made, Conventions(bins=bins)) for bins in (3, 40))
    changed = {key for key in few if few[key] != many[key]}
    binned = {"ece", "floor", "ece_above_floor", "aece", "mce", "classwise_ece"}
    assert changed == binned


def test_papers_metrics_come_first_in_its_own_order() -> None:
    assert [key for key in METRICS if key in PAPER_METRICS] == list(PAPER_METRICS)
    assert METRICS["accuracy"].higher_is_better
    assert METRICS["signed_gap"].higher_is_better is None


def test_entries_can_be_printed() -> None:
    for key, metric in METRICS.items():
        assert key == metric.key
        assert metric.meaning.endswith(".")
    assert METRICS["ece"].title == "ECE (%) ↓"
    assert METRICS["brier"].title == "Brier ↓"
    assert METRICS["signed_gap"].title == "Signed gap (%)"
    assert METRICS["nll"].file_unit == "nats"
    assert METRICS["aurc"].file_unit == "fraction"


def test_predictions_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(MetricError, match="p_label has 1 samples but confidence has 2"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], p_label=[0.5], sum_squares=[0.5])
    with pytest.raises(MetricError, match=r"sum_squares\[1\] is 1.5"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], p_label=[0.5, 0.5], sum_squares=[0.5, 1.5])
    with pytest.raises(MetricError, match="samples has shape"):
        Predictions.from_confidence([0.5, 0.5], [1, 0], samples=["a"])
    with pytest.raises(MetricError, match="needs the probability of the label"):
        METRICS["nll"].function(Predictions.from_confidence([0.5], [1]), Conventions())
