"""`dtpt merge`: join the shards of a run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dtpt.cli.flags import AsJson


def merge_command(
    folder: Path,
    *,
    partial: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    as_json: AsJson = False,
) -> None:
    """Join the shards of a run into its run.sqlite, write the exports and print the table.

    The shards must have the same configuration, and rows that two of them hold must be equal.

    Args:
        folder: The run's folder (its --output).
        partial: Join even if rows are missing.
        as_json: Print the content of results.json.
    """
    from dtpt.cli.eval import show
    from dtpt.runs import merge

    with merge(folder, partial=partial) as run:
        show(run, as_json=as_json, quiet=False)
