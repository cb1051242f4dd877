"""What of the paper's printed ECE is chance: the ECE of a perfectly calibrated model at its sizes.

The paper prints no confidences, so they are assumed: drawn from a beta distribution whose mean is
the printed accuracy of TPT (a calibrated model is as sure as it is right) and whose concentration
is 1, 2 or 5, from most confidences near 0 and 1 to most near the mean. With them and the paper's 20
bins the expected ECE is exact; its ends over the three concentrations are given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.metrics import calibrated_ece
from dtpt.report.paper.numbers import paper_images, paper_number

CONCENTRATIONS = (1.0, 2.0, 5.0)
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")


@dataclass(frozen=True)
class PaperFloor:
    """One data set of the paper.

    Attributes:
        dataset: Our name of the set.
        pictures: How many the paper evaluates.
        low: Lowest floor over the assumed confidences, a fraction.
        high: Highest floor.
        deviation: Largest standard deviation of the ECE of a calibrated model.
        printed: The paper's ECE by method, fractions.
    """

    dataset: str
    pictures: int
    low: float
    high: float
    deviation: float
    printed: dict[str, float]


def paper_floors(backbone: str, datasets: Sequence[str]) -> list[PaperFloor]:
    """Return the floors of those sets for which the paper prints numbers.

    Args:
        backbone: A model name, `ViT-B-16/openai` or `RN50/openai`.
        datasets: Our names of the sets.

    Example:
        >>> (found,) = paper_floors("ViT-B-16/openai", ["dtd"])
        >>> found.pictures, round(100 * found.low, 1), round(100 * found.high, 1)
        (1692, 3.0, 3.5)
    """
    return [floor for name in datasets if (floor := _floor(backbone, name)) is not None]


def _floor(backbone: str, dataset: str) -> PaperFloor | None:
    pictures = paper_images(dataset)
    accuracy = paper_number(backbone, dataset, method="tpt", metric="accuracy")
    if pictures is None or accuracy is None:
        return None
    share = accuracy.value / 100
    found = []
    for concentration in CONCENTRATIONS:
        generator = np.random.default_rng(0)
        ends = concentration * share, concentration * (1 - share)
        found.append(calibrated_ece(generator.beta(*ends, pictures)))
    printed = {m: paper_number(backbone, dataset, method=m, metric="ece") for m in METHODS}
    return PaperFloor(
        dataset=dataset,
        pictures=pictures,
        low=min(one.mean for one in found),
        high=max(one.mean for one in found),
        deviation=max(one.deviation for one in found),
        printed={method: number.value / 100 for method, number in printed.items() if number},
    )
