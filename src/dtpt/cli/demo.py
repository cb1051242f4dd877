"""`dtpt demo`: the paper's comparison with the embedded model on the embedded benchmark."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.report.drawing import Drawing
    from dtpt.runs import EvalOptions

QUICK_GROUPS = ("animals-nature", "food-drink", "travel-places", "objects")
QUICK_PICTURES = 64  # per set; chosen by the hash of the picture's id, not the first ones
# D-TPT with the weight of the paper and with the one that fits `pocket` (docs/findings.md).
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "d-tpt@1e6")


def demo(
    *,
    output: Path = Path("demo-output"),
    full: Annotated[bool, Parameter(negative=())] = False,
    model: str = "pocket",
    limit: int | None = None,
    workers: int | None = None,
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Compare the paper's five methods on emoji, in colour and as line art, in about two minutes.

    Colour drawings stand for the paper's fine-grained sets, line art for its natural shifts. The
    same command again resumes.

    Args:
        output: Folder for the run and the report.
        full: Three seeds, all groups and all pictures, instead of a quick choice.
        model: The model; the embedded one by default.
        limit: Pictures per set (default: 64; all with --full).
        workers: Processes that make views.
        quiet: Show no progress.
    """
    from dtpt.report import write_report
    from dtpt.report.printing import print_report
    from dtpt.runs import evaluate

    started = time.monotonic()
    options = demo_options(
        output, full=full, model=model, limit=limit, workers=workers, quiet=quiet
    )
    _announce(options, full=full)
    with evaluate(options) as run:
        model_name = run.spec.model.name
    print("All pictures are answered. Drawing tables and figures ...", flush=True)
    written = write_report(
        [options.output],
        output,
        extra=[_mosaic(options)],
        title=f"{model_name} on emoji, in colour and as line art",
    )
    print_report(written)
    print(f"Done in {time.monotonic() - started:.0f} seconds. Open the page in any browser.")


def demo_options(
    output: Path,
    *,
    full: bool,
    model: str,
    limit: int | None,
    workers: int | None,
    quiet: bool,
) -> "EvalOptions":
    """Return what the demo evaluates."""
    from dtpt.cli.eval import automatic_workers
    from dtpt.data.openmoji import BENCHMARK_GROUPS, COLOUR, LINE
    from dtpt.runs import EvalOptions

    groups = BENCHMARK_GROUPS if full else QUICK_GROUPS
    return EvalOptions(
        model=model,
        dataset=tuple(f"{style}/{group}" for style in (COLOUR, LINE) for group in groups),
        method=METHODS,
        seed=(0, 1, 2) if full else (0,),
        limit=limit if limit is not None or full else QUICK_PICTURES,
        output=output / "run",
        workers=automatic_workers() if workers is None else workers,
        quiet=quiet,
    )


def _announce(options: "EvalOptions", *, full: bool) -> None:
    sets = len(options.dataset)
    size = "all pictures" if options.limit is None else f"{options.limit} pictures"
    seeds = ", ".join(str(seed) for seed in options.seed)
    print(f"Model {options.model}, the five methods of the paper ({', '.join(METHODS)}),")
    print(f"{sets} sets of emoji, half in colour and half as line art, {size} of each,")
    print(f"{options.views} views per picture, seeds {seeds}.")
    if not full:
        print("A quick choice of pictures, the same on every machine; --full takes all of them.")
    print(f"Every answer is stored in {options.output}; the same command resumes.", flush=True)


def _mosaic(options: "EvalOptions") -> "Drawing":
    """Return the figure of one picture's views and which of them were kept."""
    from dtpt.clip.loading import load_model
    from dtpt.data import load_dataset
    from dtpt.report.views_of import mosaic_drawing

    name = options.dataset[0]
    dataset = load_dataset(name).limited(1)
    model: Clip = load_model(options.model)
    return mosaic_drawing(model, dataset, views=options.views, seed=options.seed[0])
