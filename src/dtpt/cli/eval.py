"""`dtpt eval`, `sweep`, `merge` and `export`: runs are made, joined and written out."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dtpt.cli.exits import PARTIAL, resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import emit, show
from dtpt.errors import OptionError
from dtpt.files import printable
from dtpt.methods import PAPER_METHODS
from dtpt.options import EvalOptions, Methods
from dtpt.tables import text_table

if TYPE_CHECKING:
    from dtpt.runs import Run


class SweepOptions(EvalOptions):
    """The options of `eval`, with the paper's methods."""

    method: Methods = PAPER_METHODS


def evaluate(
    *,
    options: Annotated[EvalOptions, flags(EvalOptions)],
    plan: bool = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate methods on data sets.

    Results are stored row by row under --output; the same command again resumes. The table is in
    the paper's units, results.json (and --json) in fractions. Options can also be set by
    environment variables (DTPT_VIEWS=32) and in a TOML file. Exit code 1: images could not be
    read, and the others are in the results.

    Args:
        plan: Only show how a run on a cluster (--executor ray) would be divided.
    """
    if plan:
        _show_plan(options, as_json=as_json)
    else:
        run_and_show(options, as_json=as_json)


def sweep(
    *,
    options: Annotated[SweepOptions, flags(SweepOptions)],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a grid of λ for every regularised method, sharing all other work.

    Without --lambda each method has a grid around its default. Zero-shot and TPT are the anchors.
    The options are those of `dtpt eval`.
    """
    run_and_show(with_grids(options), as_json=as_json)


def with_grids(options: EvalOptions) -> EvalOptions:
    """Write every λ of the grid into the method names; a method with its own `@` keeps it."""
    from dtpt.methods import find_method, parse_label

    if options.lambda_:
        return options
    methods = []
    for name in options.method:
        parsed = parse_label(name)
        grid = () if parsed.rule else find_method(parsed.base).sweep
        methods += [str(parsed.with_lambda(value)) for value in grid] or [name]
    return options.model_copy(update={"method": tuple(methods)})


def merge(folder: Path, /, *more: Path, partial: bool = False, as_json: AsJson = False) -> None:
    """Merge the shards of a run into its run.sqlite, write the exports and print the table.

    The shards must have the same configuration, and rows that two of them hold must be equal.

    Args:
        folder: The run's folder (its --output).
        more: None: several runs are combined by compare, report and publish.
        partial: Merge even if rows are missing.
    """
    from dtpt.runs import merge as merge_shards
    from dtpt.runs.spec import COMBINE

    if more:
        raise OptionError(f"dtpt merge joins the shards of one run, in one folder. {COMBINE}")
    with merge_shards(folder, partial=partial) as run:
        show_run(run, as_json=as_json)


def export(
    folder: Path,
    /,
    *,
    format: list[str] | None = None,
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Write files derived from a run: results.json, samples, or clip_benchmark's JSON.

    Args:
        folder: The run's folder.
        format: results, jsonl, parquet, clip-benchmark; several may be given (default: results and
            jsonl).
        output: Folder for the files; the run's own when not given.
    """
    from dtpt.runs import export as export_files
    from dtpt.runs import open_run

    formats = [part.strip() for text in format or ["results,jsonl"] for part in text.split(",")]
    with open_run(folder) as run:
        written = export_files(run, output or run.path.parent, formats=tuple(formats))
        if text := run.unfinished(*run.cells):
            print(f"note: {text}", file=sys.stderr)
    emit(written, *map(printable, written), as_json=as_json)


def run_and_show(options: EvalOptions, *, as_json: bool) -> None:
    from dtpt.runs import run_options

    with resumable(options.output), run_options(options) as run:
        show_run(run, as_json=as_json, quiet=options.quiet)
        is_partial = bool(run.failures())
    if is_partial:
        sys.exit(PARTIAL)


def show_run(run: "Run", *, as_json: bool, quiet: bool = False) -> None:
    """Write the derived files of a whole run and print its table, or results.json's content."""
    from dtpt.runs import export as export_files
    from dtpt.runs import results_of, score_methods
    from dtpt.runs.results import result_table
    from dtpt.runs.shards import MAIN_STORE

    scores, failures = score_methods(run), run.failures()
    if as_json:
        print(results_of(run, scores).to_json(), end="")
    else:
        show(result_table(run, scores))
    if failures:
        text = f"{len(failures)} images could not be read and are not in the metrics, first"
        print(f"{text} {failures[0].sample}: {failures[0].reason}", file=sys.stderr)
    if run.path.name == MAIN_STORE:
        written = export_files(run, run.path.parent, scores=scores)
        note = f"Wrote {', '.join(map(printable, written))}"
    else:
        note = f"Merge the shards with: dtpt merge {printable(run.path.parent)}"
    if not quiet:
        print(note, file=sys.stderr)


def _show_plan(options: EvalOptions, *, as_json: bool) -> None:
    from dtpt.runs.cluster import plan_cluster
    from dtpt.runs.progress import Reporter, format_seconds

    if options.executor == "local":
        raise OptionError("--plan divides a run among the nodes of a cluster: add --executor ray.")
    plan = plan_cluster(options, reporter=Reporter())
    records = [asdict(node) for node in plan.nodes]
    emit(
        plan,
        text_table(
            f"{plan.images:,} images in chunks of {plan.chunk}",
            [name.replace("_", " ") for name in records[0]],
            rows=[
                [
                    f"{value:.3g}" if isinstance(value, float) else str(value)
                    for value in row.values()
                ]
                for row in records
            ],
        ),
        *plan.refusals,
        f"About {format_seconds(plan.seconds)} once all workers have started.",
        as_json=as_json,
    )
