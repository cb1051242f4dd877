"""How a number of a table is written, in the paper's units, whatever the format around it.

Bold is the best of a column where it can be told from every other row. `‡` marks a number outside
three of the paper's standard deviations, `†` one that rests on fewer pictures than the set has.
"""

from dtpt.report.tables.table import Column, Entry, Table

OUTSIDE = "‡"
FAILED = "†"
MINUS = "−"
LEGEND = {
    OUTSIDE: "outside three of the paper's standard deviations",
    FAILED: "some pictures could not be read",
    "erratum": "printed in error in the paper: shown, but no target",
    "Bold": "the best of its column, told apart from every other row (95 %, corrected for their "
    "number)",
    "Floor": "the ECE that a perfectly calibrated model with the same confidences has on average "
    "at this number of pictures; from the lowest to the highest of the rows",
}


def number(value: float, column: Column) -> str:
    """Print a fraction in the column's unit, with its sign where that is the column's subject."""
    text = column.metric.text(value)
    if not column.signed:
        return text.replace("-", MINUS)
    return text.replace("-", MINUS) if text.startswith("-") else f"+{text}"


def spread_text(entry: Entry, column: Column) -> str:
    """Return both readings of ±: ` ±0.05 (0.31)`; empty without spread."""
    if entry.spread is None or entry.spread_within is None:
        return ""
    if entry.spread == 0 and entry.spread_within == 0:
        return ""  # zero-shot looks at no random view
    text = f" ±{number(entry.spread, column)}"
    if abs(entry.spread - entry.spread_within) < 1e-12:  # one set: both readings are the same
        return text
    return f"{text} ({number(entry.spread_within, column)})"


def interval_text(entry: Entry, column: Column) -> str:
    """Return ` [61.2, 63.0]`; empty when no interval was asked for."""
    if entry.interval is None:
        return ""
    return f" [{number(entry.interval.low, column)}, {number(entry.interval.high, column)}]"


def signed(value: float) -> str:
    """Print a difference with its sign, a real minus.

    Example:
        >>> signed(-0.314), signed(0.001)
        ('−0.31', '+0.00')
    """
    text = f"{value:+.2f}"
    return "+0.00" if text == "-0.00" else text.replace("-", MINUS)


def paper_text(entry: Entry) -> str:
    """Return what the paper has: `paper 64.72 ±0.07, Δ +0.10‡`; empty where not comparable."""
    if entry.paper is None:
        return ""
    if entry.paper.erratum:
        return f"paper {entry.paper.value:.2f} (erratum)"
    spread = "" if entry.paper.std is None else f" ±{entry.paper.std:.2f}"
    difference = signed(entry.paper.difference or 0.0)
    return f"paper {entry.paper.value:.2f}{spread}, Δ {difference}{OUTSIDE * is_outside(entry)}"


def is_outside(entry: Entry) -> bool:
    """Tell whether an entry is outside three of the paper's standard deviations."""
    return entry.paper is not None and entry.paper.outside is True


def legend(table: Table) -> list[str]:
    """Explain the marks that occur in a table."""
    entries = [entry for row in table.rows for entry in row.entries]
    used = {
        OUTSIDE: any(is_outside(entry) for entry in entries),
        FAILED: any(entry.remark for entry in entries),
        "erratum": any(entry.paper is not None and entry.paper.erratum for entry in entries),
        "Bold": any(e.separated for e in entries) and not any(c.signed for c in table.columns),
        "Floor": bool(table.foot),
    }
    return [f"{mark}: {LEGEND[mark]}." for mark, there in used.items() if there]
