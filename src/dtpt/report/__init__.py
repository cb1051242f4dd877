"""Facts, tables, figures and one page from runs, beside the paper's numbers where they apply.

    load        stores become cells with metrics, by what may share a table
    derived     λ and temperature, leave-one-dataset-out
    facts       every number, interval, decision and winner; words selects and writes sentences
    tables      the facts as tables
    figures/    figures with their words
    paper/      the paper's numbers, what may be compared with them, what a reproduction needs
    compose     all of it as one report, written as files; page/ has the templates
    compare     `dtpt.compare`
    lead        the title and three sentences of the first screen
    record      the recorded demo; demo, beside a live sample; clip_record, what real CLIP shows
    leaderboard cards of published runs, and the page that ranks them

>>> from dtpt.report import write_report                                    # doctest: +SKIP
>>> write_report(["runs/pets"], "report").page                              # doctest: +SKIP

Needs no torch: everything is recomputed from the rows of the stores.
"""

from dtpt.report.compare import Comparisons, compare
from dtpt.report.compose import WrittenReport, write_report
from dtpt.report.load import Condition, Loaded, Variant, load_runs
from dtpt.report.paper.numbers import PaperNumber, paper_mean, paper_number

__all__ = [
    "Comparisons",
    "Condition",
    "Loaded",
    "PaperNumber",
    "Variant",
    "WrittenReport",
    "compare",
    "load_runs",
    "paper_mean",
    "paper_number",
    "write_report",
]
