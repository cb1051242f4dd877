"""`dtpt demo`: the paper's comparison with the embedded model on the embedded benchmark."""

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import print_json, wide_console
from dtpt.errors import OptionError
from dtpt.options import Datasets, EvalOptions, RunFolder

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.figures.captioned import CaptionedFigure
    from dtpt.report.recorded import Record

QUICK_GROUPS = ("activities",)  # the smallest, whole: 510 images in colour, 510 as line art
# The paper's five methods, D-TPT with its authors' λ, and the mean over views.
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "mean-views")
# Further λ of D-TPT: the one that is shown for a set is chosen on all other sets.
GRID = ("d-tpt@3e5", "d-tpt@1e6", "d-tpt@2e6")
USUAL = "d-tpt@1e6"  # without a record to choose from
SHOWN = (
    *("model", "seed", "limit", "output", "device", "threads", "replicas", "workers", "engine"),
    *("quiet", "full", "record", "from_run"),
)
NOT_CLIP = (
    "This is about the embedded model, which is small and trained for this package, not CLIP. "
    "For CLIP, with its weights and data at hand: dtpt reproduce table1"
)


class DemoOptions(EvalOptions):
    """The options of `eval` that the demo does not decide itself, and its own."""

    dataset: Datasets = ("openmoji", "openmoji-line")  # of which --full takes all
    output: RunFolder = Path("demo-output")
    full: Annotated[
        bool, Field(description="All groups and images; then compare with the recorded run.")
    ] = False
    record: Annotated[
        Path | None, Field(description="Also write the aggregates of the full run into this file.")
    ] = None
    from_run: Annotated[
        Path | None,
        Field(alias="from", description="Take a run that exists instead of a new one."),
    ] = None


def demo(
    *,
    options: Annotated[DemoOptions, flags(DemoOptions, show=SHOWN)] = DemoOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare the paper's five methods on emoji, in colour and as line art, in about two minutes.

    Colour drawings stand for the paper's fine-grained sets, line art for its natural shifts. The
    same command again resumes. Below its own result it shows a recorded run over all images, which
    --full computes again.
    """
    from dtpt.cli.report import report_document

    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        written = _demonstrate(options)
    if as_json:
        print_json(report_document(written) if written is not None else {})


def _demonstrate(options: DemoOptions) -> "WrittenReport | None":
    """Run, report and compare with the record; return the report, if one was made."""
    started, written = time.monotonic(), None
    if (options.record is not None or options.from_run is not None) and not options.full:
        raise OptionError("--record and --from belong to the full run: add --full.")
    record = record_of(options.model)
    if options.from_run is None:
        decided = decided_options(options, record)
        _evaluate(decided)
        folder = decided.output
        written = _report(decided, record=record)
    else:
        folder = options.from_run
    if options.full:
        _settle(options, folder, record=record)
    elif record is not None:
        _show_record(record)
    print(f"Done in {time.monotonic() - started:.0f} seconds.")
    return written


def record_of(model: str) -> "Record | None":
    """Return the recorded run if it is one of this model: of others it says nothing.

    Example:
        >>> record_of("RN50/openai") is None
        True
    """
    from dtpt.report.recorded import load_record

    record = load_record()
    return record if record is not None and record.model == model else None


def decided_options(options: DemoOptions, record: "Record | None" = None) -> DemoOptions:
    """Return what the demo evaluates; the run is in a folder inside --output."""
    from dtpt.data.openmoji import BENCHMARK_GROUPS, COLOUR, LINE

    groups = BENCHMARK_GROUPS if options.full else QUICK_GROUPS
    sets = tuple(f"{style}/{group}" for style in (COLOUR, LINE) for group in groups)
    decided = {
        "dataset": sets,
        "method": (*METHODS, *(GRID if options.full else _chosen_weights(record, sets))),
        "output": options.output / ("full-run" if options.full else "run"),
    }
    return options.model_copy(update=decided)


def _chosen_weights(record: "Record | None", sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return D-TPT at the weights that the recorded run's other sets choose for some sets."""
    weights = record.fitted.weights if record else {}
    chosen = [weights[key] for key in weights if key[0] == "d-tpt" and key[1] in sets]
    words = dict.fromkeys(f"d-tpt@{weight:g}" for weight in chosen if weight != 1e5)
    return tuple(words) if chosen else (USUAL,)


def _evaluate(options: DemoOptions) -> None:
    from dtpt.runs import evaluate

    _announce(options)
    with resumable(options.output):
        evaluate(options).close()
    print("All images are classified. Drawing tables and figures ...", flush=True)


def _announce(options: DemoOptions) -> None:
    sets = len(options.dataset)
    size = "all images" if options.limit is None else f"{options.limit} images"
    seeds = ", ".join(str(seed) for seed in options.seed)
    print(f"Model {options.model}, {len(options.method)} methods ({', '.join(options.method)}),")
    print(f"{sets} sets of emoji, half in colour and half as line art, {size} of each,")
    print(f"{options.views} views per image, seed {seeds}.")
    if not options.full:
        print("One group of six, whole; --full takes all of them.")
    print(f"Every row is stored in {options.output}; the same command resumes.", flush=True)


def _report(options: DemoOptions, *, record: "Record | None") -> "WrittenReport":
    from dtpt.cli.report import show_report
    from dtpt.clip.loading.names import EMBEDDED
    from dtpt.report import write_report

    written = write_report(
        [options.output],
        options.output.parent,
        extra=[_mosaic(options)],
        fitted=record.fitted if record and not options.full else None,
        recorded=None if options.full else record,
        note=NOT_CLIP if options.model == EMBEDDED else "",
        title=f"{options.model} on emoji, in colour and as line art",
    )
    show_report(written)
    return written


def _settle(options: DemoOptions, folder: Path, *, record: "Record | None") -> None:
    """Compare the full run with the recorded one, and record it where that is asked for."""
    from dtpt.files import write_atomically
    from dtpt.methods import parse_label
    from dtpt.report.recorded import check_record, make_record

    kept = {parse_label(name).name for name in METHODS}
    made = make_record([folder], methods=kept, command="dtpt demo --full")
    if record is not None:
        print(check_record(made, record).text)
    if options.record is not None:
        text = made.model_dump_json(by_alias=True) + "\n"
        write_atomically(options.record, text.encode())
        print(f"Recorded {made.pictures:,} images in {options.record}")


def _show_record(record: "Record") -> None:
    """Print the recorded run's verdict and tables."""
    from dtpt.report.recorded import recorded_tables
    from dtpt.report.tables.terminal import terminal_table

    console = wide_console()
    print(f"\nRecorded: the same with all {record.pictures:,} images of {len(record.sets)} sets")
    for family in record.families:
        console.print(f"\n{family.title}. {' '.join(family.verdict)}", highlight=False)
    for table in recorded_tables(record):
        console.print(terminal_table(table))
    print("Recompute it with: dtpt demo --full")


def _mosaic(options: EvalOptions) -> "CaptionedFigure":
    """Return the figure of one picture's views and which of them were kept."""
    from dtpt.clip.loading import load_model
    from dtpt.data import load_dataset
    from dtpt.report.figures.view_figure import mosaic_figure

    dataset = load_dataset(options.dataset[0]).limited(1)
    model = load_model(options.model, device=options.device)
    return mosaic_figure(model, dataset, views=options.views, seed=options.seed[0])
