"""`dtpt analyze basis`: what depends on the basis of the joint space, and what does not."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtpt.analysis.basis_options import BasisOptions
from dtpt.cli.flags import AsJson, Flags, flags_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dtpt.analysis.basis_study import BasisStudy, DatasetBases, FamilyBases

FIRST = ("model", "dataset", "method", "weights", "seed", "limit", "output", "views")
SHOWN = ("accuracy", "signed_gap", "ece", "brier", "aurc")


@flags_of(BasisOptions, first=FIRST, leave_out=("lambda_", "shard", "keep", "fresh", "batch"))
class BasisFlags(Flags):
    """The options of the study, and those of `eval` that it takes."""


def basis(*, flags: BasisFlags | None = None, as_json: AsJson = False) -> None:
    """Rotate the joint space of images and texts, and see what changes.

    Every picture is answered in the model's own basis, in two random ones, and in two whose first
    axis is the mean text feature or the gap between texts and images. Cosines stay, so most methods
    answer as before, up to rounding; D-TPT does not. Finished data sets are kept under --output;
    basis.json has every number with its interval, as fractions.

    Args:
        flags: The options.
        as_json: Print the content of basis.json.
    """
    options = (flags or BasisFlags()).options(BasisOptions)
    from dtpt.analysis.basis_study import study_basis
    from dtpt.cli.study_output import publish, resumable
    from dtpt.report.figures.studies import basis_figure

    with resumable(options.output):
        study = study_basis(options)
    publish(
        study,
        options.output,
        name="basis",
        tables=basis_tables,
        figure=basis_figure,
        as_json=as_json,
        quiet=options.quiet,
    )


def basis_tables(study: "BasisStudy") -> "Iterator[RenderableType]":
    """Yield the tables of the study."""
    from dtpt.cli.study_output import DIFFERENCE_LEGEND, LEGEND, headline

    for entry in study.datasets:
        yield headline(
            entry.dataset,
            f": {entry.pictures:,} pictures, {entry.classes} classes, {study.origin.model}",
        )
        yield _facts_table(entry, study.weights)
        yield _invariance_table(entry)
    for family in study.families:
        yield _family_table(family)
    yield f"{LEGEND} {DIFFERENCE_LEGEND}"


def _facts_table(entry: "DatasetBases", weights: tuple[float, ...]) -> "Table":
    from dtpt.cli.study_output import narrow_table

    rows = [
        [
            one.basis,
            f"{100 * one.dominant_share:.0f} %",
            f"{one.gradient_norm:.1e}",
            *(f"{100 * share:.0f} %" for share in one.signs_won),
        ]
        for one in entry.bases
    ]
    heads = ["basis", "largest dim.", "‖∇DEM‖", *(f"{weight:.0e}" for weight in weights)]
    title = "Energy of the largest dimension, DEM's gradient, signs won with each λ"
    return narrow_table(title, heads, rows=rows)


def _invariance_table(entry: "DatasetBases") -> "Table":
    from dtpt.cli.study_output import narrow_table

    rows = [
        [
            one.method,
            f"{one.mean_move:.1e}",
            f"{one.largest_move:.1e}",
            f"{100 * one.same_answers:.2f} %",
        ]
        for one in entry.invariance
    ]
    title = "What no basis should change: probabilities in the other bases against the own"
    return narrow_table(title, ["method", "mean move", "largest", "same answers"], rows=rows)


def _family_table(family: "FamilyBases") -> "Table":
    from dtpt.cli.study_output import difference_cells, metric_heads, narrow_table, value_cells

    rows = []
    for row in family.rows:
        if row.to_own:
            first, cells = "", difference_cells(row.to_own, SHOWN)
        else:
            first, cells = f"{row.weight:.0e}", value_cells(row.estimates, SHOWN)
        rows.append([first, row.basis, f"{100 * row.signs_won:.0f} %", *cells])
    count = sum(pictures for _, pictures in family.sets)
    title = f"D-TPT, {family.family}, {count:,} pictures: own basis, and how others differ from it"
    return narrow_table(title, ["λ", "basis", "signs", *metric_heads(SHOWN)], rows=rows)
