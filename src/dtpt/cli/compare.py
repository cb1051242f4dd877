"""`dtpt compare`: which methods of some runs can be told apart."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from dtpt.report.comparison import FamilyComparison, Resampling
    from dtpt.report.gathering import Condition


def compare(
    *runs: Path,
    against: str = "",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Say which methods can be told apart, and by how much, paired by picture.

    All data sets of a family are put together; pictures are drawn again within each set, and seeds
    are averaged. Intervals are corrected for the number of comparisons. A temperature for TPT and a
    λ where several were run are fitted for each set on the other sets of its family.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        against: Methods that all others are compared with, as in the tables' labels; by default
            zero-shot and tpt as far as they were run, else the first method.
        level: Probability that all intervals together are right.
        resamples: Draws of the pictures.
        seed: Of the drawing.
        as_json: Print every comparison in fractions.
    """
    from dtpt.report import gather
    from dtpt.report.comparison import Resampling, check_against, compare_conditions
    from dtpt.report.derived_rows import with_derived_rows

    names = tuple(name.strip() for name in against.split(",") if name.strip())
    resampling = Resampling(level=level, resamples=resamples, seed=seed, against=names)
    with gather(list(runs)) as gathered:
        conditions = with_derived_rows(gathered).conditions
    compared = compare_conditions(conditions, resampling)
    found = list(zip(conditions, compared, strict=True))
    check_against([one for _, several in found for one in several], names)
    if as_json:
        print(json.dumps(_document(found, resampling), indent=2, ensure_ascii=False))
    else:
        _show(found)


def _document(
    found: "list[tuple[Condition, tuple[FamilyComparison, ...]]]", resampling: "Resampling"
) -> dict[str, Any]:
    """Return what `--json` prints: verdicts and comparisons, in fractions."""
    from dtpt.report.verdict import verdicts

    return {
        "level": resampling.level,
        "resamples": resampling.resamples,
        "seed": resampling.seed,
        "conditions": [
            {
                "model": condition.model,
                "template": condition.template,
                "verdicts": [verdict.text for verdict in verdicts(condition, several)],
                "families": [_family(one) for one in several],
            }
            for condition, several in found
        ],
    }


def _family(one: "FamilyComparison") -> dict[str, Any]:
    return {
        "family": one.title,
        "sets": list(one.sets),
        "pictures": one.pictures,
        "values": {
            label: {metric: drawn.estimate for metric, drawn in metrics.items()}
            for label, metrics in one.drawn.items()
        },
        "comparisons": [comparison.to_dict() for comparison in one.comparisons],
    }


def _show(found: "list[tuple[Condition, tuple[FamilyComparison, ...]]]") -> None:
    from dtpt.cli.output import wide_console
    from dtpt.report.tables.pooled import difference_tables, pooled_table
    from dtpt.report.tables.terminal import terminal_table, terminal_verdict
    from dtpt.report.verdict import verdicts

    console = wide_console()
    for condition, several in found:
        console.print(f"\n{condition.title}", style="bold", highlight=False, markup=False)
        for verdict in verdicts(condition, several):
            console.print(terminal_verdict(verdict))
        for one in several:
            console.print(terminal_table(pooled_table(one, key="pooled")))
            for table in difference_tables(one, prefix="pooled"):
                console.print(terminal_table(table))
