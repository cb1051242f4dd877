"""Null controls: regularisers at equal strength, beside random directions and smaller steps.

λ of every regulariser is chosen, without labels, so that it wins the same share of the signs of the
first step. Then two controls tell whether the *direction* of a regulariser matters. A fixed random
direction of the same strength takes as much of TPT's step away. And TPT with smaller learning rates
traces a curve from zero-shot to TPT in the plane of accuracy and overconfidence: a regulariser that
does more than to shorten the step lies above it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtpt.analysis.controls_options import ControlsOptions
from dtpt.analysis.estimates import MEASURED, differences
from dtpt.analysis.study_runs import FamilyAnswers, Part, StudyOrigin, run_parts
from dtpt.analysis.tradeoff import CurveDistance, curve_distances
from dtpt.errors import MethodError
from dtpt.methods import AutoLambda, parse_label, resolve_method
from dtpt.metrics import Comparison, Estimate, PooledPredictions
from dtpt.metrics.comparison import estimates

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset

RANDOM = ("random-tpt", "random-tpt:1")
ENDS = ("zero-shot", "tpt")
PART = "equal-strength"


@dataclass(frozen=True)
class CurvePoint:
    """A point of the curve that smaller steps trace: zero-shot, TPT with some step, TPT."""

    method: str
    estimates: dict[str, Estimate]


@dataclass(frozen=True)
class StrengthRow:
    """One regulariser at one strength.

    Attributes:
        method: its name.
        strength: share of the first step's signs that it wins.
        is_random: whether it is a null control.
        estimates: metrics by key.
        above_curve: how far it lies above the curve of smaller steps.
        to_random: differences to each random direction of the same strength.
    """

    method: str
    strength: float
    is_random: bool
    estimates: dict[str, Estimate]
    above_curve: CurveDistance
    to_random: tuple[Comparison, ...]


@dataclass(frozen=True)
class FamilyControls:
    """The controls on the pictures of one family."""

    family: str
    sets: tuple[tuple[str, int], ...]
    curve: tuple[CurvePoint, ...]
    rows: tuple[StrengthRow, ...]


@dataclass(frozen=True)
class ControlStudy:
    """Regularisers at equal strength beside their null controls."""

    origin: StudyOrigin
    families: tuple[FamilyControls, ...]


def study_controls(
    options: ControlsOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> ControlStudy:
    """Evaluate regularisers at equal strength with their null controls, and compare.

    Args:
        options: what to compare, and where to store the run.
        model: used instead of loading `options.model`.
        datasets: used instead of loading `options.dataset`.
    """
    part = Part(PART, control_methods(options), options.views, options.rho)
    origin, families = run_parts(options, [part], model=model, datasets=datasets)
    return ControlStudy(origin, tuple(_study_family(family, options) for family in families))


def control_methods(options: ControlsOptions) -> tuple[str, ...]:
    """Return everything that is evaluated, as typed.

    Example:
        >>> chosen = ControlsOptions(dataset="x", method="c-tpt", strengths=0.9, rates=0.001)
        >>> print(*control_methods(chosen))
        zero-shot tpt+lr=0.001 tpt c-tpt@auto=0.9 random-tpt@auto=0.9 random-tpt:1@auto=0.9
    """
    return (*curve_methods(options), *_at_strengths(options))


def curve_methods(options: ControlsOptions) -> tuple[str, ...]:
    """Return zero-shot, TPT with smaller steps, and TPT."""
    first, last = ENDS
    return (first, *(f"tpt+lr={rate:g}" for rate in sorted(set(options.rates))), last)


def _at_strengths(options: ControlsOptions) -> dict[str, tuple[str, float]]:
    """Return name and strength of every regulariser, by what is typed for both."""
    names = dict.fromkeys((*options.method, *RANDOM))
    for name in names:
        if parse_label(name).rule or not resolve_method(name).method.is_regularised:
            raise MethodError(f"{name} cannot be given a strength: name a regulariser without @.")
    return {
        str(parse_label(name).with_lambda(AutoLambda(strength))): (name, strength)
        for strength in sorted(set(options.strengths))
        for name in names
    }


def _study_family(family: FamilyAnswers, options: ControlsOptions) -> FamilyControls:
    answers = {key.label: found for key, found in family.answers.items()}
    curve = {name: answers[name] for name in curve_methods(options)}
    typed = _at_strengths(options)
    distances = curve_distances(
        list(curve.values()),
        {name: answers[name] for name in typed},
        generator=np.random.default_rng(0),
    )
    to_random = _to_random(answers, typed)
    return FamilyControls(
        family=family.title,
        sets=family.sets,
        curve=tuple(CurvePoint(name, estimates(found, MEASURED)) for name, found in curve.items()),
        rows=tuple(
            StrengthRow(
                *typed[one.method],
                is_random=typed[one.method][0] in RANDOM,
                estimates=estimates(answers[one.method], MEASURED),
                above_curve=one,
                to_random=to_random.get(one.method, ()),
            )
            for one in distances
        ),
    )


def _to_random(
    answers: Mapping[str, PooledPredictions], typed: Mapping[str, tuple[str, float]]
) -> dict[str, tuple[Comparison, ...]]:
    """Compare every regulariser with the random directions of its strength, by what is typed.

    The intervals are corrected for all comparisons of one strength.
    """
    found: dict[str, tuple[Comparison, ...]] = {}
    for strength in dict.fromkeys(strength for _, strength in typed.values()):
        own = [name for name, (_, its) in typed.items() if its == strength]
        random = [name for name in own if typed[name][0] in RANDOM]
        pairs = [(name, other) for name in own if name not in random for other in random]
        compared = differences({name: answers[name] for name in own}, pairs)
        for name, other in pairs:
            found[name] = (*found.get(name, ()), *compared[name, other])
    return found
