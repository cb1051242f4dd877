"""`dtpt analyze`: what the paper shows beside its tables, and five studies beyond the paper.

Every command writes all its numbers, as fractions, to a JSON file under --output; the studies
store there what they finished, so that the same command again resumes.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dtpt.analysis import Analysis, Study, analyse, save_analysis, to_json
from dtpt.analysis.basis import BasisOptions, basis_tables, study_basis
from dtpt.analysis.controls import CONTROLS, ControlsOptions
from dtpt.analysis.regularisers import (
    RegularisersOptions,
    regulariser_tables,
    study_regularisers,
)
from dtpt.analysis.streams import STREAMS, StreamsOptions, stream_tables
from dtpt.analysis.study import StudyOptions, make_folder, save_json, with_shift
from dtpt.analysis.tables import dataset_tables
from dtpt.analysis.views import VIEWS, ViewsOptions
from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.files import printable, write_atomically
from dtpt.methods import PAPER_METHODS
from dtpt.options import Methods, RunFolder
from dtpt.tables import Table, signed_text

HIDDEN = ("lambda_", "shard", "keep", "executor")
UNUSED = ("views", "steps", "learning_rate", "weight_decay", "rho", "entropy")


class AnalyzeOptions(StudyOptions):
    """The options of `eval`, with the paper's methods."""

    method: Methods = PAPER_METHODS
    output: RunFolder = Path("runs/analysis")


def analyze(
    *,
    options: Annotated[
        AnalyzeOptions, flags(AnalyzeOptions, hide=("template", "shard", "fresh", "executor"))
    ],
    template: Annotated[
        list[str] | None,
        Parameter(help="Prompts with {} for the class name; several are all analysed."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compute what the paper shows beside its tables, and how much depends on the image at all.

    Zero-shot, static variants and predictions without dominant dimensions are added to the methods.
    Tables are in the paper's units; analysis.json under --output has fractions, for the report.
    """
    make_folder(options.output)
    with resumable(options.output):
        analysis = analyse(with_shift(options, None), templates=template or ())
    path = save_analysis(analysis, options.output)
    if as_json:
        print(to_json(analysis))
    else:
        show(*analysis_parts(analysis))
    if not options.quiet:
        print(f"Wrote {printable(path)}", file=sys.stderr)


def analysis_parts(analysis: Analysis) -> Iterator[Table | str]:
    """Yield the tables of all data sets in the order of the paper, with headings between them."""
    for entry in analysis.datasets:
        failures = f" ({entry.failures} could not be read)" if entry.failures else ""
        yield (
            f"\n{entry.dataset}, {analysis.model}, {entry.template!r}: {entry.classes} classes, "
            f"{entry.images} images{failures}"
        )
        yield from dataset_tables(entry)
    dispersion = analysis.dispersion
    if dispersion.pearson is not None:
        numbers = {
            "Pearson": dispersion.pearson,
            "Spearman": dispersion.spearman,
            "within data sets": dispersion.pearson_within,
        }
        texts = [
            f"{name} {signed_text(value)}" for name, value in numbers.items() if value is not None
        ]
        yield f"ATFD against ECE over {len(dispersion.points)} points: {', '.join(texts)}"


def basis(
    *,
    options: Annotated[BasisOptions, flags(BasisOptions, hide=(*HIDDEN, "fresh", "batch"))],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Rotate the joint space of images and texts, and compare what D-TPT predicts.

    The bases: the model's own; the first axis along the mean text feature, or along the gap between
    texts and images; the sign of the dominant coordinate flipped; random rotations, as the null
    distribution (30 of them for a study). Every cosine stays the same in all of them. D-TPT is run
    with equal λ and with the λ that wins an equal fraction of signs. Finished data sets are kept.
    """
    _run(study_basis, options, tables=basis_tables, figure="basis_figure", as_json=as_json)


def controls(
    *,
    options: Annotated[ControlsOptions, flags(ControlsOptions, hide=HIDDEN)],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare regularisers of equal effect with a random direction and with smaller steps.

    Every regulariser gets the λ with which it wins a given fraction of the first step's signs, on
    average over some images, without their labels. TPT with smaller learning rates traces the
    curve that a shorter step gives. The same command again resumes.
    """
    tables = CONTROLS.tables
    _run(CONTROLS.run, options, tables=tables, figure="controls_figure", as_json=as_json)


def views(
    *,
    options: Annotated[ViewsOptions, flags(ViewsOptions, hide=(*HIDDEN, "views", "rho"))],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Measure what fewer views cost, and what the mean over several of them gives.

    Each method is evaluated with the first 8, 16, ... views and compared with itself at the most
    views; then its prediction is read from a growing fraction of the most confident views instead
    of the original one. The same command again resumes.
    """
    _run(VIEWS.run, options, tables=VIEWS.tables, figure="dial_figure", as_json=as_json)


def streams(
    *,
    options: Annotated[StreamsOptions, flags(StreamsOptions, hide=(*HIDDEN, "order"))],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Measure what online methods gain over zero-shot when images come in different orders.

    Every method runs in ten shuffled, ten class-sorted and ten correlated orders. Intervals are
    over orders. The tables along the streams show when a gain begins and how confidence drifts.
    The same command again resumes.
    """
    tables, figure = stream_tables, "positions_figure"
    _run(STREAMS.run, options, tables=tables, figure=figure, as_json=as_json)


def regularisers(
    *,
    options: Annotated[
        RegularisersOptions, flags(RegularisersOptions, hide=UNUSED)
    ] = RegularisersOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare the first steps of all regularisers, from the text tower alone.

    For every pair of methods: the cosine of their gradients at the initial context, and the
    fraction of the context's numbers that both would move the same way (50 % by chance). No image
    is needed.
    """
    _run(study_regularisers, options, tables=regulariser_tables, as_json=as_json)


def _run(
    make: Callable[[Any], Study],
    options: StudyOptions | BasisOptions | ControlsOptions | ViewsOptions | RegularisersOptions,
    *,
    tables: Callable[[Study], Iterator[Table | str]],
    figure: str = "",
    as_json: bool,
) -> None:
    """Make a study, save it with its figure, and print its tables or its JSON."""
    from dtpt.report.figures import studies, svg_text

    with resumable(options.output):
        study = make(options)
    written = [save_json(study, options.output / f"{study.name}.json")]
    if figure:
        written.append(options.output / f"{study.name}.svg")
        write_atomically(written[-1], svg_text(getattr(studies, figure)(study)).encode())
    if as_json:
        print(to_json(study))
    else:
        for part in tables(study):
            show(part, "", framed=False)
    if not options.quiet:
        print(f"Wrote {', '.join(map(printable, written))}", file=sys.stderr)
