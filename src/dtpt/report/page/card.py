"""The run card: what was evaluated, how well, and with which limits, in Markdown."""

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from dtpt.report.composing import Report
from dtpt.report.page.settings import (
    DATASET_HEADS,
    condition_facts,
    dataset_rows,
    environment_facts,
)
from dtpt.report.recorded.tables import recorded_tables
from dtpt.report.tables.markdown import escape_markdown, markdown
from dtpt.report.tables.table import Table

LIMITS = (
    "Confidence is only as meaningful as the class list: a picture of none of the classes still "
    "gets an answer, often a confident one.",
    "Calibration was measured on these data sets; on other data it may be better or worse.",
    "The prompt is tuned anew for every picture: answers do not depend on their order, and "
    "nothing is learnt from one picture for the next.",
    "MCE rests on the worst bin, which may hold very few pictures.",
)


class _Ready(str):
    """Markdown that is finished: not escaped again."""

    __slots__ = ()


def run_card(report: Report) -> str:
    """Return the card of a report."""
    made = Environment(  # noqa: S701 - `finalize` escapes for Markdown whatever is printed
        loader=PackageLoader("dtpt.report.page"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, _Ready) else escape_markdown(str(value)),
    )
    made.filters |= {
        "code": _code,
        "condition_facts": condition_facts,
        "dataset_rows": dataset_rows,
        "environment_facts": environment_facts,
        "markdown": _markdown,
        "ready": _Ready,
        "recorded_tables": recorded_tables,
    }
    text = made.get_template("card.md").render(
        report=report,
        LIMITS=LIMITS,
        DATASET_HEADS=DATASET_HEADS,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _markdown(table: Table) -> _Ready:
    return _Ready(markdown(table))


def _code(commands: Sequence[str]) -> _Ready:
    """Return commands as a block whose fence is longer than any run of backticks inside."""
    text = "\n".join(commands)
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return _Ready(f"{fence}sh\n{text}\n{fence}")
