"""Which figures a report shows: drawn from the gathered cells and, when given, an analysis."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure

from dtpt.analysis.pareto import pareto_points
from dtpt.analysis.results import Analysis, DatasetAnalysis, MethodScore
from dtpt.data import family_title
from dtpt.metrics import reliability_bins, risk_coverage_curve
from dtpt.report.cells import Block, CellScore
from dtpt.report.columns import method_title
from dtpt.report.figures import (
    confidence_shift,
    dimension_profile,
    dispersion_figure,
    movement_drawing,
    movement_split,
    pareto_figure,
    reliability_row,
    risk_coverage_figure,
    sensitivity_bars,
    svg_text,
)
from dtpt.report.names import set_title
from dtpt.report.tables import Table
from dtpt.runs.exports import safe_name
from dtpt.runs.spec import method_label

MOST_PANELS = 6  # diagrams side by side; a sweep has more methods than fit


@dataclass(frozen=True)
class Drawing:
    """A figure with its words.

    Attributes:
        key: Name for files and anchors.
        title: Headline.
        caption: How to read it.
        alternative: What it shows, in words and numbers, for those who cannot see it.
        draw: Makes the figure.
        folded: Whether the page shows it only on demand.
        topic: Under which heading it is folded.
    """

    key: str
    title: str
    caption: str
    alternative: str
    draw: Callable[[], Figure]
    folded: bool = False
    topic: str = ""

    @cached_property
    def svg(self) -> str:
        """The figure as a standalone SVG document, drawn once."""
        return svg_text(self.draw())


def block_drawings(block: Block, tables: Sequence[Table], *, prefix: str) -> Iterable[Drawing]:
    """Yield the figures of one block: overview per family, then three per data set."""
    for family in block.families:
        table = next((t for t in tables if t.key == f"{prefix}{family}"), None)
        if table is not None:
            yield from _overview(block, table, family, prefix)
    first = {block.sets_of(family)[0] for family in block.families}
    for name in block.datasets:
        cells = _panels(block, name)
        if cells:
            yield from _of_set(block, name, cells, prefix=prefix, folded=name not in first)


def _overview(block: Block, table: Table, family: str, prefix: str) -> Iterable[Drawing]:
    rows = [row for row in table.rows if row.entries[0].value is not None]
    scores = [
        MethodScore(
            label=method_label(row.method, row.lambda_),
            method=row.method,
            lambda_=row.lambda_,
            images=sum(block.datasets[name].samples for name in table.sets),
            accuracy=row.entries[0].value or 0.0,
            ece=row.entries[1].value or 0.0,
            confidence=0.0,
        )
        for row in rows
    ]
    if len(scores) < 2:
        return
    points = pareto_points(scores)
    title = f"Accuracy and ECE, {family_title(family).lower()}"
    words = "; ".join(
        f"{row.title} {100 * s.accuracy:.1f} % and {100 * s.ece:.1f} %"
        for row, s in zip(rows, scores, strict=True)
    )
    yield Drawing(
        f"{prefix}pareto-{family}",
        title,
        "Right and low is better. Filled points with a rim are beaten by no other point in "
        "both; joined points are one method under growing λ.",
        f"Accuracy and ECE: {words}.",
        lambda: pareto_figure(points, title=title)[0],
    )


def _panels(block: Block, dataset: str) -> list[CellScore]:
    """Return the finished cells of a set to draw, first seed, the paper's methods first."""
    seed = block.seeds[0]
    cells = [c for c in block.cells.values() if c.dataset == dataset and c.seed == seed]
    done = [cell for cell in cells if cell.is_finished]
    if len(done) <= MOST_PANELS:
        return done
    first: dict[str, CellScore] = {}
    for cell in done:
        first.setdefault(cell.method, cell)
    return list(first.values())[:MOST_PANELS]


@dataclass(frozen=True)
class _Place:
    """Where the figures of one set belong."""

    key: str
    shown: str
    seed: int
    folded: bool


def _of_set(
    block: Block, name: str, cells: Sequence[CellScore], *, prefix: str, folded: bool
) -> Iterable[Drawing]:
    """Yield reliability, risk and confidence of one data set."""
    place = _Place(prefix + safe_name(name), set_title(name), block.seeds[0], folded)
    named = [(method_title(cell.method, cell.lambda_), cell) for cell in cells]
    yield _reliability(named, place)
    yield _risk(named, place)
    tuned = [
        (title, cell.zero_shot_confidence, cell.confidence, cell.correct)
        for title, cell in named
        if cell.method != "zero-shot" and bool((cell.zero_shot_confidence >= 0).all())
    ]
    if tuned:
        yield Drawing(
            f"{place.key}-confidence",
            f"Confidence before and after tuning, {place.shown}",
            "Each mark is a picture (at most 250 are drawn); above the diagonal tuning made the "
            "model more sure. Circles are right answers, crosses wrong ones.",
            "; ".join(
                f"{title}: mean confidence {100 * before.mean():.1f} % before, "
                f"{100 * after.mean():.1f} % after"
                for title, before, after, _ in tuned
            )
            + ".",
            lambda: confidence_shift(tuned)[0],
            place.folded,
            place.shown,
        )


def _reliability(named: Sequence[tuple[str, CellScore]], place: _Place) -> Drawing:
    bins = [(title, reliability_bins(c.confidence, c.correct)) for title, c in named]
    words = "; ".join(
        f"{title}: accuracy {100 * c.correct.mean():.1f} %, mean confidence "
        f"{100 * c.confidence.mean():.1f} %, ECE {100 * c.metric('ece'):.1f} %"
        for title, c in named
    )
    return Drawing(
        f"{place.key}-reliability",
        f"Reliability, {place.shown}",
        f"Above: accuracy in 20 bins of confidence (seed {place.seed}); hatched is the gap to the "
        "mean confidence of the bin. Below: share of pictures in each bin, with mean confidence "
        "(dashed) and accuracy (solid).",
        words + ".",
        lambda: reliability_row(bins)[0],
        place.folded,
        place.shown,
    )


def _risk(named: Sequence[tuple[str, CellScore]], place: _Place) -> Drawing:
    curves = [
        (cell.method, title, risk_coverage_curve(cell.confidence, cell.correct))
        for title, cell in named
    ]
    areas = "; ".join(f"{text}: AURC {1000 * curve.aurc:.1f}" for _, text, curve in curves)
    return Drawing(
        f"{place.key}-risk",
        f"Risk and coverage, {place.shown}",
        "Error rate when only the most confident pictures are answered; lower is better.",
        f"{areas} (×10³).",
        lambda: risk_coverage_figure(curves)[0],
        place.folded,
        place.shown,
    )


def analysis_drawings(analysis: Analysis) -> Iterable[Drawing]:
    """Yield the figures of an analysis file."""
    scatter = analysis.dispersion
    if scatter.points:
        yield Drawing(
            "analysis-dispersion",
            "Dispersion and calibration error",
            "One mark per data set, prompt and method: average text feature dispersion against "
            "ECE.",
            f"{len(scatter.points)} points; Pearson correlation {scatter.pearson}.",
            lambda: dispersion_figure(scatter)[0],
        )
    for position, entry in enumerate(analysis.datasets):
        yield from _analysed_set(entry, number=position)


def _analysed_set(entry: DatasetAnalysis, *, number: int) -> Iterable[Drawing]:
    shown = set_title(entry.dataset)
    key, folded = f"analysis-{number}", number >= 1
    text, image = entry.text.dominant, entry.image.dominant
    yield Drawing(
        f"{key}-profile",
        f"Feature values by dimension, {shown}",
        "Mean and 5 to 95 % band of every dimension of the normalised features; the spike is the "
        "dominant dimension.",
        f"Text-dominant dimension {text.index} with mean {text.mean:.3f}; image-dominant dimension "
        f"{image.index} with mean {image.mean:.3f}.",
        lambda: dimension_profile(entry.text, entry.image)[0],
        folded,
        shown,
    )
    for chart in entry.sensitivity:
        top = ", ".join(f"{v.dimension}: {v.value:.3g}" for v in chart.top)
        yield Drawing(
            f"{key}-sensitivity-{chart.masked}",
            f"Sensitivity of dimensions, {shown}",
            "How much the answer changes when one dimension is set to zero; the ten largest.",
            f"Largest sensitivities in nats: {top}.",
            _bars(chart, text.index, image.index),
            folded,
            shown,
        )
    if any(method.every_class.squared_length > 0 for method in entry.geometry):
        yield from _movement(entry, key, shown, folded=folded)


def _bars(chart: object, text: int, image: int) -> Callable[[], Figure]:
    return lambda: sensitivity_bars(chart, text=text, image=image)[0]  # type: ignore[arg-type]


def _movement(entry: DatasetAnalysis, key: str, shown: str, *, folded: bool) -> Iterable[Drawing]:
    words = "; ".join(
        f"{method_title(m.method, m.lambda_)}: tangent {100 * m.every_class.tangent_share:.1f} %, "
        f"normal {100 * m.every_class.normal_share:.1f} %, binormal "
        f"{100 * m.every_class.binormal_share:.1f} %"
        for m in entry.geometry
        if m.every_class.squared_length > 0
    )
    yield Drawing(
        f"{key}-movement",
        f"Movement of the text features, {shown}",
        "How the squared movement of all class features splits: tangent is toward the image, "
        "normal along the radius, binormal neither.",
        f"{words}.",
        lambda: movement_split(entry.geometry)[0],
        folded,
        shown,
    )
    yield Drawing(
        f"{key}-drawing",
        f"Where tuning moves the text, {shown}",
        "The arc between the mean text and image features; movements are enlarged.",
        f"{words}.",
        lambda: movement_drawing(entry.geometry)[0],
        folded,
        shown,
    )
