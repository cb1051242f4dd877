"""AugMix as the peers use it (severity 1): three short chains of operations, mixed with the crop.

    view = m · crop + (1 − m) · Σ_i w_i · chain_i(crop),   w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)

`draw_mixture` draws chains and weights, `run_chains` runs the chains of many crops side by side,
`mix` mixes and normalises.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtpt.clip.preprocess import Preprocess
from dtpt.views import colour, warps
from dtpt.views.colour import Planes
from dtpt.views.warps import Scratch

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


Chain = tuple[Operation, ...]


class Mixture(NamedTuple):
    """The chains of one view, their weights (sum 1), and the weight `keep` of the crop itself."""

    chains: tuple[Chain, ...]
    weights: tuple[float, ...]
    keep: float


# The amount of each operation from its level (0.1 to 1), its sign and the side of the view in
# pixels; whole-number amounts are cut off as in the peers' code.
AMOUNTS: dict[str, Callable[[float, int, int], float]] = {
    "autocontrast": lambda *_: 0,
    "equalize": lambda *_: 0,
    "posterize": lambda level, *_: 4 - int(0.4 * level),
    "rotate": lambda level, sign, _: sign * int(3 * level),
    "solarize": lambda level, *_: 256 - int(25.6 * level),
    "shear_x": lambda level, sign, _: sign * 0.03 * level,
    "shear_y": lambda level, sign, _: sign * 0.03 * level,
    "translate_x": lambda level, sign, size: sign * int(level * size / 30),
    "translate_y": lambda level, sign, size: sign * int(level * size / 30),
}
OPERATIONS = tuple(AMOUNTS)


def draw_mixture(numbers: Sequence[float], *, size: int) -> Mixture:
    """Draw chains and weights.

    Args:
        numbers: 34 uniform numbers: weight of the crop (1), of the chains (3), lengths (3), then
            choice, level and sign of each of the nine possible steps.
        size: Side of the view in pixels; translations scale with it.

    Example:
        >>> draw_mixture([0.5] * 34, size=64).chains[0]
        (Operation(name='solarize', amount=242), Operation(name='solarize', amount=242))
    """
    exponentials = [-math.log1p(-number) for number in numbers[1:4]]
    total = sum(exponentials) or 1.0
    chains = []
    for chain, number in enumerate(numbers[4:7]):
        first = 7 + 9 * chain
        starts = range(first, first + 3 * (1 + int(number * LONGEST_CHAIN)), 3)
        steps = [_draw_operation(numbers[start : start + 3], size) for start in starts]
        chains.append(tuple(steps))
    weights = tuple(value / total for value in exponentials)
    return Mixture(tuple(chains), weights, float(numbers[0]))


def _draw_operation(numbers: Sequence[float], size: int) -> Operation:
    name = OPERATIONS[int(numbers[0] * len(OPERATIONS))]
    level = _LOWEST_LEVEL + (1 - _LOWEST_LEVEL) * numbers[1]
    return Operation(name, AMOUNTS[name](level, -1 if numbers[2] > 0.5 else 1, size))


# How each operation is done on one image, or on several at once.
SINGLE: dict[str, Callable[[Planes, float], Planes]] = {
    "autocontrast": lambda planes, _: colour.autocontrast(planes),
    "posterize": lambda planes, bits: colour.posterize(planes, int(bits)),
    "solarize": lambda planes, threshold: colour.solarize(planes, int(threshold)),
    "translate_x": lambda planes, pixels: warps.translate(planes, int(pixels), axis=2),
    "translate_y": lambda planes, pixels: warps.translate(planes, int(pixels), axis=1),
}
BATCHED: dict[str, Callable[[Sequence[Planes], Sequence[float], Scratch], Iterable[Planes]]] = {
    "equalize": lambda images, _, __: colour.equalize(images),
    "rotate": lambda images, same, scratch: warps.rotate(images, int(same[0]), scratch=scratch),
    "shear_x": lambda images, levels, scratch: warps.shear(images, levels, axis=3, scratch=scratch),
    "shear_y": lambda images, levels, scratch: warps.shear(images, levels, axis=2, scratch=scratch),
}


def run_chains(
    images: Sequence[Planes], chains: Sequence[Chain], *, scratch: Scratch
) -> list[Planes]:
    """Return what each chain makes of its image (3, S, S); the images themselves stay unchanged.

    The first steps of all chains run first, then the second ones. Within a step, chains with the
    same operation run together: for small images the calls would cost more than the work.

    Example:
        >>> image = np.full((3, 2, 2), 250, dtype=np.uint8)
        >>> chain = (Operation("solarize", 240), Operation("translate_x", 1))
        >>> run_chains([image], [chain], scratch=Scratch(2))[0][0].tolist()
        [[5, 0], [5, 0]]
    """
    current = list(images)
    for step in range(LONGEST_CHAIN):
        for indices in _groups(chains, step):
            operations = [chains[index][step] for index in indices]
            sources = [current[index] for index in indices]
            results = _apply(operations, sources, scratch=scratch)
            for index, planes in zip(indices, results, strict=True):
                current[index] = planes
    return current


def _groups(chains: Sequence[Chain], step: int) -> Iterable[list[int]]:
    """Return the indices of the chains that do the same operation at one step; angles too."""
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for index, chain in enumerate(chains):
        if step < len(chain) and chain[step] != ("rotate", 0):  # which changes nothing
            operation = chain[step]
            groups[operation if operation.name == "rotate" else operation.name].append(index)
    return groups.values()


def _apply(
    operations: Sequence[Operation], images: Sequence[Planes], *, scratch: Scratch
) -> Iterable[Planes]:
    name, amounts = operations[0].name, [operation.amount for operation in operations]
    if name in BATCHED:
        return BATCHED[name](images, amounts, scratch)
    return map(SINGLE[name], images, amounts)


def mix(
    crops: Sequence[Planes],
    chained: Sequence[Planes],
    *,
    mixtures: Sequence[Mixture],
    preprocessing: Preprocess,
    scratch: Scratch,
    out: npt.NDArray[np.float32],
) -> None:
    """Write the mixed and normalised views into `out`, (n, 3, S, S).

    `crops` are n images (3, S, S) and `chained` 3n; the chains of one view are adjacent. The peers
    convert and normalise the crop and each chain, then mix. Normalising is affine and the weights
    add up to one, so it is done once here, as part of the weights and one offset:

        view = −mean/std + Σ_i (weight_i / (255 · std)) · image_i
    """
    factors, offset = _factors(mixtures, preprocessing)
    floats = scratch.words[0][0].view(np.float32)
    for view, (total, crop) in enumerate(zip(out, crops, strict=True)):
        np.copyto(total, crop)
        np.multiply(total, factors[view, 0], out=total)
        np.add(total, offset, out=total)
        chains = chained[CHAINS * view : CHAINS * (view + 1)]
        for image, factor in zip(chains, factors[view, 1:], strict=True):
            np.copyto(floats, image)
            np.multiply(floats, factor, out=floats)
            np.add(total, floats, out=total)


def _factors(
    mixtures: Sequence[Mixture], preprocessing: Preprocess
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the factor of each image and channel (n, 4, 3, 1, 1), and the offset (3, 1, 1)."""
    mean, deviation = np.array(preprocessing.mean), np.array(preprocessing.std)
    weights = [[m.keep, *((1 - m.keep) * weight for weight in m.weights)] for m in mixtures]
    factors = np.array(weights)[:, :, None] / (255 * deviation)  # (n, 4, 3)
    offset = (-mean / deviation)[:, None, None]
    return factors[..., None, None].astype(np.float32), offset.astype(np.float32)
