"""Equation (2): how much a prediction changes when one dimension is masked (figure 3a).

    s_m = KL(p_m ‖ q),   q = softmax(τ · T v),   p_m the same with coordinate m set to 0

Setting t_m or v_m to 0 removes the same product t_m v_m from the logit, so without normalising
again there is one chart for both modalities; two charts need the masked side normalised again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtpt.errors import MetricError

if TYPE_CHECKING:
    from torch import Tensor

Masked = Literal["product", "text", "image"]
MASKED: tuple[Masked, ...] = ("product", "text", "image")
TOP = 10
DEFAULT_BYTES = 16 * 2**20
DIMENSIONS_AT_ONCE = 64
SMALLEST_SQUARE = 1e-12


@dataclass(frozen=True)
class Sensitivity:
    """KL(p_m ‖ q) in nats, averaged over images, for every dimension m."""

    masked: Masked  # the side that is normalised again after masking; "product" for none
    images: int
    values: tuple[float, ...]  # (D)
    top: tuple[tuple[int, float], ...]  # dimensions with the largest values, largest first


def sensitivity(
    text: "Tensor",
    images: "Tensor",
    *,
    logit_scale: float,
    masked: Masked = "product",
    budget_bytes: int = DEFAULT_BYTES,
) -> Sensitivity:
    """Average the sensitivity of every dimension over images.

    Text (C, D) and images (n, D) are unit vectors; `budget_bytes` bounds a block in memory.
    """
    if text.ndim != 2 or images.ndim != 2 or text.shape[1] != images.shape[1]:
        shapes = f"{tuple(text.shape)} and {tuple(images.shape)}"
        raise MetricError(f"Features of shapes {shapes} do not fit.")
    if len(text) == 0 or len(images) == 0:
        raise MetricError("There are no features whose sensitivity could be measured.")
    words, vectors = text.detach().cpu().double(), images.detach().cpu().double()
    classes, dimensions = words.shape
    columns = max(1, min(dimensions, DIMENSIONS_AT_ONCE, budget_bytes // (8 * classes)))
    rows = max(1, budget_bytes // (8 * classes * columns))
    total = words.new_zeros(dimensions)
    for some in _slices(len(vectors), rows):
        block = vectors[some]
        cosines = block @ words.T  # (n, C)
        for part in _slices(dimensions, columns):
            left = _masked_cosines(words, block, cosines=cosines, part=part, masked=masked)
            total[part] += _divergences(logit_scale * left, logit_scale * cosines)
    values = total / len(vectors)
    best = values.argsort(descending=True, stable=True)[:TOP].tolist()
    top = tuple((index, float(values[index])) for index in best)
    return Sensitivity(masked, len(vectors), tuple(values.tolist()), top)


def _slices(length: int, width: int) -> Iterator[slice]:
    return (slice(start, min(start + width, length)) for start in range(0, length, width))


def _masked_cosines(
    text: "Tensor", images: "Tensor", *, cosines: "Tensor", part: slice, masked: Masked
) -> "Tensor":
    """Return the cosines (n, d, C) after masking each of the d dimensions of `part`."""
    values = images[:, part]  # (n, d)
    words = text[:, part].T  # (d, C)
    left = cosines[:, None, :] - values[:, :, None] * words  # (n, d, C)
    if masked == "text":
        squares = (text**2).sum(dim=1) - words**2  # (d, C)
        left /= squares.clamp_min(SMALLEST_SQUARE).sqrt()
    elif masked == "image":
        squares = (images**2).sum(dim=1, keepdim=True) - values**2  # (n, d)
        left /= squares.clamp_min(SMALLEST_SQUARE).sqrt()[:, :, None]
    return left


def _divergences(masked: "Tensor", original: "Tensor") -> "Tensor":
    """Sum KL(p_m ‖ q) over images, (d,), from logits (n, d, C) and (n, C)."""
    log_q = original.log_softmax(dim=-1)[:, None, :]  # (n, 1, C)
    log_p = masked.log_softmax(dim=-1)
    # rounding can leave a tiny negative number where nothing changes
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).clamp_min(0).sum(dim=0)
