"""`dtpt export`: write a run's results in the formats of others."""

import json
from pathlib import Path

from dtpt.cli.flags import AsJson, Words


def export_command(
    folder: Path,
    *,
    format: Words = None,
    output: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Write files derived from a run: results.json, samples, or clip_benchmark's JSON.

    Args:
        folder: The run's folder.
        format: results, jsonl, parquet, clip-benchmark; several may be given (default: results and
            jsonl).
        output: Folder for the files; the run's own when not given.
        as_json: Print the list of files as JSON.
    """
    from dtpt.files import printable
    from dtpt.runs import export, open_run

    chosen = [part.strip() for text in format or ["results,jsonl"] for part in text.split(",")]
    with open_run(folder) as run:
        written = export(run, output or run.path.parent, formats=tuple(chosen))
    paths = [printable(path) for path in written]
    print(json.dumps(paths, indent=2) if as_json else "\n".join(paths))
