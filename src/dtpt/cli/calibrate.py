"""`dtpt score` and `dtpt calibrate`: how calibrated predictions are, and how to calibrate them."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from dtpt.calibration import Targets
from dtpt.cli.flags import AsJson, flags
from dtpt.cli.output import emit
from dtpt.errors import OptionError
from dtpt.files import printable, write_atomically
from dtpt.options import Bins, Resamples, Seed, Splits
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from dtpt.calibration import Calibration, SplitCheck
    from dtpt.metrics import CalibrationReport, Predictions
    from dtpt.runs import Cell


def score(
    file: Path,
    /,
    *,
    bins: Bins = 20,
    aece_bins: Bins | None = None,
    bootstrap: Resamples | Literal[0] = 0,
    seed: Seed = 0,
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
        _draw_diagram(predictions, diagram, bins=bins, title=printable(file.stem))
    verdict = calibration_verdict(predictions, conventions)
    emit(report, _score_table(report, printable(file.name)), verdict, as_json=as_json)


def _draw_diagram(predictions: "Predictions", path: Path, *, bins: int, title: str) -> None:
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


def _score_table(report: "CalibrationReport", name: str) -> Table:
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


def calibrate(
    run: Path,
    /,
    *,
    method: str,
    output: Path | None = None,
    dataset: str | None = None,
    targets: Annotated[Targets, flags(Targets)] = Targets(),
    sets: Literal["lac", "aps"] = "lac",
    seed: Seed | None = None,
    check: Splits | None = None,
    figure: Annotated[Path | None, Parameter(validator=validators.Path(ext="svg"))] = None,
    as_json: AsJson = False,
) -> None:
    """Fit calibrated confidence, prediction sets and abstention for one method and class list.

    Fits a temperature, conformal prediction sets and an abstention threshold on the labelled images
    of a finished run. `dtpt predict --calibration FILE` and `Classifier(calibration=FILE)` apply
    the file; it holds for new images of the same kind, and for exactly this model, method and class
    list. Images of one cluster (copies, or several of one thing) count as one.

    Args:
        run: The run's folder (`dtpt eval`).
        method: As in the run; with its lambda (d-tpt@1e5) if the run has several. With
            +views=auto, the fraction of views that part of the rows selects.
        output: The calibration file to write; without it the calibration is only shown.
        dataset: Of the run, if it has several.
        sets: lac (the smallest on average) or aps (larger where the model is unsure).
        seed: Of the views, if the run has several.
        check: Write nothing; instead split the images that many times at random (at most 100,000),
            by cluster, fit on one half and check on the other. Takes several methods
            (comma-separated), and all sets of the run.
        figure: With --check, draw the result into this .svg file.
    """
    from dtpt.runs import open_run
    from dtpt.runs.calibrate import calibrate_cell, check_cells, select_cell

    if check is None and figure is not None:
        raise OptionError("--figure draws what --check shows: give --check SPLITS as well.")
    if check is not None and output is not None:
        raise OptionError("--check writes no calibration: drop --output, or --check.")
    with open_run(run) as opened:
        if check is not None:
            names = [name.strip() for name in method.split(",")]
            limits: dict[str, Any] = {"splits": check, "targets": targets}
            checked = list(check_cells(opened, names, **limits, dataset=dataset, seed=seed))
            _show_check(checked, **limits, figure=figure, as_json=as_json)
            return
        cell, selection = select_cell(opened, method, dataset=dataset, seed=seed)
        made = calibrate_cell(opened, cell, targets=targets, sets=sets, selection=selection)
    if output is not None:
        made.save(output)
    emit(made.document(), *_lines(made, output), as_json=as_json)


def _lines(made: "Calibration", output: Path | None) -> Iterator[str]:
    from dtpt.calibration.statements import labelled_text
    from dtpt.methods import method_label

    data, setup = made.provenance, made.setup
    rest = data.images - data.temperature_images
    name = method_label(setup.method, setup.lambda_)
    yield f"{name}, {setup.model}, {len(setup.classes)} classes, {data.dataset}"
    yield (
        f"{labelled_text(data.images, data.clusters, noun=data.cluster_noun)}: "
        f"{data.temperature_images:,} for the temperature ({made.fit.temperature:.3f}), {rest:,} "
        "for sets and threshold."
    )
    yield _effect(made, images=rest)
    yield from [] if data.selection is None else [f"Selected: {data.selection}."]
    yield from (f"* {sentence}" for sentence in made.guarantees)
    yield from (f"Note: {note}" for note in made.notes)
    yield f"Assumption: {made.assumption}"
    yield f"Otherwise: {made.otherwise}"
    yield from [] if output is None else [f"Written to {printable(output)}."]


def _effect(made: "Calibration", *, images: int) -> str:
    from dtpt.metrics import METRICS
    from dtpt.tables import number_text

    before, after = (
        {key: number_text(pair[k], METRICS[key]) for key, pair in made.before_and_after.items()}
        for k in (0, 1)
    )
    return (
        f"Before and after the temperature, on the {images:,} images not used for it: ECE "
        f"{before['ece']} → {after['ece']} % (noise floor {after['floor']} %), confidence − "
        f"accuracy {before['signed_gap']} → {after['signed_gap']} points, NLL {before['nll']} → "
        f"{after['nll']}."
    )


def _show_check(
    checked: Sequence[tuple["Cell", "SplitCheck"]],
    *,
    splits: int,
    targets: Targets,
    figure: Path | None,
    as_json: bool,
) -> None:
    if figure is not None:
        from dtpt.report.figures import svg_text
        from dtpt.report.figures.studies import coverage_figure

        drawn, _ = coverage_figure(
            [((cell.method, cell.lambda_), check) for cell, check in checked]
        )
        write_atomically(figure, svg_text(drawn).encode())
    rows = [_row(cell, check) for cell, check in checked]
    title = f"{splits:,} random splits by cluster: fitted on one half, checked on the other"
    heads = [name.replace("_", " ") for name in rows[0]]
    emit(
        {"targets": targets, "splits": splits, "rows": rows},
        text_table(title, heads, rows=[[*map(_text, row, row.values())] for row in rows]),
        "In percent; size: classes per set; low classes: 5 % of the classes have a coverage below "
        f"it. Targets: coverage {100 * targets.coverage:g} on average"
        f"{' for every class' if targets.class_conditional else ''}, error at most "
        f"{100 * targets.error:g} in {100 * targets.confidence:g} of 100 splits. Valid: fraction "
        "of splits within the target error on all images; held-out: on the half that was not "
        "fitted. A split without a threshold accepts nothing and is valid.",
        as_json=as_json,
    )


def _row(cell: "Cell", check: "SplitCheck") -> dict[str, Any]:
    """Return means over the splits; fractions, and the error None where nothing was accepted."""
    import numpy as np

    return {
        "dataset": cell.dataset,
        "method": cell.label,
        "coverage": float(check.coverage.mean()),
        "low_classes": check.class_coverage,
        "size": float(check.size.mean()),
        "coverage_aps": float(check.coverage_aps.mean()),
        "low_classes_aps": check.class_coverage_aps,
        "size_aps": float(check.size_aps.mean()),
        "accepted": float(check.acceptance.mean()),
        "error": None if np.isnan(check.error).all() else float(np.nanmean(check.error)),
        "with_threshold": check.with_threshold,
        "valid": check.valid,
        "valid_held_out": check.valid_held_out,
    }


def _text(name: str, value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value if name.startswith('size') else 100 * value:.1f}"
    return "–" if value is None else value
