"""The paper: its numbers (`paper`), its tables (`reproduce`)."""

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from dtpt.cli.exits import FAILED, PARTIAL, resumable
from dtpt.cli.flags import AsJson, Config, flags, offer_targets
from dtpt.cli.output import emit, print_json, show
from dtpt.cli.report import show_report
from dtpt.errors import OptionError
from dtpt.files import printable
from dtpt.options import Datasets, EvalOptions, RunFolder
from dtpt.tables import records, text_table

if TYPE_CHECKING:
    from dtpt.analysis import Analysis
    from dtpt.report.paper.targets import Target


def paper(*, as_json: AsJson = False) -> None:
    """Compute from the paper's printed numbers what they show; no model and no data are needed.

    Differences between methods against their variation over data sets, who is best how often,
    whether the numbers are possible, and sentences that they contradict. Numbers are in the paper's
    units: percent, and AURC times 1000.
    """
    from dtpt.report.paper.reading import read_paper
    from dtpt.report.paper.reading_tables import reading_tables

    facts = read_paper()
    parts = (part for table in reading_tables(facts).values() for part in (table, ""))
    emit(facts, *parts, as_json=as_json, framed=False)


HIDDEN = ("lambda_", "template", "shard", "fresh")
OF_TARGET = dict.fromkeys(("model", "method", "seed", "views"), "the target's")
WAYS_ON = (
    "--partial does what can be done with what is here; --dry-run estimates the time it takes."
)


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
    plan: Annotated[
        bool, Field(description="Only show an order for one GPU, and what zero-shot must give.")
    ] = False


def reproduce(
    target: Annotated[
        str, Parameter(completer=offer_targets, help="table1 to table7, or fig1 to fig7.")
    ] = "",
    /,
    *,
    options: Annotated[
        ReproduceOptions, flags(ReproduceOptions, hide=HIDDEN, defaults=OF_TARGET)
    ] = ReproduceOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run what one table or figure of the paper needs, and print it beside the paper's numbers.

    --model, --dataset, --method and --seed do a part of it, or all of it for a model that the paper
    does not have; what was done before is in the same
    tables, and the same command again resumes. With other --views, other settings of the
    tuning or a --limit nothing is compared with the paper. Exit code 1: a part was done, and the
    rest is named; 2: weights or data are missing and nothing was done.
    """
    if options.plan:
        _show_plan(options, as_json=as_json)
        return
    if not target:
        raise OptionError("Name a table or figure, such as table1; --plan shows where to begin.")
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        document, code = _reproduce(target, options)
    if as_json:
        print_json(document)
    if code:
        sys.exit(code)


def _show_plan(options: ReproduceOptions, *, as_json: bool) -> None:
    from dtpt.data.catalog import PAPER_SETS
    from dtpt.report.paper.plan import RATE, plan_steps, plan_table, zero_shot_counts

    root = options.data_root or "DATA"
    steps = plan_steps(printable(root), printable(options.output))
    counts = [count for name in PAPER_SETS for count in zero_shot_counts(name)]
    emit(
        {"steps": steps, "zero_shot": counts},
        *steps,
        "",
        plan_table(),
        "",
        "The fourth command is the gate: it takes minutes, and prints how many images are right",
        "beside the paper's numbers. Go on when they differ by a few images (rounding of devices).",
        f"Hours are an estimate for both models and three seeds if {RATE:,} views a second are",
        "made and encoded; tuning comes on top. --dry-run measures a machine.",
        as_json=as_json,
        framed=False,
    )


def _reproduce(name: str, options: ReproduceOptions) -> tuple[Any, int]:
    """Do what is asked for, print it, and return it as a document with the exit code."""
    from dtpt.report.paper.numbers import paper_floors
    from dtpt.report.paper.targets import available, find_missing, find_target, narrowed, with_model
    from dtpt.report.tables import floor_table

    given = options.given()
    whole = with_model(find_target(name), given.get("model"))
    part = narrowed(
        whole,
        model=given.get("model"),
        datasets=given.get("dataset", ()),
        methods=given.get("method", ()),
    )
    if options.floors:
        floors = {run.model: paper_floors(run.model, run.datasets) for run in part.runs}
        show(*(floor_table(model, found) for model, found in floors.items()))
        return floors, 0
    missing = find_missing(part, options.data_root, context=options.context)
    ready = available(part, missing)
    print("\n".join(filter(None, (part.title, part.note))))
    about: dict[str, Any] = {"target": name, "title": whole.title, "note": whole.note}
    about["missing"] = missing.document()
    can_run = not missing or (options.partial and bool(ready.runs))
    if options.dry_run or not can_run:
        show(*missing.lines, *([WAYS_ON] if missing else []))
        cost = {"cost": _cost(part)} if options.dry_run else {}
        return {**about, **cost}, FAILED if missing else 0
    document: Any
    if part.kind == "analysis":
        document, failures = _analyse(options, ready, folder=options.output / name), 0
    else:
        found, failures = _evaluate(options, ready, whole=whole)
        document = {**about, **found}
    print("\n".join(missing.lines), end="\n" if missing.lines else "")
    return document, PARTIAL if missing or missing.context or failures else 0


def _cost(target: "Target") -> dict[str, Any]:
    """Print an estimate of what the target would cost, measured here and now."""
    from dtpt.report.paper import reproduce as costs

    print("Measuring this machine with random weights ...", flush=True)
    whole, rows = costs.Cost(0, 0.0), []
    for run in target.runs:
        cost = costs.estimate(run, costs.measure_speed(run.model))
        whole += cost
        counts = map(str, (len(run.datasets), len(run.methods), len(run.seeds)))
        texts = (f"{cost.images:,}", costs.duration_text(cost.seconds))
        rows.append((run.model, *counts, *texts))
    heads = ("model", "data sets", "methods", "seeds", "images", "estimated time")
    show(
        text_table("Images are counted under each seed", heads, rows=rows),
        f"Estimate for this machine alone: {whole.images:,} images, "
        f"{costs.duration_text(whole.seconds)}.",
        "`dtpt eval --shard` divides the work among machines.",
    )
    return asdict(whole)


def _evaluate(
    options: ReproduceOptions, ready: "Target", *, whole: "Target"
) -> tuple[dict[str, Any], int]:
    """Run what can be run, print every cell that exists; return it and how many images failed."""
    from dtpt.report import write_report
    from dtpt.report.paper.plan import gate_table
    from dtpt.report.paper.reproduce import plan_parts, stored_runs
    from dtpt.runs import run_options

    given = {**options.given(), "data_root": options.data_root}
    folder, parts = plan_parts(given, ready, whole=whole, output=options.output)
    failures = 0
    for part in parts:
        print(f"Running {part.model}, {part.dataset[0]}, into {part.output}", file=sys.stderr)
        with resumable(part.output), run_options(part) as run:
            failures += len(run.failures())
    runs = stored_runs(folder, whole)
    if not runs:  # a drawing, for which there is nothing to run
        return {}, 0
    written = write_report(runs, folder / "report", data_root=options.data_root)
    show_report(written)
    show(*(table for part in written.report.parts for _, few in part.sets for table in few))
    if gate := gate_table(written.report.loaded.conditions):
        show(gate)
    return {**written.document(), "gate": list(records([gate])) if gate else []}, failures


def _analyse(options: ReproduceOptions, ready: "Target", *, folder: Path) -> "Analysis":
    from dtpt.analysis import analyse, save_analysis
    from dtpt.cli.analyze import analysis_parts
    from dtpt.files import write_atomically
    from dtpt.report.figures.geometry import analysis_figures
    from dtpt.report.paper.reproduce import part_options

    (run,) = ready.runs  # every figure of the paper is drawn from one
    analysis = analyse(part_options(options.given(), run, datasets=run.datasets))
    written = [save_analysis(analysis, folder / run.name)]
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in analysis_figures(analysis):
        for kind in ("svg", "pdf"):
            written.append(folder / "figures" / f"{figure.key}.{kind}")
            write_atomically(written[-1], figure.content(kind))
    show(*analysis_parts(analysis), *(f"Wrote {path}" for path in written))
    return analysis
