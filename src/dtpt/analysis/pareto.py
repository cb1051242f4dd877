"""The best that accuracy and ECE allow together over λ (figure 7)."""

from collections.abc import Sequence

import numpy as np

from dtpt.analysis.results import MethodScore, ParetoPoint


def efficient(accuracy: Sequence[float], ece: Sequence[float]) -> list[bool]:
    """Tell for each point whether no other is at least as good in both and better in one.

    Equal points do not exclude each other. Sorted by accuracy, a point survives when its ECE is
    below that of all more accurate ones and the smallest among equally accurate ones.
    """
    count = len(accuracy)
    order = sorted(range(count), key=lambda i: (-accuracy[i], ece[i]))
    flags = [False] * count
    best_before, position = np.inf, 0
    while position < count:
        level = accuracy[order[position]]
        lowest = ece[order[position]]
        while position < count and accuracy[order[position]] == level:
            flags[order[position]] = ece[order[position]] == lowest and lowest < best_before
            position += 1
        best_before = min(best_before, lowest)
    return flags


def pareto_points(scores: Sequence[MethodScore]) -> tuple[ParetoPoint, ...]:
    """Mark the efficient points, among all and within each method, in the order given."""
    flags = efficient([s.accuracy for s in scores], [s.ece for s in scores])
    within = [False] * len(scores)
    for method in dict.fromkeys(score.method for score in scores):
        mine = [i for i, score in enumerate(scores) if score.method == method]
        own = efficient([scores[i].accuracy for i in mine], [scores[i].ece for i in mine])
        for index, flag in zip(mine, own, strict=True):
            within[index] = flag
    return tuple(
        ParetoPoint(s.label, s.method, s.lambda_, s.accuracy, s.ece, flag, own)
        for s, flag, own in zip(scores, flags, within, strict=True)
    )
