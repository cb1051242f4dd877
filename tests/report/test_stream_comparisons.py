"""Stream methods in comparisons: orders are the units, not images."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from tiny_runs import draw_images, tiny_clip

from dtpt.data import load_dataset
from dtpt.errors import MetricError
from dtpt.metrics import Predictions, compare_table, pool
from dtpt.metrics.comparison import Drawn
from dtpt.metrics.distributions import student_quantile
from dtpt.report import write_report
from dtpt.report.compare import compare
from dtpt.report.facts import Resampling
from dtpt.runs import EvalOptions, run_options, score_methods

ORDERS = (0, 1, 2, 5)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    draw_images(folder / "images", per_class=12)
    dataset = load_dataset(f"folder:{folder / 'images'}")
    options = EvalOptions(
        output=folder / "run",
        dataset=(dataset.name,),
        model="tiny",
        method=("zero-shot", "tda", "onzeta"),
        seed=(0, 1),
        order_seeds=ORDERS,
        views=4,
        threads=1,
        cache=False,
        quiet=True,
    )
    return run_options(options, model=tiny_clip(), datasets=[dataset])


def by_order(run, method, metric):
    """Values of a method, a mean over seeds for every order."""
    (result,) = (r for r in score_methods(run) if r.label == method)
    values = {repeat: cell.metrics[metric] for repeat, cell in result.seeds.items()}
    if (0, None) in values:
        return np.mean([values[seed, None] for seed in (0, 1)])
    return np.array([[values[seed, order] for order in ORDERS] for seed in (0, 1)])


@pytest.mark.parametrize("metric", ["accuracy", "absolute_gap", "nll"])
@pytest.mark.parametrize("pair", [("tda", "zero-shot"), ("tda", "onzeta")])
def test_differences_have_a_t_interval_over_orders(run, pair, metric):
    first, second = pair
    rows = compare(run, against=[second], resamples=50).rows
    (row,) = (r for r in rows if (r["first"], r["metric"]) == (first, metric))
    one, two = (np.atleast_2d(by_order(run, name, metric)).mean(axis=0) for name in pair)
    differences = np.broadcast_to(one - two, (len(ORDERS),))
    error = differences.std(ddof=1) / math.sqrt(len(ORDERS))
    t = student_quantile(row["level"], len(ORDERS) - 1)
    assert row["estimate"] == pytest.approx(differences.mean(), abs=1e-12)
    if metric != "absolute_gap":  # a mean of absolute values, not of their differences' absolutes
        assert row["high"] - row["low"] == pytest.approx(2 * t * error, abs=1e-12)


def test_spread_over_orders_stands_beside_the_one_over_seeds(run):
    compared = compare(run, resamples=50)
    ((_, (facts,)),) = compared.conditions
    assert set(facts.spreads) == {"tda", "onzeta"}
    values, spread = by_order(run, "tda", "ece"), facts.spreads["tda"]["ece"]
    assert spread.orders == pytest.approx(values.mean(axis=0).std(ddof=1))
    assert spread.seeds == pytest.approx(values.mean(axis=1).std(ddof=1))
    assert (spread.low, spread.high) == pytest.approx(
        (values.mean(axis=0).min(), values.mean(axis=0).max())
    )
    (_, _, tables), *_ = compared.sections()
    (table,) = (table for table in tables if table.key == "streams-spread")
    row = next(row for row in table.rows if "ECE" in row.group and row.title == "TDA")
    expected = (spread.orders, spread.seeds, spread.low, spread.high)
    assert [cell.text for cell in row.cells] == [f"{100 * value:.2f}" for value in expected]
    assert (facts.seeds, facts.orders, facts.several) == (2, 4, "2 seeds and 4 orders")


def test_comparisons_and_report_go_along_the_streams(run, tmp_path):
    compared = compare(run, resamples=50)
    (_, _, tables), *_ = compared.sections()
    along = {t.key.rpartition("-")[2]: t for t in tables if t.key.startswith("streams-along")}
    assert {key: len(table.rows) for key, table in along.items()} == {"gain": 2, "gap": 3, "ece": 3}
    (family,) = compared.document()["conditions"][0]["families"]
    tda, _ = family["positions"]
    mean = by_order(run, "tda", "signed_gap").mean()
    assert tda["gap_so_far"][-1]["value"] == pytest.approx(mean, abs=1e-12)
    report = write_report([run.path], tmp_path / "report", resampling=Resampling(resamples=50))
    (figure,) = (f for f in report.report.figures if f.key.endswith("-streams"))
    assert "TDA" in figure.alternative
    assert "family-1-along-gap" in {table.key for table in report.report.tables}
    (part,) = report.report.parts  # guarantees are for images that are exchangeable
    (coverage,) = part.coverage.tables
    assert [row.title for row in coverage.rows] == ["Zero-shot"]


def test_rounding_of_a_mean_over_orders_is_no_difference():
    values = np.full(3, 0.7)  # whose mean is 0.7 + 1e-16
    one = Drawn(float(values.mean()), np.zeros(4), images=9, clusters=(9,), streams=values)
    other = Drawn(0.7, np.zeros(4), images=9, clusters=(9,))
    found = (one - other).interval(0.95)
    assert values.mean() != 0.7
    assert (found.estimate, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_one_order_has_no_interval():
    generator = np.random.default_rng(0)

    def pooled(order):
        confidence, correct = generator.uniform(size=40), generator.uniform(size=40) < 0.5
        made = replace(Predictions.from_confidence(confidence, correct), order=order)
        return pool({"": [made]})

    methods = {"stream": pooled(0), "other": pooled(None)}
    with pytest.raises(MetricError, match="orders"):
        compare_table(methods, [("stream", "other")], generator=generator, resamples=20)
