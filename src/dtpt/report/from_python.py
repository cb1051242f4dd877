"""What `dtpt compare` does, from Python: `dtpt.compare`."""

from collections.abc import Sequence
from typing import Any

from dtpt.errors import OptionError, short_repr
from dtpt.files import AnyPath, as_path
from dtpt.report.comparison import Resampling, check_against, compare_conditions
from dtpt.report.derived_rows import with_derived_rows
from dtpt.report.gathering import gather
from dtpt.runs.reading import Run


def compare(
    *runs: Run | AnyPath,
    against: Sequence[str] = (),
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Say which methods can be told apart, paired by picture and pooled over data sets.

    Args:
        runs: runs, or folders that `evaluate` or `dtpt eval` wrote.
        against: methods that all others are compared with; by default zero-shot and TPT as far as
            they were run, else the first method.
        level: probability that all intervals together are right.
        resamples: draws of the pictures.
        seed: of the drawing.

    Returns:
        A dictionary for each model, family of data sets, pair and metric: the difference (first
        minus second, a fraction) with its interval, and which one is `better`, if that can be told.

    Raises:
        ReportError: nothing to compare, or a method that no run holds.
        MetricError: a level or a number of draws that makes no sense.

    Example:
        >>> from dtpt.runs.from_python import evaluate
        >>> run = evaluate("openmoji/food-drink", limit=8, method="zero-shot,mean-views", views=4,
        ...                output="food", quiet=True)
        >>> rows = compare(run, against=["zero-shot"], resamples=100)
        >>> rows[0]["first"], rows[0]["second"], rows[0]["metric"], rows[0]["n"]
        ('mean-views', 'zero-shot', 'accuracy', 8)
    """
    is_list = isinstance(against, list | tuple)
    if not is_list or not all(isinstance(name, str) for name in against):
        raise OptionError(f"against must be a list of methods, got {short_repr(against)}.")
    paths = [run.path if isinstance(run, Run) else as_path(run, "run") for run in runs]
    resampling = Resampling(level=level, resamples=resamples, seed=seed, against=tuple(against))
    with gather(paths) as gathered:
        conditions = with_derived_rows(gathered).conditions
    found = compare_conditions(conditions, resampling)
    check_against([one for several in found for one in several], tuple(against))
    return [
        {
            "model": condition.model,
            "template": condition.template,
            "family": one.title,
            **comparison.to_dict(),
        }
        for condition, several in zip(conditions, found, strict=True)
        for one in several
        for comparison in one.comparisons
    ]
