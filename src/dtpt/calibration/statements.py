"""What a calibration states, in words: assumption, guarantees, and notes on its labelled images.

`noun` is what clusters are called (drawings, clip groups), or "images" where each image is a
cluster of its own.
"""

import numpy as np

from dtpt.calibration.conformal import FloatArray, least_clusters
from dtpt.calibration.fitting import (
    LEAST_FOR_TEMPERATURE,
    TEMPERATURE_FRACTION,
    Fit,
    LabelledPredictions,
    Scored,
    SetKind,
    Targets,
)
from dtpt.calibration.selective import needed_images, passing_error

OTHERWISE = (
    "On images from another distribution (another camera, style or class frequencies, or objects "
    "outside the class list) nothing is guaranteed: coverage can be lower and errors more "
    "frequent, and the file cannot detect it. Calibrate again on labelled images of that kind."
)


def labelled_text(images: int, clusters: int, *, noun: str) -> str:
    """Return how many labelled images there are, and of how many clusters if they are fewer.

    Example:
        >>> labelled_text(180, 12, noun="drawings"), labelled_text(12, 12, noun="images")
        ('180 labelled images of 12 drawings', '12 labelled images')
    """
    return f"{images:,} labelled images" + (f" of {clusters:,} {noun}" if clusters < images else "")


def assumption(rows: LabelledPredictions, *, noun: str) -> str:
    """Return under which condition the guarantees hold."""
    text = (
        f"New {noun} are exchangeable with the labelled ones: independent draws from one source, "
        "with the same frequencies of classes and difficulties."
    )
    if rows.cluster_count == len(rows):
        return text
    one = noun.removesuffix("s")
    return f"{text} A new image is a random one of its {one}; images of one {one} may be dependent."


def guarantees(
    fitted: Fit, targets: Targets, *, sets: SetKind, tested: LabelledPredictions, noun: str
) -> tuple[str, str]:
    """Return one sentence on coverage and one on errors.

    `tested`: the images behind sets and threshold.
    """
    labelled = labelled_text(len(tested), tested.cluster_count, noun=noun)
    is_clustered = tested.cluster_count < len(tested)
    each = f"a random image of each new {noun.removesuffix('s')}" if is_clustered else ""
    new = f"new images{' of every class' if targets.class_conditional else ''}"
    new += f" ({each})" if each else ""
    but = "" if targets.class_conditional else "; not for every class or kind of image"
    coverage = (
        f"Coverage: the prediction set ({sets.upper()}) contains the true class of at least "
        f"{100 * targets.coverage:g} % of {new}, on average over draws of the {labelled} and of "
        f"the new ones{but}."
    )
    error, level = f"{100 * targets.error:g} %", f"{100 * targets.confidence:g} %"
    if fitted.threshold is None:
        return coverage, (
            f"Always abstains: no threshold has an error rate of at most {error} with confidence "
            f"{level}; allow a larger error, or label more images."
        )
    counted = f"{tested.cluster_count:,} {noun}, one image each," if is_clustered else labelled
    return coverage, (
        f"Errors: with confidence {level}, at most {error} of the accepted predictions (calibrated "
        f"confidence {fitted.threshold:.3f} or more{each and f'; {each}'}) are wrong; of {counted} "
        f"{fitted.accepted} were accepted, {fitted.wrong} of them wrong. The procedure errs in at "
        f"most {100 * (1 - targets.confidence):.3g} % of all calibrations, those without a "
        "threshold included."
    )


def notes(
    first: LabelledPredictions,
    second: LabelledPredictions,
    *,
    fitted: Fit,
    targets: Targets,
    noun: str,
) -> tuple[str, ...]:
    """Return what is special about the labelled images for temperature, and for the rest."""
    found = [_about_temperature(first, targets=targets, noun=noun)]
    classes = second.log_probabilities.shape[1]
    absent = classes - len(np.unique(np.concatenate([first.labels, second.labels])))
    if absent:
        found.append(
            f"{absent} of {classes} classes have no labelled image: they are assumed to be as rare "
            "among new images."
        )
    if isinstance(fitted.lac, tuple) and (full := fitted.lac.count(1.0)):
        found.append(
            f"{full} of {classes} classes are in every set: a limit of their own needs "
            f"{least_clusters(targets.coverage)} {noun} of the class, beside those for the "
            "temperature."
        )
    if fitted.threshold is None:
        early, late = (Scored.of(part, fitted.temperature).confidence for part in (first, second))
        found.append(_passing(early, late, tested=second, level=targets.confidence))
        found.append(_needed(late, second, targets=targets, noun=noun))
    return tuple(filter(None, found))


def _about_temperature(first: LabelledPredictions, *, targets: Targets, noun: str) -> str:
    if targets.temperature is not None:
        return f"The temperature is fixed at {targets.temperature:g}, not fitted."
    if first.cluster_count < LEAST_FOR_TEMPERATURE:
        return f"The temperature stays 1: {first.cluster_count} {noun} are too few to fit it."
    if first.wrong.all() or not first.wrong.any():
        which = "wrong" if first.wrong.all() else "right"
        return f"The temperature stays 1: all {len(first)} predictions for it are {which}."
    return ""


def _passing(
    early: FloatArray, late: FloatArray, *, tested: LabelledPredictions, level: float
) -> str:
    one = tested.chosen
    error = passing_error(early, late[one], wrong=tested.wrong[one], level=level)
    if error is None:
        return "No error rate passes with these labels."
    return (
        f"The smallest error rate that passes with these labels is {100 * error:g} %. Chosen "
        "afterwards it is a description, not a guarantee: for that, label other images and ask for "
        "it beforehand."
    )


def _needed(
    confidence: FloatArray, tested: LabelledPredictions, *, targets: Targets, noun: str
) -> str:
    needed = needed_images(
        confidence,
        tested.wrong,
        weights=tested.weights,
        error=targets.error,
        level=targets.confidence,
    )
    if needed is None:
        return (
            f"No number of labels would reach {100 * targets.error:g} %, by an estimate from the "
            "errors here: the most confident predictions are wrong too often."
        )
    count = float(f"{needed / (1 - TEMPERATURE_FRACTION):.2g}")
    return (
        f"{100 * targets.error:g} % would need roughly {count:,.0f} labelled {noun}, by an "
        "estimate from the errors here."
    )
