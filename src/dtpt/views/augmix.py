"""AugMix as the peers use it (severity 1): three short chains of operations, mixed with the crop.

    view = m · crop + (1 − m) · Σ_i w_i · chain_i(crop),   w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)

The peers convert and normalise the crop and each chain, then mix. Normalising is affine and the
weights add up to one, so it is done once here, as part of the weights and one offset.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views import affine, colour
from dtpt.views.affine import Planes, Scratch

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
    crop: Image.Image,
    mixture: Mixture,
    *,
    preprocessing: Preprocess,
    scratch: Scratch,
    out: npt.NDArray[np.float32],
) -> None:
    """Writes the normalised view, (3, S, S) float32, into `out`.

    Args:
        crop: The square RGB crop.
        mixture: Its chains and weights.
        preprocessing: For mean and standard deviation.
        scratch: Memory for the size of the crop, overwritten.
        out: Where the view goes.
    """
    source = planes_of(crop)
    pictures = [(mixture.keep, source)]
    for chain, weight in zip(mixture.chains, mixture.weights, strict=True):
        pictures.append(((1 - mixture.keep) * weight, run_chain(source, chain, scratch=scratch)))
    part = scratch.value
    for channel in range(3):
        spread = preprocessing.std[channel]
        total = out[channel]
        total.fill(-preprocessing.mean[channel] / spread)
        for share, planes in pictures:
            np.copyto(part, planes[channel])
            np.multiply(part, np.float32(share / (255 * spread)), out=part)
            np.add(total, part, out=total)


def planes_of(image: Image.Image) -> Planes:
    """Returns the (3, S, S) planes of an RGB picture."""
    data = b"".join(image.tobytes("raw", channel) for channel in "RGB")
    return np.frombuffer(data, dtype=np.uint8).reshape(3, image.height, image.width)


def run_chain(planes: Planes, chain: Sequence[Operation], *, scratch: Scratch) -> Planes:
    """Applies the steps of a chain; a movement by nothing is no step."""
    for name, amount in chain:
        if name in _COLOURS:
            planes = _COLOURS[name](planes)
        elif name in _SETTINGS:
            planes = _SETTINGS[name](planes, int(amount))
        elif name in _SHEARS:
            planes = _SHEARS[name](planes, amount, scratch)
        elif amount != 0:
            planes = _MOVES[name](planes, int(amount))
    return planes


_COLOURS = {"autocontrast": colour.autocontrast, "equalize": colour.equalize}
_SETTINGS = {"posterize": colour.posterize, "solarize": colour.solarize}
_SHEARS = {"shear_x": affine.shear_x, "shear_y": affine.shear_y}
_MOVES = {
    "rotate": affine.rotate,
    "translate_x": affine.translate_x,
    "translate_y": affine.translate_y,
}
