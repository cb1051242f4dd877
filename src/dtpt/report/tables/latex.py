"""Tables for LaTeX, with booktabs."""

from dtpt.report.tables.printed_numbers import (
    FAILED,
    interval_text,
    legend,
    number,
    paper_text,
    spread_text,
)
from dtpt.report.tables.table import Column, Entry, Table

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
    **{sign: f"$^{digit}$" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": "$-$",
    "Δ": r"$\Delta$",
    "‡": r"$^\ddagger$",
    "†": r"$^\dagger$",
    "“": "``",
    "”": "''",
    "—": "---",
    "–": "--",
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
    for place, (group, rows) in enumerate(table.grouped().items()):
        lines += ["\\midrule"] if place else []
        if group:
            lines.append(f"\\multicolumn{{{width + 1}}}{{l}}{{{escape_latex(group)}}} \\\\")
        for row in rows:
            cells = [_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
            lines.append(f"{escape_latex(row.title)} & {' & '.join(cells)} \\\\")
    lines += ["\\midrule"] if table.foot else []
    lines += [f"{' & '.join(escape_latex(text) for text in line)} \\\\" for line in table.foot]
    notes = " ".join([table.caption, *table.notes, *legend(table)])
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\caption{{{escape_latex(table.title)}. {escape_latex(notes)}}}"]
    return "\n".join([*lines, f"\\label{{tab:{table.key}}}", "\\end{table}"]) + "\n"


def _cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return "---"
    wrap = r"\textbf{%s}" if entry.separated else "%s"
    text = wrap % escape_latex(number(entry.value, column))
    text += escape_latex(FAILED * bool(entry.remark))
    small = spread_text(entry, column) + interval_text(entry, column)
    paper = paper_text(entry)
    small += f" ({paper})" if paper else ""
    return f"{text}{{\\scriptsize {escape_latex(small.strip())}}}" if small else text
