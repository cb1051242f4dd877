"""`dtpt compare`: which methods of some runs can be told apart."""

import json
from pathlib import Path

from dtpt.cli.flags import AsJson


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
    from dtpt.report.compare import compare as compare_runs

    names = tuple(name.strip() for name in against.split(",") if name.strip())
    found = compare_runs(*runs, against=names, level=level, resamples=resamples, seed=seed)
    if as_json:
        print(json.dumps(found.document(), indent=2, ensure_ascii=False))
