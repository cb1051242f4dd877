"""Tables, figures and one page from anybody's runs, beside the paper's numbers where they apply.

>>> from dtpt.report import gather, write_report                            # doctest: +SKIP
>>> written = write_report(["runs/pets"], "report")                         # doctest: +SKIP
>>> written.page                                                            # doctest: +SKIP

Needs no torch: everything is recomputed from the rows of the stores.
"""

from dtpt.report.cells import Block, CellScore, Gathered
from dtpt.report.gather import gather
from dtpt.report.paper import PaperNumber, paper_mean, paper_number
from dtpt.report.tables import Entry, Row, Table
from dtpt.report.writing import WrittenReport, write_report

__all__ = [
    "Block",
    "CellScore",
    "Entry",
    "Gathered",
    "PaperNumber",
    "Row",
    "Table",
    "WrittenReport",
    "gather",
    "paper_mean",
    "paper_number",
    "write_report",
]
