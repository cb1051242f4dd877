"""`dtpt analyze`: dominant dimensions, sensitivity, geometry, and what depends on the image."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.files import printable
from dtpt.methods import PAPER_METHODS
from dtpt.options import EvalOptions, Methods, RunFolder
from dtpt.tables import Table

if TYPE_CHECKING:
    from dtpt.analysis import Analysis


class AnalyzeOptions(EvalOptions):
    """The options of `eval`, with the paper's methods."""

    method: Methods = PAPER_METHODS
    output: RunFolder = Path("runs/analysis")


def analyze(
    *,
    options: Annotated[
        AnalyzeOptions, flags(AnalyzeOptions, hide=("template", "shard", "fresh", "executor"))
    ],
    template: Annotated[
        list[str] | None,
        Parameter(help="Prompts with {} for the class name; several are all analysed."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compute what the paper shows beside its tables, and how much depends on the image at all.

    Zero-shot, static variants and predictions without dominant dimensions are added to the methods.
    Tables are in the paper's units; analysis.json under --output has fractions, for the report.
    """
    from dtpt.analysis.files import prepare_folder, save_analysis, to_json

    prepare_folder(options.output)
    from dtpt.analysis.study import analyse

    with resumable(options.output):
        analysis = analyse(options, templates=template or ())
    path = save_analysis(analysis, options.output)
    if as_json:
        print(to_json(analysis))
    else:
        show(*analysis_parts(analysis))
    if not options.quiet:
        print(f"Wrote {printable(path)}", file=sys.stderr)


def analysis_parts(analysis: "Analysis") -> Iterator[Table | str]:
    """Yield the tables of all data sets in the order of the paper, with headings between them."""
    from dtpt.analysis.tables import dataset_tables

    for entry in analysis.datasets:
        failures = f" ({entry.failures} could not be read)" if entry.failures else ""
        yield (
            f"\n{entry.dataset}, {analysis.model}, {entry.template!r}: {entry.classes} classes, "
            f"{entry.images} images{failures}"
        )
        yield from dataset_tables(entry)
    dispersion = analysis.dispersion
    if dispersion.pearson is not None:
        numbers = {
            "Pearson": dispersion.pearson,
            "Spearman": dispersion.spearman,
            "within data sets": dispersion.pearson_within,
        }
        texts = [f"{name} {value:+.2f}" for name, value in numbers.items() if value is not None]
        yield f"ATFD against ECE over {len(dispersion.points)} points: {', '.join(texts)}"
