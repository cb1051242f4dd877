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
