"""The tables of an analysis, in the paper's units."""

from collections.abc import Iterator

from dtpt.analysis.paper import Analysis, DatasetAnalysis
from dtpt.analysis.scores import without_dominant
from dtpt.tables import Table, signed_text, text_table

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
    yield from _features(entry)
    heads = ("method (* efficient)", "Acc. ↑ %", "ECE ↓ %", "mean conf. %")
    rows = [
        (s.label + " *" * bool(s.efficient), *_percents(s.accuracy, s.ece, s.confidence, digits=2))
        for s in entry.scores
    ]
    yield text_table("Accuracy and calibration", heads, rows=rows)
    yield from _without(entry)
    yield from _tuning(entry)
    if entry.image_dependence:
        yield _dependence(entry)


def _without(entry: DatasetAnalysis) -> Iterator[Table]:
    """Yield methods without dominant dimensions, each beside a temperature as confident."""
    instead = {control.label: control for control in entry.temperatures}
    rows = []
    for plain, *modified in without_dominant(entry.scores):
        texts = [" / ".join(_percents(plain.accuracy, plain.ece, digits=2))]
        for score in modified:
            control = instead[score.label]
            texts.append(" / ".join(_percents(score.accuracy, score.ece, digits=2)))
            texts.append(f"{_percents(control.ece, digits=2)[0]} (T {control.temperature:.2f})")
        rows.append((plain.label, *texts))
    if rows:
        title = "Without dominant dimensions, accuracy / ECE (%)"
        as_confident = "ECE of a T as confident"
        heads = ("method", "as it is", "without TDD", as_confident, "without IDD", as_confident)
        yield text_table(title, heads, rows=rows)


def _features(entry: DatasetAnalysis) -> Iterator[Table]:
    """Yield dominant dimensions, modality gap and sensitivity."""
    rows = []
    for name, side in (("text (TDD)", entry.text.dominant), ("image (IDD)", entry.image.dominant)):
        second = "—"
        if side.runner_up is not None:
            second = f"{side.runner_up} ({side.runner_up_absolute:.3f})"
        numbers = (str(side.index), signed_text(side.mean, 3), f"{side.mean_absolute:.3f}")
        rows.append((name, *numbers, *_percents(side.norm_fraction, side.consistency), second))
    heads = ("modality", "index", "mean", "mean |·|", "of norm² %", "same argmax %", "runner-up")
    yield text_table(f"Dominant dimensions (of {entry.dimensions})", heads, rows=rows)
    gap = entry.gap
    parts = (f"{p.dimension}: {100 * p.fraction:.1f} %" for p in gap.parts[:SHOWN_DIMENSIONS])
    facts = [
        ("distance of the centroids", f"{gap.distance:.3f}"),
        ("cosine of the centroids", signed_text(gap.cosine, 3)),
        ("mean cosine, image and its class", signed_text(gap.matched_cosine, 3)),
        ("mean cosine, all pairs", signed_text(gap.all_pairs_cosine, 3)),
        ("fraction of the squared distance", ", ".join(parts)),
    ]
    yield text_table("Modality gap", ("", "value"), rows=facts)
    charts = []
    for chart in entry.sensitivity:
        largest = (f"{index}: {value:.2e}" for index, value in chart.top[:SHOWN_DIMENSIONS])
        charts.append((MASKED[chart.masked], ", ".join(largest)))
    title = f"Sensitivity KL(p_m ‖ q), nats, mean of {entry.sensitivity[0].images} images"
    yield text_table(title, ("masked", "largest dimensions"), rows=charts)


def _tuning(entry: DatasetAnalysis) -> Iterator[Table]:
    """Yield geometry and movement; zero-shot is the state before tuning."""
    states, moves = [], []
    for method in entry.geometry:
        after = method.after
        logits = (f"{after.logit_range:.3f}", f"{after.logit_mean:.3f}")
        cosines = (after.cosine, after.top_cosine, after.label_cosine)
        states.append((method.label, f"{after.atfd:.4f}", *logits, *(f"{c:.4f}" for c in cosines)))
        for name, moved in (("top", method.top_class), ("others", method.other_classes)):
            if moved is not None and method.every_class.squared_length > 0:
                fractions = (moved.tangent_fraction, moved.normal_fraction, moved.binormal_fraction)
                texts = (f"{moved.squared_length:.2e}", *_percents(*fractions, digits=2))
                moves.append((method.label, name, *texts, signed_text(moved.tangent, 4)))
    heads = ("method", "ATFD", "logit range", "logit mean", "cos all", "cos top", "cos true")
    yield text_table("Geometry after tuning", heads, rows=states)
    chance = 100 / max(entry.dimensions - 1, 1)
    title = f"Movement of the text features (chance for the tangent: {chance:.2f} %)"
    parts = ("tangent %", "normal %", "binormal %", "toward image")
    yield text_table(title, ("method", "classes", "mean ‖δ‖²", *parts), rows=moves)


def _dependence(entry: DatasetAnalysis) -> Table:
    """Return the signs of the first step over images, and the static variant beside the method."""
    rows = []
    for method in entry.image_dependence:
        signs = (method.same_sign_all, method.same_sign_most, method.regulariser_agreement)
        labels = (method.label, method.static)
        scores = [entry.score(label) if label else None for label in labels]
        pairs = [(score.accuracy, score.ece) if score else (None, None) for score in scores]
        texts = _percents(*pairs[0], *pairs[1], digits=2)
        rows.append((method.label, *_percents(*signs), *texts, *_percents(method.same_prediction)))
    heads = ("method", "same sign, all", "≥ 95 % of images", "as regul.", "Acc.", "ECE")
    static_heads = ("static Acc.", "static ECE", "same pred.")
    title = "How much of the first step depends on the image (%)"
    return text_table(title, (*heads, *static_heads), rows=rows)


def _percents(*fractions: float | None, digits: int = 1) -> list[str]:
    return ["—" if value is None else f"{100 * value:.{digits}f}" for value in fractions]
