"""`dtpt datasets fetch`: named sets, downloaded and put where they are looked for."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dtpt.cli.flags import AsJson, DataRoot, offer_datasets
from dtpt.cli.inventory import dataset_lines, report_code
from dtpt.cli.output import emit
from dtpt.data.download import Progress
from dtpt.data.fetch import Plan, fetch, plan_fetch
from dtpt.errors import OptionError
from dtpt.files import printable


def fetch_datasets(
    *names: Annotated[str, Parameter(completer=offer_datasets)],
    data_root: DataRoot = None,
    source: Literal["hub", "official"] = "hub",
    archive: Path | None = None,
    dry_run: bool = False,
    as_json: AsJson = False,
) -> None:
    """Download named data sets, unpack them safely, and check that they are complete.

    Shows page and terms of each set first. An interrupted download goes on where it stopped. Exit
    code 0: all complete; 1: incomplete; 2: refused or failed.

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
    plans = [plan_fetch(name, root, source=source, archive=archive) for name in sets]
    lines = [line for plan in plans for line in _plan_lines(plan)]
    if dry_run:
        emit(plans, *lines, as_json=as_json)
        return
    print("\n".join(lines), file=sys.stderr)
    reports = [fetch(plan, root, archive=archive, progress=_show) for plan in plans]
    document = [{**asdict(report), "ok": report.ok} for report in reports]
    emit(document, *(line for one in reports for line in dataset_lines(one)), as_json=as_json)
    if code := report_code(reports):
        sys.exit(code)


def _plan_lines(plan: Plan) -> list[str]:
    if plan.is_here:
        return [f"{plan.name} ({plan.title}): complete, nothing to fetch"]
    lines = [
        f"{plan.name} ({plan.title}), into {plan.folder}",
        f"  page   {plan.page}",
        f"  terms  {plan.terms} (as its authors state them)",
    ]
    for source in plan.archives:
        size = "size not known" if source.bytes is None else f"{source.bytes / 1e6:,.0f} MB"
        checked = ", sha256 known" if source.sha256 else ""
        lines.append(f"  from   {printable(source.address)} ({size}{checked})")
    needed = "not known" if plan.needed is None else f"about {plan.needed / 1e9:.1f} GB"
    return [*lines, f"  disk   {needed} needed, {plan.free / 1e9:.1f} GB free"]


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
