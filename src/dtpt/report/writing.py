"""Write a report: page, card, tables and figures into one folder, each file atomically."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtpt.analysis.files import load_analysis
from dtpt.errors import ReportError, os_error
from dtpt.files import write_atomically
from dtpt.report.comparison import Resampling
from dtpt.report.composing import Report, compose
from dtpt.report.derived_rows import FittedElsewhere, with_derived_rows
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.gathering import gather
from dtpt.report.page import render_page, run_card
from dtpt.report.recorded.schema import Record
from dtpt.report.tables import csv_text, latex, markdown


@dataclass(frozen=True)
class WrittenReport:
    """Where a report was written, and what it says.

    Attributes:
        page: The HTML page.
        card: The Markdown card.
        files: Everything written, page and card included.
        report: The report as data.
    """

    page: Path
    card: Path
    files: tuple[Path, ...]
    report: Report


def write_report(
    runs: Sequence[Path | str],
    output: Path | str,
    *,
    analysis: Path | str | None = None,
    extra: Sequence[CaptionedFigure] = (),
    resampling: Resampling | None = None,
    intervals: bool = False,
    fitted: FittedElsewhere | None = None,
    data_root: Path | None = None,
    title: str = "",
    note: str = "",
    recorded: Record | None = None,
) -> WrittenReport:
    """Make the report of some runs.

    Args:
        runs: Run folders, folders of shards, or SQLite files.
        output: Folder for the report; made when missing.
        analysis: File (or folder) of `dtpt analyze`.
        extra: Further figures, shown first.
        resampling: How differences are judged.
        intervals: Whether tables of means have intervals too.
        fitted: Temperatures and weights from another run; fitted on these runs when not given.
        data_root: Where the pictures of mistakes are looked for; `$DTPT_DATA` when not given.
        title: Headline; made from models and sets when empty.
        note: What the reader must know about the verdict.
        recorded: A run shown beneath this one.

    Raises:
        ReportError: Runs that must not be put together, nothing to report, or no way to write.
    """
    found = load_analysis(analysis) if analysis is not None else None
    folder = Path(output)
    with gather(runs) as gathered:
        report = compose(
            with_derived_rows(gathered, fitted),
            output=folder,
            analysis=found,
            extra=extra,
            resampling=resampling,
            intervals=intervals,
            data_root=data_root,
            title=title,
            note=note,
            recorded=recorded,
        )
    files = _files(report)
    paths = [_save(folder / name, data) for name, data in files.items()]
    return WrittenReport(folder / "index.html", folder / "card.md", tuple(paths), report)


def _files(report: Report) -> dict[str, bytes]:
    """Return every file of the report by its name."""
    tables = report.tables
    files = {
        "index.html": render_page(report).encode(),
        "card.md": run_card(report).encode(),
        "tables.md": "\n".join(markdown(table) for table in tables).encode(),
        "tables.tex": "\n".join(latex(table) for table in tables).encode(),
        "tables.csv": csv_text(tables).encode(),
    }
    pictures = [figure for part in report.parts for figure in part.pictures]
    drawn = [*pictures, *report.figures, *report.coverage_figures, *report.analysis_figures]
    for figure in drawn:
        files[f"figures/{figure.key}.svg"] = figure.svg.encode()
    return files


def _save(path: Path, data: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path
