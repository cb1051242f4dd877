"""Which figures an analysis file becomes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from matplotlib.figure import Figure

from dtpt.analysis.feature_results import Sensitivity
from dtpt.analysis.results import Analysis, DatasetAnalysis, MethodGeometry
from dtpt.methods import method_title
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.dimensions import dimension_profile, sensitivity_bars
from dtpt.report.figures.dispersion import dispersion_figure
from dtpt.report.figures.movement import movement_drawing, movement_split
from dtpt.report.set_titles import set_title


def analysis_figures(analysis: Analysis) -> Iterable[CaptionedFigure]:
    """Yield the figures of an analysis file."""
    scatter = analysis.dispersion
    if scatter.points:
        yield CaptionedFigure(
            "analysis-dispersion",
            "Dispersion and calibration error",
            "One mark per data set, prompt and method: average text feature dispersion against "
            "ECE.",
            f"{len(scatter.points)} points; Pearson correlation {scatter.pearson}.",
            lambda: dispersion_figure(scatter)[0],
        )
    for position, entry in enumerate(analysis.datasets):
        place = _Place(f"analysis-{position}", set_title(entry.dataset), folded=position >= 1)
        yield from _of_set(entry, place)


@dataclass(frozen=True)
class _Place:
    """Where the figures of one analysed set belong."""

    key: str
    shown: str
    folded: bool

    def figure(
        self, name: str, title: str, *, caption: str, alternative: str, draw: Callable[[], Figure]
    ) -> CaptionedFigure:
        """Return a figure of this set."""
        return CaptionedFigure(
            key=f"{self.key}-{name}",
            title=f"{title}, {self.shown}",
            caption=caption,
            alternative=alternative,
            draw=draw,
            folded=self.folded,
            topic=self.shown,
        )


def _of_set(entry: DatasetAnalysis, place: _Place) -> Iterable[CaptionedFigure]:
    text, image = entry.text.dominant, entry.image.dominant
    yield place.figure(
        "profile",
        "Feature values by dimension",
        caption="Mean and 5 to 95 % band of every dimension of the normalised features; the spike "
        "is the dominant dimension.",
        alternative=f"Text-dominant dimension {text.index} with mean {text.mean:.3f}; "
        f"image-dominant dimension {image.index} with mean {image.mean:.3f}.",
        draw=lambda: dimension_profile(entry.text, entry.image)[0],
    )
    for chart in entry.sensitivity:
        yield _sensitivity(chart, place, text=text.index, image=image.index)
    moving = [method for method in entry.geometry if method.every_class.squared_length > 0]
    if moving:
        yield from _movement(entry, place, words=_movement_words(moving))


def _sensitivity(chart: Sensitivity, place: _Place, *, text: int, image: int) -> CaptionedFigure:
    top = ", ".join(f"{value.dimension}: {value.value:.3g}" for value in chart.top)
    return place.figure(
        f"sensitivity-{chart.masked}",
        "Sensitivity of dimensions",
        caption="How much the answer changes when one dimension is set to zero; the ten largest.",
        alternative=f"Largest sensitivities in nats: {top}.",
        draw=lambda: sensitivity_bars(chart, text=text, image=image)[0],
    )


def _movement_words(methods: Iterable[MethodGeometry]) -> str:
    parts = (
        f"{method_title(m.method, m.lambda_)}: tangent {100 * m.every_class.tangent_share:.1f} %, "
        f"normal {100 * m.every_class.normal_share:.1f} %, binormal "
        f"{100 * m.every_class.binormal_share:.1f} %"
        for m in methods
    )
    return f"{'; '.join(parts)}."


def _movement(entry: DatasetAnalysis, place: _Place, *, words: str) -> Iterable[CaptionedFigure]:
    yield place.figure(
        "movement",
        "Movement of the text features",
        caption="How the squared movement of all class features splits: tangent is toward the "
        "image, normal along the radius, binormal neither.",
        alternative=words,
        draw=lambda: movement_split(entry.geometry)[0],
    )
    yield place.figure(
        "drawing",
        "Where tuning moves the text",
        caption="The arc between the mean text and image features; movements are enlarged.",
        alternative=words,
        draw=lambda: movement_drawing(entry.geometry)[0],
    )
