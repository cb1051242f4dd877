"""`dtpt reproduce`: one table or figure of the paper, run and printed beside it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.completion import offer_targets
from dtpt.cli.flags import Flags, Switch, flags_of
from dtpt.runs.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.report.paper.targets import MissingInputs, PlannedRun, Target

# what narrows a target down comes first in the help
FIRST = ("model", "dataset", "method", "seed", "views", "limit", "data_root", "output", "context")


@flags_of(
    EvalOptions,
    first=FIRST,
    leave_out=("lambda_", "template", "shard", "fresh"),
    defaults=dict.fromkeys(("model", "method", "seed", "views"))  # the target's
    | {"output": Path("runs/reproduce")},
)
class ReproduceFlags(Flags):
    """The options of `eval`, to do a part of a target or do it otherwise."""

    dry_run: Annotated[
        Switch, Parameter(help="Only say what would be run and what it would cost.")
    ] = None


def reproduce(
    target: Annotated[str, Parameter(completer=offer_targets)],
    *,
    flags: ReproduceFlags | None = None,
) -> None:
    """Run what one table or figure of the paper needs, and print it beside the paper's numbers.

    Where data or weights are missing it says which, where they are expected, and what the run would
    cost; the same command again resumes. --model, --dataset, --method and --seed do a part of the
    target; with other --views or a --limit nothing is compared with the paper.

    Args:
        target: table1 to table7, or fig1 to fig7.
        flags: The options.
    """
    from dtpt.report.paper.targets import find_missing, find_target, narrowed

    given = flags or ReproduceFlags()
    options = _common_options(given)
    named = given.given(EvalOptions.model_fields)
    found = narrowed(
        find_target(target),
        model=options.model if "model" in named else None,
        datasets=options.dataset if "dataset" in named else (),
    )
    print(found.title)
    if found.note:
        print(found.note)
    if found.kind == "drawing":
        return
    missing = find_missing(found, options.data_root)
    if missing or given.dry_run:
        _explain(found, missing, context=options.context)
        sys.exit(2 if missing else 0)
    folder = options.output / target
    planned = [
        _options(given, run, folder=folder)
        for run in found.runs
        if not run.needs_context or options.context is not None
    ]
    if found.kind == "analysis":
        _analyse(planned, folder)
    else:
        _evaluate(planned, folder)


def _common_options(flags: ReproduceFlags) -> EvalOptions:
    """Check what was given, before anything else is done; the target knows the rest."""
    given = flags.given(EvalOptions.model_fields)
    defaults = {"dataset": ("all",), "output": Path("runs/reproduce")}
    return EvalOptions.layered(given, config=flags.config, defaults=defaults)


def _options(flags: ReproduceFlags, run: "PlannedRun", *, folder: Path) -> EvalOptions:
    """Return one run of the target, with what was given instead of what was planned."""
    given = flags.given(EvalOptions.model_fields)
    planned = {
        "method": run.methods,
        "seed": run.seeds,
        "views": run.views,
        "template": run.template,
        **given,
        "model": run.model,
        "dataset": run.datasets,
        "context": given.get("context") if run.needs_context else None,
        "output": folder / run.name,
    }
    return EvalOptions.layered(planned, config=flags.config)


def _explain(target: "Target", missing: "MissingInputs", *, context: Path | None) -> None:
    """Say what is missing and what the target would cost, measured here and now."""
    from dtpt.report.paper.cost import duration_text, estimate, measure_speed, total

    for name in missing.models:
        print(f"Missing weights: {name}. Fetch them with: dtpt models fetch {name}")
    for summary, places in missing.datasets:
        print(
            f"Missing data: {summary.name} ({summary.title}, {summary.images:,} pictures, "
            f"{summary.classes:,} classes); expected at {' or '.join(places)}"
        )
    if any(run.needs_context for run in target.runs) and context is None:
        print("Missing context: the CoOp rows need --context FILE.")
    print("Measuring this machine with random weights ...", flush=True)
    costs = []
    for run in target.runs:
        speed = measure_speed(run.model)
        cost = estimate(run, speed)
        costs.append(cost)
        print(
            f"{run.model}, {len(run.datasets)} data sets, {len(run.methods)} methods, seeds "
            f"{','.join(map(str, run.seeds))}: {cost.pictures:,} pictures (times seeds), about "
            f"{duration_text(cost.seconds)} here "
            f"({1000 * run.views * (speed.view + speed.encode):.0f} ms per picture for "
            f"{run.views} views, {1000 * speed.text:.2f} ms per class and method)"
        )
    everything = total(costs)
    print(
        f"In all: {everything.pictures:,} pictures, about {duration_text(everything.seconds)} on "
        "this machine. --shard in `dtpt eval` divides it among machines."
    )


def _evaluate(options: Sequence[EvalOptions], folder: Path) -> None:
    from dtpt.cli.output import wide_console
    from dtpt.cli.report import show_report
    from dtpt.report import write_report
    from dtpt.report.tables.terminal import terminal_table
    from dtpt.runs import evaluate

    for entry in options:
        print(f"Running {entry.model} into {entry.output} (the same command again resumes)")
        evaluate(entry).close()
    folders = [entry.output for entry in options]
    written = write_report(folders, folder / "report", data_root=options[0].data_root)
    show_report(written)
    console = wide_console()
    for part in written.report.parts:
        for _, tables in part.sets:
            for table in tables:
                console.print(terminal_table(table))


def _analyse(options: Sequence[EvalOptions], folder: Path) -> None:
    from dtpt.analysis import save_analysis
    from dtpt.analysis.study import analyse
    from dtpt.cli.analyze import show
    from dtpt.files import write_atomically
    from dtpt.report.figures.analysis_figures import analysis_figures

    for entry in options:
        analysis = analyse(entry)
        print(f"Wrote {save_analysis(analysis, entry.output)}")
        show(analysis)
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for figure in analysis_figures(analysis):
            path = folder / "figures" / f"{figure.key}.svg"
            write_atomically(path, figure.svg.encode())
            print(f"Wrote {path}")
