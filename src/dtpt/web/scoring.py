"""Metrics of a CSV that somebody sends: numbers, bins for a picture, one sentence."""

import math

from dtpt.metrics import (
    METRICS,
    Conventions,
    Predictions,
    calibrated_band,
    calibration_verdict,
    reliability_bins,
    score,
)
from dtpt.metrics.prediction_files import parse_predictions
from dtpt.web.schemas import Bin, MetricValue, ScoreAnswer


def score_csv(data: bytes, *, bins: int) -> ScoreAnswer:
    r"""Score predictions: columns confidence and correct, or p0, p1, ... and label.

    Raises:
        MetricError: the message names line and column.

    Example:
        >>> answer = score_csv(b"confidence,correct\n0.9,true\n0.6,false\n", bins=10)
        >>> answer.count, answer.metrics[0].key, answer.metrics[0].value
        (2, 'accuracy', 0.5)
    """
    predictions = parse_predictions(data, name="The file")
    conventions = Conventions(bins=bins)
    values = score(predictions, conventions)
    return ScoreAnswer(
        count=len(predictions.confidence),
        verdict=calibration_verdict(predictions, conventions),
        metrics=[
            MetricValue(
                key=key,
                heading=METRICS[key].heading,
                value=value,
                text=METRICS[key].text(value),
                unit=METRICS[key].unit,
                meaning=METRICS[key].meaning,
                higher_is_better=METRICS[key].higher_is_better,
            )
            for key, value in values.items()
        ],
        bins=_bins(predictions, bins),
    )


def _bins(predictions: Predictions, bins: int) -> list[Bin]:
    data = reliability_bins(predictions.confidence, predictions.correct, bins=bins)
    band = calibrated_band(predictions.confidence, bins)
    return [
        Bin(
            low=float(data.edges[place]),
            high=float(data.edges[place + 1]),
            count=int(data.count[place]),
            confidence=_number(data.mean_confidence[place]),
            accuracy=_number(data.accuracy[place]),
            chance_low=_number(band.low[place]),
            chance_high=_number(band.high[place]),
        )
        for place in range(bins)
    ]


def _number(value: float) -> float | None:
    """Return a number for JSON, which knows no NaN."""
    return None if math.isnan(value) else float(value)
