"""The tables that `dtpt analyze` prints, in the paper's units."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from dtpt.analysis import Analysis, DatasetAnalysis, Movement

SHOWN = 5


def dataset_tables(entry: "DatasetAnalysis") -> Iterator[Table]:
    """Yield the tables of one data set in the order of the paper."""
    yield dominant_table(entry)
    yield gap_table(entry)
    yield sensitivity_table(entry)
    yield score_table(entry)
    yield geometry_table(entry)
    yield movement_table(entry)
    if entry.image_dependence:
        yield dependence_table(entry)


def dominant_table(entry: "DatasetAnalysis") -> Table:
    """Dominant dimensions of both modalities."""
    rows = []
    for name, found in (("text (TDD)", entry.text.dominant), ("image (IDD)", entry.image.dominant)):
        second = "—"
        if found.runner_up is not None and found.runner_up_absolute is not None:
            second = f"{found.runner_up} ({found.runner_up_absolute:.3f})"
        rows.append(
            [
                name,
                str(found.index),
                f"{found.mean:+.3f}",
                f"{found.mean_absolute:.3f}",
                percent(found.norm_share),
                percent(found.consistency),
                second,
            ]
        )
    heads = ("modality", "index", "mean", "mean |·|", "of norm² %", "same argmax %", "runner-up")
    return _table(f"Dominant dimensions (of {entry.dimensions})", heads, rows=rows)


def gap_table(entry: "DatasetAnalysis") -> Table:
    """Print the modality gap and the dimensions that carry it."""
    gap = entry.gap
    carriers = ", ".join(f"{s.dimension}: {percent(s.share)} %" for s in gap.shares[:SHOWN])
    rows = [
        ["distance of the centroids", f"{gap.distance:.3f}"],
        ["cosine of the centroids", f"{gap.cosine:+.3f}"],
        ["mean cosine, image and its class", f"{gap.matched_cosine:+.3f}"],
        ["mean cosine, all pairs", f"{gap.all_pairs_cosine:+.3f}"],
        ["share of the squared distance", carriers],
    ]
    return _table("Modality gap", ("", "value"), rows=rows)


def sensitivity_table(entry: "DatasetAnalysis") -> Table:
    """Print the most sensitive dimensions under the three ways of masking."""
    names = {
        "product": "either side, not normalised again",
        "text": "text, normalised again",
        "image": "image, normalised again",
    }
    rows = [
        [names[chart.masked], ", ".join(f"{d.dimension}: {d.value:.2e}" for d in chart.top[:SHOWN])]
        for chart in entry.sensitivity
    ]
    title = f"Sensitivity KL(p_m ‖ q), nats, mean of {entry.sensitivity[0].images} images"
    return _table(title, ("masked", "largest dimensions"), rows=rows)


def score_table(entry: "DatasetAnalysis") -> Table:
    """Accuracy and ECE of every method; * marks the efficient ones."""
    efficient = {point.label for point in entry.pareto if point.efficient}
    rows = [
        [
            s.label + (" *" if s.label in efficient else ""),
            f"{100 * s.accuracy:.2f}",
            f"{100 * s.ece:.2f}",
            f"{100 * s.confidence:.2f}",
        ]
        for s in entry.scores
    ]
    heads = ("method (* efficient)", "Acc. ↑ %", "ECE ↓ %", "mean conf. %")
    return _table("Accuracy and calibration", heads, rows=rows)


def geometry_table(entry: "DatasetAnalysis") -> Table:
    """Dispersion and logits after tuning; zero-shot is the state before."""
    rows = [
        [
            g.label,
            f"{g.after.atfd:.4f}",
            f"{g.after.logit_range:.3f}",
            f"{g.after.logit_mean:.3f}",
            f"{g.after.cosine:.4f}",
            f"{g.after.top_cosine:.4f}",
            f"{g.after.label_cosine:.4f}",
        ]
        for g in entry.geometry
    ]
    heads = ("method", "ATFD", "logit range", "logit mean", "cos all", "cos top", "cos true")
    return _table("Geometry after tuning", heads, rows=rows)


def movement_table(entry: "DatasetAnalysis") -> Table:
    """Movement of the text features; the signed tangent is positive toward the image."""
    rows = []
    for g in entry.geometry:
        for name, moved in (("top", g.top_class), ("others", g.other_classes)):
            if moved is not None and g.every_class.squared_length > 0:
                rows.append([g.label, name, *_movement_cells(moved)])
    heads = (
        "method",
        "classes",
        "mean ‖δ‖²",
        "tangent %",
        "normal %",
        "binormal %",
        "toward image",
    )
    chance = 100 / max(entry.dimensions - 1, 1)
    title = f"Movement of the text features (chance for the tangent: {chance:.2f} %)"
    return _table(title, heads, rows=rows)


def _movement_cells(moved: "Movement") -> list[str]:
    shares = (moved.tangent_share, moved.normal_share, moved.binormal_share)
    cells = [f"{100 * share:.2f}" for share in shares]
    return [f"{moved.squared_length:.2e}", *cells, f"{moved.tangent:+.4f}"]


def dependence_table(entry: "DatasetAnalysis") -> Table:
    """Signs of the first step over images, and the static variant beside the method."""
    rows = []
    for d in entry.image_dependence:
        static = ["—"] * 3
        if d.static is not None:
            static = [
                percent(d.static.score.accuracy, 2),
                percent(d.static.score.ece, 2),
                percent(d.static.same_prediction),
            ]
        agreement = "—" if d.regulariser_agreement is None else percent(d.regulariser_agreement)
        signs = [percent(d.same_sign_all), percent(d.same_sign_most), agreement]
        own = [percent(d.score.accuracy, 2), percent(d.score.ece, 2)]
        rows.append([d.label, *signs, *own, *static])
    heads = (
        "method",
        "same sign, all",
        "≥ 95 % of images",
        "as regul.",
        "Acc.",
        "ECE",
        "static Acc.",
        "static ECE",
        "same pred.",
    )
    return _table("How much of the first step depends on the image (%)", heads, rows=rows)


def closing_lines(analysis: "Analysis") -> list[str]:
    """Say how ATFD and ECE go together over everything."""
    found = analysis.dispersion
    if found.pearson is None:
        return []
    texts = [f"Pearson {found.pearson:+.2f}"]
    if found.spearman is not None:
        texts.append(f"Spearman {found.spearman:+.2f}")
    if found.pearson_within is not None:
        texts.append(f"within data sets {found.pearson_within:+.2f}")
    return [f"ATFD against ECE over {len(found.points)} points: {', '.join(texts)}"]


def percent(share: float, digits: int = 1) -> str:
    """Write a fraction in percent."""
    return f"{100 * share:.{digits}f}"


def _table(title: str, heads: Iterable[str], *, rows: Iterable[list[str]]) -> Table:
    lines = list(rows)
    table = Table(title=title, title_justify="left")
    first, *others = heads
    longest = max((len(row[0]) for row in lines), default=0)
    table.add_column(first, min_width=longest)  # labels are never cut
    for head in others:
        table.add_column(head, justify="right", overflow="fold")
    for row in lines:
        table.add_row(*row)
    return table
