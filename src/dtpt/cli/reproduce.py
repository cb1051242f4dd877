"""`dtpt reproduce`: a table or figure of the paper, or a part of it, printed beside the paper's."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from dtpt.cli.completion import offer_targets
from dtpt.cli.exits import FAILED, PARTIAL, resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.reproduce_runs import part_folder, part_options, stored_runs, target_folder
from dtpt.options import Datasets, EvalOptions, RunFolder

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.paper.targets import MissingInputs, Target

HIDDEN = ("lambda_", "template", "shard", "fresh")
OF_TARGET = dict.fromkeys(("model", "method", "seed", "views"), "the target's")


class ReproduceOptions(EvalOptions):
    """The options of `eval`, to do a part of a target or do it otherwise, and its own."""

    dataset: Datasets = ("all",)
    output: RunFolder = Path("runs/reproduce")
    partial: Annotated[
        bool, Field(description="Do what can be done with the weights and images that are here.")
    ] = False
    floors: Annotated[
        bool, Field(description="Only show how much of the paper's ECE is chance at its sizes.")
    ] = False
    dry_run: Annotated[
        bool, Field(description="Only show what is missing and what the target would cost.")
    ] = False


def reproduce(
    target: Annotated[
        str, Parameter(completer=offer_targets, help="table1 to table7, or fig1 to fig7.")
    ],
    /,
    *,
    options: Annotated[
        ReproduceOptions, flags(ReproduceOptions, hide=HIDDEN, defaults=OF_TARGET)
    ] = ReproduceOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run what one table or figure of the paper needs, and print it beside the paper's numbers.

    --model, --dataset, --method and --seed do a part of it; what was done before is in the same
    tables, and the same command again resumes. With other --views, other settings of the
    tuning or a --limit nothing is compared with the paper. Exit code 1: a part was done, and the
    rest is named; 2: weights or data are missing and nothing was done.
    """
    from dtpt.cli.reproduce_floors import show_floors
    from dtpt.report.paper.targets import available, find_missing, find_target, narrowed

    given = options.given()
    whole = find_target(target)
    part = narrowed(
        whole,
        model=given.get("model"),
        datasets=given.get("dataset", ()),
        methods=given.get("method", ()),
    )
    if options.floors:
        show_floors(part, as_json=as_json)
        return
    missing = find_missing(part, options.data_root, context=options.context)
    ready = available(part, missing)
    if not as_json:
        print("\n".join(filter(None, (part.title, part.note))))
    if options.dry_run or (missing and not (options.partial and ready.runs)):
        _explain(part, missing, as_json=as_json)
        sys.exit(FAILED if missing else 0)
    if part.kind == "analysis":
        _analyse(options, ready, folder=options.output / target, as_json=as_json)
        failures = 0
    else:
        failures = _evaluate(options, ready, whole=whole, missing=missing, as_json=as_json)
    if not as_json:
        print("\n".join(missing_lines(missing)), end="\n" if missing or missing.context else "")
    if missing or missing.context or failures:
        sys.exit(PARTIAL)


def missing_lines(missing: "MissingInputs") -> list[str]:
    """Say what is missing, where it is expected and how to get it."""
    lines = [
        f"Missing weights: {name}. Fetch them with: dtpt models fetch {name}"
        for name in missing.models
    ]
    for summary, places in missing.datasets:
        lines.append(
            f"Missing data: {summary.name} ({summary.title}, {summary.images:,} pictures, "
            f"{summary.classes:,} classes); expected at {' or '.join(places)}"
        )
    if missing.context:
        lines.append("Missing context: the CoOp rows need --context FILE.")
    return lines


def missing_document(missing: "MissingInputs") -> dict[str, Any]:
    """Return the same for `--json`."""
    sets = [{**asdict(summary), "expected_at": places} for summary, places in missing.datasets]
    return {"models": missing.models, "datasets": sets, "context": missing.context}


def _explain(target: "Target", missing: "MissingInputs", *, as_json: bool) -> None:
    """Say what is missing and what the target would cost, measured here and now."""
    from dtpt.report.paper.cost import Cost, duration_text, estimate, measure_speed, total

    if not as_json:
        print(
            "\n".join([*missing_lines(missing), "Measuring this machine with random weights ..."])
        )
    costs: list[Cost] = []
    for run in target.runs:
        speed = measure_speed(run.model)
        cost = estimate(run, speed)
        costs.append(cost)
        if not as_json:
            print(
                f"{run.model}, {len(run.datasets)} data sets, {len(run.methods)} methods, seeds "
                f"{','.join(map(str, run.seeds))}: {cost.pictures:,} pictures (times seeds), about "
                f"{duration_text(cost.seconds)} here "
                f"({1000 * run.views * (speed.view + speed.encode):.0f} ms per picture for "
                f"{run.views} views, {1000 * speed.text:.2f} ms per class and method)"
            )
    everything = total(costs)
    if as_json:
        _print_json(target, missing, {"cost": asdict(everything)})
        return
    print(
        f"In all: {everything.pictures:,} pictures, about {duration_text(everything.seconds)} on "
        "this machine. --shard in `dtpt eval` divides it among machines."
    )
    if missing:
        print("--partial does what can be done with what is here.")


def _evaluate(
    options: ReproduceOptions,
    ready: "Target",
    *,
    whole: "Target",
    missing: "MissingInputs",
    as_json: bool,
) -> int:
    """Run what can be run, print every cell that exists; return how many images failed."""
    from dtpt.cli.report import report_document
    from dtpt.report import write_report

    folder, parts = _parts(options, ready, whole=whole)
    failures = _run(parts)
    runs = stored_runs(folder, whole)
    if not runs:  # a drawing, for which there is nothing to run
        if as_json:
            _print_json(whole, missing, {})
        return 0
    written = write_report(runs, folder / "report", data_root=options.data_root)
    if as_json:
        _print_json(whole, missing, report_document(written))
    else:
        _show(written)
    return failures


def _parts(
    common: ReproduceOptions, ready: "Target", *, whole: "Target"
) -> tuple[Path, list[EvalOptions]]:
    """Return the target's folder and its parts; all data sets are looked at before any work."""
    from dtpt.data import load_dataset

    folder, parts = common.output / whole.name, []
    for run in ready.runs:
        for name in run.datasets:
            data = load_dataset(name, data_root=common.data_root, partial=common.partial)
            planned = part_options(common, run, datasets=(name,))
            options = planned.model_copy(update={"partial": data.is_partial})
            folder = target_folder(common.output, whole, options=options)
            place = part_folder(folder, whole, run=run, options=options)
            parts.append(options.model_copy(update={"output": place}))
    return folder, parts


def _run(parts: Sequence[EvalOptions]) -> int:
    """Evaluate the parts one after the other; return how many images could not be read."""
    from dtpt.runs import evaluate

    failures = 0
    for options in parts:
        where = f"{options.model}, {options.dataset[0]}, into {options.output}"
        print(f"Running {where}", file=sys.stderr)
        with resumable(options.output), evaluate(options) as run:
            failures += len(run.failures())
    return failures


def _show(written: "WrittenReport") -> None:
    from dtpt.cli.output import wide_console
    from dtpt.cli.report import show_report
    from dtpt.report.tables.terminal import terminal_table

    show_report(written)
    console = wide_console()
    for part in written.report.parts:
        for _, tables in part.sets:
            for table in tables:
                console.print(terminal_table(table))


def _analyse(options: ReproduceOptions, ready: "Target", *, folder: Path, as_json: bool) -> None:
    from dtpt.analysis import save_analysis
    from dtpt.analysis.files import to_json
    from dtpt.analysis.study import analyse
    from dtpt.cli.analyze import analysis_parts
    from dtpt.cli.output import show
    from dtpt.files import write_atomically
    from dtpt.report.figures.analysis_figures import analysis_figures

    (run,) = ready.runs  # every figure of the paper is drawn from one
    analysis = analyse(part_options(options, run, datasets=run.datasets))
    written = [save_analysis(analysis, folder / run.name)]
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in analysis_figures(analysis):
        written.append(folder / "figures" / f"{figure.key}.svg")
        write_atomically(written[-1], figure.svg.encode())
    if as_json:
        print(to_json(analysis))
    else:
        show(*analysis_parts(analysis))
        print("\n".join(f"Wrote {path}" for path in written))


def _print_json(target: "Target", missing: "MissingInputs", found: dict[str, Any]) -> None:
    about = {"target": target.name, "title": target.title, "note": target.note}
    document = {**about, "missing": missing_document(missing), **found}
    print(json.dumps(document, indent=2, ensure_ascii=False))
