"""The paper: its numbers, what may stand beside them, what each table needs and what it costs."""

from dtpt.report.paper.numbers import PaperNumber, paper_mean, paper_number

__all__ = ["PaperNumber", "paper_mean", "paper_number"]
