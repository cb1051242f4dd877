"""Results as tables: every record of a result is a row, whatever its fields are."""

from dataclasses import dataclass

import pytest

from dtpt.cli.output import record_parts, show
from dtpt.metrics import Comparison, Estimate


@dataclass(frozen=True)
class Setting:
    method: str
    views: int
    kept: float | None


@dataclass(frozen=True)
class Row:
    setting: Setting
    estimates: dict[str, Estimate]
    to_most: tuple[Comparison, ...]


@dataclass(frozen=True)
class Family:
    family: str
    sets: tuple[tuple[str, int], ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Study:
    model: str
    families: tuple[Family, ...]
    left_out: dict[str, str]


@pytest.fixture
def study():
    numbers = {"p": 0.01, "p_holm": 0.01, "n": 50, "level": 0.95, "comparisons": 1}
    lost = Comparison("a", "b", "accuracy", -0.02, -0.03, -0.01, **numbers)
    value = {"accuracy": Estimate(0.5, 0.4, 0.6), "signed_gap": Estimate(0.1, 0.05, 0.2)}
    rows = (
        Row(Setting("tpt", 64, 0.1), value, ()),
        Row(Setting("tpt", 8, None), value, (lost,)),
    )
    return Study("tiny", (Family("line art", (("dtd", 50),), rows),), {"long": "too many tokens"})


def test_records_become_rows_with_their_fields_metrics_and_differences(study):
    sets, table, reason = record_parts(study)
    assert (sets, reason) == ("sets: dtd 50", "left_out: long: too many tokens")
    assert "tiny" in table.title
    assert "line art" in table.title
    assert [column.title for column in table.columns[:3]] == ["views", "kept", "to most"]
    assert [row.title for row in table.rows] == ["tpt", "tpt"]
    texts = [[cell.text for cell in row.cells] for row in table.rows]
    assert texts[0] == ["64", "0.1", "", "50.00", "+10.00"]
    assert texts[1][:3] == ["8", "—", "Acc. −2.00*"]
    assert table.rows[0].cells[3].spread == "±10.00"


def test_every_number_is_printed_whole_at_80_columns(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(*record_parts(study), framed=False)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "50.00 ±10.00" in out
