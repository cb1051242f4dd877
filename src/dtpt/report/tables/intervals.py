"""Bootstrap intervals of table entries: pictures are drawn again, everything else stays.

The same draws are used for every seed of a set, because seeds share their pictures; sets are drawn
independently of each other.
"""

from collections.abc import Sequence

import numpy as np

from dtpt.metrics import PAPER_METRICS, Interval, bootstrap_draws, centred_interval
from dtpt.report.gathering.scored_cells import ScoredCell
from dtpt.report.tables.means import FloatArray, IntervalOf


def interval_by_bootstrap(resamples: int, *, level: float = 0.95, seed: int = 0) -> IntervalOf:
    """Return the function that gives a mean over (sets × seeds) cells its interval.

    Args:
        resamples: Number of draws.
        level: Coverage.
        seed: Of the drawing; each set has its own stream.
    """
    known: dict[int, dict[str, FloatArray]] = {}

    def draws(cell: ScoredCell) -> dict[str, FloatArray]:
        if id(cell) not in known:
            name = [seed, *cell.dataset.encode()]
            known[id(cell)] = bootstrap_draws(
                cell.predictions,
                PAPER_METRICS,
                generator=np.random.default_rng(name),
                resamples=resamples,
            )
        return known[id(cell)]

    def interval(cells: Sequence[Sequence[ScoredCell]], metric: str) -> Interval | None:
        per_set = [np.mean([draws(cell)[metric] for cell in row], axis=0) for row in cells]
        estimate = np.mean([np.mean([cell.metric(metric) for cell in row]) for row in cells])
        return centred_interval(np.mean(per_set, axis=0), float(estimate), level=level)

    return interval
