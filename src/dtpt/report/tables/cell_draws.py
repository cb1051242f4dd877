"""Bootstrap draws of table entries: pictures are drawn again, everything else stays.

The same draws are used for every seed and every method of a set, because they share their pictures;
sets are drawn independently of each other. So the draws of two rows are paired.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtpt.metrics import (
    METRICS,
    Interval,
    centred_interval,
    draw_metrics,
    metrics_with,
    pool,
)
from dtpt.metrics.comparison import student_difference
from dtpt.report.gathering.scored_cells import ScoredCell

FloatArray = npt.NDArray[np.float64]
CellGrid = Sequence[Sequence[ScoredCell]]
"""Finished cells behind one entry: sets × seeds."""


class CellDraws:
    """Draws of the cells of a report, each computed once.

    Attributes:
        resamples: Number of draws.
        seed: Of the drawing; each set has its own stream.
    """

    def __init__(self, resamples: int = 1000, *, seed: int = 0) -> None:
        self.resamples = resamples
        self.seed = seed
        self._known: dict[int, tuple[ScoredCell, dict[str, FloatArray]]] = {}

    def of_cell(self, cell: ScoredCell, metric: str) -> FloatArray:
        """Return (resamples,) draws of one cell's metric."""
        if id(cell) not in self._known:
            drawn = draw_metrics(
                {"": pool({cell.dataset: [cell.predictions]})},
                generator=np.random.default_rng([self.seed, *cell.dataset.encode()]),
                metrics=[metric.key for metric in metrics_with("paper")],
                resamples=self.resamples,
            )[""]
            draws = {key: one.draws for key, one in drawn.items()}
            self._known[id(cell)] = (cell, draws)  # the cell is kept so that its id stays its own
        return self._known[id(cell)][1][metric]

    def of_mean(self, cells: CellGrid, metric: str) -> FloatArray:
        """Return (resamples,) draws of a mean over sets and seeds."""
        per_set = [np.mean([self.of_cell(cell, metric) for cell in row], axis=0) for row in cells]
        return np.asarray(np.mean(per_set, axis=0))

    def interval(self, cells: CellGrid, metric: str) -> Interval:
        """Return the interval of a mean over sets and seeds, centred on it."""
        estimate = np.mean([np.mean([cell.metric(metric) for cell in row]) for row in cells])
        return centred_interval(self.of_mean(cells, metric), float(estimate), level=0.95)

    def separated(
        self, first: CellGrid, second: CellGrid, *, metric: str, comparisons: int
    ) -> bool:
        """Tell whether two rows can be told apart in a metric, corrected for so many comparisons.

        Rows that do not rest on the same number of pictures are not paired, and not told apart.
        """
        sizes = [[[cell.effective for cell in row] for row in cells] for cells in (first, second)]
        if sizes[0] != sizes[1]:
            return False
        draws = self.of_mean(first, metric) - self.of_mean(second, metric)
        means = [np.mean([[c.metric(metric) for c in row] for row in g]) for g in (first, second)]
        pictures = sum(row[0].effective for row in first)
        freedom = pictures - len(first)
        if freedom < 1:
            return False
        found = student_difference(
            float(means[0] - means[1]),
            max(float(draws.std()), 1 / pictures),  # a handful of pictures proves nothing
            freedom=freedom,
            level=1 - 0.05 / comparisons,
        )
        return found.low > 0 or found.high < 0

    def best(self, rows: Sequence[CellGrid | None], metric: str) -> int | None:
        """Return the place of the best row if it can be told from every other one, else None."""
        upward = METRICS[metric].higher_is_better
        known = {place: cells for place, cells in enumerate(rows) if cells is not None}
        if upward is None or len(known) < 2:
            return None
        means = {
            place: float(np.mean([[cell.metric(metric) for cell in row] for row in cells]))
            for place, cells in known.items()
        }
        top = (max if upward else min)(means, key=lambda place: means[place])
        others = [cells for place, cells in known.items() if not _same(cells, known[top])]
        apart = [
            self.separated(known[top], cells, metric=metric, comparisons=len(others))
            for cells in others
        ]
        return top if apart and all(apart) else None

    def any_apart(self, rows: Sequence[CellGrid | None], metric: str) -> bool:
        """Tell whether any two rows can be told apart, corrected for the number of pairs."""
        pairs = list(itertools.combinations([cells for cells in rows if cells is not None], 2))
        return any(self.separated(*pair, metric=metric, comparisons=len(pairs)) for pair in pairs)


def _same(first: CellGrid, second: CellGrid) -> bool:
    """Tell whether two rows rest on the same rows of the stores."""
    pairs = zip(itertools.chain(*first), itertools.chain(*second), strict=True)
    return all(one.records is other.records for one, other in pairs)
