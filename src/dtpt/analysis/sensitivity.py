"""Equation (2): how much a prediction changes when one dimension is masked (figure 3a).

    s_m = KL(p_m ‖ q),   q = softmax(τ · T v),   p_m the same with coordinate m set to 0

Setting t_m or v_m to 0 removes the same product t_m v_m from the logit, so without normalising
again there is one chart for both modalities; two charts need the masked side normalised again.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from dtpt.analysis.feature_results import DimensionValue, Masked, Sensitivity
from dtpt.errors import MetricError

MASKED: tuple[Masked, ...] = ("product", "text", "image")
SHOWN = 10
DEFAULT_BYTES = 16 * 2**20
DIMENSIONS_AT_ONCE = 64
_SMALLEST_SQUARE = 1e-12


def sensitivity(
    text: Tensor,
    images: Tensor,
    *,
    logit_scale: float,
    masked: Masked = "product",
    top: int = SHOWN,
    budget_bytes: int = DEFAULT_BYTES,
) -> Sensitivity:
    """Average the sensitivity of every dimension over images.

    Args:
        text: (C, D) unit features of the classes.
        images: (n, D) unit features of the images.
        logit_scale: τ.
        masked: Which side is normalised again after masking, "product" for none.
        top: How many dimensions to name.
        budget_bytes: Size of the largest block in memory.
    """
    _check(text, images)
    words, pictures = text.detach().cpu().double(), images.detach().cpu().double()
    classes, dimensions = words.shape
    columns = max(1, min(dimensions, DIMENSIONS_AT_ONCE, budget_bytes // (8 * classes)))
    rows = max(1, budget_bytes // (8 * classes * columns))
    total = torch.zeros(dimensions, dtype=torch.float64)
    for some in _slices(len(pictures), rows):
        block = pictures[some]
        cosines = block @ words.T  # (n, C)
        for part in _slices(dimensions, columns):
            left = _masked_cosines(words, block, cosines, part=part, masked=masked)
            total[part] += _divergences(logit_scale * left, logit_scale * cosines)
    values = total / len(pictures)
    best = values.argsort(descending=True, stable=True)[:top].tolist()
    return Sensitivity(
        masked=masked,
        images=len(pictures),
        values=tuple(values.tolist()),
        top=tuple(DimensionValue(int(index), float(values[index])) for index in best),
    )


def _check(text: Tensor, images: Tensor) -> None:
    if text.ndim != 2 or images.ndim != 2 or text.shape[1] != images.shape[1]:
        raise MetricError(
            f"Features of shapes {tuple(text.shape)} and {tuple(images.shape)} do not fit."
        )
    if len(text) == 0 or len(images) == 0:
        raise MetricError("There are no features whose sensitivity could be measured.")


def _slices(length: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, length)) for start in range(0, length, width))


def _masked_cosines(
    text: Tensor, images: Tensor, cosines: Tensor, *, part: slice, masked: Masked
) -> Tensor:
    """Cosines (n, d, C) after masking each of the d dimensions of `part`."""
    values = images[:, part]  # (n, d)
    words = text[:, part].T  # (d, C)
    left = cosines[:, None, :] - values[:, :, None] * words  # (n, d, C)
    if masked == "text":
        squares = (text**2).sum(dim=1) - words**2  # (d, C)
        left /= squares.clamp_min(_SMALLEST_SQUARE).sqrt()
    elif masked == "image":
        squares = (images**2).sum(dim=1, keepdim=True) - values**2  # (n, d)
        left /= squares.clamp_min(_SMALLEST_SQUARE).sqrt()[:, :, None]
    return left


def _divergences(masked: Tensor, original: Tensor) -> Tensor:
    """Sum over images of KL(p_m ‖ q), (d,), from logits (n, d, C) and (n, C)."""
    log_q = torch.log_softmax(original, dim=-1)[:, None, :]  # (n, 1, C)
    log_p = torch.log_softmax(masked, dim=-1)
    # rounding can leave a tiny negative number where nothing changes
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).clamp_min(0).sum(dim=0)
