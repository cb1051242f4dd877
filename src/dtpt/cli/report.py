"""`dtpt report`: tables, figures and one page from runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from dtpt.report import WrittenReport
    from dtpt.report.composing import ConditionReport


def report(
    *runs: Path,
    output: Path = Path("report"),
    analysis: Path | None = None,
    intervals: bool = False,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    data_root: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Make tables, figures and one self-contained page from runs.

    Writes index.html, card.md, tables.{md,tex,csv} and figures/*.svg, and prints the tables in the
    paper's units; beside the paper's numbers where model and data set are the paper's.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        output: Folder for the report.
        analysis: analysis.json of `dtpt analyze`; its figures are added.
        intervals: Also give the means over data sets, and each set, intervals over pictures.
        resamples: Draws of the pictures, by which methods are told apart.
        level: Probability that all intervals of differences are right.
        seed: Of the drawing.
        data_root: Where the pictures of the mistakes are looked for (or DTPT_DATA).
        as_json: Print every number of the tables, one record each, and the list of files.
    """
    from dtpt.report import write_report
    from dtpt.report.comparison import Resampling

    written = write_report(
        list(runs),
        output,
        analysis=analysis,
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
        intervals=intervals,
        data_root=data_root,
    )
    if as_json:
        print(json.dumps(report_document(written), indent=2, ensure_ascii=False))
    else:
        show_report(written)


def report_document(written: "WrittenReport") -> dict[str, object]:
    """Return what `--json` prints."""
    from dtpt.files import printable
    from dtpt.report.tables import table_records

    parts = written.report.parts
    titles = [f"{part.condition.title}: " if len(parts) > 1 else "" for part in parts]
    return {
        "verdicts": [
            f"{t}{v.text}" for t, p in zip(titles, parts, strict=True) for v in p.verdicts
        ],
        "remarks": list(written.report.gathered.remarks),
        "tables": list(table_records(written.report.tables)),
        "files": [printable(path) for path in written.files],
    }


def show_report(written: "WrittenReport") -> None:
    """Print verdict, remarks, the main tables, and where everything is."""
    from rich.text import Text

    from dtpt.cli.output import wide_console
    from dtpt.files import printable
    from dtpt.report.tables.terminal import terminal_table, terminal_verdict

    console = wide_console()
    for part in written.report.parts:
        _print_heading(console, written, part)
        for verdict in part.verdicts:
            console.print(terminal_verdict(verdict))
    if written.report.note:
        console.print(f"\n{written.report.note}", highlight=False, markup=False)
    for remark in written.report.gathered.remarks:
        console.print(Text.assemble(("Note: ", "yellow"), remark))
    for part in written.report.parts:
        _print_heading(console, written, part)
        for table in (*part.pooled, *part.means):
            console.print(terminal_table(table))
    for table in written.report.prompt_tables:
        console.print(terminal_table(table))
    folder = written.page.parent.resolve()
    for name, path in (
        ("Page:", written.page.resolve()),
        ("Card:", written.card.resolve()),
        ("Tables:", folder / "tables.{md,tex,csv}"),
        ("Figures:", folder / "figures"),
    ):
        print(f"{name:<9}{printable(path)}")  # never wrapped: to be copied


def _print_heading(console: "Console", written: "WrittenReport", part: "ConditionReport") -> None:
    """Say which model, prompt and settings follow, where there are several."""
    if len(written.report.parts) > 1:
        console.print(f"\n{part.condition.title}", style="bold", markup=False, highlight=False)
