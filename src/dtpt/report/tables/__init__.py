"""Tables: computed as data, then written as Markdown, LaTeX, CSV or for a terminal."""

from dtpt.report.tables.csv_file import csv_text, table_records
from dtpt.report.tables.latex import latex
from dtpt.report.tables.markdown import markdown
from dtpt.report.tables.means import family_table, prompt_table, set_table
from dtpt.report.tables.table import COLUMNS, Column, Entry, Row, Table

__all__ = [
    "COLUMNS",
    "Column",
    "Entry",
    "Row",
    "Table",
    "csv_text",
    "family_table",
    "latex",
    "markdown",
    "prompt_table",
    "set_table",
    "table_records",
]
