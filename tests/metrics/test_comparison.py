"""Comparisons: paired, pooled, averaged over seeds, corrected, in agreement with their tests."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError, UnknownName
from dtpt.metrics import (
    COMPARED,
    METRICS,
    Comparison,
    Conventions,
    PooledPredictions,
    Predictions,
    compare_table,
    pool,
)
from dtpt.metrics.comparison import accuracy_difference, holm, student_difference
from dtpt.metrics.distributions import mcnemar

cheap = settings(max_examples=200, deadline=None, database=None)


def compare(
    first: PooledPredictions, second: PooledPredictions, **options
) -> tuple[Comparison, ...]:
    methods = {"first": first, "second": second}
    return compare_table(methods, [("first", "second")], **options)


def predictions(rng: np.random.Generator, count: int, *, power: float = 1.4) -> Predictions:
    confidence = rng.beta(4, 2, size=count)
    correct = rng.uniform(size=count) < confidence**power
    return Predictions.from_confidence(
        confidence,
        correct,
        p_label=np.where(correct, confidence, 1 - confidence),
        sum_squares=confidence**2 + (1 - confidence) ** 2,
    )


def sets(rng: np.random.Generator, *, seeds: int = 1, power: float = 1.4) -> PooledPredictions:
    return pool(
        {
            name: [predictions(rng, count, power=power) for _ in range(seeds)]
            for name, count in (("dtd", 60), ("pets", 90))
        }
    )


def by_metric(found: tuple[Comparison, ...]) -> dict[str, Comparison]:
    return {comparison.metric: comparison for comparison in found}


@pytest.mark.parametrize("seeds", [1, 3])
def test_estimates_are_differences_of_pooled_metrics_averaged_over_seeds(seeds: int) -> None:
    rng = np.random.default_rng(0)
    first, second = sets(rng, seeds=seeds), sets(rng, seeds=seeds, power=1.0)
    found = by_metric(compare(first, second, generator=rng, resamples=50))
    assert set(found) == set(COMPARED)
    for key, comparison in found.items():
        means = [
            np.mean([METRICS[key].value(seed, Conventions()) for seed in method.seeds])
            for method in (first, second)
        ]
        assert comparison.estimate == pytest.approx(means[0] - means[1], abs=1e-14)
        assert comparison.low <= comparison.estimate <= comparison.high
        assert comparison.n == 150


def test_pooling_joins_the_images_of_all_sets_in_order() -> None:
    rng = np.random.default_rng(0)
    parts = [predictions(rng, 3), predictions(rng, 2)]
    pooled = pool({"dtd": [parts[0]], "pets": [parts[1]]})
    assert pooled.sets == (("dtd", 3), ("pets", 2))
    (seed,) = pooled.seeds
    assert seed.confidence.tolist() == [*parts[0].confidence, *parts[1].confidence]
    assert seed.p_label.tolist() == [*parts[0].p_label, *parts[1].p_label]
    bare = Predictions.from_confidence([0.5], [True])
    assert pool({"dtd": [parts[0]], "own": [bare]}).seeds[0].known == {"confidence"}


def test_resampling_stays_within_the_sets() -> None:
    """All images of one set are right, all of the other wrong: accuracy cannot vary."""
    right = Predictions.from_confidence(np.full(40, 0.9), np.ones(40, dtype=bool))
    wrong = Predictions.from_confidence(np.full(10, 0.9), np.zeros(10, dtype=bool))
    unsure = Predictions.from_confidence(np.full(40, 0.6), np.ones(40, dtype=bool))
    first, second = pool({"a": [right], "b": [wrong]}), pool({"a": [unsure], "b": [wrong]})
    (gap,) = compare(first, second, generator=np.random.default_rng(0), metrics=["signed_gap"])
    assert gap.estimate == pytest.approx(0.24)
    assert gap.low == pytest.approx(gap.high)


def test_identical_methods_are_not_significantly_different() -> None:
    method = sets(np.random.default_rng(0))
    for comparison in compare(method, method, generator=np.random.default_rng(1)):
        assert (comparison.estimate, comparison.significant, comparison.better) == (0, False, None)
        assert comparison.p == comparison.p_holm == 1.0


def test_pairing_removes_the_variance_that_methods_share() -> None:
    rng = np.random.default_rng(0)
    base = predictions(rng, 500)
    surer = Predictions.from_confidence(base.confidence**0.9, base.correct)
    other = predictions(rng, 500)
    paired, unpaired = (
        compare(
            pool({"dtd": [first]}),
            pool({"dtd": [base]}),
            generator=np.random.default_rng(1),
            metrics=["absolute_gap"],
        )[0]
        for first in (surer, other)
    )
    assert paired.better == "second"
    assert paired.high - paired.low < (unpaired.high - unpaired.low) / 5


def test_better_follows_the_direction_of_the_metric() -> None:
    common = {"low": 0.1, "high": 0.3, "p": 0.0, "p_holm": 0.0, "n": 9, "level": 0.95}
    common |= {"error": 0.05, "detectable": 0.14, "clusters": 9}
    made = {
        key: Comparison("tpt", "zero-shot", key, estimate=0.2, comparisons=1, **common)
        for key in ("accuracy", "absolute_gap", "signed_gap")
    }
    assert made["accuracy"].better == "tpt"
    assert made["absolute_gap"].better == "zero-shot"
    assert made["signed_gap"].better is None


def test_a_table_is_corrected_for_all_its_comparisons_and_shares_draws() -> None:
    rng = np.random.default_rng(3)
    methods = {name: sets(rng) for name in ("a", "b", "c")}
    table = compare_table(
        methods,
        [("b", "a"), ("c", "a")],
        generator=np.random.default_rng(0),
        metrics=["accuracy", "brier", "aurc"],
    )
    assert [(c.first, c.metric) for c in table[:4]] == [
        ("b", "accuracy"),
        ("b", "brier"),
        ("b", "aurc"),
        ("c", "accuracy"),
    ]
    assert {c.comparisons for c in table} == {6}
    assert [c.level for c in table] == pytest.approx([1 - 0.05 / 6] * 6)
    assert [c.p_holm for c in table] == holm([c.p for c in table])
    alone = compare(
        methods["b"],
        methods["a"],
        generator=np.random.default_rng(0),
        metrics=["accuracy", "brier", "aurc"],
        level=1 - 0.05 / 2,
    )
    for one, two in zip(alone, table[:3], strict=True):
        assert (one.low, one.high) == pytest.approx((two.low, two.high))


@cheap
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.5):
        rejected = set()
        for step, index in enumerate(np.argsort(p_values, kind="stable")):
            if p_values[index] * (len(p_values) - step) > alpha:
                break
            rejected.add(int(index))
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected
    assert all(a >= p for a, p in zip(adjusted, p_values, strict=True))


@cheap
@given(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 200),
    st.sampled_from([0.9, 0.95, 0.999]),
)
def test_interval_of_accuracy_agrees_with_mcnemar(
    wins: int, losses: int, others: int, level: float
) -> None:
    n = wins + losses + others + 2
    estimate = (wins - losses) / n
    error = math.sqrt(max((wins + losses) / n - estimate**2, 0) / (n - 1))
    plain = student_difference(estimate, error, freedom=n - 1, level=level)
    found = accuracy_difference(plain, wins, losses=losses, n=n, level=level)
    assert found.p == mcnemar(wins, losses)
    assert (found.low > 0 or found.high < 0) == (found.p < 1 - level)
    assert found.low <= found.estimate <= found.high
    assert found.low < found.high


def test_accuracy_is_tested_exactly_with_one_seed_only() -> None:
    rng = np.random.default_rng(0)
    one, other = sets(rng), sets(rng)
    (exact,) = compare(one, other, generator=rng, metrics=["accuracy"])
    first, second = one.seeds[0].correct, other.seeds[0].correct
    wins, losses = int((first & ~second).sum()), int((~first & second).sum())
    assert exact.p == mcnemar(wins, losses)
    (averaged,) = compare(sets(rng, seeds=2), other, generator=rng, metrics=["accuracy"])
    assert averaged.p != exact.p


def test_accuracy_under_several_seeds_has_the_same_kind_of_interval() -> None:
    """A seed that repeats the first one adds nothing, so the interval stays as wide."""
    rng = np.random.default_rng(0)
    first, second = (rng.uniform(size=30) < rate for rate in (0.6, 0.55))
    widths = []
    for seeds in (1, 2, 3):
        one, other = (
            pool({"own": [Predictions.from_confidence(np.full(30, 0.7), hits)] * seeds})
            for hits in (first, second)
        )
        (found,) = compare(one, other, generator=np.random.default_rng(1), metrics=["accuracy"])
        widths.append(found.high - found.low)
    assert widths == pytest.approx([widths[0]] * 3, rel=0.03)


def test_copies_of_images_in_their_clusters_change_nothing() -> None:
    rng = np.random.default_rng(0)
    found = []
    for copies in (1, 20):
        rng = np.random.default_rng(0)
        clusters = np.tile(np.arange(40), copies)
        one, other = (
            pool(
                {
                    "own": [
                        Predictions.from_confidence(
                            np.tile(c, copies), np.tile(h, copies), clusters=clusters
                        )
                    ]
                }
            )
            for c, h in ((rng.beta(4, 2, 40), rng.uniform(size=40) < 0.6) for _ in range(2))
        )
        found.append(
            compare(one, other, generator=np.random.default_rng(1), metrics=["signed_gap"])[0]
        )
    assert (found[1].n, found[1].clusters) == (800, 40)
    assert (found[1].low, found[1].high) == pytest.approx((found[0].low, found[0].high))


def test_clusters_of_different_sets_are_different() -> None:
    parts = [
        Predictions.from_confidence([0.5] * 4, [1, 0, 1, 0], clusters=["a", "a", "b", "c"])
        for _ in range(2)
    ]
    pooled = pool({"dtd": [parts[0]], "pets": [parts[1]]})
    assert pooled.clusters == (3, 3)
    assert pooled.seeds[0].cluster_codes.tolist() == [0, 0, 1, 2, 3, 3, 4, 5]


def test_the_detectable_difference_is_found_in_four_of_five_cases() -> None:
    rng, right = np.random.default_rng(0), np.ones(100, dtype=bool)
    error = 0.05 * math.sqrt(2 / 100)
    true = (1.984 + 0.846) * error  # t of 99 degrees of freedom
    found = []
    for _ in range(300):
        base, other = (
            pool({"own": [Predictions.from_confidence(rng.normal(mean, 0.05, size=100), right)]})
            for mean in (0.5, 0.5 + true)
        )
        found += compare(other, base, generator=rng, metrics=["signed_gap"], resamples=200)
    assert 0.74 < np.mean([one.significant for one in found]) < 0.86
    assert np.mean([one.detectable for one in found]) == pytest.approx(true, rel=0.02)


def test_metrics_that_predictions_do_not_allow_are_left_out() -> None:
    bare = pool({"dtd": [Predictions.from_confidence([0.9, 0.3, 0.8], [1, 0, 1])]})
    found = compare(bare, bare, generator=np.random.default_rng(0), resamples=10)
    assert {c.metric for c in found} == set(COMPARED) - {"brier", "nll"}
    assert found[0].comparisons == len(COMPARED) - 2


def test_what_cannot_be_paired_is_refused() -> None:
    rng = np.random.default_rng(0)
    few, many = predictions(rng, 5), predictions(rng, 6)
    with pytest.raises(MetricError, match=r"same images.*'dtd': 5.*'dtd': 6"):
        compare(pool({"dtd": [few]}), pool({"dtd": [many]}), generator=rng)
    with pytest.raises(MetricError, match=r"Two seeds of dtd have 5 and 6"):
        pool({"dtd": [few, many]})
    with pytest.raises(MetricError, match=r"same seeds on every data set.*'pets': 2"):
        pool({"dtd": [few], "pets": [many, many]})
    with pytest.raises(MetricError, match="same seeds"):
        pool({})
    named = [
        Predictions.from_confidence([0.5, 0.6], [1, 0], samples=names)
        for names in (["cat.jpg", "dog.jpg"], ["cat.jpg", "cow.jpg"])
    ]
    with pytest.raises(MetricError, match=r"position 1: 'dog.jpg' and 'cow.jpg'"):
        compare(pool({"own": [named[0]]}), pool({"own": [named[1]]}), generator=rng)


def test_nonsense_is_refused() -> None:
    rng = np.random.default_rng(0)
    method = sets(rng)
    with pytest.raises(UnknownName, match="acuracy"):
        compare(method, method, generator=rng, metrics=["acuracy"])
    with pytest.raises(UnknownName, match="tpd"):
        compare_table({"tpt": method}, [("tpt", "tpd")], generator=rng)
    with pytest.raises(MetricError, match="level"):
        compare(method, method, generator=rng, level=95)
    with pytest.raises(MetricError, match="resamples"):
        compare(method, method, generator=rng, resamples=0)
    single = pool({"own": [Predictions.from_confidence([0.5], [1])]})
    with pytest.raises(MetricError, match="two clusters of images in every data set, got 1"):
        compare(single, single, generator=rng)
    assert compare_table({}, [], generator=rng) == ()
