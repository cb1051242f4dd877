"""How a prediction looks in a notebook: HTML without scripts or outside resources."""

import base64
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

SHOWN = 5  # classes

_TABLE = "border-collapse:collapse;font-size:13px"
_NAME = "text-align:left;padding:1px 8px 1px 0"
_TRACK = "width:180px;padding:1px 8px 1px 0"
_NUMBER = "text-align:right;padding:1px 0"


class Bar(NamedTuple):
    """One class: its name, its probability, and its probability without tuning."""

    name: str
    probability: float
    zero_shot: float


def as_html(
    bars: Sequence[Bar], *, method: str, remark: str | None = None, sheet: bytes | None = None
) -> str:
    """Return a table with a bar for each class, thicker for the method, and the kept views.

    Args:
        bars: the classes to show, the most probable one first.
        method: name of the method.
        remark: a warning to print below.
        sheet: thumbnails as a JPEG, which becomes part of the text.

    Example:
        >>> text = as_html([Bar("<b>", 0.75, 0.5)], method="d-tpt")
        >>> "&lt;b&gt;" in text, "75.0 %" in text, "<script" in text
        (True, True, False)
    """
    head = f"<tr><th></th><th></th><th>{escape(method)}</th><th>&nbsp;zero-shot</th></tr>"
    rows = "".join(_row(bar, bold=place == 0) for place, bar in enumerate(bars))
    parts = [f'<table style="{_TABLE}">{head}{rows}</table>']
    if remark:
        parts.append(f"<p>{escape(remark)}</p>")
    if sheet is not None:
        code = base64.b64encode(sheet).decode("ascii")
        parts.append(
            "<p>Tuned on these views:</p>"
            f'<img alt="The views that were tuned on" src="data:image/jpeg;base64,{code}">'
        )
    return f"<div>{''.join(parts)}</div>"


def _row(bar: Bar, *, bold: bool) -> str:
    weight = "bold" if bold else "normal"
    return (
        f'<tr style="font-weight:{weight}"><td style="{_NAME}">{escape(bar.name)}</td>'
        f'<td style="{_TRACK}">{_stripe(bar.probability, height=8, colour="#2864b4")}'
        f"{_stripe(bar.zero_shot, height=3, colour='#999')}</td>"
        f'<td style="{_NUMBER}">{_percent(bar.probability)}</td>'
        f'<td style="{_NUMBER}">{_percent(bar.zero_shot)}</td></tr>'
    )


def _stripe(share: float, *, height: int, colour: str) -> str:
    return f'<div style="width:{100 * share:.1f}%;height:{height}px;background:{colour}"></div>'


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
