"""`dtpt eval`: evaluate methods on data sets, resumably."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from dtpt.runs import EvalOptions, MethodResult, Run

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]
Switch = Annotated[bool | None, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvalFlags:
    """Options shared by `eval` and `sweep`; what is not given comes from DTPT_* or --config.

    Attributes:
        model: Model name; `dtpt models` lists them.
        dataset: Data sets or groups, comma-separated; `dtpt datasets` lists them.
        method: Methods, comma-separated: name[+modifier][@lambda]; `dtpt methods` lists them.
        lambda_: Weights for all regularised methods without their own @lambda; several give all
            combinations.
        seed: Seeds of the views, for example 0,1,2.
        views: Views per image, the original included (default 64).
        limit: Evaluate that many samples of each data set.
        presentation: Kind of picture (emoji data sets only).
        template: Prompt with {} for the class name (default "a photo of a {}.").
        context: File with a trained initial context (CoOp's ctx), instead of the template's words.
        steps: Optimiser steps per image (default 1).
        learning_rate: Of AdamW (default 0.005).
        rho: Share of confident views that is kept (default 0.1).
        entropy: "of-mean" (released code, default) or "mean-of" (the paper's equation 1).
        output: Folder of the run (default runs/latest); the same command again resumes there.
        data_root: Folder that holds the data sets (or DTPT_DATA).
        workers: Processes that decode images and make views; 0 for none (default 1; with a GPU
            give one per core).
        threads: torch threads (default: OMP_NUM_THREADS, else all cores).
        device: auto, cpu, cuda, cuda:1, mps.
        shard: i/n: evaluate share i of n; also from RANK/WORLD_SIZE or SLURM_PROCID/SLURM_NTASKS.
        max_failures: Share of unreadable images at which the run stops (default 0.01).
        no_cache: Neither read nor write the cache of view features.
        config: TOML file with options; command line and DTPT_* variables win over it.
        fresh: Move an existing run in the folder aside and start anew.
        quiet: Show no progress.
    """

    model: str | None = None
    dataset: Words = None
    method: Words = None
    lambda_: Annotated[
        list[str] | None, Parameter("--lambda", consume_multiple=True, negative=())
    ] = None
    seed: Words = None
    views: int | None = None
    limit: int | None = None
    presentation: str | None = None
    template: str | None = None
    context: Path | None = None
    steps: int | None = None
    learning_rate: float | None = None
    rho: float | None = None
    entropy: str | None = None
    output: Path | None = None
    data_root: Path | None = None
    workers: int | None = None
    threads: int | None = None
    device: str | None = None
    shard: str | None = None
    max_failures: float | None = None
    no_cache: Switch = None
    config: Path | None = None
    fresh: Switch = None
    quiet: Switch = None

    def options(self, table: str, *, defaults: dict[str, Any] | None = None) -> "EvalOptions":
        """Put command line, environment, file and defaults together."""
        from dtpt.runs import EvalOptions

        given = {name: value for name, value in asdict(self).items() if name != "config"}
        if given.pop("no_cache"):
            given["cache"] = False
        fallback = {"workers": automatic_workers(), **(defaults or {})}
        return EvalOptions.layered(given, config=self.config, table=table, defaults=fallback)


def automatic_workers() -> int:
    """Choose a worker beside the encoder where there is a core for it."""
    from dtpt.runs.cores import usable_cores

    return 1 if usable_cores() > 1 else 0


def evaluate_command(*, flags: EvalFlags | None = None) -> None:
    """Evaluate methods on data sets.

    Results are stored row by row under --output; the same command again continues where it was.
    The table is in the paper's units, results.json in fractions.

    Args:
        flags: The options.
    """
    run_and_show((flags or EvalFlags()).options("eval"))


def run_and_show(options: "EvalOptions") -> None:
    """Evaluate, export and print; Ctrl-C and SIGTERM end with the command that resumes."""
    from dtpt.runs import evaluate
    from dtpt.runs.interrupts import EXIT_CODES, resume_command, terminable

    try:
        with terminable():
            run = evaluate(options)
            with run:
                show(run, quiet=options.quiet)
    except KeyboardInterrupt as interruption:
        print(
            f"\nInterrupted; every finished image is stored in {options.output}. "
            f"Resume with:\n  {resume_command()}",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODES.get(type(interruption), 130))


def show(run: "Run", *, quiet: bool) -> None:
    """Write the derived files of a whole run and print its table."""
    from dtpt.runs import export, score_methods
    from dtpt.runs.store import MAIN_STORE

    print_table(run, score_methods(run))
    failures = run.failures()
    if failures:
        first = failures[0]
        print(
            f"{len(failures)} images could not be read and are not in the metrics, "
            f"first {first.sample}: {first.reason}",
            file=sys.stderr,
        )
    if run.path.name == MAIN_STORE:
        written = export(run, run.path.parent)
        if not quiet:
            print(f"Wrote {', '.join(str(path) for path in written)}", file=sys.stderr)
    elif not quiet:
        print(f"Join the shards with: dtpt merge {run.path.parent}", file=sys.stderr)


def print_table(run: "Run", results: "list[MethodResult]") -> None:
    """Print mean ± standard deviation over seeds, in the paper's units."""
    from rich.console import Console
    from rich.table import Table

    from dtpt.metrics import METRICS, PAPER_METRICS

    columns = [METRICS[key] for key in PAPER_METRICS]
    seeds = ",".join(str(seed) for seed in run.spec.seeds)
    table = Table(title=f"{run.spec.model.name}, seeds {seeds}, {run.spec.template!r}")
    table.add_column("data set")
    table.add_column("method")
    for metric in columns:
        table.add_column(metric.title, justify="right")
    table.add_column("images", justify="right")
    previous = ""
    for result in results:
        name = result.dataset if result.dataset != previous else ""
        previous = result.dataset
        cells = [_cell(result, metric.key, metric.factor) for metric in columns]
        table.add_row(name, result.label, *cells, _images(result))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)


def _cell(result: "MethodResult", metric: str, factor: float) -> str:
    if not result.mean:
        return "—"
    spread = f" ±{result.std[metric] * factor:.2f}" if result.std else ""
    return f"{result.mean[metric] * factor:.2f}{spread}"


def _images(result: "MethodResult") -> str:
    effective = min(seed.effective for seed in result.seeds.values())
    expected = max(seed.expected for seed in result.seeds.values())
    return str(effective) if effective == expected else f"{effective} of {expected}"
