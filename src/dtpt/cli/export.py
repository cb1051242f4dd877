"""`dtpt export`: write a run's results in the formats of others."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def export_command(
    folder: Path,
    *,
    format: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    output: Path | None = None,
) -> None:
    """Write files derived from a run: results.json, samples, or clip_benchmark's JSON.

    Args:
        folder: The run's folder.
        format: results, jsonl, parquet, clip-benchmark; several may be given (default: results and
            jsonl).
        output: Folder for the files; the run's own when not given.
    """
    from dtpt.runs import export, open_run

    chosen = [part.strip() for text in format or ["results,jsonl"] for part in text.split(",")]
    with open_run(folder) as run:
        for path in export(run, output or run.path.parent, formats=tuple(chosen)):
            print(path)
