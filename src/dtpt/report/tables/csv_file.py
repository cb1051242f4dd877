"""Tables as flat records, one per number, in printed units and unrounded; and as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence

from dtpt.report.tables.table import Column, Entry, Row, Table

FIELDS = (
    "table",
    "group",
    "method",
    "lambda",
    "derived",
    "column",
    "metric",
    "unit",
    "value",
    "std_of_mean_over_sets",
    "mean_of_std_over_seeds",
    "low",
    "high",
    "floor",
    "separated",
    "missing",
    "remark",
    "paper_value",
    "paper_std",
    "difference",
    "outside_3_std",
    "paper_erratum",
)


def csv_text(tables: Sequence[Table]) -> str:
    """Return tables as one long CSV, a line per number."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table_records(tables))
    return stream.getvalue()


def table_records(tables: Sequence[Table]) -> Iterator[dict[str, object]]:
    """Yield a record of `FIELDS` for every number."""
    for table in tables:
        for row in table.rows:
            for entry, column in zip(row.entries, table.columns, strict=True):
                yield {
                    "table": table.key,
                    **_row_fields(row),
                    **_entry_fields(entry, column),
                    **_paper_fields(entry),
                }


def _row_fields(row: Row) -> dict[str, object]:
    return {
        "group": row.group,
        "method": row.contender.method,
        "lambda": row.contender.lambda_,
        "derived": row.contender.derived,
    }


def _entry_fields(entry: Entry, column: Column) -> dict[str, object]:
    values = {
        "value": entry.value,
        "std_of_mean_over_sets": entry.spread,
        "mean_of_std_over_seeds": entry.spread_within,
        "low": entry.interval.low if entry.interval else None,
        "high": entry.interval.high if entry.interval else None,
        "floor": entry.floor,
    }
    factor = column.metric.factor
    return {
        "column": column.title,
        "metric": column.metric.key,
        "unit": column.metric.unit,
        **{name: None if value is None else value * factor for name, value in values.items()},
        "separated": entry.separated,
        "missing": entry.missing,
        "remark": entry.remark,
    }


def _paper_fields(entry: Entry) -> dict[str, object]:
    paper = entry.paper
    return {
        "paper_value": paper.value if paper else None,
        "paper_std": paper.std if paper else None,
        "difference": paper.difference if paper else None,
        "outside_3_std": paper.outside if paper else None,
        "paper_erratum": bool(paper.erratum) if paper else None,
    }
