"""What a promise says, in sentences for people."""

import numpy as np

from dtpt.calibration.fitting import LEAST_FOR_TEMPERATURE, Fit, Levels, SetKind
from dtpt.calibration.splitting import Labelled

KINDS = {"lac": "LAC", "aps": "APS"}


def promised(found: Fit, levels: Levels, *, sets: SetKind, pictures: int) -> tuple[str, ...]:
    """Return one sentence per promise; only what the numbers carry is promised.

    Args:
        found: the fitted numbers.
        levels: what was asked for.
        sets: the kind of sets that is shown.
        pictures: how many labelled ones sets and threshold rest on.

    Example:
        >>> numbers = Fit(
        ...     temperature=1, lac=0.75, aps=0.9, threshold=0.6, given=90, wrong=1, bound=0.05
        ... )
        >>> print(promised(numbers, Levels(), sets="lac", pictures=300)[1].split(" (")[0])
        With confidence 95 %, at most 5 % of the answers given
    """
    spoken = (
        f"The prediction set ({KINDS[sets]}) holds the true class for at least "
        f"{100 * levels.coverage:g} % of new pictures, on average over draws of the {pictures} "
        "labelled pictures and of the new ones; not for every class or kind of picture by itself."
    )
    if found.threshold is None:
        return (spoken, nothing_answered(levels))
    return (
        spoken,
        f"With confidence {100 * levels.confidence:g} %, at most {100 * levels.error:g} % of the "
        f"answers given (calibrated confidence {found.threshold:.3f} or more) are wrong; of "
        f"{pictures} labelled pictures {found.given} were answered, {found.wrong} of them wrongly.",
    )


def nothing_answered(levels: Levels) -> str:
    """Say that no threshold keeps what was asked for.

    Example:
        >>> print(nothing_answered(Levels()).split(":")[0])
        No answer is ever given
    """
    return (
        "No answer is ever given: no threshold was shown to keep errors at or below "
        f"{100 * levels.error:g} % with confidence {100 * levels.confidence:g} %; allow more "
        "errors, or label more pictures."
    )


def remarks(first: Labelled, second: Labelled) -> tuple[str, ...]:
    """Return what readers of a promise should know about the labelled pictures.

    Args:
        first: those for the temperature.
        second: those for sets and threshold.

    Example:
        >>> row = Labelled.of(np.log([[0.8, 0.2]]), [0], predictions=[0])
        >>> [text.split(":")[0] for text in remarks(row, row)]
        ['The temperature stays 1', '1 of 2 classes have no labelled picture']
    """
    found = []
    if len(first) < LEAST_FOR_TEMPERATURE:
        found.append(f"The temperature stays 1: {len(first)} pictures are too few to fit it.")
    elif not first.wrong.any() or first.wrong.all():
        which = "wrong" if first.wrong.all() else "right"
        found.append(f"The temperature stays 1: all {len(first)} answers for it are {which}.")
    classes = second.log_probabilities.shape[1]
    absent = classes - len(np.unique(np.concatenate([first.labels, second.labels])))
    if absent:
        found.append(
            f"{absent} of {classes} classes have no labelled picture: new pictures are taken to "
            "show them as seldom."
        )
    return tuple(found)
