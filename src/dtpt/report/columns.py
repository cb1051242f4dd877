"""The metrics as they are printed: the paper's order, headings and units.

Files hold fractions; a printed number is the fraction times `factor`.
"""

from dataclasses import dataclass

from dtpt.methods import lambda_text, method_title

__all__ = ["METRICS", "METRIC_BY_KEY", "Metric", "lambda_text", "method_title"]


@dataclass(frozen=True)
class Metric:
    """One column of the paper's tables.

    Attributes:
        key: Name in results and reports.
        heading: Short name for headings.
        factor: Printed number = fraction times this.
        unit: What the printed number is in.
        higher_is_better: Direction of the arrow and of the ranking.
        meaning: One sentence for readers of the page.
    """

    key: str
    heading: str
    factor: float
    unit: str
    higher_is_better: bool
    meaning: str

    @property
    def arrow(self) -> str:
        """↑ where more is better, else ↓."""
        return "↑" if self.higher_is_better else "↓"

    @property
    def title(self) -> str:
        """Heading with unit and arrow: `ECE (%) ↓`."""
        return f"{self.heading} ({self.unit}) {self.arrow}"


METRICS: tuple[Metric, ...] = (
    Metric("accuracy", "Acc.", 100.0, "%", True, "Share of pictures classified correctly."),
    Metric(
        "ece",
        "ECE",
        100.0,
        "%",
        False,
        "Expected calibration error: mean distance between confidence and accuracy over 20 equal "
        "bins of confidence, weighted by their size.",
    ),
    Metric(
        "aece",
        "AECE",
        100.0,
        "%",
        False,
        "Adaptive ECE: the same over 20 bins that hold equally many pictures.",
    ),
    Metric(
        "mce",
        "MCE",
        100.0,
        "%",
        False,
        "Maximum calibration error: the worst of the 20 bins, however few pictures it holds.",
    ),
    Metric(
        "aurc",
        "AURC",
        1000.0,
        "×10³",
        False,
        "Area under the risk-coverage curve: the mean error rate when only the k most confident "
        "pictures are answered, over all k.",
    ),
)
METRIC_BY_KEY = {metric.key: metric for metric in METRICS}
