"""`dtpt methods --compare RUN`: one table to choose a method by."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from dtpt.report.choosing import Choice


def compare_methods(run: Path, *, as_json: bool) -> None:
    """Print what every method of a run gives and costs, pooled by family."""
    from dtpt.cli.output import wide_console
    from dtpt.errors import ReportError
    from dtpt.files import printable
    from dtpt.report import gather
    from dtpt.report.choosing import choices, seconds_per_picture
    from dtpt.report.comparison import compare_families
    from dtpt.report.derived_rows import with_derived_rows

    with gather([run]) as gathered:
        conditions = with_derived_rows(gathered).conditions
        seconds = seconds_per_picture(gathered.sources)
    found = [
        (condition, choices(condition, compare_families(condition))) for condition in conditions
    ]
    if not any(families for _, families in found):
        raise ReportError(
            f"{printable(run)} has no two methods that answered all pictures of the same sets: "
            "there is nothing to choose from. Finish `dtpt eval`, or run more methods."
        )
    if as_json:
        rows = [choice.record() for _, families in found for c in families.values() for choice in c]
        print(json.dumps({"seconds_per_picture": seconds, "methods": rows}, indent=2))
        return
    console = wide_console()
    for condition, families in found:
        for title, rows_of_family in families.items():
            heading = f"{title}, {condition.title}"
            console.print(_table(heading, rows_of_family))
    console.print(
        "Bold: best, and told apart from every other method. Image: pictures through the image "
        "tower per picture; text: passes over all class prompts, there and back.",
        highlight=False,
    )
    if seconds is not None:
        what = "all its methods and seeds together"
        words = f"The run took {seconds:.2f} seconds per picture for {what}."
        console.print(words, highlight=False)


def _table(title: str, rows: "tuple[Choice, ...]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from dtpt.metrics import METRICS
    from dtpt.report.choosing import GIVES

    table = Table(title=escape(title), title_justify="left", title_style="bold")
    table.add_column("Method", overflow="fold", min_width=14)
    for metric in GIVES:
        table.add_column(METRICS[metric].title, justify="right")
    table.add_column("image", justify="right")
    table.add_column("text", justify="right")
    for row in rows:
        cells = []
        for metric in GIVES:
            text = METRICS[metric].text(row.values[metric]).replace("-", "−")
            cells.append(f"[bold]{text}[/]" if metric in row.best else text)
        passes = ["?" if n is None else str(n) for n in (row.image_passes, row.text_passes)]
        table.add_row(escape(row.title), *cells, *passes)
    return table
