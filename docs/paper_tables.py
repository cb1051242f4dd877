"""Write the tables of `dtpt paper` into `docs/paper.md`: `python docs/paper_tables.py`."""

from pathlib import Path

from made_parts import brought_up_to_date

from dtpt.report.paper.reading import read_paper
from dtpt.report.paper.reading_tables import reading_tables
from dtpt.tables import markdown

PAGE = Path(__file__).with_name("paper.md")


def up_to_date() -> str:
    """Return the page with every table computed anew; its headings are the page's own."""
    tables = reading_tables(read_paper())

    def table(key: str) -> str:
        return markdown(tables[key]).split("\n", 2)[2].rstrip("\n")

    return brought_up_to_date(PAGE.read_text("utf-8"), table)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(), "utf-8")
