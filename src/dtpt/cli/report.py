"""`dtpt report`: tables, figures and one page from runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from dtpt.report import WrittenReport


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
    from dtpt.report.facts import Resampling

    written = write_report(
        list(runs),
        output,
        analysis=analysis,
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
        intervals=intervals,
        data_root=data_root,
    )
    if as_json:
        print(json.dumps(written.document(), indent=2, ensure_ascii=False))
    else:
        show_report(written)


def show_report(written: "WrittenReport") -> None:
    """Print verdicts, notes, the main tables, and where everything is."""
    from rich.text import Text

    from dtpt.cli.output import wide_console
    from dtpt.files import printable
    from dtpt.tables import terminal

    report = written.report
    console = wide_console()
    for heading, part in report.headed:
        if heading:
            console.print(f"\n{heading}", style="bold", markup=False, highlight=False)
        for verdict in part.paragraphs:
            words = " ".join(verdict.sentences)
            console.print(Text.assemble((f"\n{verdict.where}. ", "bold"), words))
    if report.note:
        console.print(f"\n{report.note}", highlight=False, markup=False)
    for note in report.loaded.notes:
        console.print(Text.assemble(("Note: ", "yellow"), note))
    for heading, part in report.headed:
        if heading:
            console.print(f"\n{heading}", style="bold", markup=False, highlight=False)
        for table in (*part.pooled, *part.means):
            console.print(terminal(table))
    for table in report.prompt_tables:
        console.print(terminal(table))
    folder = written.page.parent.resolve()
    for name, path in (
        ("Page:", written.page.resolve()),
        ("Card:", written.card.resolve()),
        ("Tables:", folder / "tables.{md,tex,csv}"),
        ("Figures:", folder / "figures"),
    ):
        print(f"{name:<9}{printable(path)}")  # never wrapped: to be copied
