"""`dtpt analyze basis`, `controls`, `views` and `regularisers`: studies beyond the paper.

Each stores what it finished under --output and writes every number with its interval, as
fractions, to a JSON file there.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from dtpt.tables import Cell, Column, Row, Table, metric_column, number_text, text_table

if TYPE_CHECKING:
    from dtpt.analysis.basis_study import BasisStudy
    from dtpt.analysis.control_study import ControlStudy, FamilyControls, StrengthRow
    from dtpt.analysis.gradients import GradientPair
    from dtpt.analysis.regulariser_study import RegulariserStudy
    from dtpt.analysis.view_study import FamilyViews, SettingRow, ViewStudy
    from dtpt.metrics import Comparison, Estimate

PAIRS_PER_TABLE = 4
LEGEND = (
    "±: 95 % interval. Of differences it is corrected for all of one method or λ; * excludes 0."
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
    _run(
        "basis_study:study_basis",
        options,
        name="basis",
        parts=basis_parts,
        figure="basis_figure",
        as_json=as_json,
    )


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
    _run(
        "control_study:study_controls",
        options,
        name="controls",
        parts=control_parts,
        figure="controls_figure",
        as_json=as_json,
    )


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
    _run(
        "view_study:study_views",
        options,
        name="views",
        parts=view_parts,
        figure="dial_figure",
        as_json=as_json,
    )


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
    _run(
        "regulariser_study:study_regularisers",
        options,
        name="regularisers",
        parts=regulariser_parts,
        as_json=as_json,
    )


def _run(
    target: str,
    options: BasisOptions | ControlsOptions | ViewsOptions | RegularisersOptions,
    *,
    name: str,
    parts: Callable[[Any], Parts],
    figure: str = "",
    as_json: bool,
) -> None:
    """Make a study, save it with its figure, and print its tables or its JSON."""
    from dtpt.analysis.study_files import save_study, study_json
    from dtpt.report.figures import studies, svg_text

    module, _, function = target.partition(":")
    with resumable(options.output):
        study = getattr(import_module(f"dtpt.analysis.{module}"), function)(options)
    written = [save_study(study, options.output, name=name)]
    if figure:
        written.append(options.output / f"{name}.svg")
        drawn = getattr(studies, figure)(study)
        write_atomically(written[-1], svg_text(drawn).encode())
    if as_json:
        print(study_json(study))
    else:
        for part in parts(study):
            show(part, "", framed=False)
    if not options.quiet:
        print(f"Wrote {', '.join(map(printable, written))}", file=sys.stderr)


def basis_parts(study: "BasisStudy") -> Parts:
    """Yield the tables of a study of bases."""
    for entry in study.datasets:
        yield f"{entry.dataset}: {entry.pictures:,} images, {entry.classes} classes"
        facts = [
            (
                *(row.basis, _percent(row.dominant_share), f"{row.gradient_norm:.1e}"),
                *map(_percent, row.signs_won),
            )
            for row in entry.bases
        ]
        heads = ("basis", "largest dim.", "‖∇DEM‖", *(f"{weight:.0e}" for weight in study.weights))
        title = "Energy of the largest dimension, DEM's gradient, signs won with each λ"
        yield text_table(title, heads, rows=facts)
        moves = [
            (
                *(row.method, f"{row.mean_move:.1e}", f"{row.largest_move:.1e}"),
                f"{100 * row.same_answers:.2f} %",
            )
            for row in entry.invariance
        ]
        title = "Probabilities in the other bases against the own, which no basis should change"
        yield text_table(title, ("method", "mean move", "largest", "same labels"), rows=moves)
    for family in study.families:
        rows = [
            _row(
                row,
                row.to_own,
                texts=(row.basis, _percent(row.signs_won)),
                group=f"λ {row.weight:.0e}",
            )
            for row in family.rows
        ]
        title = f"D-TPT, {_sized(family)}: own basis, and differences of the others from it"
        yield _metric_table(title, ("basis", "signs"), rows=rows)
    yield LEGEND


def control_parts(study: "ControlStudy") -> Parts:
    """Yield the tables of a study of controls."""
    for family in study.families:
        rows = [
            _row(point, (), texts=(point.method, ""), group="smaller steps")
            for point in family.curve
        ]
        for row in family.rows:
            group = f"{_percent(row.strength)} of the first step's signs won"
            rows.append(_row(row, (), texts=(row.method, _above(row)), group=group))
        title = f"{_sized(family)}, {study.origin.model}"
        yield _metric_table(title, ("method", "above curve %"), rows=rows)
        yield from _random_lines(family)
    yield (
        f"{LEGEND} Above curve: accuracy minus what a smaller step reaches at the same gap, "
        "interval corrected for all rows; ( ) the curve does not reach that gap."
    )


def _above(row: "StrengthRow") -> str:
    above = row.above_curve
    half = 100 * max(above.high - above.distance, above.distance - above.low)
    star = "*" if above.low > 0 or above.high < 0 else ""
    text = f"{100 * above.distance:+.1f}±{half:.1f}{star}"
    return text if above.inside else f"({text})"


def _random_lines(family: "FamilyControls") -> Iterator[str]:
    """Yield which regularisers differ significantly from a random direction of their strength."""
    from dtpt.methods import parse_label
    from dtpt.metrics import METRICS

    comparisons = [comparison for row in family.rows for comparison in row.to_random]
    significant = [comparison for comparison in comparisons if comparison.significant]
    yield (
        f"{len(significant)} of {len(comparisons)} differences to a random direction of equal "
        "strength are significant."
    )
    for comparison in significant:
        cell = _difference(comparison)
        pair = f"{comparison.first} − {parse_label(comparison.second).name}"
        yield f"  {pair}: {METRICS[comparison.metric].title} {cell.text} {cell.spread}"


def view_parts(study: "ViewStudy") -> Parts:
    """Yield the tables of a study of views."""
    for family in study.families:
        for method in dict.fromkeys(row.setting.method for row in family.rows):
            rows = [row for row in family.rows if row.setting.method == method]
            title = f"{method}, {_sized(family)}, {study.origin.model}"
            yield _metric_table(
                title,
                ("prediction", "views"),
                rows=[*_fewer_views(method, rows), *_mean_over_views(rows)],
            )
        yield _few_against_many(family)
    yield f"views: image passes per prediction. {LEGEND}"


def _fewer_views(method: str, rows: "Sequence[SettingRow]") -> Iterator[Row]:
    """Yield a method with the most views, and the differences of fewer views from that."""
    from dtpt.analysis.view_study import FEW_SHARES, UNTUNED

    fractions = FEW_SHARES if method == UNTUNED else (None,)
    shown = [row for row in rows if row.setting.share in fractions]
    if not any(row.to_most for row in shown):
        return
    verb = "tuned on" if shown[0].setting.kept is not None else "mean over"
    for row in sorted(shown, key=lambda row: (_fraction(row), -row.setting.views)):
        texts = (f"{verb} {_percent(_fraction(row))}", str(row.setting.views))
        yield _row(
            row, row.to_most, texts=texts, group="most views, and differences of fewer from that"
        )


def _fraction(row: "SettingRow") -> float:
    return row.setting.kept or row.setting.share or 0.0


def _mean_over_views(rows: "Sequence[SettingRow]") -> Iterator[Row]:
    """Yield a method's prediction read from a growing fraction of the views."""
    most = max(row.setting.views for row in rows)
    means = [r for r in rows if r.setting.share is not None and r.setting.views == most]
    originals = [r for r in rows if means and r.setting == means[0].setting.original]
    for row in (*originals, *means):
        share = row.setting.share
        name = "original view" if share is None else f"mean over {_percent(share)}"
        yield _row(row, (), texts=(name, str(most)), group="read from a fraction of the views")


def _few_against_many(family: "FamilyViews") -> Table:
    """Return few views without a gradient minus the most views with one."""
    rows = []
    for duel in family.few_against_many:
        few, many = duel.few, duel.many
        group = f"{few.method}, mean over {_percent(few.share or 0)} of {few.views} views, minus"
        texts = (f"{many.method} tuned on {_percent(many.kept or 0)}", str(many.views))
        rows.append(_row(None, duel.differences, texts=texts, group=group))
    title = f"Few views without a gradient against many with one, {_sized(family)}"
    return _metric_table(title, ("method", "views"), rows=rows)


def regulariser_parts(study: "RegulariserStudy") -> Parts:
    """Yield the tables of all pairs of regularisers, a few pairs side by side."""
    yield f"{study.model}, {study.template!r}: cosine, and fraction of equal signs"
    pairs = [(pair.first, pair.second) for pair in study.lists[0].pairs]
    for start in range(0, len(pairs), PAIRS_PER_TABLE):
        chosen = pairs[start : start + PAIRS_PER_TABLE]
        rows = []
        for entry in study.lists:
            by_names = {(pair.first, pair.second): pair for pair in entry.pairs}
            texts = (_pair_text(by_names[names]) for names in chosen)
            rows.append((entry.class_list, str(entry.classes), *texts))
        heads = ("class list", "classes", *(f"{first} ~ {second}" for first, second in chosen))
        yield text_table("", heads, rows=rows)
    for name, reason in study.left_out.items():
        yield f"Without {name}: {reason}"
    yield "50 % of the signs agree by chance; a cosine of 1 is the same step up to its strength."


def _pair_text(pair: "GradientPair") -> str:
    return f"{pair.cosine:+.3f} {_percent(pair.same_signs)}"


def _sized(family: Any) -> str:
    return f"{family.family}: {sum(images for _, images in family.sets):,} images"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _metric_table(title: str, heads: Sequence[str], *, rows: Iterable[Row]) -> Table:
    """Return a table with some texts and a column for each metric of a study."""
    from dtpt.analysis.estimates import MEASURED
    from dtpt.metrics import METRICS

    columns = [*map(Column, heads[1:]), *(metric_column(METRICS[key]) for key in MEASURED)]
    return Table(title, tuple(columns), tuple(rows), heading=heads[0])


def _row(row: Any, differences: "Iterable[Comparison]", *, texts: Sequence[str], group: str) -> Row:
    """Return texts, and differences with their intervals if there are any, else values."""
    from dtpt.analysis.estimates import MEASURED

    compared = {comparison.metric: comparison for comparison in differences}
    cells = [_difference(compared[key]) for key in MEASURED if key in compared]
    if not compared:
        cells = [_value(key, row.estimates[key]) for key in MEASURED]
    return Row(texts[0], (*map(Cell, texts[1:]), *cells), group=group)


def _value(key: str, value: "Estimate") -> Cell:
    from dtpt.metrics import METRICS

    metric = METRICS[key]
    half = max(value.high - value.value, value.value - value.low)
    text = number_text(value.value, metric, signed=metric.higher_is_better is None)
    return Cell(text, spread=f"±{metric.text(half)}")


def _difference(comparison: "Comparison") -> Cell:
    from dtpt.metrics import METRICS

    metric = METRICS[comparison.metric]
    half = max(comparison.high - comparison.estimate, comparison.estimate - comparison.low)
    return Cell(
        number_text(comparison.estimate, metric, signed=True),
        spread=f"±{metric.text(half)}",
        mark="*" if comparison.significant else "",
    )
