"""`dtpt demo`: the paper's comparison with the embedded model on the embedded benchmark."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.flags import Flags, Switch, flags_of
from dtpt.runs.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.report.figures.captioned import CaptionedFigure

QUICK_GROUPS = ("animals-nature", "food-drink", "travel-places", "objects")
QUICK_PICTURES = 64  # per set; chosen by the hash of the picture's id, not the first ones
# D-TPT with the weight of the paper and with the one that fits `pocket` (docs/findings.md).
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "d-tpt@1e6")
TAKEN = ("model", "limit", "output", "device", "threads", "replicas", "workers", "quiet")


@flags_of(
    EvalOptions,
    first=TAKEN,
    leave_out=[name for name in EvalOptions.model_fields if name not in TAKEN],
    defaults={"output": Path("demo-output")},
)
class DemoFlags(Flags):
    """The options of `eval` that the demo does not decide itself."""

    full: Annotated[
        Switch, Parameter(help="Three seeds, all groups and all pictures, not a quick choice.")
    ] = None


def demo(*, flags: DemoFlags | None = None) -> None:
    """Compare the paper's five methods on emoji, in colour and as line art, in about two minutes.

    Colour drawings stand for the paper's fine-grained sets, line art for its natural shifts. The
    same command again resumes.

    Args:
        flags: The options.
    """
    from dtpt.cli.report import show_report
    from dtpt.report import write_report
    from dtpt.runs import evaluate

    started = time.monotonic()
    given = flags or DemoFlags()
    options = demo_options(given)
    _announce(options, full=bool(given.full))
    with evaluate(options) as run:
        model_name = run.spec.model.name
    print("All pictures are answered. Drawing tables and figures ...", flush=True)
    written = write_report(
        [options.output],
        options.output.parent,
        extra=[_mosaic(options)],
        title=f"{model_name} on emoji, in colour and as line art",
    )
    show_report(written)
    print(f"Done in {time.monotonic() - started:.0f} seconds. Open the page in any browser.")


def demo_options(flags: DemoFlags) -> EvalOptions:
    """Return what the demo evaluates; the run stands in a folder inside --output."""
    from dtpt.data.openmoji import BENCHMARK_GROUPS, COLOUR, LINE

    groups = BENCHMARK_GROUPS if flags.full else QUICK_GROUPS
    decided = {
        "dataset": tuple(f"{style}/{group}" for style in (COLOUR, LINE) for group in groups),
        "method": METHODS,
        "seed": (0, 1, 2) if flags.full else (0,),
        "limit": None if flags.full else QUICK_PICTURES,
    }
    options = flags.options(EvalOptions, defaults=decided)
    return options.model_copy(update={"output": options.output / "run"})


def _announce(options: EvalOptions, *, full: bool) -> None:
    sets = len(options.dataset)
    size = "all pictures" if options.limit is None else f"{options.limit} pictures"
    seeds = ", ".join(str(seed) for seed in options.seed)
    print(f"Model {options.model}, the five methods of the paper ({', '.join(METHODS)}),")
    print(f"{sets} sets of emoji, half in colour and half as line art, {size} of each,")
    print(f"{options.views} views per picture, seeds {seeds}.")
    if not full:
        print("A quick choice of pictures, the same on every machine; --full takes all of them.")
    print(f"Every answer is stored in {options.output}; the same command resumes.", flush=True)


def _mosaic(options: EvalOptions) -> "CaptionedFigure":
    """Return the figure of one picture's views and which of them were kept."""
    from dtpt.clip.loading import load_model
    from dtpt.data import load_dataset
    from dtpt.report.figures.view_figure import mosaic_figure

    dataset = load_dataset(options.dataset[0]).limited(1)
    model = load_model(options.model)
    return mosaic_figure(model, dataset, views=options.views, seed=options.seed[0])
