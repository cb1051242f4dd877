"""`dtpt analyze`: dominant dimensions, sensitivity, geometry, and what depends on the image."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.eval import automatic_workers
from dtpt.cli.flags import Switch, Words

if TYPE_CHECKING:
    from dtpt.analysis import Analysis
    from dtpt.runs import EvalOptions

DEFAULTS = {
    "method": ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt"),
    "output": Path("runs/analysis"),
}


@Parameter(name="*")
@dataclass(frozen=True)
class AnalyzeFlags:
    """Options of `analyze`; what is not given comes from DTPT_* variables or --config.

    Attributes:
        model: Model name; `dtpt models` lists them.
        dataset: Data sets or groups, comma-separated; `dtpt datasets` lists them.
        method: Methods, comma-separated (default: the paper's five). Zero-shot, static variants
            and predictions without dominant dimensions are added.
        lambda_: Weights for all regularised methods without their own @lambda.
        template: Prompts with {} for the class name; several are all analysed.
        seed: Seed of the views (default 0).
        views: Views per image, the original included (default 64).
        limit: Analyse that many samples of each data set.
        presentation: Kind of picture (emoji data sets only).
        output: Folder of analysis.json (default runs/analysis).
        data_root: Folder that holds the data sets (or DTPT_DATA).
        workers: Processes that decode images and make views; 0 for none.
        threads: torch threads (default: OMP_NUM_THREADS, else all cores).
        device: auto, cpu, cuda, cuda:1, mps.
        max_failures: Share of unreadable images at which the analysis stops (default 0.01).
        no_cache: Neither read nor write the cache of view features.
        config: TOML file with options.
        quiet: Show no progress.
    """

    model: str | None = None
    dataset: Words = None
    method: Words = None
    lambda_: Annotated[list[str] | None, Parameter("--lambda", consume_multiple=True)] = None
    template: Words = None
    seed: int | None = None
    views: int | None = None
    limit: int | None = None
    presentation: str | None = None
    output: Path | None = None
    data_root: Path | None = None
    workers: int | None = None
    threads: int | None = None
    device: str | None = None
    max_failures: float | None = None
    no_cache: Switch = None
    config: Path | None = None
    quiet: Switch = None

    def options(self) -> "EvalOptions":
        """Put command line, environment, file and defaults together."""
        from dtpt.runs import EvalOptions

        given = {k: v for k, v in asdict(self).items() if k not in ("config", "template")}
        if given.pop("no_cache"):
            given["cache"] = False
        if self.template:
            given["template"] = self.template[0]
        fallback = {"workers": automatic_workers(), **DEFAULTS}
        return EvalOptions.layered(given, config=self.config, table="eval", defaults=fallback)


def analyze(
    flags: AnalyzeFlags | None = None,
    *,
    json_: Annotated[bool, Parameter(name="--json", help="Print analysis.json instead.")] = False,
) -> None:
    """Compute what the paper shows beside its tables, and how much depends on the image at all.

    Tables are in the paper's units; analysis.json under --output has fractions, for the report.

    Args:
        flags: The options.
        json_: Print the whole analysis as JSON.
    """
    given = flags or AnalyzeFlags()
    options = given.options()
    from dtpt.analysis.files import prepare_folder, save_analysis, to_json

    prepare_folder(options.output)
    from dtpt.analysis.study import analyse

    analysis = analyse(options, templates=given.template or ())
    path = save_analysis(analysis, options.output)
    if json_:
        print(to_json(analysis))
    else:
        show(analysis)
    if not options.quiet:
        print(f"Wrote {path}", file=sys.stderr)


def show(analysis: "Analysis") -> None:
    """Print every table of the analysis."""
    from rich.console import Console

    from dtpt.cli.analyze_tables import closing_lines, dataset_tables

    console = Console(width=None if sys.stdout.isatty() else 120)
    for entry in analysis.datasets:
        console.print(
            f"\n[bold]{entry.dataset}[/bold], {analysis.model}, {entry.template!r}: "
            f"{entry.classes} classes, {entry.images} images"
            + (f" ({entry.failures} could not be read)" if entry.failures else ""),
            highlight=False,
        )
        for table in dataset_tables(entry):
            console.print(table)
    for line in closing_lines(analysis):
        console.print(line, highlight=False)
