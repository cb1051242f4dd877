"""From stored runs to cells with metrics, by what may stand in one table."""

from dtpt.report.gathering.read_runs import gather
from dtpt.report.gathering.scored_cells import Condition, Contender, Gathered, ScoredCell, Source

__all__ = ["Condition", "Contender", "Gathered", "ScoredCell", "Source", "gather"]
