"""What `dtpt eval --engine ray --plan` prints: the machines, their shares, and the time."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from dtpt.errors import OptionError
from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.runs.cluster.division import Division


def show_plan(options: EvalOptions, *, as_json: bool) -> None:
    """Print how a run would be divided among the machines of a cluster.

    Raises:
        OptionError: The run is for this machine alone.
    """
    from dtpt.runs.cluster.division import divide

    if options.engine == "local":
        raise OptionError("--plan divides a run among the machines of a cluster: add --engine ray.")
    found = divide(options, note=lambda text: print(text, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        _print(found)


def _print(division: "Division") -> None:
    from rich.table import Table

    from dtpt.cli.output import wide_console
    from dtpt.runs.progress import format_seconds

    table = Table(title=f"{division.pictures:,} pictures, {division.batch} at a time")
    for name in ("machine", "processor", "device"):
        table.add_column(name)
    for name in ("replicas", "seconds per picture", "pictures"):
        table.add_column(name, justify="right")
    for one in division.machines:
        seconds = f"{one.picture_seconds:.2f}"
        counts = (str(one.replicas), seconds, f"{one.pictures:,}")
        table.add_row(one.name, one.processor, one.device, *counts)
    wide_console().print(table)
    for refusal in division.refusals:
        print(f"Left out: {refusal}.")
    print(f"About {format_seconds(division.seconds)}, when all replicas have been started.")
