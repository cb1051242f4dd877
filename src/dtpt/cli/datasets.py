"""`dtpt datasets`: the data sets, where they are, and whether they are complete."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.completion import offer_datasets
from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from dtpt.data.check import DatasetReport, DatasetSummary

DataRoot = Annotated[
    Path | None,
    Parameter(env_var="DTPT_DATA", help="Folder that holds the paper's data sets."),
]

_EXIT_CODES = {"complete": 0, "partial": 1, "missing": 2}
_SHOWN = 10  # lines of a list before "and n more"


def datasets(*, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List all data sets and where they are."""
    from dtpt.data.check import list_datasets

    summaries = list_datasets(data_root)
    hint = "\nGive the folder of the paper's sets with --data-root or DTPT_DATA."
    table = _table(summaries, data_root)
    emit(summaries, table, *([hint] if data_root is None else []), as_json=as_json, framed=False)


def check(
    name: Annotated[str, Parameter(completer=offer_datasets)],
    /,
    *,
    deep: bool = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Compare data sets with the complete ones, which are those that the paper used.

    Exit code 0: all complete; 1: incomplete, or with unreadable images; 2: not found.

    Args:
        name: Data set, group, or comma-separated list of them.
        deep: Also decode every image.
    """
    from dtpt.data.check import check_dataset
    from dtpt.data.loading import expand_names

    progress = _count if sys.stderr.isatty() else None
    reports = [
        check_dataset(dataset, data_root=data_root, deep=deep, progress=progress)
        for dataset in expand_names(name)
    ]
    document = [{**asdict(report), "ok": report.ok} for report in reports]
    emit(document, *(line for report in reports for line in _lines(report)), as_json=as_json)
    code = max(max(_EXIT_CODES[r.status], 1 if r.unreadable else 0) for r in reports)
    if code:
        sys.exit(code)


def _count(done: int, total: int) -> None:
    """Show the number of decoded images on the terminal's last line."""
    if done % 50 == 0 or done == total:
        end = "\n" if done == total else ""
        print(f"\r{done:,} of {total:,} images", end=end, file=sys.stderr, flush=True)


def _table(summaries: "Sequence[DatasetSummary]", data_root: Path | None) -> Table:
    from dtpt.data.catalog import family_title

    rows = []
    for summary in summaries:
        texts = (f"{summary.classes:,}", f"{summary.images:,}", _location(summary, data_root))
        group = family_title(summary.family)
        rows.append(Row(summary.name, tuple(map(Cell, texts)), group=group))
    columns = (Column("classes"), Column("images"), Column("path (-: expected)", is_text=True))
    return Table("", columns, tuple(rows), heading="data set")


def _location(summary: "DatasetSummary", data_root: Path | None) -> str:
    if not summary.found:
        return f"- {summary.where.partition(' or ')[0]}"
    path = Path(summary.where)
    if data_root is not None and data_root in path.parents:
        return str(path.relative_to(data_root))
    return summary.where


def _lines(report: "DatasetReport") -> Iterator[str]:
    """Yield the lines of one report: the verdict first, then what is wrong."""
    expected = f" of {report.expected_images:,}" if report.expected_images is not None else ""
    yield f"{report.name}: {report.status}" + (f", {report.layout} layout" if report.layout else "")
    yield f"  images   {report.found_images:,}{expected}  {report.source}"
    names = {True: ", names agree with the catalogue", False: ", not all of them met", None: ""}
    yield f"  classes  {report.classes:,}{names[report.class_names_agree]}"
    if report.class_counts:
        counts = sorted(report.class_counts, key=lambda pair: pair[1])
        (fewest, low), (most, high) = counts[0], counts[-1]
        yield f"           {low:,} images ({fewest}) to {high:,} ({most}) each"
    if report.checked_images:
        yield f"  decoded  {report.checked_images:,}, unreadable {len(report.unreadable):,}"
    yield from (f"  ! {problem}" for problem in report.problems)
    if report.status != "missing":  # otherwise the problem names the paths already
        yield from _shortened("missing", report.missing)
    reasons = [f"{name}: {reason}" for name, reason in report.unreadable.items()]
    yield from _shortened("unreadable", reasons)


def _shortened(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {title}: {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  {title}: and {len(lines) - _SHOWN:,} more (--json lists all)"
