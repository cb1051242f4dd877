"""`dtpt score`: calibration metrics of a file of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators
from cyclopts.types import NonNegativeInt

from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.files import printable, write_atomically
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from dtpt.metrics import CalibrationReport, Predictions


def score(
    file: Path,
    /,
    *,
    bins: int = 20,
    aece_bins: int | None = None,
    bootstrap: NonNegativeInt = 0,
    seed: int = 0,
    diagram: Annotated[
        Path | None, Parameter(validator=validators.Path(ext=("svg", "png")))
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute calibration metrics from a file of predictions.

    The file has columns confidence and correct, or p0, p1, ... and label (NPZ: arrays probabilities
    and labels). The table is in the paper's units, --json in fractions. The sentence below the
    table tests for over- or underconfidence, and whether the calibration error is significantly
    above its noise floor at this number of samples.

    Args:
        file: a .csv, .parquet or .npz file.
        bins: equal-width bins of ECE, MCE and classwise ECE.
        aece_bins: equal-mass bins of AECE; as many as --bins when not given.
        bootstrap: number of resamples for 95 % confidence intervals; 0 for none.
        seed: seed of the resampling.
        diagram: also draw a reliability diagram into this .svg or .png file.
    """
    from dtpt.metrics import Bootstrap, CalibrationReport, Conventions, calibration_verdict
    from dtpt.metrics.prediction_files import read_predictions

    conventions = Conventions(bins=bins, aece_bins=aece_bins)
    drawn = Bootstrap(resamples=bootstrap, seed=seed) if bootstrap else None
    predictions = read_predictions(file)
    report = CalibrationReport.of(predictions, conventions, bootstrap=drawn)
    if diagram is not None:
        _draw(predictions, diagram, bins=bins, title=printable(file.stem))
    verdict = calibration_verdict(predictions, conventions)
    emit(report, _table(report, printable(file.name)), verdict, as_json=as_json)


def _draw(predictions: "Predictions", path: Path, *, bins: int, title: str) -> None:
    import io

    from dtpt.metrics import calibrated_band, reliability_bins
    from dtpt.report.figures import svg_text
    from dtpt.report.figures.reliability import reliability_diagram

    data = reliability_bins(predictions.confidence, predictions.correct, bins=bins)
    band = calibrated_band(predictions.confidence, bins)
    figure, _ = reliability_diagram(data, title=title, band=band)
    drawn = io.BytesIO()
    if path.suffix.lower() == ".svg":
        drawn.write(svg_text(figure).encode())
    else:
        figure.savefig(drawn, format="png", dpi=150)
    write_atomically(path, drawn.getvalue())


def _table(report: "CalibrationReport", name: str) -> Table:
    from dtpt.metrics import METRICS

    rows = []
    for key, value in report.metrics.items():
        metric, interval = METRICS[key], (report.intervals or {}).get(key)
        ends = (interval.low, interval.high) if interval else ()
        spread = [" to ".join(map(metric.text, ends))] if report.intervals else []
        rows.append([metric.heading, metric.text(value), *spread, metric.unit])
    heads = ("metric", "value", *(["95 % interval"] if report.intervals else []), "unit")
    title = f"{name}: {report.n:,} samples, {report.conventions.bins} bins"
    return text_table(title, heads, rows=rows)
