"""Measure the metrics: `OMP_NUM_THREADS=1 python tests/metrics/bench_metrics.py`.

Prints processor seconds, the best of some; judges nothing. The aims: a full report of 50,000
samples in 0.2 s, and 8 methods compared on 10,000 images in well under a minute.
"""

import time
from collections.abc import Callable

import numpy as np

from dtpt.metrics import (
    CalibrationReport,
    Predictions,
    binomial_upper_bound,
    bootstrap_intervals,
    calibration_report,
    compare_table,
    fit_temperature,
    pool,
)

SAMPLES = 50_000


def best_seconds(action: Callable[[], object], *, times: int) -> float:
    durations = []
    for _ in range(times):
        start = time.process_time()
        action()
        durations.append(time.process_time() - start)
    return min(durations)


def report_seconds(rng: np.random.Generator) -> None:
    labels = rng.integers(10, size=SAMPLES)
    for classes in (10, 100, 1000):
        odds = np.exp(3 * rng.normal(size=(SAMPLES, classes))).astype(np.float32)
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        seconds = best_seconds(lambda p=probabilities: calibration_report(p, labels), times=5)
        print(f"full report, {classes} classes: {seconds:.3f} s")


def method(rng: np.random.Generator, count: int) -> Predictions:
    confidence = rng.beta(4, 2, size=count)
    correct = rng.uniform(size=count) < confidence**1.4
    return Predictions.from_confidence(
        confidence,
        correct,
        p_label=np.where(correct, confidence, 1 - confidence),
        sum_squares=confidence**2 + (1 - confidence) ** 2,
    )


def comparison_seconds(rng: np.random.Generator) -> None:
    methods = {
        f"m{k}": pool({"one": [method(rng, 6_000)], "two": [method(rng, 4_000)]}) for k in range(8)
    }
    pairs = [(f"m{k}", "m0") for k in range(1, 8)]
    seconds = best_seconds(lambda: compare_table(methods, pairs, generator=rng), times=2)
    print(f"8 methods on 10,000 images, 7 metrics, 1,000 resamples: {seconds:.2f} s")


def main() -> None:
    rng = np.random.default_rng(0)
    report_seconds(rng)
    seconds = best_seconds(lambda: CalibrationReport.of(method(rng, SAMPLES)), times=5)
    print(f"report without probabilities: {seconds:.3f} s")
    made = method(rng, SAMPLES)
    seconds = best_seconds(lambda: bootstrap_intervals(made, generator=rng), times=1)
    print(f"1,000 resamples of 50,000 samples, 14 metrics: {seconds:.2f} s")
    comparison_seconds(rng)
    logits = 3 * rng.normal(size=(10_000, 1000)).astype(np.float32)
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    seconds = best_seconds(lambda: fit_temperature(logits, labels), times=2)
    print(f"temperature of 10,000 samples, 1,000 classes: {seconds:.2f} s")
    counts = np.arange(1, 10_001)
    seconds = best_seconds(lambda: binomial_upper_bound(counts // 20, counts), times=2)
    print(f"10,000 binomial bounds: {seconds:.2f} s")


if __name__ == "__main__":
    main()
