"""`dtpt demo`: the paper's comparison on emoji, live on a sample and recorded on all images."""

import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from rich.text import Text

from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import print_json, show
from dtpt.errors import OptionError
from dtpt.files import printable
from dtpt.options import Datasets, EvalOptions, RunFolder
from dtpt.tables import Table

if TYPE_CHECKING:
    from dtpt.report import WrittenReport
    from dtpt.report.record import Record

FLAGS = (
    *("model", "seed", "limit", "output", "device", "threads", "workers", "view_workers"),
    *("executor", "quiet", "full", "record", "from_run"),
)
NOT_CLIP = (
    "The embedded model is small and trained for this package; it is not CLIP. "
    "For CLIP, with its weights and data at hand: dtpt reproduce table1"
)


class DemoOptions(EvalOptions):
    """The options of `eval` that the demo does not decide itself, and its own."""

    dataset: Datasets = ("openmoji-groups", "openmoji-line-groups")
    output: RunFolder = Path("demo-output")
    full: Annotated[bool, Field(description="All images; then compare with the recorded run.")] = (
        False
    )
    record: Annotated[
        Path | None, Field(description="Also write the aggregates of the full run into this file.")
    ] = None
    from_run: Annotated[
        Path | None,
        Field(alias="from", description="Take a run that exists instead of a new one."),
    ] = None


def demo(
    *,
    options: Annotated[DemoOptions, flags(DemoOptions, show=FLAGS)] = DemoOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare the paper's five methods on emoji, in colour and as line art, in two minutes.

    Colour drawings stand for the paper's fine-grained sets, line art for its natural shifts. The
    same number of images of every group is classified now (--limit) and shown beside a recorded run
    of all images, which --full computes again. The same command again resumes.
    """
    if (options.record is not None or options.from_run is not None) and not options.full:
        raise OptionError("--record and --from belong to the full run: add --full.")
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        written = _demonstrate(options)
    if as_json:
        print_json(written.document() if written is not None else {})


def _demonstrate(options: DemoOptions) -> "WrittenReport | None":
    """Run, report and compare with the record; return the report, if one was made."""
    from dtpt.report.record import QUICK_IMAGES, demo_plan, load_record
    from dtpt.runs import run_options
    from dtpt.runs.progress import Joined, make_reporter

    started, written = time.monotonic(), None
    record, folder = load_record(options.model), options.from_run
    if folder is None:
        sets, methods = demo_plan(full=options.full)
        folder = options.output / ("full-run" if options.full else "run")
        limit = options.limit or (None if options.full else QUICK_IMAGES)
        planned = options.model_copy(
            update={"dataset": sets, "method": methods, "output": folder, "limit": limit}
        )
        _announce(planned)
        with resumable(folder):
            reporter = Joined(make_reporter(quiet=options.quiet), "Classifying")
            run_options(planned, reporter=reporter).close()
        written = _write(planned, record=record)
        show(*_parts(written, record), framed=False)
        print(f"Page, after {time.monotonic() - started:.0f} s:", written.page.resolve())
    if options.full:
        _compare_with_record(options, folder, record=record)
    return written


def _announce(planned: DemoOptions) -> None:
    from dtpt.report.words import caption

    images = "all" if planned.limit is None else str(planned.limit)
    counts = {"count": len(planned.method), "sets": len(planned.dataset), "images": images}
    text = caption("demo", "start", model=planned.model, **counts)
    show(Text(text, style="bold"))
    sys.stdout.flush()


def _write(options: DemoOptions, *, record: "Record | None") -> "WrittenReport":
    from dtpt.clip.loading.names import EMBEDDED
    from dtpt.data import load_dataset
    from dtpt.report import write_report
    from dtpt.report.figures.images import mosaic_figure

    model = options.load()
    image = load_dataset(options.dataset[0]).limited(1)
    return write_report(
        [options.output],
        options.output.parent,
        extra=[mosaic_figure(model, image, views=options.views, seed=options.seed[0])],
        fitted=record.temperatures_only if record and not options.full else None,
        record=None if options.full else record,
        note=NOT_CLIP if options.model == EMBEDDED else "",
        title=f"{options.model} on emoji, in colour and as line art",
        example=(image.name, image.samples[0].id),
    )


def _parts(written: "WrittenReport", record: "Record | None") -> "Iterator[Table | Text | str]":
    """Yield the table, what it shows, and how record and sample agree."""
    from dtpt.report.clip_record import load_clip_record
    from dtpt.report.demo import agreement, demo_table
    from dtpt.report.lead import lead_of

    live = written.report.families
    recorded = record.families if record else ()
    if any(source.failures for source in written.report.loaded.sources):
        yield from map(Text, written.report.loaded.notes)
    yield demo_table(recorded, live)
    lead = lead_of(recorded or live, model=written.report.model)
    yield from map(Text, lead.sentences)
    yield Text(lead.reading, style="dim")
    if recorded:
        yield Text(agreement(recorded, live).text)
    clip = load_clip_record()
    yield from [Text(clip.text)] if clip else []


def _compare_with_record(options: DemoOptions, folder: Path, *, record: "Record | None") -> None:
    """Compare the full run with the recorded one, and record it where --record says so."""
    from dtpt.report.record import check_record, demo_methods, make_record

    made = make_record(folder, methods=demo_methods(), command="dtpt demo --full")
    if record is not None:
        print(check_record(made, record).text)
    if options.record is not None:
        made.save(options.record)
        print(f"Recorded {made.images:,} images in {printable(options.record)}")
