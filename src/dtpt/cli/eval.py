"""`dtpt eval`: evaluate methods on data sets, resumably."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.exits import PARTLY
from dtpt.cli.flags import AsJson, Flags, Switch, flags_of
from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dtpt.runs import MethodResult, Run

# what people look for first in the help
FIRST = ("model", "dataset", "method", "lambda_", "seed", "limit", "output", "views", "template")


@flags_of(EvalOptions, first=FIRST)
class EvalFlags(Flags):
    """The options of `eval` and `sweep`."""

    plan: Annotated[
        Switch,
        Parameter(help="Only say how a run on a cluster (--engine ray) would be divided."),
    ] = None


def evaluate_command(*, flags: EvalFlags | None = None, as_json: AsJson = False) -> None:
    """Evaluate methods on data sets.

    Results are stored row by row under --output; the same command again continues where it was.
    The table is in the paper's units, results.json (and --json) in fractions. Options can also
    stand in the environment (DTPT_VIEWS=32) and in a TOML file. Exit code 1: pictures could not be
    read, and the others are in the results.

    Args:
        flags: The options.
        as_json: Print the content of results.json, or the plan.
    """
    given = flags or EvalFlags()
    options = given.options(EvalOptions)
    if given.plan:
        from dtpt.cli.cluster_plan import show_plan

        show_plan(options, as_json=as_json)
    else:
        run_and_show(options, as_json=as_json)


def run_and_show(options: EvalOptions, *, as_json: bool) -> None:
    """Evaluate, export and print; Ctrl-C and SIGTERM end with the command that resumes."""
    from dtpt.runs import evaluate
    from dtpt.runs.interrupts import EXIT_CODES, resume_command, terminable

    try:
        with terminable(), evaluate(options) as run:
            show(run, as_json=as_json, quiet=options.quiet)
            is_partly_done = bool(run.failures())
    except KeyboardInterrupt as interruption:
        print(
            f"\nInterrupted; every finished image is stored in {options.output}. "
            f"Resume with:\n  {resume_command()}",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODES.get(type(interruption), 130))
    if is_partly_done:
        sys.exit(PARTLY)


def show(run: "Run", *, as_json: bool, quiet: bool) -> None:
    """Write the derived files of a whole run and print its table, or results.json's content."""
    from dtpt.runs import export, results_of, score_methods
    from dtpt.runs.shards import MAIN_STORE

    scores = score_methods(run)
    if as_json:
        print(results_of(run, scores).to_json(), end="")
    else:
        print_table(run, scores)
    _tell_failures(run)
    if run.path.name == MAIN_STORE:
        written = export(run, run.path.parent, scores=scores)
        if not quiet:
            print(f"Wrote {', '.join(str(path) for path in written)}", file=sys.stderr)
    elif not quiet:
        print(f"Join the shards with: dtpt merge {run.path.parent}", file=sys.stderr)


def _tell_failures(run: "Run") -> None:
    failures = run.failures()
    if failures:
        first = failures[0]
        print(
            f"{len(failures)} images could not be read and are not in the metrics, "
            f"first {first.sample}: {first.reason}",
            file=sys.stderr,
        )


def print_table(run: "Run", results: "Sequence[MethodResult]") -> None:
    """Print mean ± standard deviation over seeds, in the paper's units.

    Where names and numbers do not fit beside each other, every data set has a table of its own.
    """
    from dtpt.cli.output import fits, fitting_tables, wide_console
    from dtpt.metrics import metrics_with

    metrics = metrics_with("paper")
    heads = ["data set", "method", *(metric.title for metric in metrics), "images"]
    rows = []
    for result in results:
        numbers = [_cell(result, metric.key, factor=metric.factor) for metric in metrics]
        images = _images(result, run.spec.dataset(result.dataset).whole)
        rows.append([result.dataset, _label(result), *numbers, images])
    seeds = ",".join(str(seed) for seed in run.spec.seeds)
    title = f"{run.spec.model.name}, seeds {seeds}, {run.spec.template!r}"
    console = wide_console()
    if fits(heads, rows, width=console.width):
        previous = ["", *(row[0] for row in rows)]
        shown = [
            [row[0] * (row[0] != before), *row[1:]]
            for row, before in zip(rows, previous, strict=False)
        ]
        for table in fitting_tables(heads, shown, width=console.width, title=title):
            console.print(table)
        return
    console.print(title, markup=False, highlight=False, style="italic")
    for name in dict.fromkeys(row[0] for row in rows):
        print(name)  # never wrapped: to be copied
        mine = [row[1:] for row in rows if row[0] == name]
        for table in fitting_tables(heads[1:], mine, width=console.width):
            console.print(table)


def _label(result: "MethodResult") -> str:
    """Name a method, with the λ that were found for it."""
    found = result.weights.values()
    if not found:
        return result.label
    ends = dict.fromkeys(f"{weight:.4g}" for weight in (min(found), max(found)))
    return f"{result.label} (λ {' to '.join(ends)})"


def _cell(result: "MethodResult", metric: str, *, factor: float) -> str:
    if not result.mean:
        return "—"
    spread = f" ±{result.std[metric] * factor:.2f}" if result.std else ""
    return f"{result.mean[metric] * factor:.2f}{spread}"


def _images(result: "MethodResult", whole: int | None) -> str:
    """Say how many pictures are behind a number, and of how many."""
    effective = min(seed.effective for seed in result.seeds.values())
    expected = max(seed.expected for seed in result.seeds.values())
    of = max(expected, whole or 0)
    return f"{effective:,}" if effective == of else f"{effective:,} of {of:,}"
