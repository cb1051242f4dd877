"""One table type: every format shows the same cells, and foreign text stays text."""

import csv
import io

import pytest
from rich.console import Console

from dtpt.metrics import METRICS
from dtpt.report.words import template_environment
from dtpt.tables import (
    Cell,
    Row,
    Table,
    csv_text,
    interval_text,
    latex,
    markdown,
    metric_column,
    number_text,
    records,
    text_table,
)
from dtpt.terminal import terminal

EVIL = "<script>a|b & 50 %_[x]</script>"


def html(table: Table) -> str:
    templates = template_environment("dtpt.report.page", "templates", autoescape=True)
    return templates.get_template("table.html").module.grid(table)


def numbers(titles=("TPT", "D-TPT (λ = 10⁵)"), **extra) -> Table:
    cells = (
        Cell("61.20", spread="±0.31", interval="[60.0, 62.4]", value=0.612, record={"value": 61.2}),
        Cell(
            "61.90",
            bold=True,
            mark="†",
            reference="paper 64.72",
            deviation="Δ −2.82‡",
            is_outside=True,
            value=0.619,
            record={"value": 61.9},
        ),
    )
    rows = tuple(
        Row(title, (cell, Cell("not run", is_missing=True)), record={"method": title})
        for title, cell in zip(titles, cells, strict=True)
    )
    columns = tuple(metric_column(METRICS[key]) for key in ("accuracy", "ece"))
    return Table("Scores", columns, rows, key="scores", foot=(("Floor", "", "3.1"),), **extra)


def printed(table: Table, width: int, *, framed: bool = True) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal(table, framed=framed), crop=False)
    return console.file.getvalue()


FORMATS = {"markdown": markdown, "latex": latex, "html": html, "text": lambda t: printed(t, 100)}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_shows_every_number(name) -> None:
    text = FORMATS[name](numbers()).replace("$-$", "−")
    for part in ("61.20", "61.90", "0.31", "60.0, 62.4", "64.72", "−2.82", "Floor", "3.1"):
        assert part in text, part


def test_bold_is_bold() -> None:
    assert "**61.90**†" in markdown(numbers())
    assert r"\textbf{61.90}" in latex(numbers())
    assert "<b>61.90</b>†" in html(numbers())
    assert html(numbers()).count("<b>") == 1


def test_foreign_text_cannot_become_markup() -> None:
    table = text_table(EVIL, (EVIL, EVIL), rows=[(EVIL, EVIL)])
    assert "<script>" not in html(table)
    assert "<script>" not in markdown(table)
    assert latex(table).count("{") == latex(table).count("}")
    assert r"50 \%\_[x]" in latex(table)
    assert EVIL in printed(table, 200)


def test_records_and_csv_hold_the_numbers_behind_the_cells() -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text([numbers()]))))
    assert [line["value"] for line in lines] == ["61.2", "", "61.9", ""]
    first = next(records([numbers()]))
    assert (first["table"], first["method"], first["metric"]) == ("scores", "TPT", "accuracy")
    assert next(records([text_table("", ("a", "b"), rows=[("x", "y")])]))["text"] == "y"


def test_a_spreadsheet_computes_no_text() -> None:
    for text in ("=1+1", "@SUM(A1)", "+cmd|x", "-2+3", "\t=1"):
        table = text_table("", ("a", "b"), rows=[(text, "-0.5")])
        (line,) = csv.DictReader(io.StringIO(csv_text([table])))
        assert line["row"].startswith("'")
        assert line["text"] == "-0.5"


@pytest.mark.parametrize("width", [66, 60, 20])
def test_nothing_is_cut_in_a_narrow_terminal(width) -> None:
    table = numbers(("mean-views+with=a-long-name@auto=0.9", "TPT and several further words here"))
    text = printed(table, width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 66  # what one column needs
    for part in ("mean-views+with=a-long-name@auto=0.9", "61.90†", "[60.0, 62.4]", "(continued)"):
        assert part in text
    assert "paper 64.72, Δ −2.82‡ │" in text


def test_names_that_look_like_markup_of_the_terminal_stay_whole() -> None:
    table = text_table("folder:my [red] images", ("[b]", "n"), rows=[("[bold]x[/]", "[/] 1")])
    text = printed(table, 80, framed=False)
    for part in ("folder:my [red] images", "[bold]x[/]", "[/] 1"):
        assert part in text


def test_texts_are_aligned_left_and_numbers_right() -> None:
    table = text_table("", ("Name", "Size", "What"), rows=[("a", "1", "word"), ("b", "20", "—")])
    assert [column.is_text for column in table.columns] == [False, True]


def test_numbers_have_the_unit_and_the_sign_of_their_metric() -> None:
    assert number_text(-0.1234, METRICS["ece"]) == "−12.34"
    assert number_text(-0.00001, METRICS["ece"]) == "0.00"
    assert number_text(0.1234, METRICS["aurc"], signed=True) == "+123.40"
    assert interval_text((-0.1, 0.2), METRICS["brier"], signed=True) == "[−0.1000, +0.2000]"
