"""`dtpt analyze controls`: does a regulariser do more than a smaller step or a random direction?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtpt.analysis.controls_options import ControlsOptions
from dtpt.cli.flags import AsJson, Flags, flags_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dtpt.analysis.control_study import ControlStudy, FamilyControls, StrengthRow

FIRST = ("model", "dataset", "method", "strengths", "rates", "seed", "limit", "output", "views")


@flags_of(ControlsOptions, first=FIRST, leave_out=("lambda_", "shard", "keep", "engine"))
class ControlsFlags(Flags):
    """The options of the study, and those of `eval` that it takes."""


def controls(*, flags: ControlsFlags | None = None, as_json: AsJson = False) -> None:
    """Compare regularisers at equal strength with a random direction and with smaller steps.

    Every regulariser gets the weight with which it wins a given share of the first step's signs, on
    average over some pictures whose labels play no part. TPT with smaller learning rates traces the
    curve that a shorter step gives. The run is stored under --output, so the same command again
    resumes; controls.json has every number with its interval, as fractions.

    Args:
        flags: The options.
        as_json: Print the content of controls.json.
    """
    options = (flags or ControlsFlags()).options(ControlsOptions)
    from dtpt.analysis.control_study import study_controls
    from dtpt.cli.study_output import publish, resumable
    from dtpt.report.figures.studies import controls_figure

    with resumable(options.output):
        study = study_controls(options)
    publish(
        study,
        options.output,
        name="controls",
        tables=control_tables,
        figure=controls_figure,
        as_json=as_json,
        quiet=options.quiet,
    )


def control_tables(study: "ControlStudy") -> "Iterator[RenderableType]":
    """Yield the tables of the controls."""
    from dtpt.cli.study_output import LEGEND, headline

    for family in study.families:
        count = sum(pictures for _, pictures in family.sets)
        yield headline(family.family, f": {count:,} pictures, {study.origin.model}")
        yield _curve_table(family)
        for strength in dict.fromkeys(row.strength for row in family.rows):
            yield _strength_table(family, strength)
        yield _random_text(family)
    yield (
        f"{LEGEND} Above curve: accuracy minus what a smaller step reaches at the same gap, "
        "interval corrected for all rows; * excludes 0; ( ) the curve does not reach that gap."
    )


def _curve_table(family: "FamilyControls") -> "Table":
    from dtpt.analysis.estimates import MEASURED
    from dtpt.cli.study_output import metric_heads, narrow_table, value_cells

    rows = [[point.method, *value_cells(point.estimates, MEASURED)] for point in family.curve]
    return narrow_table("The curve of smaller steps", ["", *metric_heads(MEASURED)], rows=rows)


def _strength_table(family: "FamilyControls", strength: float) -> "Table":
    from dtpt.analysis.estimates import MEASURED
    from dtpt.cli.study_output import metric_heads, narrow_table, value_cells

    rows = [
        [row.method, *value_cells(row.estimates, MEASURED, plain=True), _above(row)]
        for row in family.rows
        if row.strength == strength
    ]
    title = f"{100 * strength:g} % of the first step's signs won"
    return narrow_table(title, ["", *metric_heads(MEASURED), "above curve %"], rows=rows)


def _above(row: "StrengthRow") -> str:
    one = row.above_curve
    half = 100 * max(one.high - one.distance, one.distance - one.low)
    star = "*" if one.low > 0 or one.high < 0 else " "
    text = f"{100 * one.distance:+.1f}±{half:.1f}{star}"
    return text if one.inside else f"({text.strip()})"


def _random_text(family: "FamilyControls") -> str:
    """Say which regularisers can be told from a random direction of their strength."""
    from dtpt.cli.study_output import HEADS, difference_cells
    from dtpt.methods import parse_label

    every = [one for row in family.rows for one in row.to_random]
    apart = [one for one in every if one.significant]
    lines = [
        f"{len(apart)} of {len(every)} differences to a random direction of equal strength "
        f"exclude 0{':' if apart else '.'}"
    ]
    for one in apart:
        (cell,) = difference_cells([one], [one.metric])
        random = parse_label(one.second).name
        lines.append(f"  {one.first} − {random}: {HEADS[one.metric]} {cell}")
    return "\n".join(lines)
