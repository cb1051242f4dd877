"""The squared calibration error without the bias of small bins, for comparing methods.

In bin b with n_b samples let g_b be the mean of correct - confidence. The ECE adds up |g_b|, which
is biased upwards where g_b is near 0: noise counts whatever its sign. Here

    E² = Σ_b n_b / n · u_b,   u_b = mean of r_i r_j over pairs (i, j) of the bin

with r = correct - confidence and pairs from *different* clusters only. Their noise is independent,
so u_b is an unbiased estimate of the squared true gap of the bin, of either sign for a calibrated
model. A bin with a single cluster has no pair and counts as 0.

A bootstrap of E² that computes it again from the drawn clusters has three times the true variance
for a calibrated model: its linear part, 2 Σ_b g_b r, is all noise there. The draws here are
E² + κ · (linear part) + (quadratic part), both with weights (times drawn - 1) of the clusters, and
κ² is the fraction of the linear part's variance that noise does not explain.
"""

import numpy as np

from dtpt.metrics.validation import FloatArray, IntArray


class SquaredError:
    """The squared calibration error of some samples, and what its draws need.

    Args:
        residual: (n,) correct - confidence.
        bins: (n,) bin of each sample.
        clusters: (n,) cluster of each sample, numbered from 0.
    """

    def __init__(self, residual: FloatArray, bins: IntArray, *, clusters: IntArray) -> None:
        shape = int(clusters.max()) + 1, int(bins.max()) + 1  # (clusters, bins)
        cell, cells = clusters * shape[1] + bins, shape[0] * shape[1]
        sums = np.bincount(cell, weights=residual, minlength=cells).reshape(shape)
        sizes = np.bincount(cell, minlength=cells).reshape(shape).astype(np.float64)
        n, size = len(residual), sizes.sum(axis=0)
        pairs = size**2 - (sizes**2).sum(axis=0)
        self._weight = np.divide(size, n * pairs, out=np.zeros_like(size), where=pairs > 0)
        self.value = float(self._weight @ (sums.sum(axis=0) ** 2 - (sums**2).sum(axis=0)))
        gap = sums.sum(axis=0) / np.maximum(size, 1)  # (bins,)
        plain = gap**2 @ size / n
        self._linear = (2 * sums @ gap - sizes @ gap**2 - sizes.sum(axis=1) * plain) / n
        self._centred = sums - gap * sizes  # (clusters, bins)
        self._linear *= np.sqrt(self._signal())

    def _signal(self) -> float:
        """Return κ²: the fraction of the linear part's variance that is not noise of the gaps."""
        squares = self._centred**2
        # products of different clusters, summed: (bins, bins)
        products = (self._centred.T @ self._centred) ** 2 - squares.T @ squares
        noise = 4 * self._weight @ products @ self._weight
        variance = float(((self._linear - self._linear.mean()) ** 2).sum())
        return max(1 - float(noise) / variance, 0.0) if variance > 0 else 0.0

    def draws(self, counts: FloatArray) -> FloatArray:
        """Return draws (rows,) from how often each cluster was drawn, (rows, clusters)."""
        more = counts - 1
        quadratic = (more @ self._centred) ** 2 - more**2 @ self._centred**2  # (rows, bins)
        return np.asarray(self.value + more @ self._linear + quadratic @ self._weight)
