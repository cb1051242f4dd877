"""What the tables say, in a sentence for each family."""

from collections.abc import Iterable

from dtpt.report.set_titles import set_title
from dtpt.report.tables.table import Row, Table


def summary_sentences(tables: Iterable[Table]) -> list[str]:
    """Sum tables of means up in a sentence each."""
    sentences = [sentence for table in tables if (sentence := _summary(table))]
    return sentences or ["No mean over data sets is complete yet; see what is missing below."]


def _summary(table: Table) -> str:
    """Compare the calibration of the paper's methods in one sentence."""
    finished = [row for row in table.rows if row.entries[0].value is not None]
    where = _where(table)
    own = [row for row in finished if row.contender.method == "d-tpt"]  # one for each λ
    base = next((row for row in finished if row.contender.method == "tpt"), None)
    plain = next((row for row in finished if row.contender.method == "zero-shot"), None)
    if own and base is not None:
        compared = [*([plain] if plain else []), base, *own]
        parts = [f"{row.title} {_percent(row, 1)} at {_percent(row, 0)}" for row in compared]
        return f"{where}, expected calibration error at accuracy: {'; '.join(parts)}."
    if not finished:
        return ""
    best = min(finished, key=lambda row: _value(row, 1))
    count = f"of {len(finished)} methods " if len(finished) > 1 else ""
    verb = "is calibrated best" if len(finished) > 1 else "was run alone"
    return (
        f"{where}, {count}{best.title} {verb}: {_percent(best, 1)} expected calibration error at "
        f"{_percent(best, 0)} accuracy."
    )


def _where(table: Table) -> str:
    kind = table.title.partition(",")[0].lower()
    if len(table.sets) == 1:
        return f"On {set_title(table.sets[0])}"
    return f"Over {len(table.sets)} sets of {kind}"


def _value(row: Row, column: int) -> float:
    return row.entries[column].value or 0.0


def _percent(row: Row, column: int) -> str:
    return f"{100 * _value(row, column):.1f} %"
