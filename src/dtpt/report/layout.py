"""Tables as text: Markdown, LaTeX (booktabs) and CSV, in the paper's units.

Best is bold, second best underlined. `‡` marks a number outside three of the paper's standard
deviations, `†` one that rests on fewer pictures than the set has; `E1` an erratum of the paper.
"""

import csv
import io
from collections.abc import Callable, Sequence

from dtpt.report.tables import Column, Entry, Row, Table

OUTSIDE = "‡"
FAILED = "†"
MINUS = "−"
LEGEND = {
    OUTSIDE: "outside three of the paper's standard deviations",
    FAILED: "some pictures could not be read",
    "E1": "printed in error in the paper: shown, but no target",
}
CSV_FIELDS = (
    "table",
    "group",
    "method",
    "lambda",
    "column",
    "metric",
    "unit",
    "value",
    "std_of_mean_over_sets",
    "mean_of_std_over_seeds",
    "low",
    "high",
    "rank",
    "missing",
    "remark",
    "paper_value",
    "paper_std",
    "difference",
    "outside_3_std",
    "paper_erratum",
)


def number(value: float, column: Column) -> str:
    """Print a fraction in the column's unit with two decimals."""
    return f"{value * column.metric.factor:.2f}"


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
        return f"paper {entry.paper.value:.2f} (E1: erratum)"
    spread = "" if entry.paper.std is None else f" ±{entry.paper.std:.2f}"
    difference = signed(entry.paper.difference or 0.0)
    return f"paper {entry.paper.value:.2f}{spread}, Δ {difference}{OUTSIDE * is_outside(entry)}"


def is_outside(entry: Entry) -> bool:
    """Tell whether an entry is outside three of the paper's standard deviations."""
    return entry.paper is not None and entry.paper.outside is True


def markdown(table: Table) -> str:
    """Return a table with title, caption and notes as Markdown."""
    head = ["Method", *(column.title for column in table.columns)]
    lines = [f"### {_escape_markdown(table.title)}", "", _escape_markdown(table.caption), ""]
    lines += [_markdown_row(head), _markdown_row([":---"] + ["---:"] * len(table.columns))]
    group = ""
    for row in table.rows:
        if row.group and row.group != group:
            group = row.group
            lines.append(_markdown_row([f"*{_escape_markdown(group)}*"] + [""] * len(row.entries)))
        cells = [_markdown_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
        lines.append(_markdown_row([_escape_markdown(row.title), *cells]))
    notes = [*table.notes, *legend(table)]
    lines += ["", *(f"- {_escape_markdown(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")


def _markdown_cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return f"— ({_escape_markdown(entry.missing)})"
    wrap: Callable[[str], str] = {1: "**{}**".format, 2: "<u>{}</u>".format}.get(entry.rank, str)
    text = wrap(number(entry.value, column)) + FAILED * bool(entry.remark)
    text += spread_text(entry, column) + interval_text(entry, column)
    paper = paper_text(entry)
    return f"{text}<br>{paper}" if paper else text


def legend(table: Table) -> list[str]:
    """Explain the marks that occur in a table."""
    entries = [entry for row in table.rows for entry in row.entries]
    used = {
        OUTSIDE: any(is_outside(entry) for entry in entries),
        FAILED: any(entry.remark for entry in entries),
        "E1": any(entry.paper is not None and entry.paper.erratum for entry in entries),
    }
    return [f"{mark} {LEGEND[mark]}." for mark, there in used.items() if there]


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "λ": r"$\lambda$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "³": r"$^3$",
    "⁴": r"$^4$",
    "⁵": r"$^5$",
    "⁶": r"$^6$",
    "⁷": r"$^7$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": "$-$",
    "Δ": r"$\Delta$",
    "‡": r"$^\ddagger$",
    "†": r"$^\dagger$",
    "“": "``",
    "”": "''",
    "—": "---",
}


def escape_latex(text: str) -> str:
    r"""Write a text so that LaTeX prints it.

    Example:
        >>> print(escape_latex("50 % of a_b"))
        50 \% of a\_b
    """
    return "".join(_LATEX.get(character, character) for character in text)


def latex(table: Table) -> str:
    """Return a table for LaTeX with booktabs."""
    width = len(table.columns)
    head = " & ".join(escape_latex(column.title) for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        "\\small",
        f"\\begin{{tabular}}{{l{'r' * width}}}",
        "\\toprule",
        f"Method & {head} \\\\",
        "\\midrule",
    ]
    group = ""
    for row in table.rows:
        if row.group and row.group != group:
            lines += ["\\midrule"] if group else []
            group = row.group
            lines.append(f"\\multicolumn{{{width + 1}}}{{l}}{{{escape_latex(group)}}} \\\\")
        cells = [_latex_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
        lines.append(f"{escape_latex(row.title)} & {' & '.join(cells)} \\\\")
    notes = " ".join([table.caption, *table.notes, *legend(table)])
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\caption{{{escape_latex(table.title)}. {escape_latex(notes)}}}"]
    return "\n".join([*lines, f"\\label{{tab:{table.key}}}", "\\end{table}"]) + "\n"


def _latex_cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return "---"
    wrap = {1: r"\textbf{%s}", 2: r"\underline{%s}"}.get(entry.rank, "%s")
    text = wrap % number(entry.value, column) + escape_latex(FAILED * bool(entry.remark))
    small = spread_text(entry, column) + interval_text(entry, column)
    paper = paper_text(entry)
    small += f" ({paper})" if paper else ""
    return f"{text}{{\\scriptsize {escape_latex(small.strip())}}}" if small else text


def csv_text(tables: Sequence[Table]) -> str:
    """Return tables as one long CSV: a line per cell, printed units, unrounded."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for row in table.rows:
            for entry, column in zip(row.entries, table.columns, strict=True):
                writer.writerow(_csv_record(table, row, entry, column))
    return stream.getvalue()


def _csv_record(table: Table, row: Row, entry: Entry, column: Column) -> dict[str, object]:
    factor = column.metric.factor
    values = {
        "value": entry.value,
        "std_of_mean_over_sets": entry.spread,
        "mean_of_std_over_seeds": entry.spread_within,
        "low": entry.interval.low if entry.interval else None,
        "high": entry.interval.high if entry.interval else None,
    }
    paper = entry.paper
    return {
        "table": table.key,
        "group": row.group,
        "method": row.method,
        "lambda": row.lambda_,
        "column": column.title,
        "metric": column.metric.key,
        "unit": column.metric.unit,
        **{name: None if v is None else repr(v * factor) for name, v in values.items()},
        "rank": entry.rank or None,
        "missing": entry.missing,
        "remark": entry.remark,
        "paper_value": paper.value if paper else None,
        "paper_std": paper.std if paper else None,
        "difference": paper.difference if paper else None,
        "outside_3_std": paper.outside if paper else None,
        "paper_erratum": bool(paper.erratum) if paper else None,
    }
