"""`dtpt merge`: join the shards of a run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def merge_command(
    folder: Path, *, partial: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Join the shards of a run into its run.sqlite, write the exports and print the table.

    The shards must have the same configuration, and rows that two of them hold must be equal.

    Args:
        folder: The run's folder (its --output).
        partial: Join even if rows are missing.
    """
    from dtpt.cli.eval import show
    from dtpt.runs import merge

    with merge(folder, partial=partial) as run:
        show(run, quiet=False)
