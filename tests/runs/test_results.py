"""The summary of a run holds every metric of the table; its rows can be compared."""

import numpy as np
import pytest

from dtpt.metrics import METRICS, Metric, compare_table, pool
from dtpt.runs import results_of, score_methods
from dtpt.runs.results import predictions_of


def test_a_metric_added_to_the_table_is_in_the_summary_and_in_the_results(
    run_tiny, images, monkeypatch
):
    fraction = Metric(
        "fraction_sure",
        "Sure",
        higher_is_better=None,
        meaning="Fraction of predictions with a confidence of at least 0.3.",
        function=lambda p, _: float((p.confidence >= 0.3).mean()),
    )
    monkeypatch.setitem(METRICS, fraction.key, fraction)
    run = run_tiny(method=("tpt",), seed=(0, 1))
    (result,) = score_methods(run)
    expected = [float((run.rows_of(cell).confidence >= 0.3).mean()) for cell in run.cells]
    assert result.mean[fraction.key] == pytest.approx(np.mean(expected))
    document = results_of(run).document()
    stored = document["results"][images.name][result.label]
    assert stored["mean"][fraction.key] == result.mean[fraction.key]
    assert stored["std"][fraction.key] == result.std[fraction.key]
    assert document["units"][fraction.key] == "fraction"
    assert document["higher_is_better"][fraction.key] is None
    assert document["higher_is_better"]["accuracy"] is True


def test_brier_and_nll_come_from_the_stored_sums(run_tiny):
    run = run_tiny(method=("tpt",))
    rows = run.rows()
    (result,) = score_methods(run)
    brier = (rows.sum_squares - 2 * rows.p_label + 1).mean()
    assert result.mean["brier"] == pytest.approx(brier, abs=1e-12)
    assert result.mean["nll"] == pytest.approx(
        -np.log(np.maximum(rows.p_label, 1e-12)).mean(), abs=1e-12
    )


def test_rows_of_two_methods_can_be_compared(run_tiny, images):
    run = run_tiny(method=("zero-shot", "tpt"))
    methods = {
        cell.label: pool({images.name: [predictions_of(run.rows_of(cell).table)]})
        for cell in run.cells
    }
    pairs = [("tpt", "zero-shot")]
    comparisons = compare_table(methods, pairs, generator=np.random.default_rng(0), resamples=50)
    assert {c.n for c in comparisons} == {30}
    assert "nll" in {c.metric for c in comparisons}
