"""All probabilities of a row in few bytes: log-probabilities as float16, through zlib.

Three digits are enough to draw, to average and to fit a temperature; the exact numbers that metrics
need stand in columns of their own.
"""

import zlib

import numpy as np
import numpy.typing as npt

LEAST = -60000.0  # float16 ends soon after


def pack(log_probabilities: npt.NDArray[np.float64]) -> bytes:
    """Return (C,) log-probabilities as bytes.

    Example:
        >>> unpack(pack(np.log(np.array([0.25, 0.75])))).round(2).tolist() == [
        ...     np.float32(-1.39),
        ...     np.float32(-0.29),
        ... ]
        True
    """
    return zlib.compress(np.clip(log_probabilities, LEAST, 0.0).astype("<f2").tobytes())


def unpack(data: bytes) -> npt.NDArray[np.float32]:
    """Return the (C,) log-probabilities that `pack` was given, to three digits."""
    return np.frombuffer(zlib.decompress(data), dtype="<f2").astype(np.float32)
