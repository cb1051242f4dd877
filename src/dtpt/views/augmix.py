"""AugMix as the peers use it (severity 1): three short chains of operations, mixed with the crop.

    view = m · crop + (1 − m) · Σ_i w_i · chain_i(crop),   w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)

The peers convert and normalise the crop and each chain, then mix. Normalising is affine and the
weights add up to one, so mixing comes first here and normalising is part of the weights. Chains of
colour operations only are tables of the crop's values: they all become one table.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views import affine, lookup
from dtpt.views.affine import Planes
from dtpt.views.lookup import Histogram, Table

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
CHAINS = 3
LONGEST_CHAIN = 3
_LOWEST_LEVEL = 0.1


class Operation(NamedTuple):
    """One step of a chain.

    `amount` is in the unit of the operation: bits kept (posterize), degrees (rotate), threshold
    (solarize), pixels per pixel (shear), pixels (translate), 0 where there is none.
    """

    name: str
    amount: float


class Mixture(NamedTuple):
    """The chains of one view, their weights (sum 1), and the share `keep` of the plain crop."""

    chains: tuple[tuple[Operation, ...], ...]
    weights: tuple[float, ...]
    keep: float


def draw_mixture(numbers: Sequence[float], *, size: int) -> Mixture:
    """Draws chains and weights.

    Args:
        numbers: 34 uniform numbers: share (1), weights (3), lengths (3), then choice, level and
            sign of each of the nine possible steps.
        size: Side of the view in pixels; translations scale with it.
    """
    exponentials = [-math.log1p(-number) for number in numbers[1:4]]
    total = sum(exponentials) or 1.0
    lengths = [1 + int(number * LONGEST_CHAIN) for number in numbers[4:7]]
    chains = []
    for chain, length in enumerate(lengths):
        first = 7 + 9 * chain
        steps = [numbers[first + 3 * step : first + 3 * step + 3] for step in range(length)]
        chains.append(tuple(_draw_operation(step, size) for step in steps))
    weights = tuple(value / total for value in exponentials)
    return Mixture(tuple(chains), weights, float(numbers[0]))


def _draw_operation(numbers: Sequence[float], size: int) -> Operation:
    """Draws one step; whole-number amounts are cut off as in the peers' code."""
    name = OPERATIONS[int(numbers[0] * len(OPERATIONS))]
    level = _LOWEST_LEVEL + (1 - _LOWEST_LEVEL) * float(numbers[1])
    sign = -1 if numbers[2] > 0.5 else 1
    amounts = {
        "posterize": 4 - int(0.4 * level),
        "rotate": sign * int(3 * level),
        "solarize": 256 - int(25.6 * level),
        "shear_x": sign * 0.03 * level,
        "shear_y": sign * 0.03 * level,
        "translate_x": sign * int(level * size / 30),
        "translate_y": sign * int(level * size / 30),
    }
    return Operation(name, amounts.get(name, 0))


def mixed(
    crop: Image.Image, mixture: Mixture, preprocessing: Preprocess, out: npt.NDArray[np.float32]
) -> None:
    """Writes the normalised view, (3, S, S) float32, into `out`.

    Args:
        crop: The square RGB crop.
        mixture: Its chains and weights.
        preprocessing: For mean and standard deviation.
        out: Where the view goes.
    """
    source = _Picture(planes_of(crop))
    gain = 1 / (255 * np.array(preprocessing.std))  # (3,) what one step of 8 bits is worth
    colours = mixture.keep * lookup.IDENTITY.astype(np.float64)  # (3, 256) summed colour chains
    moved: list[tuple[float, _Picture]] = []
    for chain, weight in zip(mixture.chains, mixture.weights, strict=True):
        share = (1 - mixture.keep) * weight
        result = _run(chain, source)
        if result.planes is source.planes:
            colours += share * result.table
        else:
            moved.append((share, result))
    offset = np.array(preprocessing.mean) / np.array(preprocessing.std)
    base = (colours * gain[:, None] - offset[:, None]).astype(np.float32)
    scratch = np.empty(out.shape[1:], dtype=np.float32)
    for channel in range(3):
        np.take(base[channel], source.planes[channel], out=out[channel], mode="clip")
        for share, picture in moved:
            _weighted(picture, channel, share * gain[channel], scratch)
            out[channel] += scratch


def planes_of(image: Image.Image) -> Planes:
    """Returns the (3, S, S) planes of an RGB picture."""
    data = b"".join(image.tobytes("raw", channel) for channel in "RGB")
    return np.frombuffer(data, dtype=np.uint8).reshape(3, image.height, image.width)


class _Picture:
    """Planes and a table that is still to be applied to them; the histogram is made when asked."""

    def __init__(self, planes: Planes, table: Table = lookup.IDENTITY) -> None:
        self.planes = planes
        self.table = table
        self._counts: Histogram | None = None

    def counts(self) -> Histogram:
        """Returns the histogram of the planes, without the table."""
        if self._counts is None:
            rows = self.planes.reshape(3, -1)  # (3, S·S)
            self._counts = np.array([np.bincount(row, minlength=256) for row in rows])
        return self._counts

    def recoloured(self, name: str, amount: float) -> "_Picture":
        """Returns the picture after a colour operation, which changes only the table."""
        if name == "posterize":
            step = lookup.posterize(int(amount))
        elif name == "solarize":
            step = lookup.solarize(int(amount))
        else:
            counts = self.counts()
            if self.table is not lookup.IDENTITY:
                counts = lookup.behind(counts, self.table)
            step = lookup.equalize(counts) if name == "equalize" else lookup.autocontrast(counts)
        result = _Picture(self.planes, lookup.composed(self.table, step))
        result._counts = self._counts
        return result

    def settled(self) -> Planes:
        """Returns the planes with the table applied."""
        if self.table is lookup.IDENTITY:
            return self.planes
        result = np.empty_like(self.planes)
        for channel in range(3):
            np.take(self.table[channel], self.planes[channel], out=result[channel], mode="clip")
        return result


_MOVES = {
    "rotate": affine.rotate,
    "shear_x": affine.shear_x,
    "shear_y": affine.shear_y,
    "translate_x": affine.translate_x,
    "translate_y": affine.translate_y,
}


def _run(chain: Sequence[Operation], picture: _Picture) -> _Picture:
    """Applies the steps of a chain; a movement by nothing is no step."""
    for name, amount in chain:
        if name not in _MOVES:
            picture = picture.recoloured(name, amount)
        elif amount != 0:
            picture = _Picture(_moved(name, picture.settled(), amount))
    return picture


def _moved(name: str, planes: Planes, amount: float) -> Planes:
    if name.startswith("shear"):
        return (affine.shear_x if name == "shear_x" else affine.shear_y)(planes, amount)
    whole = {"rotate": affine.rotate, "translate_x": affine.translate_x}
    return whole.get(name, affine.translate_y)(planes, int(amount))


def _weighted(picture: _Picture, channel: int, weight: float, out: npt.NDArray[np.float32]) -> None:
    """Writes weight × channel of the picture, table included."""
    if picture.table is lookup.IDENTITY:
        np.copyto(out, picture.planes[channel])
        out *= np.float32(weight)
    else:
        values = (weight * picture.table[channel]).astype(np.float32)
        np.take(values, picture.planes[channel], out=out, mode="clip")
