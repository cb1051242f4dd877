"""Null controls: regularisers that win as many signs as random directions, and smaller steps.

λ of every regulariser is selected, without labels, so that it wins the same fraction of the signs
of the first step. Then two controls show whether the *direction* of a regulariser matters. A fixed
random direction that wins as many signs takes as much of TPT's step away. And TPT with smaller
learning rates traces a curve from zero-shot to TPT in the plane of accuracy and overconfidence: a
regulariser that does more than to shorten the step lies above it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from dtpt.analysis.study import Design, Folder, Names, Part, Pooled, StudyOptions, Variant
from dtpt.errors import MethodError, MetricError
from dtpt.methods import AutoLambda, parse_label, resolve_method, shift_label
from dtpt.metrics import PooledPredictions, draw_metrics
from dtpt.metrics.comparison import corrected_level
from dtpt.options import Listed
from dtpt.tables import signed_text

RANDOM = ("random-tpt", "random-tpt:1")
CURVE = "smaller steps"
RESAMPLES = 2000

Quantile = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ControlsOptions(StudyOptions):
    """The options of `dtpt analyze controls`."""

    method: Annotated[
        Names, Field(description="Methods with a regulariser, comma-separated, without @.")
    ] = ("c-tpt", "o-tpt", "a-tpt", "d-tpt", "d-tpt:aligned")
    quantiles: Annotated[
        tuple[Quantile, ...],
        Listed,
        Field(
            min_length=1,
            description="Fractions of the first step's signs that every regulariser shall win.",
        ),
    ] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
    rates: Annotated[
        tuple[Rate, ...],
        Listed,
        Field(min_length=1, description="Smaller learning rates of TPT, which trace the curve."),
    ] = (0.0005, 0.001, 0.002, 0.003)
    output: Folder = Path("runs/controls")


def curve_methods(options: ControlsOptions) -> tuple[str, ...]:
    """Return zero-shot, TPT with smaller steps, and TPT."""
    rates, plain = sorted(set(options.rates)), options.plain
    return ("zero-shot", *(f"{plain}+lr={rate:g}" for rate in rates), plain)


def random_methods(options: ControlsOptions) -> tuple[str, ...]:
    return tuple(map(shift_label, RANDOM)) if options.shift else RANDOM


def regularisers(options: ControlsOptions) -> dict[str, tuple[str, float]]:
    """Return method and quantile of every regulariser, by its label.

    Example:
        >>> print(*regularisers(ControlsOptions(dataset="x", method="c-tpt", quantiles=0.9)))
        c-tpt@auto=0.9 random-tpt@auto=0.9 random-tpt:1@auto=0.9
    """
    names = dict.fromkeys((*options.method, *random_methods(options)))
    for name in names:
        if parse_label(name).rule or not resolve_method(name).method.is_regularised:
            raise MethodError(f"{name}: name a method with a regulariser, without @.")
    return {
        str(parse_label(name).with_lambda(AutoLambda(quantile))): (name, quantile)
        for quantile in sorted(set(options.quantiles))
        for name in names
    }


def plan(options: ControlsOptions) -> list[Part]:
    methods = (*curve_methods(options), *regularisers(options))
    return [Part("equal-signs", methods, options.views, options.rho)]


def variants(options: ControlsOptions, pooled: Pooled) -> dict[str, Variant]:
    """Return the curve, and every regulariser beside the random directions of its quantile."""
    by_label = {label: predictions for (_, label), predictions in pooled.items()}
    curve, methods, plain = curve_methods(options), regularisers(options), options.plain
    controls = random_methods(options)
    distances = curve_distances(curve, {name: by_label[name] for name in (*curve, *methods)})
    rows = {name: Variant(CURVE, {"method": name}, by_label[name]) for name in curve}
    # how far above the curve TPT's accuracy at zero-shot's gap would be
    rows[plain] = replace(rows[plain], further=("zero-shot",))
    for label, (name, quantile) in methods.items():
        is_random = name in controls
        facts = {"method": name, "quantile": quantile, "is_random": is_random}
        facts["above_curve"] = distances[label]
        group = f"{100 * quantile:g} % of the first step's signs won"
        random = [k for k, (n, q) in methods.items() if q == quantile and n in controls]
        further = () if is_random else tuple(random)
        rows[label] = Variant(group, facts, by_label[label], further=further)
    return rows


@dataclass(frozen=True)
class CurveDistance:
    """Accuracy minus what a smaller step reaches at the same signed gap."""

    value: float
    low: float
    high: float
    level: float  # of the interval, after the correction for the number of methods
    inside: bool  # whether the curve reaches this signed gap; beyond its ends the end counts
    detectable: float  # distance that would be significant with a probability of 80 %

    def __str__(self) -> str:
        half = 100 * (self.high - self.low) / 2
        found = "*" if self.low > 0 or self.high < 0 else f" ({100 * self.detectable:.1f})"
        return f"{signed_text(100 * self.value, 1)} ±{half:.1f}{found}{'' if self.inside else '†'}"


def curve_distances(
    curve: Sequence[str], methods: Mapping[str, PooledPredictions], *, resamples: int = RESAMPLES
) -> dict[str, CurveDistance]:
    """Measure how far methods lie above the curve that smaller steps trace.

    The distance is measured at the method's own signed gap, along a straight line between the
    neighbouring points of the curve. Intervals come from drawing images again, the same draws for
    the curve and for the methods, at a level that holds for all methods at once.

    Args:
        curve: Names of zero-shot, TPT with smaller learning rates, and TPT.
        methods: The points of the curve and what is compared with it, on the same images.
        resamples: Draws of the images.
    """
    others = [name for name in methods if name not in curve]
    if len(curve) < 2 or not others:
        raise MetricError("A curve needs two points, and a method to compare with it.")
    generator, metrics = np.random.default_rng(0), ("accuracy", "signed_gap")
    drawn = draw_metrics(methods, generator=generator, metrics=metrics, resamples=resamples)
    values = {
        name: [np.concatenate([[d.estimate], d.draws]) for d in by_metric.values()]
        for name, by_metric in drawn.items()
    }  # accuracy and signed gap, the estimate before the draws
    heights, gaps = (np.stack([values[name][k] for name in curve], axis=1) for k in (0, 1))
    order = np.argsort(gaps, axis=1, kind="stable")
    heights, gaps = (np.take_along_axis(column, order, axis=1) for column in (heights, gaps))
    level, distances = corrected_level(0.95, len(others)), {}
    for name in others:
        accuracy, gap = values[name]
        above = accuracy - [np.interp(*row) for row in zip(gap, gaps, heights, strict=True)]
        apart = replace(drawn[name]["accuracy"], estimate=float(above[0]), draws=above[1:])
        ends = apart.interval(level)  # quantiles of draws do not reach the corrected level
        distances[name] = CurveDistance(
            ends.estimate,
            ends.low,
            ends.high,
            level,
            inside=bool(gaps[0, 0] <= gap[0] <= gaps[0, -1]),
            detectable=ends.detectable,
        )
    return distances


CONTROLS = Design(
    "controls",
    plan,
    variants,
    heads={"method": "method", "above_curve": "above curve %"},
    legend="Differences are those to a random direction that wins as many signs. Above curve: "
    "accuracy minus what a smaller step reaches at the same gap, corrected for all rows; † the "
    "curve does not reach that gap.",
)
