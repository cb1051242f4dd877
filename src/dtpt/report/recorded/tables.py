"""A record as tables of a report."""

from dtpt.metrics import METRICS, Interval
from dtpt.report.recorded.schema import Record, RecordedFamily, RecordedValue
from dtpt.report.tables.means import floor_line
from dtpt.report.tables.pooled import cancelling
from dtpt.report.tables.table import Column, Entry, Row, Table


def recorded_tables(record: Record) -> tuple[Table, ...]:
    """Return one table per family: methods × metrics with intervals."""
    return tuple(
        _table(record, family, key=f"recorded-{place}")
        for place, family in enumerate(record.families, start=1)
    )


def _table(record: Record, family: RecordedFamily, *, key: str) -> Table:
    metrics = list(family.rows[0].values)
    rows = tuple(
        Row(row.contender, tuple(_entry(row.values[metric]) for metric in metrics))
        for row in family.rows
    )
    seeds = ", ".join(str(seed) for seed in record.seeds)
    return Table(
        key=key,
        title=f"{family.title}, recorded",
        caption=(
            f"{family.pictures:,} pictures of {len(family.sets)} data sets, {record.model}, seed "
            f"{seeds}. In brackets: 95 % interval over pictures, for each number by itself."
            f"{cancelling(len(family.sets))}"
        ),
        columns=tuple(Column(METRICS[metric], METRICS[metric].title) for metric in metrics),
        rows=rows,
        sets=family.sets,
        foot=floor_line(rows),
    )


def _entry(found: RecordedValue) -> Entry:
    return Entry(
        value=found.value,
        interval=Interval(low=found.low, high=found.high),
        separated=found.best,
        floor=found.floor,
    )
