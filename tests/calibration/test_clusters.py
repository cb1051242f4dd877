"""Images of one cluster are dependent: guarantees hold for random images of new clusters."""

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated import clustered, drawn, resampled, voted

from dtpt.calibration import LabelledPredictions, Targets, check_splits, cross_fit, fit
from dtpt.calibration.checking import evaluate_fit
from dtpt.calibration.conformal import class_limits, cluster_weights, score_limit
from dtpt.calibration.fitting import Scored, one_per_cluster, temperature_of, temperature_part
from dtpt.errors import CalibrationError

DRAWS = 150
# fitted to independent images by the code that knew no clusters
INDEPENDENT = {
    "drawn": {
        "temperature": 2.0301207382841033,
        "lac": 0.75210619,
        "aps": 0.678254017,
        "threshold": 0.748372466,
        "accepted": 213,
        "wrong": 13,
        "bound": 0.09528500408700685,
    },
    "voted": {
        "temperature": 4.904582316261269,
        "lac": 0.70262899,
        "aps": 0.526505005,
        "threshold": 0.968788606,
        "accepted": 160,
        "wrong": 6,
        "bound": 0.07266876382866709,
    },
}


def quarter(rows):
    """The parts of a calibration, by cluster."""
    first = rows.clusters < (rows.clusters.max() + 1) // 4
    return rows.take(first), rows.take(~first)


def by_image(rows, rng):
    """The same images as if they were independent, in random order."""
    order = rng.permutation(len(rows))
    return LabelledPredictions.of(
        rows.log_probabilities[order], rows.labels[order], predictions=rows.predictions[order]
    )


def intraclass_correlation(rows):
    wrong = rows.wrong.reshape(-1, 6).astype(float)  # (clusters, images)
    between, within = 6 * wrong.mean(axis=1).var(ddof=1), wrong.var(axis=1, ddof=1).mean()
    return (between - within) / (between + 5 * within)


def outcomes(population, *, labelled, targets, seed):
    """Coverage (LAC, APS) and error of many fits, by cluster and by image (draws, 2, 3)."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        rows = resampled(population, labelled, rng=rng)
        for part in (rows, by_image(rows, rng)):
            numbers = fit(*quarter(part), targets=targets)
            scored = Scored.of(population, numbers.temperature)
            lac, aps = (
                evaluate_fit(numbers, population, sets=kind, scored=scored)
                for kind in ("lac", "aps")
            )
            found.append((lac.coverage, aps.coverage, np.nan_to_num(lac.error)))
    return np.array(found).reshape(DRAWS, 2, 3)


@pytest.fixture(scope="module", params=[(0.35, 0.8), (1.0, 0.5)], ids=["icc 0.8", "icc 0.5"])
def many(request):
    noise, correlation = request.param
    population = clustered(400, seed=0, sharpness=4.0, noise=noise)
    assert intraclass_correlation(population) == pytest.approx(correlation, abs=0.05)
    targets = Targets(coverage=0.9, error=0.2, confidence=0.95)
    return targets, outcomes(population.ranked(), labelled=160, targets=targets, seed=1)


def test_sets_reach_their_coverage_for_new_clusters(many):
    targets, found = many
    noise = 3 * found[:, 0, :2].std(axis=0) / math.sqrt(DRAWS)
    assert (found[:, 0, :2].mean(axis=0) >= targets.coverage - noise).all()
    assert (found[:, 0, :2].mean(axis=0) <= targets.coverage + 0.02).all()


def test_errors_exceed_their_target_for_new_clusters_no_more_often_than_stated(many):
    targets, found = many
    allowed = 1 - targets.confidence
    most = allowed + 3 * math.sqrt(allowed * (1 - allowed) / DRAWS)
    by_cluster, as_independent = (found[:, :, 2] > targets.error).mean(axis=0)
    assert by_cluster <= most < as_independent
    assert (found[:, 0, 2] > 0).mean() > 0.5  # it does accept


def test_every_cluster_weighs_the_same_whatever_its_size():
    """Easy things with many images do not hide the difficult ones."""
    sizes = lambda sure: np.where(sure > 0.9, 6, 1)  # noqa: E731
    population = clustered(400, seed=2, sharpness=4.0, sizes=sizes).ranked()
    targets = Targets(coverage=0.9, error=0.2)
    coverage = outcomes(population, labelled=150, targets=targets, seed=3)[:, :, 0].mean(axis=0)
    assert coverage[0] == pytest.approx(0.9, abs=0.015)
    assert coverage[1] < 0.86


@pytest.mark.parametrize("name", INDEPENDENT)
def test_with_one_image_per_cluster_it_is_the_exact_procedure_for_independent_images(name):
    rows = {
        "drawn": lambda: drawn(400, seed=0, overconfidence=2.0),
        "voted": lambda: voted(400, seed=0),
    }[name]()
    named = LabelledPredictions.of(
        rows.log_probabilities,
        rows.labels,
        predictions=rows.predictions,
        clusters=[f"{k:04d}" for k in range(400)],
    )
    for same in (rows, named):
        found = fit(*quarter(same), targets=Targets(error=0.1))
        assert found.model_dump() == pytest.approx(INDEPENDENT[name], rel=1e-12)


def test_copies_of_every_image_change_nothing():
    rows = drawn(300, seed=4)
    index = np.repeat(np.arange(300), 20)
    copies = LabelledPredictions.of(
        rows.log_probabilities[index],
        rows.labels[index],
        predictions=rows.predictions[index],
        clusters=[f"{k:04d}" for k in index],
    )
    one, many = (fit(*quarter(part), targets=Targets(error=0.1)) for part in (rows, copies))
    assert many.model_dump() == pytest.approx(one.model_dump(), rel=1e-6)


def test_twelve_images_with_twenty_copies_are_twelve():
    rows = drawn(12, seed=5)
    index = np.repeat(np.arange(12), 20)
    copies = LabelledPredictions.of(
        rows.log_probabilities[index],
        rows.labels[index],
        predictions=rows.predictions[index],
        clusters=[f"{k:02d}" for k in index],
    )
    first, second = quarter(copies)
    assert (first.cluster_count, second.cluster_count, len(second)) == (3, 9, 180)
    assert temperature_of(first) == 1.0
    with pytest.raises(CalibrationError, match=r"^9 "):
        fit(first, second, targets=Targets(coverage=0.95))


def test_the_limit_is_the_quantile_of_the_mean_of_the_clusters_distributions():
    scores = np.array([0.1, 0.2, 0.9, 0.3, 0.4, 0.8, 0.7])
    clusters = np.array([0, 0, 0, 1, 1, 2, 3])
    weights = cluster_weights(clusters)
    assert weights.tolist() == pytest.approx([1 / 3] * 3 + [1 / 2] * 2 + [1, 1])
    # weights up to 0.1, 0.2, ...: 1/3, 2/3, 7/6, 5/3, 8/3, 11/3, 4; needed 5 · coverage
    for coverage, limit in ((0.1, 0.2), (0.33, 0.4), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9)):
        assert score_limit(scores, weights, coverage=coverage) == limit
    with pytest.raises(CalibrationError, match=r"^4 "):
        score_limit(scores, weights, coverage=0.81)


def test_one_image_of_each_cluster_is_chosen_each_equally_often():
    clusters = np.array([2, 0, 0, 1, 0, 1])
    rng, counts = np.random.default_rng(0), np.zeros(6)
    for _ in range(3000):
        chosen = one_per_cluster(clusters, rng.random(3))
        assert sorted(clusters[chosen]) == [0, 1, 2]
        counts += chosen
    assert counts / 3000 == pytest.approx([1, 1 / 3, 1 / 3, 1 / 2, 1 / 3, 1 / 2], abs=0.04)
    assert one_per_cluster(clusters, np.ones(3)).sum() == 3  # a hash may round to 1


def test_splits_keep_clusters_together():
    rows = clustered(200, seed=6)
    names = np.array([f"{k:05d}" for k in rows.clusters], dtype=np.object_)
    part = temperature_part(names)
    assert not set(names[part]) & set(names[~part])
    for found in cross_fit(rows, names, targets=Targets(error=0.3)):
        assert len(found.covered) == len(rows)
        assert found.weight == pytest.approx(np.full(len(rows), 1 / 6))


def test_random_splits_are_by_cluster():
    """Split by image, five images of a thing would calibrate the sixth."""
    population = clustered(300, seed=7, sharpness=4.0, noise=0.35)
    alone = by_image(population, np.random.default_rng(0))
    targets = Targets(error=0.2)
    spread = [
        check_splits(rows, splits=40, targets=targets).coverage.std()
        for rows in (population, alone)
    ]
    assert spread[0] > 1.5 * spread[1]


def test_class_conditional_sets_reach_their_coverage_in_every_class():
    rng, coverage = np.random.default_rng(8), []
    population = clustered(1500, seed=8, classes=4, sharpness=3.0)
    # predictions of class 0 are poor
    logs = population.log_probabilities.astype(float)
    logs[:, 0] -= 2.0
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    population = replace(
        population, log_probabilities=logs.astype(np.float16), predictions=logs.argmax(axis=1)
    )
    for _ in range(60):
        rows = resampled(population, 200, rng=rng)
        for conditional in (False, True):
            found = fit(*quarter(rows), targets=Targets(class_conditional=conditional))
            covered, images = evaluate_fit(found, population).by_class(4)
            coverage.append(covered / images)
    marginal, by_class = np.array(coverage).reshape(60, 2, 4).mean(axis=0)
    assert marginal.min() < 0.8
    assert by_class.min() >= 0.9 - 0.015
    assert by_class.max() <= 0.96


def test_a_class_with_too_few_clusters_is_in_every_set():
    rows = clustered(300, seed=9)
    rare = rows.labels == 3
    few = np.isin(rows.clusters, np.unique(rows.clusters[rare])[:4])
    left = rows.take(~rare | few)
    _, numbers = np.unique(left.clusters, return_inverse=True)
    left = replace(left, clusters=numbers)
    found = fit(*quarter(left), targets=Targets(coverage=0.8, class_conditional=True))
    assert found.lac[3] == found.aps[3] == 1.0
    assert [k for k, limit in enumerate(found.lac) if limit == 1.0] == [3]
    for kind in ("lac", "aps"):
        sets = evaluate_fit(found, left, sets=kind)
        assert sets.covered[left.labels == 3].all()
    # the numbering of ranked rows changes nothing
    ranked = evaluate_fit(found, left.ranked())
    assert ranked.size.tolist() == evaluate_fit(found, left).size.tolist()


def test_class_conditional_sets_without_enough_clusters_of_any_class_are_refused():
    labels, scores = np.arange(40) // 4, np.zeros(40)
    with pytest.raises(CalibrationError, match="more than 4 "):
        class_limits(scores, labels, clusters=np.arange(40), classes=10, coverage=0.9)
    with pytest.raises(CalibrationError, match="more than 1 "):  # one cluster per class
        class_limits(scores, labels, clusters=labels, classes=10, coverage=0.9)


def test_the_coverage_of_low_classes_is_the_quantile_over_classes():
    rows = clustered(400, seed=10)
    found = check_splits(rows, splits=30, targets=Targets(error=0.3), seed=1)
    again = check_splits(rows, splits=30, targets=Targets(class_conditional=True), seed=1)
    assert found.class_coverage < 0.9 - 0.02
    assert found.class_coverage < again.class_coverage
    lac, _ = cross_fit(rows, [f"{k}" for k in rows.clusters], targets=Targets(error=0.3))
    shares = [lac.covered[lac.label == k].mean() for k in range(10)]
    assert lac.class_coverage == pytest.approx(np.quantile(shares, 0.05))
