"""`dtpt demo`: the paper's comparison with the embedded model on the embedded benchmark."""

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import print_json, show
from dtpt.cli.report import show_report, verdict_texts
from dtpt.errors import OptionError
from dtpt.options import Datasets, EvalOptions, RunFolder

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.record import Record

SHOWN = (
    *("model", "seed", "limit", "output", "device", "threads", "workers", "view_workers"),
    *("executor", "quiet", "full", "record", "from_run"),
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
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        written = _demonstrate(options)
    if as_json:
        print_json(written.document() if written is not None else {})


def _demonstrate(options: DemoOptions) -> "WrittenReport | None":
    """Run, report and compare with the record; return the report, if one was made."""
    from dtpt.report.record import demo_plan, load_record
    from dtpt.runs import run_options

    started, written = time.monotonic(), None
    if (options.record is not None or options.from_run is not None) and not options.full:
        raise OptionError("--record and --from belong to the full run: add --full.")
    record = load_record(options.model)
    if options.from_run is None:
        sets, methods = demo_plan(record, full=options.full)
        folder = options.output / ("full-run" if options.full else "run")
        planned = options.model_copy(update={"dataset": sets, "method": methods, "output": folder})
        print(
            f"{planned.model}, {', '.join(methods)} on {', '.join(sets)}. Every row is stored in "
            f"{folder}; the same command resumes."
        )
        with resumable(folder):
            run_options(planned).close()
        print("All images are classified. Drawing tables and figures ...", flush=True)
        written = _report(planned, record=record)
    else:
        folder = options.from_run
    _check(options, folder, record=record)
    if record is not None and not options.full:
        data = f"{record.images:,} images of {len(record.results.results)} data sets"
        show(f"\nRecorded: the same with all {data}", *verdict_texts(record.paragraphs))
        show(*record.tables, "Recompute it with: dtpt demo --full")
    print(f"Done in {time.monotonic() - started:.0f} seconds.")
    return written


def _report(options: DemoOptions, *, record: "Record | None") -> "WrittenReport":
    from dtpt.clip.loading import load_model
    from dtpt.clip.loading.names import EMBEDDED
    from dtpt.data import load_dataset
    from dtpt.report import write_report
    from dtpt.report.figures.images import mosaic_figure

    model = load_model(options.model, device=options.device)
    image = load_dataset(options.dataset[0]).limited(1)
    written = write_report(
        [options.output],
        options.output.parent,
        extra=[mosaic_figure(model, image, views=options.views, seed=options.seed[0])],
        fitted=record.fitted if record and not options.full else None,
        record=None if options.full else record,
        note=NOT_CLIP if options.model == EMBEDDED else "",
        title=f"{options.model} on emoji, in colour and as line art",
    )
    show_report(written)
    return written


def _check(options: DemoOptions, folder: Path, *, record: "Record | None") -> None:
    """Compare the run with the recorded one, and record it where --record says so."""
    from dtpt.report.record import check_record, demo_methods, make_record
    from dtpt.runs.reading import open_run
    from dtpt.runs.results import results_of

    if not options.full:
        if record is not None:
            with open_run(folder) as run:
                check = check_record(results_of(run), record)
            if check.compared:
                print(check.text)
        return
    made = make_record(folder, methods=demo_methods(), command="dtpt demo --full")
    if record is not None:
        print(check_record(made, record).text)
    if options.record is not None:
        made.save(options.record)
        print(f"Recorded {made.images:,} images in {options.record}")
