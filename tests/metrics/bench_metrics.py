"""Measure the metrics on 50,000 samples: `OMP_NUM_THREADS=1 python tests/metrics/bench_metrics.py`.

Prints the best of five; judges nothing. The aim is a full report in 0.2 s.
"""

import time
from collections.abc import Callable

import numpy as np

from dtpt.metrics import (
    bootstrap_intervals,
    calibration_report,
    calibration_report_from_confidence,
    confidence_and_correct,
)

SAMPLES = 50_000


def best_seconds(action: Callable[[], object], *, times: int) -> float:
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        durations.append(time.perf_counter() - start)
    return min(durations)


def main() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=SAMPLES)
    for classes in (10, 100, 1000):
        odds = np.exp(3 * rng.normal(size=(SAMPLES, classes))).astype(np.float32)
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        seconds = best_seconds(lambda p=probabilities: calibration_report(p, labels), times=5)
        print(f"full report, {classes} classes: {seconds:.3f} s")
    pair = confidence_and_correct(probabilities, labels)
    seconds = best_seconds(lambda: calibration_report_from_confidence(*pair), times=5)
    print(f"report from confidences: {seconds:.3f} s")
    seconds = best_seconds(lambda: bootstrap_intervals(*pair, generator=rng), times=1)
    print(f"1,000 resamples, six metrics: {seconds:.2f} s")


if __name__ == "__main__":
    main()
