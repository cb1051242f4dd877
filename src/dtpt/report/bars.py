"""Values with bars: what methods change against a base, with corrected intervals, on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.metrics import METRICS, Comparison, Metric
from dtpt.report.facts import FamilyFacts
from dtpt.report.load import Variant
from dtpt.tables import MINUS

SEVERAL = ("accuracy", "absolute_gap")  # metrics of each of several families
SINGLE = ("accuracy", "absolute_gap", "brier", "nll")
MOST_FAMILIES = 2
MOST_ROWS = 8
ROOM = 0.04  # beside the furthest end, as a fraction of the axis


@dataclass(frozen=True)
class Bar:
    """A value, and its difference to the base as positions in percent of the column's width."""

    text: str
    bold: bool = False
    low: float | None = None  # None for the base itself
    high: float = 0.0
    middle: float = 0.0
    words: str = ""  # the difference with its interval


@dataclass(frozen=True)
class BarColumn:
    family: str
    title: str
    ends: tuple[str, str]  # of the axis, in printed units
    zero: float  # its position, in percent
    bars: tuple[Bar | None, ...]  # by row; None where a method was not run


@dataclass(frozen=True)
class BarTable:
    base: str
    rows: tuple[str, ...]
    columns: tuple[BarColumn, ...]


def bar_table(
    families: Sequence[FamilyFacts], *, variants: Sequence[Variant] = ()
) -> BarTable | None:
    """Return the methods of at most two families against the first that all are compared with."""
    shown = [facts for facts in families if facts.against][:MOST_FAMILIES]
    if not shown:
        return None
    chosen = tuple(variants) or shown[0].shown[:MOST_ROWS]
    base = shown[0].against[0]
    metrics = [
        m for m in (SEVERAL if len(shown) > 1 else SINGLE) if m in shown[0].values[base.label]
    ]
    axes = {metric: _axis(shown, chosen, base=base, metric=metric) for metric in metrics}
    return BarTable(
        base.title,
        tuple(_row_title(shown, variant) for variant in chosen),
        tuple(
            _column(facts, chosen, base=base, metric=metric, axis=axes[metric])
            for facts in shown
            for metric in metrics
        ),
    )


def same_method(facts: FamilyFacts, variant: Variant) -> Variant | None:
    """Return a variant itself, else the same method with the λ of the family."""
    if variant in facts.variants:
        return variant
    alike = (variant.method, variant.derived)
    return next((v for v in facts.variants if (v.method, v.derived) == alike), None)


def _row_title(families: Sequence[FamilyFacts], variant: Variant) -> str:
    found = {same_method(facts, variant) for facts in families} - {None}
    return variant.title if len(found) == 1 else Variant(variant.method, None).title


def _differences(
    facts: FamilyFacts, variants: Sequence[Variant], *, base: Variant, metric: str
) -> list[Comparison | None]:
    own = [same_method(facts, variant) for variant in variants]
    return [facts.difference(v, base, metric=metric) if v else None for v in own]


def _axis(
    families: Sequence[FamilyFacts], variants: Sequence[Variant], *, base: Variant, metric: str
) -> tuple[float, float]:
    """Return the ends of the axis that the columns of a metric share; 0 is inside."""
    found = [_differences(facts, variants, base=base, metric=metric) for facts in families]
    ends = [0.0, *(end for few in found for c in few if c for end in (c.low, c.high))]
    room = ROOM * (max(ends) - min(ends)) or 1.0
    return min(ends) - room, max(ends) + room


def _column(
    facts: FamilyFacts,
    variants: Sequence[Variant],
    *,
    base: Variant,
    metric: str,
    axis: tuple[float, float],
) -> BarColumn:
    (low, high), unit = axis, METRICS[metric]

    def position(value: float) -> float:
        return 100 * (value - low) / (high - low)

    def bar(variant: Variant, difference: Comparison | None) -> Bar:
        number = facts.values[variant.label][metric]
        text = brief_text(number.value or 0.0, unit)
        if difference is None:
            return Bar(text, number.significant)
        left, middle, right = map(position, (difference.low, difference.estimate, difference.high))
        return Bar(text, number.significant, left, right, middle, difference_text(difference))

    own = [same_method(facts, variant) for variant in variants]
    found = _differences(facts, variants, base=base, metric=metric)
    bars = [bar(v, c) if v else None for v, c in zip(own, found, strict=True)]
    ends = brief_text(low, unit, signed=True), brief_text(high, unit, signed=True)
    return BarColumn(facts.title, unit.title, ends, position(0.0), tuple(bars))


def brief_text(value: float, metric: Metric, *, signed: bool = False) -> str:
    """Write a fraction with one decimal of a percent, anything else with three."""
    digits = 1 if metric.factor > 1 else 3
    return f"{value * metric.factor:{'+' * signed}z.{digits}f}".replace("-", MINUS)


def difference_text(one: Comparison) -> str:
    """Write a difference with its interval in the unit of its metric: `−0.6 [−1.0, −0.1]`."""
    unit = METRICS[one.metric]
    low, high = brief_text(one.low, unit), brief_text(one.high, unit)
    return f"{brief_text(one.estimate, unit, signed=True)} [{low}, {high}]"
