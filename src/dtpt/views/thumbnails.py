"""Views of a picture on one sheet, so that people can see what the model saw."""

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess

SIDE = 64  # of one thumbnail, in pixels
COLUMNS = 8


def contact_sheet(
    views: npt.NDArray[np.float32], preprocessing: Preprocess, *, columns: int = COLUMNS
) -> bytes:
    """Return a JPEG with the views in rows of eight, each 64 pixels on a side.

    Args:
        views: (N, 3, S, S) as the model takes them.
        preprocessing: whose mean and standard deviation are undone.
        columns: views in a row.

    Example:
        >>> sheet = contact_sheet(np.zeros((9, 3, 32, 32), np.float32), Preprocess.openai(32))
        >>> Image.open(io.BytesIO(sheet)).size
        (512, 128)
    """
    mean = np.array(preprocessing.mean, np.float32)[:, None, None]
    spread = np.array(preprocessing.std, np.float32)[:, None, None]
    rows = -(-len(views) // columns)
    sheet = Image.new("RGB", (columns * SIDE, rows * SIDE))
    for index, view in enumerate(views):
        levels = np.clip((view * spread + mean) * 255 + 0.5, 0, 255).astype(np.uint8)  # (3, S, S)
        picture = Image.fromarray(np.ascontiguousarray(levels.transpose(1, 2, 0)))
        small = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        sheet.paste(small, (index % columns * SIDE, index // columns * SIDE))
    written = io.BytesIO()
    sheet.save(written, "JPEG", quality=85)
    return written.getvalue()
