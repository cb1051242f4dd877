"""Moving planar pictures by whole pixels; what comes in from outside is black."""

import numpy as np

from dtpt.views.planes import Planes


def translate_x(planes: Planes, pixels: int) -> Planes:
    """Move the content left by `pixels` (right when negative).

    Example:
        >>> translate_x(np.array([[[1, 2, 3]]], dtype=np.uint8), 1).tolist()
        [[[2, 3, 0]]]
    """
    if pixels == 0:
        return planes
    moved = np.zeros_like(planes)
    if pixels >= 0:
        moved[:, :, : max(planes.shape[2] - pixels, 0)] = planes[:, :, pixels:]
    else:
        moved[:, :, -pixels:] = planes[:, :, :pixels]
    return moved


def translate_y(planes: Planes, pixels: int) -> Planes:
    """Move the content up by `pixels` (down when negative)."""
    if pixels == 0:
        return planes
    moved = np.zeros_like(planes)
    if pixels >= 0:
        moved[:, : max(planes.shape[1] - pixels, 0)] = planes[:, pixels:]
    else:
        moved[:, -pixels:] = planes[:, :pixels]
    return moved
