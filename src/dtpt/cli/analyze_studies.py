"""`dtpt analyze basis`, `controls`, `views` and `regularisers`: studies beyond the paper.

Each stores what it finished under --output and writes every number with its interval, as
fractions, to a JSON file there.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dtpt.analysis.basis_options import BasisOptions
from dtpt.analysis.controls_options import ControlsOptions
from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.analysis.views_options import ViewsOptions
from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.files import printable, write_atomically
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dtpt.analysis.basis_study import BasisStudy, FamilyBases
    from dtpt.analysis.control_study import ControlStudy, FamilyControls, StrengthRow
    from dtpt.analysis.gradients import GradientPair
    from dtpt.analysis.regulariser_study import RegulariserStudy
    from dtpt.analysis.view_study import FamilyViews, SettingRow, ViewStudy
    from dtpt.metrics import Comparison, Estimate

BASIS_METRICS = ("accuracy", "signed_gap", "ece", "brier", "aurc")
PAIRS_PER_TABLE = 4
LEGEND = (
    "gap: confidence − accuracy. ECE*: ECE minus its noise floor. AURC ‰: ×10³. Brier %: ×100. "
    "± is the 95 % interval."
)
DIFFERENCES = (
    "Differences: ± is their interval, corrected for all of one method or λ; * excludes 0."
)

Parts = Iterator[Table | str]


def basis(
    *,
    options: Annotated[
        BasisOptions,
        flags(BasisOptions, hide=("lambda_", "shard", "keep", "fresh", "batch")),
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Rotate the joint space of images and texts, and compare the predictions.

    Every image is classified in the model's own basis, in two random ones, and in two whose first
    axis is the mean text feature or the gap between texts and images. Cosines stay, so most
    methods predict as before, up to rounding; D-TPT does not. Finished data sets are kept.
    """
    from dtpt.analysis.basis_study import study_basis
    from dtpt.report.figures.studies import basis_figure

    with resumable(options.output):
        study = study_basis(options)
    _publish(study, options, name="basis", parts=basis_parts, figure=basis_figure, as_json=as_json)


def controls(
    *,
    options: Annotated[
        ControlsOptions, flags(ControlsOptions, hide=("lambda_", "shard", "keep", "engine"))
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare regularisers at equal strength with a random direction and with smaller steps.

    Every regulariser gets the λ with which it wins a given fraction of the first step's signs, on
    average over some images, without their labels. TPT with smaller learning rates traces the
    curve that a shorter step gives. The same command again resumes.
    """
    from dtpt.analysis.control_study import study_controls
    from dtpt.report.figures.studies import controls_figure

    with resumable(options.output):
        study = study_controls(options)
    _publish(
        study,
        options,
        name="controls",
        parts=control_parts,
        figure=controls_figure,
        as_json=as_json,
    )


def views(
    *,
    options: Annotated[
        ViewsOptions,
        flags(ViewsOptions, hide=("views", "rho", "lambda_", "shard", "keep", "engine")),
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Measure what fewer views cost, and what the mean over several of them gives.

    Each method is evaluated with the first 8, 16, ... views and compared with itself at the most
    views; then its prediction is read from a growing fraction of the most confident views instead
    of the original one. The same command again resumes.
    """
    from dtpt.analysis.view_study import study_views
    from dtpt.report.figures.studies import dial_figure

    with resumable(options.output):
        study = study_views(options)
    _publish(study, options, name="views", parts=view_parts, figure=dial_figure, as_json=as_json)


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
    from dtpt.analysis.regulariser_study import study_regularisers

    study = study_regularisers(options)
    _publish(study, options, name="regularisers", parts=regulariser_parts, as_json=as_json)


def _publish(
    study: Any,
    options: Any,
    *,
    name: str,
    parts: Callable[[Any], Parts],
    figure: "Callable[[Any], Figure] | None" = None,
    as_json: bool,
) -> None:
    """Save a study and its figure, and print its tables or its JSON."""
    from dtpt.analysis.study_files import save_study, study_json

    folder: Path = options.output
    written = [save_study(study, folder, name=name)]
    if figure is not None:
        from dtpt.report.figures.svg import svg_text

        written.append(folder / f"{name}.svg")
        write_atomically(written[-1], svg_text(figure(study)).encode())
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
        heads = ("basis", "largest dim.", "‖∇DEM‖", *(f"{weight:.0e}" for weight in study.weights))
        yield text_table(
            "Energy of the largest dimension, DEM's gradient, signs won with each λ",
            heads,
            rows=[
                (
                    row.basis,
                    f"{100 * row.dominant_share:.0f} %",
                    f"{row.gradient_norm:.1e}",
                    *(f"{100 * won:.0f} %" for won in row.signs_won),
                )
                for row in entry.bases
            ],
        )
        yield text_table(
            "Probabilities in the other bases against the own, which no basis should change",
            ("method", "mean move", "largest", "same labels"),
            rows=[
                (
                    row.method,
                    f"{row.mean_move:.1e}",
                    f"{row.largest_move:.1e}",
                    f"{100 * row.same_answers:.2f} %",
                )
                for row in entry.invariance
            ],
        )
    yield from map(_basis_family, study.families)
    yield f"{LEGEND} {DIFFERENCES}"


def _basis_family(family: "FamilyBases") -> Table:
    rows = []
    for row in family.rows:
        signs = f"{100 * row.signs_won:.0f} %"
        if row.to_own:
            cells = _difference_texts(row.to_own, BASIS_METRICS)
        else:
            cells = _value_texts(row.estimates, BASIS_METRICS)
        rows.append(("" if row.to_own else f"{row.weight:.0e}", row.basis, signs, *cells))
    title = f"D-TPT, {_sized(family)}: own basis, and differences of the others from it"
    return text_table(title, ("λ", "basis", "signs", *_heads(BASIS_METRICS)), rows=rows)


def control_parts(study: "ControlStudy") -> Parts:
    """Yield the tables of a study of controls."""
    from dtpt.analysis.estimates import MEASURED

    for family in study.families:
        yield f"{_sized(family)}, {study.origin.model}"
        curve = [(point.method, *_value_texts(point.estimates, MEASURED)) for point in family.curve]
        yield text_table("The curve of smaller steps", ("method", *_heads(MEASURED)), rows=curve)
        for strength in dict.fromkeys(row.strength for row in family.rows):
            rows = [
                (row.method, *_value_texts(row.estimates, MEASURED, plain=True), _above(row))
                for row in family.rows
                if row.strength == strength
            ]
            title = f"{100 * strength:g} % of the first step's signs won"
            heads = ("method", *_heads(MEASURED), "above curve %")
            yield text_table(title, heads, rows=rows)
        yield _random_text(family)
    yield (
        f"{LEGEND} Above curve: accuracy minus what a smaller step reaches at the same gap, "
        "interval corrected for all rows; * excludes 0; ( ) the curve does not reach that gap."
    )


def _above(row: "StrengthRow") -> str:
    above = row.above_curve
    half = 100 * max(above.high - above.distance, above.distance - above.low)
    star = "*" if above.low > 0 or above.high < 0 else " "
    text = f"{100 * above.distance:+.1f}±{half:.1f}{star}"
    return text if above.inside else f"({text.strip()})"


def _random_text(family: "FamilyControls") -> str:
    """Return which regularisers differ significantly from a random direction of their strength."""
    from dtpt.methods import parse_label

    comparisons = [comparison for row in family.rows for comparison in row.to_random]
    significant = [comparison for comparison in comparisons if comparison.significant]
    lines = [
        f"{len(significant)} of {len(comparisons)} differences to a random direction of equal "
        f"strength exclude 0{':' if significant else '.'}"
    ]
    for comparison in significant:
        (text,) = _difference_texts([comparison], [comparison.metric])
        (head,) = _heads([comparison.metric])
        random = parse_label(comparison.second).name
        lines.append(f"  {comparison.first} − {random}: {head} {text}")
    return "\n".join(lines)


def view_parts(study: "ViewStudy") -> Parts:
    """Yield the tables of a study of views."""
    for family in study.families:
        yield f"{_sized(family)}, {study.origin.model}"
        for method in dict.fromkeys(row.setting.method for row in family.rows):
            rows = [row for row in family.rows if row.setting.method == method]
            yield from _fewer_views(method, rows)
            yield from _mean_over_views(method, rows)
        yield from _few_against_many(family)
    yield f"views: image passes per prediction. {LEGEND} {DIFFERENCES}"


def _fewer_views(method: str, rows: "Sequence[SettingRow]") -> Iterator[Table]:
    """Yield a method with the most views, and the differences of fewer views from that."""
    from dtpt.analysis.estimates import MEASURED
    from dtpt.analysis.view_study import FEW_SHARES, UNTUNED

    fractions = FEW_SHARES if method == UNTUNED else (None,)
    shown = [row for row in rows if row.setting.share in fractions]
    if not any(row.to_most for row in shown):
        return
    lines = []
    for row in sorted(shown, key=lambda row: (_fraction(row), -row.setting.views)):
        if row.to_most:
            first, cells = "", _difference_texts(row.to_most, MEASURED)
        else:
            first, cells = f"{100 * _fraction(row):g} %", _value_texts(row.estimates, MEASURED)
        lines.append((first, str(row.setting.views), *cells))
    most = max(row.setting.views for row in shown)
    verb = "tuned on" if shown[0].setting.kept is not None else "read from"
    title = f"{method}: with {most} views, and differences of fewer views from that"
    yield text_table(title, (verb, "views", *_heads(MEASURED)), rows=lines)


def _fraction(row: "SettingRow") -> float:
    return row.setting.kept or row.setting.share or 0.0


def _mean_over_views(method: str, rows: "Sequence[SettingRow]") -> Iterator[Table]:
    """Yield a method's prediction read from a growing fraction of the views."""
    from dtpt.analysis.estimates import MEASURED

    most = max(row.setting.views for row in rows)
    means = [r for r in rows if r.setting.share is not None and r.setting.views == most]
    first = [r for r in rows if means and r.setting == means[0].setting.original]
    lines = []
    for row in (*first, *means):
        share = row.setting.share
        name = "original" if share is None else f"{100 * share:g} %"
        lines.append((name, *_value_texts(row.estimates, MEASURED)))
    if means:
        title = f"{method}: the prediction read from a fraction of {most} views"
        yield text_table(title, ("read from", *_heads(MEASURED)), rows=lines)


def _few_against_many(family: "FamilyViews") -> Iterator[Table]:
    """Yield, for each fraction, few views without a gradient against the most views with one."""
    from dtpt.analysis.estimates import MEASURED

    for few in dict.fromkeys(duel.few for duel in family.few_against_many):
        duels = [duel for duel in family.few_against_many if duel.few == few]
        lines = [
            (
                duel.many.method,
                f"{100 * (duel.many.kept or 0):g} %",
                *_difference_texts(duel.differences, MEASURED),
            )
            for duel in duels
        ]
        title = (
            f"{few.method}, mean over {100 * (few.share or 0):g} % of {few.views} views, minus "
            f"each method with {duels[0].many.views}"
        )
        yield text_table(title, ("method", "tuned on", *_heads(MEASURED)), rows=lines)


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
    return f"{pair.cosine:+.3f} {100 * pair.same_signs:.0f} %"


def _sized(family: Any) -> str:
    return f"{family.family}: {sum(images for _, images in family.sets):,} images"


def _heads(metrics: Iterable[str]) -> list[str]:
    from dtpt.metrics import METRICS

    units = {"aurc": "‰"}
    return [f"{METRICS[key].short} {units.get(key, '%')}" for key in metrics]


def _value_texts(
    values: "Mapping[str, Estimate]", metrics: Iterable[str], *, plain: bool = False
) -> list[str]:
    """Return numbers as `55.8±1.2`, or without their intervals."""
    from dtpt.metrics import METRICS

    texts = []
    for key in metrics:
        value = values[key]
        sign = "+" if METRICS[key].higher_is_better is None else ""
        half = max(value.high - value.value, value.value - value.low)
        spread = "" if plain else f"±{_brief(key, half)}"
        texts.append(_brief(key, value.value, sign=sign) + spread)
    return texts


def _difference_texts(comparisons: "Iterable[Comparison]", metrics: Iterable[str]) -> list[str]:
    """Return differences as `-0.4±0.3*`; * means that the interval excludes 0."""
    by_metric = {comparison.metric: comparison for comparison in comparisons}
    texts = []
    for key in metrics:
        one = by_metric.get(key)
        if one is None:
            texts.append("")
            continue
        half = max(one.high - one.estimate, one.estimate - one.low)
        star = "*" if one.significant else " "
        texts.append(f"{_brief(key, one.estimate, sign='+')}±{_brief(key, half)}{star}")
    return texts


def _brief(key: str, value: float, *, sign: str = "") -> str:
    """Write a fraction in percent (AURC in ‰) with one decimal, or none where it is large."""
    from dtpt.metrics import METRICS

    number = max(METRICS[key].factor, 100.0) * value  # Brier, too, in hundredths
    return f"{number:{sign}.{1 if abs(number) < 99.95 else 0}f}"
