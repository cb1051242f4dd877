"""The metrics as they are printed: the paper's order, headings and units.

Files hold fractions; a printed number is the fraction times `factor`.
"""

from dataclasses import dataclass


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

FAMILY_TITLES = {
    "fine-grained": "Fine-grained classification",
    "natural-shifts": "Natural distribution shifts",
}

_NAMES = {"zero-shot": "Zero-shot", "tpt": "TPT", "c-tpt": "C-TPT", "o-tpt": "O-TPT"}
_NAMES |= {"d-tpt": "D-TPT", "a-tpt": "A-TPT"}
_MODIFIERS = {"sals": "SaLS", "no-tdd": "w/o TDD", "no-idd": "w/o IDD"}


def method_title(name: str, lambda_: float | None = None) -> str:
    """Return a method as the paper writes it, with its λ where it has one.

    Example:
        >>> method_title("tpt+no-tdd"), method_title("d-tpt", 1e5), method_title("d-tpt-static")
        ('TPT w/o TDD', 'D-TPT (λ = 10⁵)', 'D-TPT static')
    """
    base, *modifiers = name.split("+")
    stem, static = base.removesuffix("-static"), base.endswith("-static")
    stem, colon, variant = stem.partition(":")
    parts = [_NAMES.get(stem, stem) + (f" {variant}" if colon else "")]
    parts += ["static"] if static else []
    parts += [_MODIFIERS.get(modifier, f"+{modifier}") for modifier in modifiers]
    weight = "" if lambda_ is None else f" (λ = {lambda_text(lambda_)})"
    return " ".join(parts) + weight


def lambda_text(value: float) -> str:
    """Write a weight briefly: powers of ten from 10³ on as such.

    Example:
        >>> lambda_text(1e5), lambda_text(50.0), lambda_text(2500.0)
        ('10⁵', '50', '2500')
    """
    if value >= 1000:
        exponent = len(str(int(value))) - 1
        if value == 10.0**exponent:
            return "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:.6g}"
