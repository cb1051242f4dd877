"""`dtpt report`: tables, figures and one page from runs."""

from pathlib import Path


def report(
    *runs: Path,
    output: Path = Path("report"),
    analysis: Path | None = None,
    bootstrap: int = 0,
    data_root: Path | None = None,
) -> None:
    """Make tables, figures and one self-contained page from runs.

    Writes index.html, card.md, tables.{md,tex,csv} and figures/*.svg, and prints the tables in the
    paper's units; beside the paper's numbers where model and data set are the paper's.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        output: Folder for the report.
        analysis: analysis.json of `dtpt analyze`; its figures are added.
        bootstrap: Resamples for 95 % confidence intervals; 0 for none.
        data_root: Where the pictures of the mistakes are looked for (or DTPT_DATA).
    """
    from dtpt.report import write_report
    from dtpt.report.printing import print_report

    written = write_report(
        list(runs), output, analysis=analysis, bootstrap=bootstrap, data_root=data_root
    )
    print_report(written)
