"""AugMix as the peers use it (severity 1): three short chains of operations, mixed with the crop.

    view = m · crop + (1 − m) · Σ_i w_i · chain_i(crop),   w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)

The draws are here; `dtpt.views.chains` runs the chains and `dtpt.views.mixing` mixes.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
    """The chains of one view, their weights (sum 1), and the share `keep` of the plain crop."""

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
        numbers: 34 uniform numbers: share (1), weights (3), lengths (3), then choice, level and
            sign of each of the nine possible steps.
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
        places = range(first, first + 3 * (1 + int(number * LONGEST_CHAIN)), 3)
        steps = [_draw_operation(numbers[place : place + 3], size) for place in places]
        chains.append(tuple(steps))
    weights = tuple(value / total for value in exponentials)
    return Mixture(tuple(chains), weights, float(numbers[0]))


def _draw_operation(numbers: Sequence[float], size: int) -> Operation:
    """Draw one step from choice, level and sign."""
    name = OPERATIONS[int(numbers[0] * len(OPERATIONS))]
    level = _LOWEST_LEVEL + (1 - _LOWEST_LEVEL) * numbers[1]
    return Operation(name, AMOUNTS[name](level, -1 if numbers[2] > 0.5 else 1, size))
