"""Calibration after the fact, on logits: temperature scaling and SaLS.

Temperature scaling divides the logits by one number T, fixed (1.16 for ViT and 1.15 for ResNet in
C-TPT's code, written `+ts=1.16`) or fitted on labelled data. SaLS stretches or shrinks each image's
tuned logits so that their range equals that of the zero-shot logits of the same image.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dtpt.errors import MethodError
from dtpt.methods.base import Modifier

FIT_STEPS = 100


def scale_temperature(logits: Tensor, zero_shot: Tensor, *, temperature: float) -> Tensor:
    """Logits divided by a temperature; above 1 lowers confidence, the prediction stays."""
    del zero_shot
    return logits / temperature


def scale_to_zero_shot_range(logits: Tensor, zero_shot: Tensor) -> Tensor:
    """SaLS: map the logits' minimum and maximum onto those of the zero-shot logits, linearly."""
    low, high = logits.amin(-1, keepdim=True), logits.amax(-1, keepdim=True)
    target_low, target_high = zero_shot.amin(-1, keepdim=True), zero_shot.amax(-1, keepdim=True)
    span = (high - low).clamp_min(torch.finfo(logits.dtype).tiny)
    return (logits - low) / span * (target_high - target_low) + target_low


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T > 0 that minimises the mean negative log-likelihood of (N, C) labelled logits.

    The loss is convex in 1/T, so L-BFGS on log T finds its only minimum.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(labels) == 0:
        raise MethodError(
            f"Temperature needs (N, C) logits and (N,) labels, got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}."
        )
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=FIT_STEPS, line_search_fn="strong_wolfe")
    wide = logits.detach().double()

    def negative_log_likelihood() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(wide / log_t.exp(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(negative_log_likelihood)  # type: ignore[no-untyped-call]
    return math.exp(float(log_t.detach()))


def temperature(value: float) -> Modifier:
    """The modifier `+ts=<value>`."""
    if not (math.isfinite(value) and value > 0):
        raise MethodError(f"A temperature must be a positive number, got {value}.")
    return Modifier(f"ts={value:g}", logits=partial(scale_temperature, temperature=value))


SALS = Modifier("sals", logits=scale_to_zero_shot_range)
