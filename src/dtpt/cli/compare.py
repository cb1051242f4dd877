"""`dtpt compare`: which methods of some runs are significantly different."""

from pathlib import Path

from rich.text import Text

from dtpt.cli.flags import AsJson
from dtpt.cli.output import print_json, show
from dtpt.cli.report import verdict_texts


def compare(
    *runs: Path,
    against: str = "",
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the methods of runs: which differ significantly, and by how much, paired by image.

    All data sets of a family are pooled; images are drawn again within each set, and seeds are
    averaged. Confidence intervals are corrected for the number of comparisons. A temperature for
    TPT, and a λ where several were run, are fitted leave-one-dataset-out.

    Args:
        runs: Run folders made by `dtpt eval` or `dtpt sweep`, or their shards.
        against: Methods that all others are compared with, as in the tables' labels; by default
            zero-shot and tpt as far as they were run, else the first method.
        level: Probability that all intervals hold.
        resamples: Bootstrap draws of the images.
        seed: Of the drawing.
        as_json: Print every comparison in fractions.
    """
    from dtpt.report.compare import compare as compare_runs

    names = [name.strip() for name in against.split(",") if name.strip()]
    found = compare_runs(*runs, against=names, level=level, resamples=resamples, seed=seed)
    if as_json:
        print_json(found.document())
        return
    for title, paragraphs, tables in found.sections():
        show(Text(f"\n{title}", style="bold"), *verdict_texts(paragraphs), *tables)
