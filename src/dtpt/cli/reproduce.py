"""`dtpt reproduce`: one table or figure of the paper, run and printed beside it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from dtpt.report.reproduction import Missing, PlannedRun, Target
    from dtpt.runs import EvalOptions


def reproduce(
    target: str,
    *,
    data_root: Path | None = None,
    output: Path = Path("runs/reproduce"),
    context: Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Run what one table or figure of the paper needs, and print it beside the paper's numbers.

    Where data or weights are missing it says which, where they are expected, and what the run would
    cost; the same command again resumes.

    Args:
        target: table1 to table7, or fig1 to fig7.
        data_root: Folder that holds the paper's data sets (or DTPT_DATA).
        output: Folder for the runs and the report.
        context: CoOp's trained context, for table3.
        limit: Evaluate that many samples of each set only; not compared with the paper.
        device: auto, cpu, cuda, cuda:1, mps.
        workers: Processes that decode images and make views.
        dry_run: Only say what would be run and what it would cost.
    """
    from dtpt.report.reproduction import find_missing, find_target

    found = find_target(target)
    print(found.title)
    if found.note:
        print(found.note)
    if found.kind == "drawing":
        return
    missing = find_missing(found, data_root)
    if missing or dry_run:
        _explain(found, missing, context)
        sys.exit(2 if missing else 0)
    folder = output / target
    options = [
        _options(run, folder, data_root, context, limit, device, workers)
        for run in found.runs
        if not run.needs_context or context is not None
    ]
    if found.kind == "analysis":
        _analyse(options, folder)
    else:
        _evaluate(options, folder, data_root)


def _explain(target: "Target", missing: "Missing", context: Path | None) -> None:
    """Say what is missing and what the target would cost, measured here and now."""
    from dtpt.report.cost import duration_text, estimate, measure_speed, total

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


def _options(
    run: "PlannedRun",
    folder: Path,
    data_root: Path | None,
    context: Path | None,
    limit: int | None,
    device: str,
    workers: int | None,
) -> "EvalOptions":
    from dtpt.cli.eval import automatic_workers
    from dtpt.runs import EvalOptions

    return EvalOptions(
        model=run.model,
        dataset=run.datasets,
        method=run.methods,
        seed=run.seeds,
        views=run.views,
        template=run.template,
        context=context if run.needs_context else None,
        limit=limit,
        output=folder / run.name,
        data_root=data_root,
        device=device,
        workers=automatic_workers() if workers is None else workers,
    )


def _evaluate(options: "list[EvalOptions]", folder: Path, data_root: Path | None) -> None:
    from dtpt.report import write_report
    from dtpt.report.printing import print_report, print_table
    from dtpt.runs import evaluate

    for entry in options:
        print(f"Running {entry.model} into {entry.output} (the same command again resumes)")
        evaluate(entry).close()
    folders = [entry.output for entry in options]
    written = write_report(folders, folder / "report", data_root=data_root)
    print_report(written)
    for block in written.content.blocks:
        for _, tables in block.sets:
            for table in tables:
                print_table(table)


def _analyse(options: "list[EvalOptions]", folder: Path) -> None:
    from dtpt.analysis import save_analysis
    from dtpt.analysis.study import analyse
    from dtpt.cli.analyze import show
    from dtpt.files import write_atomically
    from dtpt.report.drawing import analysis_drawings

    for entry in options:
        analysis = analyse(entry)
        print(f"Wrote {save_analysis(analysis, entry.output)}")
        show(analysis)
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for drawing in analysis_drawings(analysis):
            path = folder / "figures" / f"{drawing.key}.svg"
            write_atomically(path, drawing.svg.encode())
            print(f"Wrote {path}")
