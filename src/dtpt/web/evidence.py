"""Whether a confidence can be trusted: stored runs, calibrations, and files of predictions.

Runs and calibrations count only for the same setup: model, method, λ, class list, prompt, views,
tuning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dtpt import metrics
from dtpt.calibration import CalibratedPrediction, Calibration, Setup
from dtpt.clip.model import Clip
from dtpt.errors import MetricError, RunError
from dtpt.metrics.prediction_files import parse_predictions
from dtpt.report.record import load_record
from dtpt.runs import Cell, Run, open_run
from dtpt.runs.calibrate import cell_setup, setup_of
from dtpt.web.schemas import MAX_SAMPLES, Calibrated, Evidence, MetricValue, ScoreResponse

NEAREST = 100  # predictions behind one piece of evidence
LEAST = 30  # with fewer the interval is too wide to be useful
BINS = 10  # of a reliability diagram


@dataclass(frozen=True)
class CellEvidence:
    """The predictions of one method on one data set of a run."""

    dataset: str
    setup: Setup
    confidence: npt.NDArray[np.float64]  # (n,)
    correct: npt.NDArray[np.bool_]  # (n,)
    clusters: npt.NDArray[np.int64]  # (n,); copies of an image, or several of one thing, are one

    def applies_to(self, setup: Setup) -> bool:
        """Return whether the setup is the same; the order of the classes does not matter."""
        return _is_same(self.setup, setup) and len(np.unique(self.clusters)) >= LEAST

    def near(self, confidence: float) -> Evidence:
        """Count correct ones among the predictions nearest in confidence, one of each cluster."""
        distance = np.abs(self.confidence - confidence)
        order = np.argsort(distance, kind="stable")
        _, first = np.unique(self.clusters[order], return_index=True)
        nearest = order[np.sort(first)[:NEAREST]]
        confidences = self.confidence[nearest]
        correct, count = int(self.correct[nearest].sum()), len(nearest)
        low, high = metrics.binomial_interval(correct, count)
        return Evidence(
            dataset=self.dataset,
            correct=correct,
            count=count,
            lowest_confidence=float(confidences.min()),
            highest_confidence=float(confidences.max()),
            mean_confidence=float(confidences.mean()),
            low=low,
            high=high,
            bins=self.bins,
        )

    @cached_property
    def bins(self) -> dict[str, list[float]]:
        return metrics.reliability_columns(self.confidence, self.correct, bins=BINS)


@dataclass(frozen=True)
class RecordedEvidence:
    """What the packaged record says of one method on one data set: numbers over all images."""

    dataset: str
    setup: Setup
    evidence: Evidence

    def applies_to(self, setup: Setup) -> bool:
        """Return whether the setup is the same; the order of the classes does not matter."""
        return _is_same(self.setup, setup)

    def near(self, confidence: float) -> Evidence:
        """Return the numbers, whatever the confidence."""
        del confidence
        return self.evidence


def recorded_evidence(
    model: Clip, classes: Callable[[str], Sequence[str] | None]
) -> list[RecordedEvidence]:
    """Return what the packaged record has about a model; `classes` are those of a data set.

    Images of one drawing are not independent, and there is one drawing for each class: the interval
    is that of as many images as there are drawings, which is the widest that it can be.
    """
    record = load_record(model.name)
    if record is None or record.results.config.model.fingerprint != model.fingerprint:
        return []
    spec, found = record.results.config, []
    for cell in spec.cells(seed=spec.seeds[0]):
        names = classes(cell.dataset)
        values = record.results.results[cell.dataset].get(cell.label)
        if names is None or values is None or values.mean is None:
            continue
        drawings, images = len(names), spec.dataset(cell.dataset).samples
        accuracy = values.mean["accuracy"]
        low, high = metrics.binomial_interval(round(accuracy * drawings), drawings)
        evidence = Evidence(
            dataset=cell.dataset,
            correct=round(accuracy * images),
            count=images,
            mean_confidence=values.mean["mean_confidence"],
            low=low,
            high=high,
            bins=record.bins.get(cell.dataset, {}).get(cell.label),
        )
        found.append(
            RecordedEvidence(cell.dataset, cell_setup(spec, cell, classes=names), evidence)
        )
    return found


def _is_same(first: Setup, second: Setup) -> bool:
    return not _with_sorted_classes(first).differences(_with_sorted_classes(second))


def _with_sorted_classes(setup: Setup) -> Setup:
    return setup.model_copy(update={"classes": tuple(sorted(setup.classes))})


def read_evidence(path: Path) -> list[CellEvidence]:
    """Read the rows of a finished run with its first seed, so that each image counts once."""
    with open_run(path) as run:
        first = (run.spec.seeds[0], None)  # a stream's rows depend on each other
        cells = [cell for cell in run.cells if cell.repeat == first]
        if text := run.unfinished(*cells):
            raise RunError(text)
        return [_cell_evidence(run, cell) for cell in cells]


def _cell_evidence(run: Run, cell: Cell) -> CellEvidence:
    rows = run.rows_of(cell)
    _, clusters = np.unique(rows.cluster.astype(str), return_inverse=True)
    return CellEvidence(cell.dataset, setup_of(run, cell), rows.confidence, rows.correct, clusters)


def calibrated(
    calibration: Calibration, applied: CalibratedPrediction, *, classes: Sequence[str]
) -> Calibrated:
    """Return a calibrated prediction as the service responds it."""
    return Calibrated(
        confidence=applied.confidence,
        prediction_set=[classes[k] for k in applied.prediction_set],
        abstained=applied.abstained,
        threshold=calibration.fit.threshold,
        targets=calibration.targets,
        provenance=calibration.provenance,
        assumption=calibration.assumption,
    )


def score_csv(data: bytes, *, bins: int, check: Callable[[], object]) -> ScoreResponse:
    """Score predictions: columns confidence and correct, or p0, p1, ... and label.

    `check` is called between the stages, and ends the work by raising.
    """
    lines = max(data.count(b"\n"), data.count(b"\r"))
    if lines > MAX_SAMPLES + 1:
        raise MetricError(f"The file has {lines:,} lines, more than {MAX_SAMPLES:,} samples.")
    predictions = parse_predictions(data, name="The file")
    check()
    conventions = metrics.Conventions(bins=bins)
    values = metrics.score(predictions, conventions)
    check()
    verdict = metrics.calibration_verdict(predictions, conventions)
    check()
    return ScoreResponse(
        count=len(predictions.confidence),
        verdict=verdict,
        metrics=[_metric(key, value) for key, value in values.items()],
        bins=metrics.reliability_columns(predictions.confidence, predictions.correct, bins=bins),
    )


def _metric(key: str, value: float) -> MetricValue:
    metric = metrics.METRICS[key]
    return MetricValue(
        key=key,
        heading=metric.heading,
        value=value,
        text=metric.text(value),
        unit=metric.unit,
        meaning=metric.meaning,
    )
