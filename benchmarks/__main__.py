"""`python -m benchmarks NAME [--json]`: run one benchmark and print what it returns."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App

from benchmarks.measuring import table_text
from dtpt.errors import DtptError

ABOUT_TOWERS = ("tuning", "end-to-end", "views", "chunks", "sizing")
ABOUT_RUNS = ("pipeline", "runs", "cluster", "serve", "rows", "packs", "streams")
ABOUT_PREDICTIONS = ("waiting", "predict")
ABOUT_STATISTICS = ("guarantees", "intervals")

app = App(
    name="python -m benchmarks",
    help="Measure speed and memory, and how often guarantees hold. --json prints JSON.",
    result_action="return_value",
)
for name in (*ABOUT_TOWERS, *ABOUT_RUNS, *ABOUT_PREDICTIONS, *ABOUT_STATISTICS):
    function = name.replace("-", "_")
    app.command(f"benchmarks.{function}:{function}", name=name)


def main(words: Sequence[str]) -> None:
    """Run the benchmark that the first word names."""
    as_json = "--json" in words
    result: Any = app([word for word in words if word != "--json"])
    if result is not None:  # None: the help was printed
        print(json.dumps(result, indent=1) if as_json else table_text(result))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DtptError as error:
        sys.exit(f"error: {error}")
