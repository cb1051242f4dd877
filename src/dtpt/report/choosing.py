"""One table to choose a method by: what it gives, and what it costs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dtpt.errors import DtptError
from dtpt.methods import method_cost, resolve_method
from dtpt.report.comparison import FamilyComparison
from dtpt.report.gathering.scored_cells import Condition, Contender, Source

GIVES = ("accuracy", "signed_gap", "brier", "ece_above_floor", "aurc")
"""The metrics to choose by."""


@dataclass(frozen=True)
class Choice:
    """One method on all pictures of a family.

    Attributes:
        family: Title of the family.
        label: Method and λ, as typed.
        title: The same for people.
        values: Metrics of `GIVES`, fractions.
        best: Those in which it can be told from every other method and is best.
        image_passes: Pictures through the image tower, per picture.
        text_passes: Passes over all class prompts, there and back; None for an unknown method.
    """

    family: str
    label: str
    title: str
    values: dict[str, float]
    best: tuple[str, ...]
    image_passes: int | None
    text_passes: int | None

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def choices(
    condition: Condition, comparisons: Sequence[FamilyComparison]
) -> dict[str, tuple[Choice, ...]]:
    """Return the methods of each family, in the order met."""
    counts = [entry.views.get("count") for entry in condition.datasets.values()]
    views = max((count for count in counts if isinstance(count, int)), default=64)
    found = {}
    for one in comparisons:
        best = {metric: one.best(metric) for metric in GIVES}
        found[one.title] = tuple(
            Choice(
                one.title,
                contender.label,
                contender.title,
                {metric: one.value(contender, metric) for metric in GIVES},
                tuple(metric for metric, winner in best.items() if winner == contender),
                *_passes(contender, views, steps=_steps(condition)),
            )
            for contender in one.contenders
        )
    return found


def _steps(condition: Condition) -> int:
    steps = condition.tuning.get("steps")
    return steps if isinstance(steps, int) else 1


def _passes(contender: Contender, views: int, *, steps: int) -> tuple[int | None, int | None]:
    """Return image and text passes of a method; a temperature and a choice of λ add none."""
    try:
        method = resolve_method(contender.method, lambda_=contender.lambda_)
        spent = method_cost(method, views=views, steps=steps)
    except DtptError:  # a plug-in that is not installed here
        return None, None
    return spent.image_passes, spent.text_forward + spent.text_backward


def seconds_per_picture(sources: Sequence[Source]) -> float | None:
    """Return what a picture took with all methods and seeds; None where that is not recorded."""
    sessions = [s for source in sources for s in source.sessions if s.get("rows")]
    if not sessions or any(session.get("seconds") is None for session in sessions):
        return None
    cells = max(len(source.run.cells) / len(source.spec.datasets) for source in sources)
    seconds, rows = (sum(float(s[name]) for s in sessions) for name in ("seconds", "rows"))
    return seconds * cells / rows
