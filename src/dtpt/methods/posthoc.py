"""Calibration after the fact, on logits: temperature scaling and SaLS.

Temperature scaling divides the logits by one number T, fixed (1.16 for ViT and 1.15 for ResNet in
C-TPT's code, written `+ts=1.16`) or fitted on labelled data (`dtpt calibrate`). SaLS stretches or
shrinks each image's tuned logits so that their range equals that of the zero-shot logits of the
same image.
"""

import math
from functools import partial

from dtpt.errors import MethodError
from dtpt.methods.base import Modifier, Tensor

SMALLEST_SPAN = 1e-30


def scale_temperature(logits: Tensor, zero_shot: Tensor, *, temperature: float) -> Tensor:
    """Return logits divided by a temperature; above 1 lowers confidence, the prediction stays."""
    del zero_shot
    return logits / temperature


def scale_to_zero_shot_range(logits: Tensor, zero_shot: Tensor) -> Tensor:
    """Return SaLS: the logits' minimum and maximum mapped onto those of zero-shot, linearly."""
    low, high = logits.amin(-1, keepdim=True), logits.amax(-1, keepdim=True)
    target_low, target_high = zero_shot.amin(-1, keepdim=True), zero_shot.amax(-1, keepdim=True)
    span = (high - low).clamp_min(SMALLEST_SPAN)
    return (logits - low) / span * (target_high - target_low) + target_low


def temperature(value: float) -> Modifier:
    """Return the modifier `+ts=<value>`."""
    if not (math.isfinite(value) and value > 0):
        raise MethodError(f"A temperature must be a positive number, got {value}.")
    scale = partial(scale_temperature, temperature=value)
    return Modifier(f"ts={value:g}", f"T = {value:g}", logits=scale)


SALS = Modifier("sals", "SaLS", logits=scale_to_zero_shot_range)
