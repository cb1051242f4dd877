"""`dtpt analyze views`: how many views it takes, and how many of them should give the answer."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dtpt.analysis.views_options import ViewsOptions
from dtpt.cli.flags import AsJson, Flags, flags_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dtpt.analysis.view_study import FamilyViews, SettingRow, ViewStudy

FIRST = ("model", "dataset", "method", "counts", "kept", "shares", "seed", "limit", "output")


@flags_of(
    ViewsOptions, first=FIRST, leave_out=("views", "rho", "lambda_", "shard", "keep", "engine")
)
class ViewsFlags(Flags):
    """The options of the study, and those of `eval` that it takes."""


def views(*, flags: ViewsFlags | None = None, as_json: AsJson = False) -> None:
    """Find what fewer views cost, and what the mean over several of them gives.

    Each method is evaluated with the first 8, 16, ... views and compared with itself at the most
    views; then its answer is read from a growing share of the most confident views instead of the
    original one. The runs are stored under --output, so the same command again resumes; views.json
    has every number with its interval, as fractions.

    Args:
        flags: The options.
        as_json: Print the content of views.json.
    """
    options = (flags or ViewsFlags()).options(ViewsOptions)
    from dtpt.analysis.view_study import study_views
    from dtpt.cli.study_output import publish, resumable
    from dtpt.report.figures.studies import dial_figure

    with resumable(options.output):
        study = study_views(options)
    publish(
        study,
        options.output,
        name="views",
        tables=view_tables,
        figure=dial_figure,
        as_json=as_json,
        quiet=options.quiet,
    )


def view_tables(study: "ViewStudy") -> "Iterator[RenderableType]":
    """Yield the tables of a study of views."""
    from dtpt.cli.study_output import DIFFERENCE_LEGEND, LEGEND, headline

    for family in study.families:
        count = sum(pictures for _, pictures in family.sets)
        yield headline(family.family, f": {count:,} pictures, {study.origin.model}")
        yield from _count_tables(family)
        yield from _dial_tables(family)
        yield from _duel_tables(family)
    yield f"views: image passes per answer. {LEGEND} {DIFFERENCE_LEGEND}"


def _count_tables(family: "FamilyViews") -> "Iterator[Table]":
    """Yield, for every method, fewer views against the most."""
    from dtpt.analysis.view_study import FEW_SHARES, UNTUNED

    for method in dict.fromkeys(row.setting.method for row in family.rows):
        own = [row for row in family.rows if row.setting.method == method]
        shares = FEW_SHARES if method == UNTUNED else (None,)
        shown = [row for row in own if row.setting.share in shares]
        if any(row.to_most for row in shown):
            yield _count_table(method, shown)


def _count_table(method: str, rows: "Sequence[SettingRow]") -> "Table":
    from dtpt.analysis.estimates import MEASURED
    from dtpt.cli.study_output import difference_cells, metric_heads, narrow_table, value_cells

    lines = []
    for row in sorted(rows, key=lambda row: (_share(row), -row.setting.views)):
        if row.to_most:
            share, cells = "", difference_cells(row.to_most, MEASURED)
        else:
            share, cells = f"{100 * _share(row):g} %", value_cells(row.estimates, MEASURED)
        lines.append([share, str(row.setting.views), *cells])
    word = "tuned on" if rows[0].setting.kept is not None else "read from"
    most = max(row.setting.views for row in rows)
    title = f"{method}: with {most} views, and how fewer differ from that"
    return narrow_table(title, [word, "views", *metric_heads(MEASURED)], rows=lines)


def _share(row: "SettingRow") -> float:
    return row.setting.kept or row.setting.share or 0.0


def _dial_tables(family: "FamilyViews") -> "Iterator[Table]":
    """Yield, for every method, the answer read from a growing share of the views."""
    from dtpt.analysis.estimates import MEASURED
    from dtpt.cli.study_output import metric_heads, narrow_table, value_cells

    most = max(row.setting.views for row in family.rows)
    for method in dict.fromkeys(row.setting.method for row in family.rows):
        own = [row for row in family.rows if row.setting.method == method]
        dial = [r for r in own if r.setting.share is not None and r.setting.views == most]
        first = [r for r in own if dial and r.setting == dial[0].setting.original]
        lines = [
            [_read_text(row), *value_cells(row.estimates, MEASURED)] for row in (*first, *dial)
        ]
        if dial:
            title = f"{method}: the answer read from a share of {most} views"
            yield narrow_table(title, ["read from", *metric_heads(MEASURED)], rows=lines)


def _read_text(row: "SettingRow") -> str:
    share = row.setting.share
    return "original" if share is None else f"{100 * share:g} %"


def _duel_tables(family: "FamilyViews") -> "Iterator[Table]":
    """Yield, for each share, few views without a gradient against the most views with one."""
    from dtpt.analysis.estimates import MEASURED
    from dtpt.cli.study_output import difference_cells, metric_heads, narrow_table

    for few in dict.fromkeys(duel.few for duel in family.few_against_many):
        own = [duel for duel in family.few_against_many if duel.few == few]
        lines = [
            [
                duel.many.method,
                f"{100 * (duel.many.kept or 0):g} %",
                *difference_cells(duel.differences, MEASURED),
            ]
            for duel in own
        ]
        title = (
            f"{few.method}, mean over {100 * (few.share or 0):g} % of {few.views} views, minus "
            f"each method with {own[0].many.views}"
        )
        yield narrow_table(title, ["method", "tuned on", *metric_heads(MEASURED)], rows=lines)
