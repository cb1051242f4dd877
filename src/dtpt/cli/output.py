"""How commands print: tables that fit the terminal, text, JSON."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.text import Text

from dtpt.tables import Cell, Column, Row, Table, metric_column, number_text, terminal

if TYPE_CHECKING:
    from dtpt.metrics import Comparison, Estimate, Metric

WIDTH_WITHOUT_TERMINAL = 120


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `dtpt.cli.main.run`, as for everything else that is printed."""
        raise BrokenPipeError


def show(*parts: Table | Text | str, framed: bool = True) -> None:
    """Print tables and styled texts that fit the terminal ($COLUMNS, else 120); strings as is."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = _Console(width=None if is_known else WIDTH_WITHOUT_TERMINAL)
    for part in parts:
        if isinstance(part, str):
            print(part)
        elif isinstance(part, Table):
            console.print(terminal(part, framed=framed))
        else:
            console.print(part, highlight=False)


def print_json(document: object) -> None:
    """Print one JSON document; dataclasses and pydantic models become objects."""
    from pydantic_core import to_jsonable_python

    print(json.dumps(to_jsonable_python(document, by_alias=True), indent=2, ensure_ascii=False))


def emit(document: object, *parts: Table | Text | str, as_json: bool, framed: bool = True) -> None:
    """Print a result: the document with --json, else its tables and texts."""
    if as_json:
        print_json(document)
    else:
        show(*parts, framed=framed)


def record_parts(record: Any, title: str = "") -> Iterator[Table | str]:
    """Yield any result as tables: one for every tuple of records in it, titled by its numbers."""
    own = {field.name: getattr(record, field.name) for field in fields(record)}
    shown = (name for name, value in own.items() if isinstance(value, str | int | float))
    about = [f"{name} {_text(own[name])}" for name in shown if name != "fingerprint"]
    title = ", ".join(dict.fromkeys([*filter(None, title.split(", ")), *about]))
    for name, value in own.items():
        if isinstance(value, dict) and value:
            yield f"{name}: {'; '.join(f'{key}: {_text(text)}' for key, text in value.items())}"
        elif isinstance(value, tuple) and not _is_records(value):
            yield from (f"{name}: {_text(item)}" for item in value)
        elif not _is_records(value):
            continue
        elif any(_is_records(inner) for inner in vars(value[0]).values()):
            for item in value:
                yield from record_parts(item, title)
        else:
            yield _table(f"{name} ({title})", value)


def _table(title: str, records: Sequence[Any]) -> Table:
    """Return a row for each record: its values, its metrics with their intervals, differences."""
    from dtpt.metrics import METRICS

    metrics = list(getattr(records[0], "estimates", {}))
    flat = [dict(_flat(record)) for record in records]
    heading, *others = dict.fromkeys(name for texts in flat for name in texts)
    rows = []
    for record, texts in zip(records, flat, strict=True):
        cells = [Cell(texts.get(name, "")) for name in others]
        cells += [_value(METRICS[key], record.estimates[key]) for key in metrics]
        rows.append(Row(texts[heading], tuple(cells)))
    columns = [
        Column(name.replace("_", " "), is_text=any(t.get(name, "")[:1].isalpha() for t in flat))
        for name in others
    ]
    columns += [metric_column(METRICS[key]) for key in metrics]
    return Table(title, tuple(columns), tuple(rows), heading=heading)


def _flat(record: Any) -> Iterator[tuple[str, str]]:
    """Yield names and texts of a record's fields; records inside it are flattened."""
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            yield from _flat(value)
        elif isinstance(value, tuple) and value and hasattr(value[0], "significant"):
            yield field.name, "; ".join(map(_difference, value))
        elif not isinstance(value, dict):
            yield field.name, _text(value)


def _is_records(value: object) -> bool:
    first = value[0] if isinstance(value, tuple) and value else None
    return is_dataclass(first) and not hasattr(first, "significant")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return "—" if value is None else str(value)


def _value(metric: "Metric", value: "Estimate") -> Cell:
    half = max(value.high - value.value, value.value - value.low)
    text = number_text(value.value, metric, signed=metric.higher_is_better is None)
    return Cell(text, spread=f"±{metric.text(half)}")


def _difference(comparison: "Comparison") -> str:
    from dtpt.metrics import METRICS

    metric = METRICS[comparison.metric]
    star = "*" if comparison.significant else ""
    return f"{metric.short} {number_text(comparison.estimate, metric, signed=True)}{star}"
