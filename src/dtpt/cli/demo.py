"""`dtpt demo`: the paper's comparison with the embedded model on the embedded benchmark."""

import json
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.flags import AsJson, Flags, Switch, flags_of
from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.figures.captioned import CaptionedFigure
    from dtpt.report.recorded import Record

QUICK_GROUPS = ("activities",)  # the smallest, whole: 510 pictures in colour, 510 as line art
# The paper's five methods, D-TPT with its authors' weight, and the mean over views.
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "mean-views")
# Further weights of D-TPT: all sets but one choose the one that is shown for it.
GRID = ("d-tpt@3e5", "d-tpt@1e6", "d-tpt@2e6")
USUAL = "d-tpt@1e6"  # without a record to choose from
TAKEN = (
    "model",
    "seed",
    "limit",
    "output",
    "device",
    "threads",
    "replicas",
    "workers",
    "engine",
    "quiet",
)
NOT_CLIP = (
    "This is about the embedded model, which is small and trained for this package, not CLIP. "
    "For CLIP, with its weights and data at hand: dtpt reproduce table1"
)


@flags_of(
    EvalOptions,
    first=TAKEN,
    leave_out=[name for name in EvalOptions.model_fields if name not in TAKEN],
    defaults={"output": Path("demo-output")},
)
class DemoFlags(Flags):
    """The options of `eval` that the demo does not decide itself."""

    full: Annotated[
        Switch, Parameter(help="All groups and all pictures; then compare with the recorded run.")
    ] = None
    record: Annotated[
        Path | None, Parameter(help="Also write the aggregates of the full run into this file.")
    ] = None
    from_run: Annotated[
        Path | None, Parameter("--from", help="Take a run that is there instead of a new one.")
    ] = None


def demo(*, flags: DemoFlags | None = None, as_json: AsJson = False) -> None:
    """Compare the paper's five methods on emoji, in colour and as line art, in about two minutes.

    Colour drawings stand for the paper's fine-grained sets, line art for its natural shifts. The
    same command again resumes. Beneath its own result it shows a recorded run over all pictures,
    which --full computes again.

    Args:
        flags: The options.
        as_json: Print every number of the tables, one record each, and the list of files.
    """
    from dtpt.cli.report import report_document

    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        written = _demonstrate(flags or DemoFlags())
    if as_json:
        document = report_document(written) if written is not None else {}
        print(json.dumps(document, indent=2, ensure_ascii=False))


def _demonstrate(flags: DemoFlags) -> "WrittenReport | None":
    """Run, report and compare with the record; return the report, if one was made."""
    started, written = time.monotonic(), None
    _check_flags(flags)
    record = record_of(demo_options(flags).model)
    if flags.from_run is None:
        folder = _evaluate(flags, record)
        written = _report(flags, folder, record=record)
    else:
        folder = flags.from_run
    if flags.full:
        _settle(flags, folder, record=record)
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


def demo_options(flags: DemoFlags, record: "Record | None" = None) -> EvalOptions:
    """Return what the demo evaluates; the run stands in a folder inside --output."""
    from dtpt.data.openmoji import BENCHMARK_GROUPS, COLOUR, LINE

    groups = BENCHMARK_GROUPS if flags.full else QUICK_GROUPS
    sets = tuple(f"{style}/{group}" for style in (COLOUR, LINE) for group in groups)
    decided = {
        "dataset": sets,
        "method": (*METHODS, *(GRID if flags.full else _chosen_weights(record, sets))),
        "seed": (0,),
    }
    options = flags.options(EvalOptions, defaults=decided)
    name = "full-run" if flags.full else "run"
    return options.model_copy(update={"output": options.output / name})


def _check_flags(flags: DemoFlags) -> None:
    from dtpt.errors import OptionError

    if (flags.record is not None or flags.from_run is not None) and not flags.full:
        raise OptionError("--record and --from belong to the full run: add --full.")


def _chosen_weights(record: "Record | None", sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return D-TPT at the weights that the recorded run's other sets choose for some sets."""
    weights = record.fitted.weights if record else {}
    chosen = [weights[key] for key in weights if key[0] == "d-tpt" and key[1] in sets]
    words = dict.fromkeys(f"d-tpt@{weight:g}" for weight in chosen if weight != 1e5)
    return tuple(words) if chosen else (USUAL,)


def _evaluate(flags: DemoFlags, record: "Record | None") -> Path:
    """Run what the demo needs; return the run's folder."""
    from dtpt.runs import evaluate

    options = demo_options(flags, record)
    _announce(options, full=bool(flags.full))
    evaluate(options).close()
    print("All pictures are answered. Drawing tables and figures ...", flush=True)
    return options.output


def _announce(options: EvalOptions, *, full: bool) -> None:
    sets = len(options.dataset)
    size = "all pictures" if options.limit is None else f"{options.limit} pictures"
    seeds = ", ".join(str(seed) for seed in options.seed)
    print(f"Model {options.model}, {len(options.method)} methods ({', '.join(options.method)}),")
    print(f"{sets} sets of emoji, half in colour and half as line art, {size} of each,")
    print(f"{options.views} views per picture, seed {seeds}.")
    if not full:
        print("One group of six, whole; --full takes all of them.")
    print(f"Every answer is stored in {options.output}; the same command resumes.", flush=True)


def _report(flags: DemoFlags, folder: Path, *, record: "Record | None") -> "WrittenReport":
    from dtpt.cli.report import show_report
    from dtpt.clip.loading.names import EMBEDDED
    from dtpt.report import write_report

    options = demo_options(flags, record)
    written = write_report(
        [folder],
        folder.parent,
        extra=[_mosaic(options)],
        fitted=record.fitted if record and not flags.full else None,
        recorded=None if flags.full else record,
        note=NOT_CLIP if options.model == EMBEDDED else "",
        title=f"{options.model} on emoji, in colour and as line art",
    )
    show_report(written)
    return written


def _settle(flags: DemoFlags, folder: Path, *, record: "Record | None") -> None:
    """Compare the full run with the recorded one, and record it where that is asked for."""
    from dtpt.files import write_atomically
    from dtpt.methods import parse_label
    from dtpt.report.recorded import check_record, make_record

    kept = {parse_label(name).name for name in METHODS}
    made = make_record([folder], methods=kept, command="dtpt demo --full")
    if record is not None:
        print(check_record(made, record).text)
    if flags.record is not None:
        text = made.model_dump_json(by_alias=True) + "\n"
        write_atomically(flags.record, text.encode())
        print(f"Recorded {made.pictures:,} pictures in {flags.record}")


def _show_record(record: "Record") -> None:
    """Print the recorded run's verdict and tables."""
    from dtpt.cli.output import wide_console
    from dtpt.report.recorded import recorded_tables
    from dtpt.report.tables.terminal import terminal_table

    console = wide_console()
    print(f"\nRecorded: the same with all {record.pictures:,} pictures of {len(record.sets)} sets")
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
