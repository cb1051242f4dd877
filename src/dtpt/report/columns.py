"""The columns of the tables: the paper's metrics, in its order.

Files hold fractions; a printed number is the fraction times the metric's `factor`.
"""

from dtpt.methods import lambda_text, method_title
from dtpt.metrics import METRICS, PAPER_METRICS, Metric

__all__ = ["COLUMNS", "lambda_text", "method_title"]

COLUMNS: tuple[Metric, ...] = tuple(METRICS[key] for key in PAPER_METRICS)
