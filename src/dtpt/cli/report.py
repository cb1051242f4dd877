"""`dtpt report` and `dtpt compare`: tables, figures, tests and one page from runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit, print_json, show
from dtpt.files import printable
from dtpt.options import Fraction, Resamples, Seed
from dtpt.tables import Table

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.compose import Report
    from dtpt.report.words import Paragraph

Average = Literal["datasets", "images"]
FigureKind = Literal["svg", "pdf", "png"]


def report(
    *runs: Path,
    output: Path = Path("report"),
    analysis: Path | None = None,
    intervals: bool = False,
    resamples: Resamples = 1000,
    level: Fraction = 0.95,
    seed: Seed = 0,
    data_root: Path | None = None,
    figures: list[FigureKind] | None = None,
    as_json: AsJson = False,
) -> None:
    """Make tables, figures and one self-contained page from runs.

    Writes index.html, card.md, tables.{md,tex,csv} and figures, and prints the tables in the
    paper's units; beside the paper's numbers where model and data set are the paper's.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        output: Folder for the report.
        analysis: analysis.json of `dtpt analyze`; its figures are added.
        intervals: Also give the paper's metrics intervals, for means over data sets and each set.
        resamples: Bootstrap draws of clusters of images, for confidence intervals.
        level: Probability that all intervals of differences hold.
        seed: Of the drawing.
        data_root: Where the images of the mistakes are looked for (or DTPT_DATA).
        figures: svg, pdf (with fonts, for LaTeX), png (300 dots per inch); may be repeated.
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
        figures=figures or ("svg",),
    )
    if as_json:
        print_json(written.document())
    else:
        show_report(written)


def compare(
    *runs: Path,
    against: str = "",
    average: Average = "datasets",
    level: Fraction = 0.95,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the methods of runs: which differ significantly, and by how much, paired by image.

    By the mean over the data sets of a family; clusters of images are drawn again within each set,
    and seeds are averaged. Confidence intervals are corrected for the number of comparisons. A
    temperature for TPT, and a λ where several were run, are fitted leave-one-dataset-out.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        against: Methods that all others are compared with, as in the tables' labels; by default
            zero-shot and tpt as far as they were run, else the first method.
        average: What is compared: datasets, the mean over data sets, or images, pooled over the
            images of all of them.
        level: Probability that all intervals hold.
        resamples: Bootstrap draws of clusters of images.
        seed: Of the drawing.
    """
    from dtpt.report.compare import compare as compare_runs

    names = [name.strip() for name in against.split(",") if name.strip()]
    found = compare_runs(
        *runs, against=names, average=average, level=level, resamples=resamples, seed=seed
    )
    parts: list[Table | Text | str] = [*note_texts(found.notes)]
    for title, paragraphs, tables in found.sections():
        parts += [Text(f"\n{title}", style="bold"), *verdict_texts(paragraphs), *tables]
    emit(found.document(), *parts, as_json=as_json)


def show_report(written: "WrittenReport") -> None:
    """Print verdicts, notes, the main tables, and where everything is."""
    show(*_parts(written.report))
    folder = printable(written.page.parent.resolve())
    for name in (written.page.name, written.card.name, "tables.{md,tex,csv}", "figures"):
        print(f"{folder}/{name}")  # never wrapped: to be copied


def _parts(report: "Report") -> Iterator[Table | Text | str]:
    for heading, part in report.headed:
        yield from [Text(f"\n{heading}", style="bold")] if heading else []
        yield from verdict_texts(part.paragraphs)
    yield from [f"\n{report.note}"] if report.note else []
    yield from note_texts(report.loaded.notes)
    for heading, part in report.headed:
        yield from [Text(f"\n{heading}", style="bold")] if heading else []
        yield from (*part.headline, *part.means)
    yield from report.prompt_tables


def note_texts(notes: Iterable[str]) -> Iterator[Text]:
    """Yield what readers of numbers must know."""
    yield from (Text.assemble(("Note: ", "yellow"), note) for note in notes)


def verdict_texts(paragraphs: "Iterable[Paragraph]") -> Iterator[Text]:
    """Yield verdicts, each with what it is about in bold."""
    for paragraph in paragraphs:
        words = " ".join(paragraph.sentences)
        yield Text.assemble((f"\n{paragraph.where}. ", "bold"), words)
