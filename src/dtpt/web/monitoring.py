"""What the predictions of a service look like: histograms, and drift against its calibrations.

Labels are names of methods in the table and data sets of the operator's calibrations: nothing that
a client sent.
"""

from collections import Counter, deque
from collections.abc import Iterator
from threading import Lock

from dtpt.calibration import CalibratedPrediction, Calibration
from dtpt.calibration.drift import EDGES, Drift, confidence_counts, drift
from dtpt.web.telemetry import Family, Histogram, escaped

CONFIDENCES = tuple(f"{edge:g}" for edge in EDGES[1:])
SET_SIZES = ("1", "2", "3", "5", "10", "20", "50", "100")
WINDOW = 1000  # calibrated predictions from which drift is computed, the latest ones


class Monitor:
    """Counts predictions: the thread that computes adds, and any thread reads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._images: Counter[str] = Counter(dict.fromkeys(("images", "ood_warnings"), 0))
        self._confidence = Histogram(CONFIDENCES)
        self._calibrated = Histogram(CONFIDENCES)
        self._sizes = Histogram(SET_SIZES)
        self._abstained: Counter[str] = Counter()
        self._latest: dict[str, tuple[Calibration, deque[float]]] = {}

    def add_image(self, *, has_warning: bool) -> None:
        with self._lock:
            self._images.update({"images": 1, "ood_warnings": has_warning})

    def add(self, method: str, confidence: float) -> None:
        """Count a prediction of a method of the table."""
        with self._lock:
            self._confidence.add(f'method="{escaped(method)}"', confidence)

    def add_calibrated(self, calibration: Calibration, found: CalibratedPrediction) -> None:
        dataset, method = calibration.provenance.dataset, calibration.setup.method
        labels = f'dataset="{escaped(dataset)}",method="{escaped(method)}"'
        with self._lock:
            self._calibrated.add(labels, found.confidence)
            self._sizes.add(labels, len(found.prediction_set))
            self._abstained[f"{{{labels}}}"] += found.abstained
            _, latest = self._latest.setdefault(labels, (calibration, deque(maxlen=WINDOW)))
            latest.append(found.confidence)

    def families(self) -> list[Family]:
        """Return what Prometheus reads: name, kind, samples."""
        with self._lock:
            drifts = dict(self._drifts())
            return [
                *((f"dtpt_{n}_total", "counter", {"": v}) for n, v in self._images.items()),
                ("dtpt_confidence", "histogram", dict(self._confidence.samples)),
                ("dtpt_calibrated_confidence", "histogram", dict(self._calibrated.samples)),
                ("dtpt_prediction_set_size", "histogram", dict(self._sizes.samples)),
                ("dtpt_abstained_total", "counter", dict(self._abstained)),
                ("dtpt_drift", "gauge", {k: found.index for k, found in drifts.items()}),
                ("dtpt_drift_by_chance", "gauge", {k: d.chance for k, d in drifts.items()}),
            ]

    def _drifts(self) -> Iterator[tuple[str, Drift]]:
        for labels, (calibration, latest) in self._latest.items():
            if calibration.confidences:  # files of older versions have none
                counts = confidence_counts(latest)
                yield f"{{{labels}}}", drift(calibration.confidences, counts)
