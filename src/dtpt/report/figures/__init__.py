"""Figures, in one style, without pyplot's global state: a function from data to (figure, axes).

Every series differs in marker, dash or hatch as well as in colour, so that the figures can be read
in black and white and by colour-blind readers. The functions that return a `CaptionedFigure` add
title, caption and a text alternative, for a page.
"""

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from dtpt.report.figures.style import INK, PAPER, RULE
from dtpt.report.words import caption

_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')

DPI = 300  # of PNG
FigureKind = Literal["svg", "pdf", "png"]


@dataclass(frozen=True)
class CaptionedFigure:
    key: str  # names the figure in files and anchors
    title: str
    caption: str
    alternative: str  # what it shows, in words and numbers, for those who cannot see it
    svg: str
    panels: tuple[str, ...] = ()  # the same in parts, which a page sets as there is room
    topic: str = ""  # heading under which the page folds it; empty for a figure that is shown
    drawn: Figure | None = field(default=None, repr=False, compare=False)

    def content(self, kind: FigureKind) -> bytes:
        """Return the figure as a file of a kind; PDF with its fonts, PNG for print."""
        if kind == "svg" or self.drawn is None:
            return self.svg.encode()
        return _saved(self.drawn, kind)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.panels or (self.svg,)


def captioned(
    kind: str,
    figure: Figure,
    *,
    key: str,
    words: Sequence[str],
    panels: Sequence[Figure] = (),
    topic: str = "",
    **facts: object,
) -> CaptionedFigure:
    """Return a figure as SVG, with the title and caption of its kind in `texts/captions.toml`.

    `words` are those of the text alternative.
    """
    title, text = (caption(kind, name, **facts) for name in ("title", "caption"))
    parts = tuple(svg_text(panel) for panel in panels)
    described = f"{'; '.join(words)}."
    return CaptionedFigure(key, title, text, described, svg_text(figure), parts, topic, figure)


def svg_text(figure: Figure) -> str:
    """Return a figure as a standalone SVG document on white: text stays text, no date."""
    return _saved(figure, "svg").decode()


def _saved(figure: Figure, kind: FigureKind) -> bytes:
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    dpi: float | Literal["figure"] = DPI if kind == "png" else "figure"
    stream = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dtpt", "pdf.fonttype": 42}):
        figure.savefig(stream, format=kind, metadata=dates[kind], facecolor=PAPER, dpi=dpi)
    return stream.getvalue()


def svg_size(text: str) -> tuple[float, float]:
    """Return width and height of a document of `svg_text`, in inches."""
    found = _SIZE.search(text)
    return (float(found[1]) / 72, float(found[2]) / 72) if found else (0.0, 0.0)


def inline_svg(text: str, *, name: str, title: str, description: str) -> str:
    """Turn a document of `svg_text` into `<svg>` markup that takes a page's colours.

    `name` must be unique on the page; it is prefixed to every id inside.
    """
    drawing = text[text.index("<svg") :]
    body = drawing[drawing.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = _ID.sub(lambda found: f"{found[1]}{name}-{found[2]}", body)
    body = body.replace(INK, "currentColor").replace(RULE, "var(--rule)").replace(PAPER, "none")
    width, height = svg_size(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {72 * width:g} {72 * height:g}" style="max-width:{width:.2f}in" role="img" '
        f'aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{html.escape(title)}</title>'
        f'<desc id="{name}-d">{html.escape(description)}</desc>{body}'
    )
