"""The tables of an analysis, in the paper's units."""

from collections.abc import Iterator

from dtpt.analysis.results import Analysis, DatasetAnalysis, Movement
from dtpt.tables import Table, text_table

SHOWN_DIMENSIONS = 5
MASKED = {
    "product": "either side, not normalised again",
    "text": "text, normalised again",
    "image": "image, normalised again",
}


def analysis_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield the tables of every data set and prompt, for a page."""
    for entry in analysis.datasets:
        for table in dataset_tables(entry):
            where = f"{entry.dataset}, {entry.images:,} images, “{entry.template}”"
            yield Table(f"{table.title}: {where}", table.columns, table.rows, heading=table.heading)


def dataset_tables(entry: DatasetAnalysis) -> Iterator[Table]:
    """Yield the tables of one data set and prompt, in the order of the paper."""
    yield _dominant(entry)
    yield _gap(entry)
    yield _sensitivity(entry)
    yield _scores(entry)
    if entry.without:
        yield _without(entry)
    yield _geometry(entry)
    yield _movement(entry)
    if entry.image_dependence:
        yield _dependence(entry)


def _without(entry: DatasetAnalysis) -> Table:
    rows = [
        (
            found.original.label,
            *(
                f"{_percent(score.accuracy, 2)} / {_percent(score.ece, 2)}"
                for score in (found.original, found.without_tdd, found.without_idd)
            ),
        )
        for found in entry.without
    ]
    heads = ("method", "as it is", "without TDD", "without IDD")
    return text_table("Without dominant dimensions, accuracy / ECE (%)", heads, rows=rows)


def _dominant(entry: DatasetAnalysis) -> Table:
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


def _gap(entry: DatasetAnalysis) -> Table:
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


def _sensitivity(entry: DatasetAnalysis) -> Table:
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


def _scores(entry: DatasetAnalysis) -> Table:
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


def _geometry(entry: DatasetAnalysis) -> Table:
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


def _movement(entry: DatasetAnalysis) -> Table:
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


def _movement_texts(moved: Movement) -> Iterator[str]:
    yield f"{moved.squared_length:.2e}"
    for fraction in (moved.tangent_share, moved.normal_share, moved.binormal_share):
        yield _percent(fraction, 2)
    yield f"{moved.tangent:+.4f}"


def _dependence(entry: DatasetAnalysis) -> Table:
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
