"""Figures as SVG: a standalone file, or markup that takes a page's colours and carries its text.

Text stays text (searchable, small), nothing depends on the date, and inside a page the ink becomes
`currentColor` and the ground transparent, so that one drawing serves light and dark.
"""

import html
import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from dtpt.report.figures.style import INK, PAPER, RULE

_ID = re.compile(r'(\bid="|url\(#|href="#)([^")]+)')
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def svg_text(figure: Figure) -> str:
    """Return a figure as a standalone SVG document on white."""
    stream = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dtpt"}):
        figure.savefig(stream, format="svg", metadata={"Date": None}, facecolor=PAPER)
    return stream.getvalue().decode()


def svg_size(text: str) -> tuple[float, float]:
    """Return width and height of a document of `svg_text`, in inches."""
    found = _SIZE.search(text)
    if found is None:
        return 0.0, 0.0
    return float(found[1]) / 72, float(found[2]) / 72


def inline_svg(text: str, *, name: str, title: str, description: str) -> str:
    """Turn a document of `svg_text` into `<svg>` markup for a page, with a text alternative.

    Args:
        text: The document.
        name: Unique on the page; prefixed to every id inside.
        title: What it is, for screen readers and as a tooltip.
        description: What it shows, in words.
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
