"""`dtpt analyze`: dominant dimensions, sensitivity, geometry, and what depends on the image."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dtpt.cli.eval import FIRST
from dtpt.cli.flags import AsJson, Flags, flags_of
from dtpt.methods import PAPER_METHODS
from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.analysis import Analysis


app = App(
    name="analyze",
    help="Compute what the paper shows beside its tables, and how much depends on the image.",
)
app.command("dtpt.cli.analyze_basis:basis", name="basis")
app.command("dtpt.cli.analyze_controls:controls", name="controls")
app.command("dtpt.cli.analyze_views:views", name="views")
app.command("dtpt.cli.analyze_regularisers:regularisers", name="regularisers")


@flags_of(
    EvalOptions,
    first=FIRST,
    leave_out=("template", "shard", "fresh", "engine"),
    defaults={"method": PAPER_METHODS, "output": Path("runs/analysis")},
)
class AnalyzeFlags(Flags):
    """The options of `eval` that an analysis takes, and several templates."""

    templates: Annotated[
        list[str] | None,
        Parameter(
            "--template",
            consume_multiple=True,
            negative=(),
            help="Prompts with {} for the class name; several are all analysed.",
        ),
    ] = None


@app.default
def analyze(*, flags: AnalyzeFlags | None = None, as_json: AsJson = False) -> None:
    """Compute what the paper shows beside its tables, and how much depends on the image at all.

    Zero-shot, static variants and predictions without dominant dimensions are added to the methods.
    Tables are in the paper's units; analysis.json under --output has fractions, for the report.

    Args:
        flags: The options.
        as_json: Print the whole analysis as JSON.
    """
    given = flags or AnalyzeFlags()
    options = given.options(EvalOptions)
    from dtpt.analysis.files import prepare_folder, save_analysis, to_json

    prepare_folder(options.output)
    from dtpt.analysis.study import analyse

    analysis = analyse(options, templates=given.templates or ())
    path = save_analysis(analysis, options.output)
    if as_json:
        print(to_json(analysis))
    else:
        show(analysis)
    if not options.quiet:
        print(f"Wrote {path}", file=sys.stderr)


def show(analysis: "Analysis") -> None:
    """Print every table of the analysis."""
    from dtpt.cli.analyze_tables import closing_lines, dataset_tables
    from dtpt.cli.output import wide_console
    from dtpt.cli.study_output import headline

    console = wide_console()
    for entry in analysis.datasets:
        console.print(
            "\n"
            + headline(
                entry.dataset,
                f", {analysis.model}, {entry.template!r}: {entry.classes} classes, "
                f"{entry.images} images"
                + (f" ({entry.failures} could not be read)" if entry.failures else ""),
            ),
            highlight=False,
        )
        for table in dataset_tables(entry):
            console.print(table)
    for line in closing_lines(analysis):
        console.print(line, highlight=False)
