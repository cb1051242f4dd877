"""`dtpt datasets`: which data sets there are, where they are, and whether they are whole."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from dtpt.cli.completion import offer_datasets
from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from dtpt.data.check import DatasetReport, DatasetSummary

app = App(name="datasets", help="List the data sets; check what is on disk.")

DataRoot = Annotated[Path | None, Parameter(name="--data-root", env_var="DTPT_DATA")]

_EXIT_CODES = {"complete": 0, "partial": 1, "missing": 2}
_SHOWN = 10  # lines of a list before "and n more"


@app.default
def list_all(*, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List all data sets and what is found of them.

    Args:
        data_root: Folder that holds the paper's data sets.
        as_json: Print JSON instead of a table.
    """
    from dtpt.data.check import list_datasets

    summaries = list_datasets(data_root)
    if as_json:
        _print_json([asdict(summary) for summary in summaries])
    else:
        _print_table(summaries, data_root)


@app.command
def check(
    name: Annotated[str, Parameter(completer=offer_datasets)],
    *,
    deep: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Compare data sets with the complete ones, which are those that the paper used.

    Exit code 0: all complete; 1: partly, or with unreadable images; 2: not found.

    Args:
        name: Data set, group, or comma-separated list of them.
        deep: Also decode every image.
        data_root: Folder that holds the paper's data sets.
        as_json: Print JSON instead of text.
    """
    from dtpt.data.check import check_dataset
    from dtpt.data.loading import expand_names

    reports = [
        check_dataset(one, data_root=data_root, deep=deep, progress=_counter(one))
        for one in expand_names(name)
    ]
    if as_json:
        _print_json([{**asdict(report), "ok": report.ok} for report in reports])
    else:
        for report in reports:
            _print_report(report)
    code = max(max(_EXIT_CODES[r.status], 1 if r.unreadable else 0) for r in reports)
    if code:
        sys.exit(code)


def _counter(name: str) -> Callable[[int, int], None] | None:
    """Return a function that counts decoded images on the terminal's last line."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if done % 50 == 0 or done == total:
            end = "\n" if done == total else ""
            print(f"\r{name}: {done:,} of {total:,} images", end=end, file=sys.stderr, flush=True)

    return show


def _print_json(content: list[dict[str, Any]]) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _print_table(summaries: "list[DatasetSummary]", data_root: Path | None) -> None:
    """Print a line per set; a place that does not fit beside it gets a line of its own, uncut."""
    from dtpt.data.catalog import family_title

    width = max(len(summary.name) for summary in summaries) + 2
    columns = shutil.get_terminal_size().columns
    print(f"{'data set':{width}}  classes  images  found at, or expected at (-)")
    previous = ""
    for summary in summaries:
        if summary.family != previous:
            print(family_title(summary.family))
            previous = summary.family
        line = f"{'  ' + summary.name:{width}}  {summary.classes:>7,}  {summary.images:>6,}"
        place = _place(summary, data_root)
        fits = len(line) + 2 + len(place) <= columns
        print(f"{line}  {place}" if fits else f"{line}\n      {place}")
    if data_root is None:
        print("\nGive the folder of the paper's sets with --data-root or DTPT_DATA.")


def _place(summary: "DatasetSummary", data_root: Path | None) -> str:
    if not summary.found:
        return f"- {summary.where.partition(' or ')[0]}"
    found = Path(summary.where)
    if data_root is not None and data_root in found.parents:
        return str(found.relative_to(data_root))
    return summary.where


def _print_report(report: "DatasetReport") -> None:
    """Print one report as text: the verdict first, then what is wrong."""
    expected = f" of {report.expected_images:,}" if report.expected_images is not None else ""
    layout = f", {report.layout} layout" if report.layout else ""
    print(f"{report.name}: {report.status}{layout}")
    print(f"  images   {report.found_images:,}{expected}  {report.source}")
    names = {True: ", names agree with the catalogue", False: ", not all of them met", None: ""}
    print(f"  classes  {report.classes:,}{names[report.class_names_agree]}")
    if report.class_counts:
        counts = sorted(report.class_counts, key=lambda pair: pair[1])
        (fewest, low), (most, high) = counts[0], counts[-1]
        print(f"           {low:,} images ({fewest}) to {high:,} ({most}) each")
    if report.checked_images:
        print(f"  decoded  {report.checked_images:,}, unreadable {len(report.unreadable):,}")
    for problem in report.problems:
        print(f"  ! {problem}")
    if report.status != "missing":  # otherwise the problem names the places already
        _print_list("missing", list(report.missing))
    _print_list("unreadable", [f"{image.id}: {image.reason}" for image in report.unreadable])


def _print_list(title: str, lines: list[str]) -> None:
    for line in lines[:_SHOWN]:
        print(f"  {title}: {line}")
    if len(lines) > _SHOWN:
        print(f"  {title}: and {len(lines) - _SHOWN:,} more (--json lists all)")
