"""What the commands of studies share: running, saving, and tables that fit 80 columns."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.markup import escape
from rich.table import Table

from dtpt.files import write_atomically
from dtpt.metrics import METRICS, Comparison, Estimate

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure
    from rich.console import RenderableType


WIDTH = 80
# short headings, so that five metrics with their intervals fit
HEADS = {
    "accuracy": "Acc. %",
    "signed_gap": "gap %",
    "brier": "Brier %",
    "ece": "ECE %",
    "ece_above_floor": "ECE* %",
    "aurc": "AURC ‰",
}
LEGEND = (
    "gap: confidence − accuracy. ECE*: above what chance alone gives. AURC ‰: ×10³. Brier %: ×100. "
    "± is the 95 % interval."
)
DIFFERENCE_LEGEND = (
    "Differences: ± is their interval, corrected for all of one method or λ; * excludes 0."
)

Study = TypeVar("Study", bound="DataclassInstance")


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """End with the command that resumes when Ctrl-C or SIGTERM interrupts the block."""
    from dtpt.runs.interrupts import EXIT_CODES, resume_command, terminable

    try:
        with terminable():
            yield
    except KeyboardInterrupt as interruption:
        print(
            f"\nInterrupted; what was finished is kept in {folder}. Resume with:\n"
            f"  {resume_command()}",
            file=sys.stderr,
        )
        sys.exit(EXIT_CODES.get(type(interruption), 130))


def publish(
    study: Study,
    folder: Path,
    *,
    name: str,
    tables: Callable[[Study], "Iterable[RenderableType]"],
    figure: "Callable[[Study], Figure] | None" = None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Save a study, and its figure where it has one, and print its tables, or its JSON."""
    from dtpt.analysis.study_files import save_study, study_json

    written = [save_study(study, folder, name=name)]
    if figure is not None:
        from dtpt.report.figures.svg import svg_text

        written.append(folder / f"{name}.svg")
        write_atomically(written[-1], svg_text(figure(study)).encode())
    if as_json:
        print(study_json(study))
    else:
        _print(tables(study))
    if not quiet:
        print(f"Wrote {', '.join(map(str, written))}", file=sys.stderr)


def _print(parts: "Iterable[RenderableType]") -> None:
    from dtpt.cli.output import wide_console

    console = wide_console()
    console.width = min(console.width, WIDTH)
    for part in parts:
        console.print(part, highlight=False)
        console.print()


def narrow_table(title: str, heads: Sequence[str], *, rows: Iterable[Sequence[str]]) -> Table:
    """Return a table whose first column is text and whose others are numbers."""
    table = Table(
        title=escape(title), title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for index, head in enumerate(heads):
        table.add_column(escape(head), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def headline(name: str, rest: str) -> str:
    r"""Return a line that opens with a name in bold; brackets in names stay what they are.

    Example:
        >>> print(headline("folder:my [red] pictures", ": 12 pictures"))
        [bold]folder:my \[red] pictures[/bold]: 12 pictures
    """
    return f"[bold]{escape(name)}[/bold]{escape(rest)}"


def metric_heads(metrics: Iterable[str]) -> list[str]:
    """Return the headings of some metrics."""
    return [HEADS[key] for key in metrics]


def value_cells(
    found: Mapping[str, Estimate], metrics: Iterable[str], *, plain: bool = False
) -> list[str]:
    """Return numbers as `55.8±1.2`, or without their intervals."""
    cells = []
    for key in metrics:
        factor, one = _factor(key), found[key]
        sign = "+" if METRICS[key].higher_is_better is None else ""
        half = max(one.high - one.value, one.value - one.low)
        spread = "" if plain else f"±{brief(factor * half)}"
        cells.append(brief(factor * one.value, sign=sign) + spread)
    return cells


def difference_cells(found: Iterable[Comparison], metrics: Iterable[str]) -> list[str]:
    """Return differences as `-0.4±0.3*`; the star says that the interval excludes 0."""
    by_metric = {one.metric: one for one in found}
    return [_difference(by_metric[key]) if key in by_metric else "" for key in metrics]


def _difference(one: Comparison) -> str:
    factor = _factor(one.metric)
    half = max(one.high - one.estimate, one.estimate - one.low)
    star = "*" if one.significant else " "
    return f"{brief(factor * one.estimate, sign='+')}±{brief(factor * half)}{star}"


def brief(number: float, *, sign: str = "") -> str:
    """Write a number with one decimal, or none where it is large.

    Example:
        >>> brief(1.26, sign="+"), brief(203.4)
        ('+1.3', '203')
    """
    return f"{number:{sign}.{1 if abs(number) < 99.95 else 0}f}"


def _factor(key: str) -> float:
    """Return what a fraction is multiplied by; Brier, too, in hundredths."""
    return max(METRICS[key].factor, 100.0)
