"""Tables as data, and the same table as Markdown, LaTeX and CSV.

A table is made once, with every number written out in its cell; the renderers add no content. The
unrounded numbers behind a cell are in its `record`, which CSV and JSON print. HTML is written by a
template of `dtpt.report.page`; `dtpt.terminal` prints tables.

>>> lines = [("TPT", "61.20"), ("D-TPT", "61.90")]
>>> table = text_table("Scores", ("Method", "Acc. (%)"), rows=lines)
>>> print(markdown(table))
### Scores
<BLANKLINE>
| Method | Acc. (%) |
| :--- | ---: |
| TPT | 61.20 |
| D-TPT | 61.90 |
<BLANKLINE>
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from dtpt.files import printable

if TYPE_CHECKING:
    from dtpt.metrics import Metric

MINUS = "−"


@dataclass(frozen=True)
class Cell:
    """One cell, as printed."""

    text: str
    _: KW_ONLY
    bold: bool = False
    mark: str = ""  # a sign behind the text that a note explains
    spread: str = ""  # ±0.05
    interval: str = ""  # [61.20, 63.04]
    reference: str = ""  # a number to compare with: paper 64.72 ±0.07
    deviation: str = ""  # distance to that: Δ +0.10
    is_outside: bool = False  # the deviation is larger than the reference allows
    is_missing: bool = False  # there is no number; the text is the reason
    value: float | None = None  # to sort by
    note: str = ""
    record: Mapping[str, object] = field(default_factory=dict)

    @property
    def compared(self) -> str:
        """Reference and deviation in one line."""
        return ", ".join(filter(None, (self.reference, self.deviation)))


@dataclass(frozen=True)
class Column:
    """One column beside the first."""

    title: str
    _: KW_ONLY
    meaning: str = ""
    is_text: bool = False
    is_descending: bool = False  # when first sorted by a click on the heading
    record: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row; `group` is the heading above it, if any."""

    title: str
    cells: tuple[Cell, ...]
    _: KW_ONLY
    group: str = ""
    is_own: bool = False  # highlighted on the page
    record: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table; its first column holds the titles of the rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    _: KW_ONLY
    heading: str = "Method"  # of the first column
    key: str = ""  # names the table in files and anchors
    caption: str = ""
    notes: tuple[str, ...] = ()
    foot: tuple[tuple[str, ...], ...] = ()  # lines below the rows: a title and a text per column

    def grouped(self) -> dict[str, list[Row]]:
        """Return the rows by their group, in order."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.group, []).append(row)
        return groups


def text_table(
    title: str,
    heads: Sequence[str],
    *,
    rows: Iterable[Sequence[str]],
    caption: str = "",
) -> Table:
    """Make a table of texts. Columns in which a text begins with a letter are aligned left."""
    lines = tuple(Row(first, tuple(map(Cell, others))) for first, *others in rows)
    columns = tuple(
        Column(head, is_text=any(line.cells[index].text[:1].isalpha() for line in lines))
        for index, head in enumerate(heads[1:])
    )
    return Table(title, columns, lines, heading=heads[0], caption=caption)


def metric_column(metric: "Metric", title: str = "") -> Column:
    """Return the column of a metric, under its own title or that of a data set."""
    return Column(
        title or metric.title,
        meaning=metric.meaning,
        is_descending=bool(metric.higher_is_better),
        record={"column": title or metric.title, "metric": metric.key, "unit": metric.unit},
    )


def number_text(value: float, metric: "Metric", *, signed: bool = False) -> str:
    """Write a fraction in the unit of its metric, with a real minus; `signed` adds a plus."""
    text = metric.text(value)
    sign = "+" if signed and not text.startswith("-") else ""
    return sign + text.replace("-", MINUS)


def signed_text(value: float, digits: int = 2) -> str:
    """Write a number with its sign, a real minus, and never as minus zero.

    Example:
        >>> signed_text(-0.001), signed_text(-1.5, digits=1)
        ('+0.00', '−1.5')
    """
    return f"{value:+z.{digits}f}".replace("-", MINUS)


def interval_text(ends: tuple[float, float], metric: "Metric", *, signed: bool = False) -> str:
    """Write a confidence interval: [61.20, 63.04]."""
    texts = (number_text(end, metric, signed=signed) for end in ends)
    return f"[{', '.join(texts)}]"


# records and CSV


def records(tables: Iterable[Table]) -> Iterator[dict[str, object]]:
    """Yield one record per cell, with the unrounded numbers behind it."""
    for table in tables:
        for row in table.rows:
            for cell, column in zip(row.cells, table.columns, strict=True):
                yield {
                    "table": table.key,
                    **(row.record or {"row": row.title}),
                    **(column.record or {"column": column.title}),
                    **(cell.record or {"text": cell.text}),
                }


def csv_text(tables: Iterable[Table]) -> str:
    """Return tables as one long CSV, a line per cell."""
    lines = list(records(tables))
    stream = io.StringIO()
    names = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(stream, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in line.items()} for line in lines)
    return stream.getvalue()


_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+$)")


def _plain(value: object) -> object:
    """Quote a text that a spreadsheet would compute as a formula, and what a terminal obeys."""
    if not isinstance(value, str):
        return value
    return "'" * bool(_FORMULA.match(value)) + printable(value, keep="\n")


# Markdown

_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "|*`["} | {"<": "&lt;", ">": "&gt;", "\n": " "})


def escape_markdown(text: str) -> str:
    """Keep foreign text from being read as Markdown or HTML."""
    return printable(text, keep="\n").translate(_MARKDOWN)


def markdown(table: Table) -> str:
    """Return a table with title, caption and notes as Markdown."""
    lines = [f"### {escape_markdown(table.title)}", ""]
    lines += [escape_markdown(table.caption), ""] if table.caption else []
    heads = (table.heading, *(column.title for column in table.columns))
    lines += [_line([escape_markdown(head) for head in heads])]
    lines += [_line([":---", *(":---" if c.is_text else "---:" for c in table.columns)])]
    for group, rows in table.grouped().items():
        if group:
            lines.append(_line([f"*{escape_markdown(group)}*"] + [""] * len(table.columns)))
        lines += [
            _line([escape_markdown(row.title), *map(_markdown_cell, row.cells)]) for row in rows
        ]
    lines += [_line([f"*{first}*", *others]) for first, *others in table.foot]
    notes = [f"- {escape_markdown(note)}" for note in table.notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if cell.is_missing:
        return f"— ({text})"
    parts = [(f"**{text}**" if cell.bold else text) + cell.mark, cell.spread, cell.interval]
    line = " ".join(filter(None, parts))
    return f"{line}<br>{cell.compared}" if cell.compared else line


# LaTeX

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{c: f"\\{c}" for c in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "λ": r"$\lambda$",
        "±": r"$\pm$",
        "×": r"$\times$",
        **{sign: f"$^{digit}$" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        MINUS: "$-$",
        "Δ": r"$\Delta$",
        "‡": r"$^\ddagger$",
        "†": r"$^\dagger$",
        "“": "``",
        "”": "''",
        "—": "---",
        "–": "--",
    }
)


def escape_latex(text: str) -> str:
    """Write a text so that LaTeX prints it."""
    return printable(text).translate(_LATEX)


def latex(table: Table) -> str:
    """Return a table for LaTeX with booktabs."""
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    head = [table.heading, *(column.title for column in table.columns)]
    lines = [
        "% needs \\usepackage{booktabs,adjustbox}",
        "\\begin{table}[t]",
        "\\centering",
        "\\small",
        "\\begin{adjustbox}{max width=\\linewidth,max totalheight=.8\\textheight}",
        f"\\begin{{tabular}}{{l{columns}}}",
        "\\toprule",
        _latex_line(map(escape_latex, head)),
    ]
    for group, rows in table.grouped().items():
        lines.append("\\midrule")
        if group:
            lines.append(f"\\multicolumn{{{len(head)}}}{{l}}{{{escape_latex(group)}}} \\\\")
        lines += [_latex_line([escape_latex(r.title), *map(_latex_cell, r.cells)]) for r in rows]
    lines += ["\\midrule"] if table.foot else []
    lines += [_latex_line(map(escape_latex, line)) for line in table.foot]
    words = escape_latex(" ".join((f"{table.title}.", table.caption, *table.notes)))
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{adjustbox}", f"\\caption{{{words}}}"]
    return "\n".join([*lines, f"\\label{{tab:{table.key}}}", "\\end{table}"]) + "\n"


def _latex_line(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_cell(cell: Cell) -> str:
    if cell.is_missing:
        return "---"
    text = escape_latex(cell.text)
    text = (f"\\textbf{{{text}}}" if cell.bold else text) + escape_latex(cell.mark)
    compared = f"({cell.compared})" if cell.compared else ""
    small = " ".join(filter(None, (cell.spread, cell.interval, compared)))
    return f"{text}{{\\scriptsize {escape_latex(small)}}}" if small else text
