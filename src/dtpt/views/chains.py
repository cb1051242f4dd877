"""Runs the chains of AugMix: many pictures side by side, step by step.

The first steps of all chains run first, then the second ones. Within a step, chains that do the
same operation do it together: for small pictures the calls would cost more than the work.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from dtpt.views import colour, rotation, shear, translation
from dtpt.views.augmix import LONGEST_CHAIN, Chain, Operation
from dtpt.views.planes import Planes, Scratch

Several = Callable[[Sequence[Planes], Sequence[float], Scratch], Iterable[Planes]]

# How each operation is done on one picture, or on several at once.
ONE_BY_ONE: dict[str, Callable[[Planes, float], Planes]] = {
    "autocontrast": lambda planes, _: colour.autocontrast(planes),
    "posterize": lambda planes, bits: colour.posterize(planes, int(bits)),
    "solarize": lambda planes, threshold: colour.solarize(planes, int(threshold)),
    "translate_x": lambda planes, pixels: translation.translate_x(planes, int(pixels)),
    "translate_y": lambda planes, pixels: translation.translate_y(planes, int(pixels)),
}
TOGETHER: dict[str, Several] = {
    "equalize": lambda some, _, __: colour.equalize(some),
    "rotate": lambda some, same, scratch: rotation.rotate(some, int(same[0]), scratch=scratch),
    "shear_x": lambda some, levels, scratch: shear.shear_x(some, levels, scratch=scratch),
    "shear_y": lambda some, levels, scratch: shear.shear_y(some, levels, scratch=scratch),
}


def run_chains(
    pictures: Sequence[Planes], chains: Sequence[Chain], *, scratch: Scratch
) -> list[Planes]:
    """Return what each chain makes of its picture; the pictures themselves are not changed.

    Args:
        pictures: (3, S, S) each.
        chains: One for each picture.
        scratch: Memory for the size of the pictures, overwritten.

    Example:
        >>> import numpy as np
        >>> picture = np.full((3, 2, 2), 250, dtype=np.uint8)
        >>> chain = (Operation("solarize", 240), Operation("translate_x", 1))
        >>> run_chains([picture], [chain], scratch=Scratch(2))[0][0].tolist()
        [[5, 0], [5, 0]]
    """
    current = list(pictures)
    for step in range(LONGEST_CHAIN):
        for places in _groups(chains, step):
            operations = [chains[place][step] for place in places]
            some = [current[place] for place in places]
            for place, planes in zip(
                places, _apply(operations, some, scratch=scratch), strict=True
            ):
                current[place] = planes
    return current


def _groups(chains: Sequence[Chain], step: int) -> Iterable[list[int]]:
    """Return the places of the chains that do the same operation at one step.

    Rotations are grouped by their angle, and one by nothing is left out.
    """
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for place, chain in enumerate(chains):
        if step < len(chain) and chain[step] != ("rotate", 0):
            operation = chain[step]
            groups[operation if operation.name == "rotate" else operation.name].append(place)
    return groups.values()


def _apply(
    operations: Sequence[Operation], pictures: Sequence[Planes], *, scratch: Scratch
) -> Iterable[Planes]:
    """Do operations of the same name, each on its picture."""
    name, amounts = operations[0].name, [operation.amount for operation in operations]
    if name in TOGETHER:
        return TOGETHER[name](pictures, amounts, scratch)
    return map(ONE_BY_ONE[name], pictures, amounts)
