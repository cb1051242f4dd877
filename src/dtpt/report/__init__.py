"""Tables, figures and one page from anybody's runs, beside the paper's numbers where they apply.

    gathering/    stored runs become cells with metrics, by what may stand in one table
    paper/        the paper's numbers, what may stand beside them, what a reproduction needs
    tables/       tables as data; as Markdown, LaTeX, CSV and for a terminal
    figures/      figures, with their words
    page/         one HTML page and a card, from templates
    composing.py  all of it put together as data; writing.py writes the files

>>> from dtpt.report import gather, write_report                            # doctest: +SKIP
>>> written = write_report(["runs/pets"], "report")                         # doctest: +SKIP
>>> written.page                                                            # doctest: +SKIP

Needs no torch: everything is recomputed from the rows of the stores.
"""

from dtpt.report.gathering import Condition, Contender, Gathered, ScoredCell, gather
from dtpt.report.paper import PaperNumber, paper_mean, paper_number
from dtpt.report.tables import Entry, Row, Table
from dtpt.report.writing import WrittenReport, write_report

__all__ = [
    "Condition",
    "Contender",
    "Entry",
    "Gathered",
    "PaperNumber",
    "Row",
    "ScoredCell",
    "Table",
    "WrittenReport",
    "gather",
    "paper_mean",
    "paper_number",
    "write_report",
]
