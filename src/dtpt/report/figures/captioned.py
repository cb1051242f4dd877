"""A figure with its words: what stands above, below and instead of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure

from dtpt.report.figures.svg import svg_text


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure with its words.

    Attributes:
        key: Name for files and anchors.
        title: Headline.
        caption: How to read it.
        alternative: What it shows, in words and numbers, for those who cannot see it.
        draw: Makes the figure.
        folded: Whether the page shows it only on demand.
        topic: Under which heading it is folded.
        panels: The same in parts, which a page sets beside or below each other as there is room.
    """

    key: str
    title: str
    caption: str
    alternative: str
    draw: Callable[[], Figure]
    folded: bool = False
    topic: str = ""
    panels: tuple[Callable[[], Figure], ...] = ()

    @cached_property
    def svg(self) -> str:
        """The figure as a standalone SVG document, drawn once."""
        return svg_text(self.draw())

    @cached_property
    def panel_svgs(self) -> tuple[str, ...]:
        """The parts as SVG documents; the whole where there are none, or where it is folded."""
        if self.folded or not self.panels:
            return (self.svg,)
        return tuple(svg_text(draw()) for draw in self.panels)
