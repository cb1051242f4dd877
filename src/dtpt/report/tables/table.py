"""A table as data: what was computed, before anybody decides how it is printed."""

from dataclasses import dataclass

from dtpt.metrics import Interval, Metric, metrics_with
from dtpt.report.gathering.scored_cells import Contender
from dtpt.report.paper.comparable import PaperDifference

COLUMNS: tuple[Metric, ...] = metrics_with("paper")
"""The paper's metrics, in its order."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table, in fractions.

    Attributes:
        value: Mean over sets and seeds; None when something is missing.
        spread: Standard deviation over seeds of the mean over sets; None for one seed.
        spread_within: Mean over sets of the standard deviation over seeds; None for one seed.
        interval: Bootstrap interval over pictures; None when not asked for.
        missing: Why there is no value.
        remark: What is special about the value (failed pictures).
        separated: Whether it is the best of its column and can be told from every other row; of a
            difference, whether it can be told from 0.
        floor: The ECE that a perfectly calibrated model with the same confidences has on average;
            None for other metrics.
        paper: The paper's number and the difference, where it is comparable.
    """

    value: float | None = None
    spread: float | None = None
    spread_within: float | None = None
    interval: Interval | None = None
    missing: str = ""
    remark: str = ""
    separated: bool = False
    floor: float | None = None
    paper: PaperDifference | None = None


@dataclass(frozen=True)
class Row:
    """One contender of a table; `group` is the heading it stands under, if any."""

    contender: Contender
    entries: tuple[Entry, ...]
    group: str = ""

    @property
    def title(self) -> str:
        """What stands in the first column."""
        return self.contender.title


@dataclass(frozen=True)
class Column:
    """One column: a metric, or a metric on one set; `signed` for differences."""

    metric: Metric
    title: str
    signed: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        key: Name for files.
        title: Headline.
        caption: What the numbers are, in a sentence or two.
        columns: Headings.
        rows: Contenders.
        sets: Data sets behind it.
        notes: Remarks that belong to this table.
        foot: Lines under the rows, in words: a title and a text for each column.
    """

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sets: tuple[str, ...]
    notes: tuple[str, ...] = ()
    foot: tuple[tuple[str, ...], ...] = ()

    def grouped(self) -> dict[str, tuple[Row, ...]]:
        """Return the rows by the heading they stand under, in order."""
        groups: dict[str, tuple[Row, ...]] = {}
        for row in self.rows:
            groups[row.group] = (*groups.get(row.group, ()), row)
        return groups
