"""`dtpt score`: calibration metrics of a file of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from dtpt.metrics import CalibrationReport
    from dtpt.metrics.reading import PredictionFile

# field, printed name, factor and unit of the paper's tables
ROWS = (
    ("accuracy", "Accuracy", 100.0, "%"),
    ("ece", "ECE", 100.0, "%"),
    ("aece", "AECE", 100.0, "%"),
    ("mce", "MCE", 100.0, "%"),
    ("aurc", "AURC (×10³)", 1000.0, ""),
    ("augrc", "AUGRC (×10³)", 1000.0, ""),
    ("smooth_ece", "smooth ECE", 100.0, "%"),
    ("classwise_ece", "classwise ECE", 100.0, "%"),
    ("brier", "Brier", 1.0, ""),
    ("nll", "NLL", 1.0, "nats"),
)


def score(
    file: Path,
    *,
    bins: int = 20,
    aece_bins: int | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    diagram: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Compute calibration metrics from a file of predictions.

    The file has columns confidence and correct, or p0, p1, ... and label (NPZ: arrays probabilities
    and labels). The table is in the paper's units, --json in fractions.

    Args:
        file: a .csv, .parquet or .npz file.
        bins: equal-width bins of ECE, MCE and classwise ECE.
        aece_bins: equal-mass bins of AECE; as many as --bins when not given.
        bootstrap: number of resamples for 95 % confidence intervals; 0 for none.
        seed: seed of the resampling.
        diagram: also draw a reliability diagram into this .svg or .png file.
        json: print one JSON object instead of the table.
    """
    from dtpt.errors import MetricError
    from dtpt.metrics.reading import read_predictions
    from dtpt.metrics.validation import SampleError

    _check_diagram(diagram)
    predictions = read_predictions(file)
    try:
        report = _report(predictions, bins, aece_bins, bootstrap, seed)
    except SampleError as error:
        raise MetricError(f"{file}, {predictions.locate(error.index)}: {error}") from error
    except MetricError as error:
        raise MetricError(f"{file}: {error}") from error
    if diagram is not None:
        _draw(predictions, bins, diagram)
    if json:
        print(report.model_dump_json(indent=2))
    else:
        _print_table(report, file.name)


def _report(
    predictions: "PredictionFile", bins: int, aece_bins: int | None, bootstrap: int, seed: int
) -> "CalibrationReport":
    from dtpt.errors import MetricError
    from dtpt.metrics import calibration_report, calibration_report_from_confidence

    if bootstrap < 0:
        raise MetricError(f"--bootstrap is {bootstrap}; expected 0 or more resamples.")
    if predictions.probabilities is not None and predictions.labels is not None:
        return calibration_report(
            predictions.probabilities,
            predictions.labels,
            bins=bins,
            aece_bins=aece_bins,
            resamples=bootstrap,
            seed=seed,
        )
    if predictions.confidence is None or predictions.correct is None:
        raise MetricError("neither probabilities nor confidences were found.")
    return calibration_report_from_confidence(
        predictions.confidence,
        predictions.correct,
        bins=bins,
        aece_bins=aece_bins,
        resamples=bootstrap,
        seed=seed,
    )


def _check_diagram(path: Path | None) -> None:
    """Refuse an unusable target before any work is done."""
    from dtpt.errors import MetricError

    if path is None:
        return
    if path.suffix.lower() not in (".svg", ".png"):
        raise MetricError(f"{path}: a diagram is written as .svg or .png.")
    if not path.parent.is_dir():
        raise MetricError(f"{path}: the folder {path.parent} does not exist.")


def _draw(predictions: "PredictionFile", bins: int, path: Path) -> None:
    import io

    import matplotlib

    from dtpt.errors import MetricError
    from dtpt.files import write_atomically
    from dtpt.metrics import confidence_and_correct, reliability_bins
    from dtpt.report.figures.reliability import reliability_diagram

    confidence, correct = predictions.confidence, predictions.correct
    if predictions.probabilities is not None and predictions.labels is not None:
        confidence, correct = confidence_and_correct(predictions.probabilities, predictions.labels)
    if confidence is None or correct is None:
        raise MetricError(f"{predictions.path}: nothing to draw.")
    data = reliability_bins(confidence, correct, bins=bins)
    figure, _ = reliability_diagram(data, title=predictions.path.stem)
    drawn = io.BytesIO()
    kind = path.suffix.lower().lstrip(".")
    # a fixed salt and no date: the same data give the same bytes
    metadata = {"Date": None} if kind == "svg" else None
    with matplotlib.rc_context({"svg.hashsalt": "dtpt"}):
        figure.savefig(drawn, format=kind, dpi=150, metadata=metadata)
    try:
        write_atomically(path, drawn.getvalue())
    except OSError as error:
        raise MetricError(f"{path}: cannot be written: {error.strerror}.") from error


def _print_table(report: "CalibrationReport", name: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{name}: {report.n:,} samples, {report.conventions.bins} bins")
    table.add_column("metric")
    table.add_column("value", justify="right")
    if report.intervals is not None:
        table.add_column("95 % interval", justify="right")
    table.add_column("unit")
    for field, label, factor, unit in ROWS:
        value = getattr(report, field)
        if value is None:
            continue
        interval = (report.intervals or {}).get(field)
        spread = f"{interval.low * factor:.2f} to {interval.high * factor:.2f}" if interval else ""
        middle = [spread] if report.intervals is not None else []
        table.add_row(label, f"{value * factor:.2f}", *middle, unit)
    Console().print(table)
