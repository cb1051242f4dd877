"""`dtpt analyze`: dominant dimensions, sensitivity, geometry, and what depends on the image."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.exits import resumable
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.files import printable
from dtpt.methods import PAPER_METHODS
from dtpt.options import EvalOptions, Methods, RunFolder
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from dtpt.analysis import Analysis, DatasetAnalysis, Movement

SHOWN_DIMENSIONS = 5
MASKED = {
    "product": "either side, not normalised again",
    "text": "text, normalised again",
    "image": "image, normalised again",
}


class AnalyzeOptions(EvalOptions):
    """The options of `eval`, with the paper's methods."""

    method: Methods = PAPER_METHODS
    output: RunFolder = Path("runs/analysis")


def analyze(
    *,
    options: Annotated[
        AnalyzeOptions, flags(AnalyzeOptions, hide=("template", "shard", "fresh", "engine"))
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
    from dtpt.analysis.files import prepare_folder, save_analysis, to_json

    prepare_folder(options.output)
    from dtpt.analysis.study import analyse

    with resumable(options.output):
        analysis = analyse(options, templates=template or ())
    path = save_analysis(analysis, options.output)
    if as_json:
        print(to_json(analysis))
    else:
        show(*analysis_parts(analysis))
    if not options.quiet:
        print(f"Wrote {printable(path)}", file=sys.stderr)


def analysis_parts(analysis: "Analysis") -> Iterator[Table | str]:
    """Yield the tables of all data sets in the order of the paper, with headings between them."""
    for entry in analysis.datasets:
        failures = f" ({entry.failures} could not be read)" if entry.failures else ""
        yield (
            f"\n{entry.dataset}, {analysis.model}, {entry.template!r}: {entry.classes} classes, "
            f"{entry.images} images{failures}"
        )
        yield _dominant(entry)
        yield _gap(entry)
        yield _sensitivity(entry)
        yield _scores(entry)
        yield _geometry(entry)
        yield _movement(entry)
        if entry.image_dependence:
            yield _dependence(entry)
    dispersion = analysis.dispersion
    if dispersion.pearson is not None:
        numbers = {
            "Pearson": dispersion.pearson,
            "Spearman": dispersion.spearman,
            "within data sets": dispersion.pearson_within,
        }
        texts = [f"{name} {value:+.2f}" for name, value in numbers.items() if value is not None]
        yield f"ATFD against ECE over {len(dispersion.points)} points: {', '.join(texts)}"


def _dominant(entry: "DatasetAnalysis") -> Table:
    rows = []
    for name, side in (("text (TDD)", entry.text.dominant), ("image (IDD)", entry.image.dominant)):
        second = "—"
        if side.runner_up is not None and side.runner_up_absolute is not None:
            second = f"{side.runner_up} ({side.runner_up_absolute:.3f})"
        numbers = (f"{side.mean:+.3f}", f"{side.mean_absolute:.3f}")
        fractions = (_percent(side.norm_share), _percent(side.consistency))
        rows.append((name, str(side.index), *numbers, *fractions, second))
    heads = ("modality", "index", "mean", "mean |·|", "of norm² %", "same argmax %", "runner-up")
    return text_table(f"Dominant dimensions (of {entry.dimensions})", heads, rows=rows)


def _gap(entry: "DatasetAnalysis") -> Table:
    gap = entry.gap
    carriers = ", ".join(
        f"{part.dimension}: {_percent(part.share)} %" for part in gap.shares[:SHOWN_DIMENSIONS]
    )
    rows = [
        ("distance of the centroids", f"{gap.distance:.3f}"),
        ("cosine of the centroids", f"{gap.cosine:+.3f}"),
        ("mean cosine, image and its class", f"{gap.matched_cosine:+.3f}"),
        ("mean cosine, all pairs", f"{gap.all_pairs_cosine:+.3f}"),
        ("fraction of the squared distance", carriers),
    ]
    return text_table("Modality gap", ("", "value"), rows=rows)


def _sensitivity(entry: "DatasetAnalysis") -> Table:
    """Return the most sensitive dimensions under the three ways of masking."""
    rows = [
        (
            MASKED[chart.masked],
            ", ".join(f"{d.dimension}: {d.value:.2e}" for d in chart.top[:SHOWN_DIMENSIONS]),
        )
        for chart in entry.sensitivity
    ]
    title = f"Sensitivity KL(p_m ‖ q), nats, mean of {entry.sensitivity[0].images} images"
    return text_table(title, ("masked", "largest dimensions"), rows=rows)


def _scores(entry: "DatasetAnalysis") -> Table:
    efficient = {point.label for point in entry.pareto if point.efficient}
    rows = [
        (
            score.label + (" *" if score.label in efficient else ""),
            *(_percent(value, 2) for value in (score.accuracy, score.ece, score.confidence)),
        )
        for score in entry.scores
    ]
    heads = ("method (* efficient)", "Acc. ↑ %", "ECE ↓ %", "mean conf. %")
    return text_table("Accuracy and calibration", heads, rows=rows)


def _geometry(entry: "DatasetAnalysis") -> Table:
    """Dispersion and logits after tuning; zero-shot is the state before."""
    rows = []
    for geometry in entry.geometry:
        after = geometry.after
        logits = (f"{after.logit_range:.3f}", f"{after.logit_mean:.3f}")
        cosines = (after.cosine, after.top_cosine, after.label_cosine)
        texts = (f"{after.atfd:.4f}", *logits, *(f"{cosine:.4f}" for cosine in cosines))
        rows.append((geometry.label, *texts))
    heads = ("method", "ATFD", "logit range", "logit mean", "cos all", "cos top", "cos true")
    return text_table("Geometry after tuning", heads, rows=rows)


def _movement(entry: "DatasetAnalysis") -> Table:
    """Movement of the text features; the signed tangent is positive toward the image."""
    rows = []
    for geometry in entry.geometry:
        for name, moved in (("top", geometry.top_class), ("others", geometry.other_classes)):
            if moved is not None and geometry.every_class.squared_length > 0:
                rows.append((geometry.label, name, *_movement_texts(moved)))
    heads = ("method", "classes", "mean ‖δ‖²", "tangent %", "normal %", "binormal %")
    chance = 100 / max(entry.dimensions - 1, 1)
    title = f"Movement of the text features (chance for the tangent: {chance:.2f} %)"
    return text_table(title, (*heads, "toward image"), rows=rows)


def _movement_texts(moved: "Movement") -> Iterable[str]:
    yield f"{moved.squared_length:.2e}"
    for fraction in (moved.tangent_share, moved.normal_share, moved.binormal_share):
        yield _percent(fraction, 2)
    yield f"{moved.tangent:+.4f}"


def _dependence(entry: "DatasetAnalysis") -> Table:
    """Signs of the first step over images, and the static variant beside the method."""
    rows = []
    for method in entry.image_dependence:
        static = method.static
        signs = (method.same_sign_all, method.same_sign_most, method.regulariser_agreement)
        own = (method.score.accuracy, method.score.ece)
        scores = (*own, *((static.score.accuracy, static.score.ece) if static else (None, None)))
        same = _percent(static.same_prediction if static else None)
        rows.append((method.label, *map(_percent, signs), *(_percent(s, 2) for s in scores), same))
    heads = ("method", "same sign, all", "≥ 95 % of images", "as regul.", "Acc.", "ECE")
    static_heads = ("static Acc.", "static ECE", "same pred.")
    title = "How much of the first step depends on the image (%)"
    return text_table(title, (*heads, *static_heads), rows=rows)


def _percent(fraction: float | None, digits: int = 1) -> str:
    return "—" if fraction is None else f"{100 * fraction:.{digits}f}"
