"""`dtpt analyze basis`, `controls`, `views` and `regularisers`: studies beyond the paper.

Each stores what it finished under --output and writes every number with its interval, as
fractions, to a JSON file there.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from dtpt.analysis.basis_options import BasisOptions
from dtpt.analysis.controls_options import ControlsOptions
from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.analysis.views_options import ViewsOptions
from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.files import printable, write_atomically
from dtpt.tables import Cell, Column, Row, Table, metric_column, number_text

if TYPE_CHECKING:
    from dtpt.metrics import Comparison, Estimate, Metric

# Of each study the function in dtpt.analysis and its figure in dtpt.report.figures.studies.
STUDIES = {
    "basis": ("basis_study", "study_basis", "basis_figure"),
    "controls": ("control_study", "study_controls", "controls_figure"),
    "views": ("view_study", "study_views", "dial_figure"),
    "regularisers": ("regulariser_study", "study_regularisers", ""),
}
LEGEND = (
    "Fractions; metrics in their units. ±: 95 % interval. Differences are marked * where their "
    "interval, corrected for all of one method or λ, excludes 0."
)

Parts = Iterator[Table | str]


def basis(
    *,
    options: Annotated[
        BasisOptions, flags(BasisOptions, hide=("lambda_", "shard", "keep", "fresh", "batch"))
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Rotate the joint space of images and texts, and compare the predictions.

    Every image is classified in the model's own basis, in two random ones, and in two whose first
    axis is the mean text feature or the gap between texts and images. Cosines stay, so most
    methods predict as before, up to rounding; D-TPT does not. Finished data sets are kept.
    """
    _run("basis", options, as_json=as_json)


def controls(
    *,
    options: Annotated[
        ControlsOptions, flags(ControlsOptions, hide=("lambda_", "shard", "keep", "executor"))
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare regularisers at equal strength with a random direction and with smaller steps.

    Every regulariser gets the λ with which it wins a given fraction of the first step's signs, on
    average over some images, without their labels. TPT with smaller learning rates traces the
    curve that a shorter step gives. The same command again resumes.
    """
    _run("controls", options, as_json=as_json)


def views(
    *,
    options: Annotated[
        ViewsOptions,
        flags(ViewsOptions, hide=("views", "rho", "lambda_", "shard", "keep", "executor")),
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Measure what fewer views cost, and what the mean over several of them gives.

    Each method is evaluated with the first 8, 16, ... views and compared with itself at the most
    views; then its prediction is read from a growing fraction of the most confident views instead
    of the original one. The same command again resumes.
    """
    _run("views", options, as_json=as_json)


def regularisers(
    *,
    options: Annotated[
        RegularisersOptions,
        flags(
            RegularisersOptions,
            hide=("views", "steps", "learning_rate", "weight_decay", "rho", "entropy"),
        ),
    ] = RegularisersOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare the first steps of all regularisers, from the text tower alone.

    For every pair of methods: the cosine of their gradients at the initial context, and the
    fraction of the context's numbers that both would move the same way (50 % by chance). No image
    is needed.
    """
    _run("regularisers", options, as_json=as_json)


def _run(
    name: str,
    options: BasisOptions | ControlsOptions | ViewsOptions | RegularisersOptions,
    *,
    as_json: bool,
) -> None:
    """Make a study, save it with its figure, and print its tables or its JSON."""
    from dtpt.analysis.study_files import save_study, study_json
    from dtpt.report.figures import studies, svg_text

    module, function, figure = STUDIES[name]
    with resumable(options.output):
        study = getattr(import_module(f"dtpt.analysis.{module}"), function)(options)
    written = [save_study(study, options.output, name=name)]
    if figure:
        written.append(options.output / f"{name}.svg")
        write_atomically(written[-1], svg_text(getattr(studies, figure)(study)).encode())
    if as_json:
        print(study_json(study))
    else:
        for part in study_parts(study):
            show(part, "", framed=False)
        print(LEGEND)
    if not options.quiet:
        print(f"Wrote {', '.join(map(printable, written))}", file=sys.stderr)


def study_parts(record: Any, title: str = "") -> Parts:
    """Yield a study as tables: one for every tuple of records, each below what it is about."""
    own = {field.name: getattr(record, field.name) for field in fields(record)}
    shown = (name for name, value in own.items() if isinstance(value, str | int | float))
    about = [f"{name} {_text(own[name])}" for name in shown if name != "fingerprint"]
    title = ", ".join(dict.fromkeys([*filter(None, title.split(", ")), *about]))
    for name, value in own.items():
        if isinstance(value, dict) and value:
            yield f"{name}: {'; '.join(f'{key}: {_text(text)}' for key, text in value.items())}"
        elif not _is_records(value):
            continue
        elif any(_is_records(inner) for inner in vars(value[0]).values()):
            for item in value:
                yield from study_parts(item, title)
        else:
            yield _table(f"{name} ({title})", value)


def _table(title: str, records: Sequence[Any]) -> Table:
    """Return a row for each record: its values, its metrics with their intervals, differences."""
    from dtpt.metrics import METRICS

    metrics = list(getattr(records[0], "estimates", {}))
    flat = [dict(_flat(record)) for record in records]
    heading, *others = dict.fromkeys(name for texts in flat for name in texts)
    rows = []
    for record, texts in zip(records, flat, strict=True):
        cells = [Cell(texts.get(name, "")) for name in others]
        cells += [_value(METRICS[key], record.estimates[key]) for key in metrics]
        rows.append(Row(texts[heading], tuple(cells)))
    columns = [
        Column(name.replace("_", " "), is_text=any(t.get(name, "")[:1].isalpha() for t in flat))
        for name in others
    ]
    columns += [metric_column(METRICS[key]) for key in metrics]
    return Table(title, tuple(columns), tuple(rows), heading=heading)


def _flat(record: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a record's fields; records inside it are flattened."""
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            yield from _flat(value)
        elif isinstance(value, tuple) and value and hasattr(value[0], "significant"):
            yield field.name, "; ".join(map(_difference, value))
        elif isinstance(value, tuple):
            yield field.name, ", ".join(map(_text, value))
        elif not isinstance(value, dict):
            yield field.name, _text(value)


def _is_records(value: object) -> bool:
    first = value[0] if isinstance(value, tuple) and value else None
    return is_dataclass(first) and not hasattr(first, "significant")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "—" if value is None else str(value)


def _value(metric: "Metric", value: "Estimate") -> Cell:
    half = max(value.high - value.value, value.value - value.low)
    text = number_text(value.value, metric, signed=metric.higher_is_better is None)
    return Cell(text, spread=f"±{metric.text(half)}")


def _difference(comparison: "Comparison") -> str:
    from dtpt.metrics import METRICS

    metric = METRICS[comparison.metric]
    star = "*" if comparison.significant else ""
    return f"{metric.short} {number_text(comparison.estimate, metric, signed=True)}{star}"
