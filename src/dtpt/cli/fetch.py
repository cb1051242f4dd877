"""`dtpt datasets fetch`: named sets, downloaded and put where they are looked for."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from cyclopts import Parameter

from dtpt.cli.exits import FAILED, PARTIAL
from dtpt.cli.flags import AsJson, DataRoot, offer_datasets
from dtpt.cli.inventory import dataset_lines, report_code
from dtpt.cli.output import emit
from dtpt.data.download import Progress
from dtpt.data.fetch import Plan, check_space, fetch, plan_fetch
from dtpt.errors import DatasetError, OptionError
from dtpt.files import printable

Given = TypeVar("Given")
Made = TypeVar("Made")


def fetch_datasets(
    *names: Annotated[str, Parameter(completer=offer_datasets)],
    data_root: DataRoot = None,
    source: Literal["hub", "official"] = "hub",
    archive: Path | None = None,
    dry_run: bool = False,
    as_json: AsJson = False,
) -> None:
    """Download named data sets, unpack them safely, and check that they are complete.

    Shows page and terms of each set first. An interrupted download goes on where it stopped. What
    cannot be fetched of several sets is named, and the others are fetched. Exit code 0: all
    complete; 1: incomplete; 2: refused or failed.

    Args:
        names: Data sets, groups, or comma-separated lists of them.
        source: Where from: hub, one repository with 14 of the paper's 15 sets and their split
            files; official, the authors' archives, most of which have no split file.
        archive: A local zip or tar file in place of a download, for one set.
        dry_run: Only show what would be downloaded.
    """
    from dtpt.data.layouts import ROOT_VARIABLE, user_path
    from dtpt.data.loading import expand_names

    if data_root is None:
        raise OptionError(f"Name the folder of all data sets: --data-root or {ROOT_VARIABLE}.")
    sets, root = expand_names(names), user_path(data_root)
    if archive is not None and len(sets) != 1:
        raise OptionError("--archive is for one data set.")
    plans, refused = _each(sets, lambda n: plan_fetch(n, root, source=source, archive=archive))
    lines = [line for plan in plans for line in _plan_lines(plan, root)]
    if dry_run:
        emit(plans, *lines, as_json=as_json)
        _end(refused, code=0, is_empty=not plans)
        return
    print("\n".join(lines), file=sys.stderr)
    check_space(plans, root)
    reports, failed = _each(plans, lambda p: fetch(p, root, archive=archive, progress=_show))
    document = [{**asdict(report), "ok": report.ok} for report in reports]
    emit(document, *(line for one in reports for line in dataset_lines(one)), as_json=as_json)
    _end([*refused, *failed], code=report_code(reports), is_empty=not reports)


def _each(
    given: Iterable[Given], action: Callable[[Given], Made]
) -> tuple[list[Made], list[DatasetError]]:
    """Do something with each set; return the results, and why there is none of the others."""
    made: list[Made] = []
    failed: list[DatasetError] = []
    for one in given:
        try:
            made.append(action(one))
        except DatasetError as error:
            failed.append(error)
    return made, failed


def _end(failed: list[DatasetError], *, code: int, is_empty: bool) -> None:
    for error in failed:
        print(f"dtpt: {error.with_flags()}", file=sys.stderr)
    if failed:
        code = FAILED if is_empty else max(code, PARTIAL)
    if code:
        sys.exit(code)


def _plan_lines(plan: Plan, root: Path) -> list[str]:
    if plan.is_here:
        return [f"{plan.name} ({plan.title}): complete, nothing to fetch"]
    lines = [
        f"{plan.name} ({plan.title}), into {printable(root / plan.folder)}",
        f"  page   {plan.page}",
        f"  terms  {plan.terms} (as its authors state them)",
    ]
    for source in plan.archives:
        size = "size not known" if source.bytes is None else f"{source.bytes / 1e6:,.1f} MB"
        checked = ", sha256 known" if source.sha256 else ""
        lines.append(f"  from   {printable(source.address)} ({size}{checked})")
    needed = "" if plan.needed is None else f"about {plan.needed / 1e9:.2f} GB needed, "
    return [*lines, f"  disk   {needed}{plan.free / 1e9:.1f} GB free"]


def _show(file: str) -> Progress:
    """Show a download on the terminal's last line."""
    shown = 0.0

    def progress(done: int, total: int | None) -> None:
        nonlocal shown
        is_last = done == total
        if sys.stderr.isatty() and (is_last or time.monotonic() > shown + 0.2):
            shown = time.monotonic()
            of = "" if total is None else f" of {total / 1e6:,.0f} ({done / total:.0%})"
            end = "\n" if is_last else ""
            print(f"\r{file}: {done / 1e6:,.0f}{of} MB", end=end, file=sys.stderr, flush=True)

    return progress
