"""`dtpt calibrate --check`: do promises hold on rows that they were not fitted on?"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.errors import OptionError
from dtpt.files import printable, write_atomically

if TYPE_CHECKING:
    from dtpt.calibration import Levels, Splits
    from dtpt.runs import Cell, Run

Found = Sequence[tuple["Cell", "Splits"]]
HEADS = (
    "data set, method",
    "coverage",
    "classes",
    "APS coverage",
    "APS classes",
    "answered",
    "error",
    "able",
    "kept",
    "held-out",
)


def check_flags(*, check: int | None, figure: Path | None, output: Path | None) -> None:
    """Refuse flags that would be ignored, before any work."""
    if check is None and figure is not None:
        raise OptionError("--figure draws what --check shows: give --check SPLITS as well.")
    if check is None:
        return
    if check < 1:
        raise OptionError(f"--check is {check}; expected a number of splits, such as 1000.")
    if output is not None:
        raise OptionError("--check makes no promise to write: drop --output, or --check.")
    if figure is not None and figure.suffix != ".svg":
        raise OptionError(f"--figure is {printable(figure)}; expected a name that ends in .svg.")


def checked(
    run: "Run",
    method: str,
    *,
    levels: "Levels",
    splits: int,
    dataset: str | None = None,
    seed: int | None = None,
) -> Found:
    """Divide rows many times at random, fit on one half and judge the other.

    Args:
        run: With labelled rows.
        method: One, or several with commas.
        levels: What is promised.
        splits: How many.
        dataset: One set; all that have rows when not given.
        seed: Of the views, if the run has several.
    """
    from dtpt.runs.promised import checked_cells

    names = [name.strip() for name in method.split(",")]
    found = list(
        checked_cells(run, names, splits=splits, levels=levels, dataset=dataset, seed=seed)
    )
    if not found:
        raise OptionError(f"{printable(run.path)} has no rows of {method} yet.")
    return found


def show_checked(found: Found, *, figure: Path | None, as_json: bool) -> None:
    """Print what the splits show, and draw it where that is asked for."""
    if figure is not None:
        _draw(found, figure)
    rows = [_row(cell, shown) for cell, shown in found]
    levels, splits = found[0][1].levels, len(found[0][1].coverage)
    if as_json:
        print(json.dumps({"levels": levels.model_dump(), "splits": splits, "rows": rows}, indent=2))
    else:
        _print(rows, levels, splits=splits)


def _row(cell: "Cell", found: "Splits") -> dict[str, Any]:
    """Return means over the splits; fractions, and the error None where nothing was answered."""
    import numpy as np

    given = found.error[~np.isnan(found.error)]
    return {
        "dataset": cell.dataset,
        "method": cell.label,
        "coverage": float(found.coverage.mean()),
        "size": float(found.size.mean()),
        "coverage_aps": float(found.coverage_aps.mean()),
        "size_aps": float(found.size_aps.mean()),
        "answered": float(found.answered.mean()),
        "error": float(given.mean()) if len(given) else None,
        "with_threshold": found.with_threshold,
        "kept": found.kept,
        "kept_held_out": found.kept_held_out,
    }


def _print(rows: Sequence[dict[str, Any]], levels: "Levels", *, splits: int) -> None:
    from dtpt.cli.output import show
    from dtpt.tables import text_table

    title = f"{splits:,} random splits: half fits, the other half is judged"
    show(text_table(title, HEADS, rows=map(_texts, rows)))
    print(
        f"Promised: coverage {100 * levels.coverage:g} on average; at most {100 * levels.error:g} "
        f"errors in {100 * levels.confidence:g} of 100 splits. Able: splits that find a threshold. "
        "Kept: splits with no more errors on all rows, the fitted half included; held-out: on the "
        "judged half alone, with its own chance. Splits without answers count as kept. In percent; "
        "classes per set."
    )


def _texts(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row of the table, in the order of `HEADS`."""
    return [
        f"{row['dataset']}, {row['method']}",
        f"{100 * row['coverage']:.1f}",
        f"{row['size']:.1f}",
        f"{100 * row['coverage_aps']:.1f}",
        f"{row['size_aps']:.1f}",
        f"{100 * row['answered']:.1f}",
        "–" if row["error"] is None else f"{100 * row['error']:.1f}",
        f"{100 * row['with_threshold']:.0f}",
        f"{100 * row['kept']:.1f}",
        f"{100 * row['kept_held_out']:.1f}",
    ]


def _draw(found: Found, path: Path) -> None:
    from dtpt.report.figures.promises import kept_promises_figure
    from dtpt.report.figures.svg import svg_text

    drawn, _ = kept_promises_figure([((cell.method, cell.lambda_), shown) for cell, shown in found])
    write_atomically(path, svg_text(drawn).encode())
