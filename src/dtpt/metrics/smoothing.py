"""The machinery of the smooth calibration error, for one set of samples or many resamples of it.

Residuals (correct - confidence) lie on a grid over [0, 1] that is mirrored at both ends into a
circle. There a Gaussian kernel multiplies Fourier coefficients, so that an error at one bandwidth
costs one transform.
"""

import numpy as np

from dtpt.metrics.validation import FloatArray, IntArray


def shared_cells(position: FloatArray, *, grid: int) -> tuple[IntArray, FloatArray]:
    """Return the grid point below each position and the share that belongs to the next one.

    Example:
        >>> [part.tolist() for part in shared_cells(np.array([0.0, 0.375, 1.0]), grid=4)]
        [[0, 1, 3], [0.0, 0.5, 1.0]]
    """
    place = position * grid
    left = np.minimum(place.astype(np.int64), grid - 1)
    return left, place - left


def mirrored_spectrum(line: FloatArray) -> FloatArray:
    """Return cosine coefficients of masses on a grid, mirrored at 0 and 1.

    Args:
        line: (rows, grid + 1) mass on each grid point.

    Returns:
        (rows, grid + 1).

    Example:
        >>> mirrored_spectrum(np.array([[0.0, 1.0, 0.0]])).round(12).tolist()
        [[2.0, 0.0, -2.0]]
    """
    ends = line.copy()
    ends[:, [0, -1]] *= 2  # the mirror image of an end point lies on itself
    circle = np.concatenate((ends, ends[:, -2:0:-1]), axis=1)  # (rows, 2 * grid)
    return np.fft.rfft(circle, axis=1).real


def smoothed_error(spectrum: FloatArray, bandwidth: FloatArray) -> FloatArray:
    """Return the integral of the absolute residual, smoothed at each row's bandwidth, (rows,).

    Example:
        >>> spectrum = mirrored_spectrum(np.array([[0.0, 0.5, -0.25]]))
        >>> smoothed_error(spectrum, np.array([0.0])).round(12).tolist()
        [0.75]
    """
    frequency = np.pi * np.arange(spectrum.shape[1])
    kernel = np.exp(-0.5 * np.square(bandwidth[:, None] * frequency))
    smoothed = np.fft.irfft(spectrum * kernel, axis=1)  # (rows, 2 * grid)
    return np.asarray(np.abs(smoothed).sum(axis=1) / 2)  # the circle covers [0, 1] twice


def self_consistent_error(spectrum: FloatArray, *, tolerance: float) -> FloatArray:
    """Return, for each row, the error that equals its own bandwidth.

    The error shrinks while the bandwidth grows, so there is one such point in [0, 1], and the
    difference of the two bounds the distance to it. Regula falsi, Illinois variant.

    Example:
        >>> spectrum = mirrored_spectrum(np.array([[0.0, 0.5, 0.0]]))
        >>> self_consistent_error(spectrum, tolerance=1e-9).round(6).tolist()
        [0.5]
    """
    rows = len(spectrum)
    low, high = np.zeros(rows), np.ones(rows)
    at_low, at_high = smoothed_error(spectrum, low), smoothed_error(spectrum, high) - 1
    side = np.zeros(rows)  # which end moved last
    middle = low
    for _ in range(100):
        span = np.where(at_low > at_high, at_low - at_high, 1.0)
        middle = low + (high - low) * at_low / span
        value = smoothed_error(spectrum, middle) - middle
        if (np.abs(value) <= tolerance).all():
            break
        right = value > 0  # the crossing lies to the right
        at_high = np.where(right & (side > 0), at_high / 2, at_high)
        at_low = np.where(~right & (side < 0), at_low / 2, at_low)
        low, at_low = np.where(right, middle, low), np.where(right, value, at_low)
        high, at_high = np.where(right, high, middle), np.where(right, at_high, value)
        side = np.where(right, 1.0, -1.0)
    return middle
