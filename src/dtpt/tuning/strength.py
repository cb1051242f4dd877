"""λ without labels: how large it must be for a regulariser to win a share of the signs.

The first AdamW step from an empty state follows the signs of g = g_entropy + λ g_R. R wins a
coordinate when both gradients agree there anyway, or when λ exceeds |g_entropy| / |g_R|. The share
of signs won is therefore the distribution function of that ratio, and λ is one of its quantiles.
"""

import math

import torch
from torch import Tensor

# what makes a strict inequality of a quantile: λ slightly above the ratio
ABOVE = 1 + 1e-6


def sign_thresholds(entropy: Tensor, regulariser: Tensor) -> Tensor:
    """Return the smallest λ with which the regulariser decides each coordinate's sign.

    Zero where both gradients agree, infinite where the regulariser has none. Both have one shape;
    the result is flat, in float64 on the CPU.
    """
    ours, theirs = (g.detach().cpu().double().flatten() for g in (regulariser, entropy))
    ratio = theirs.abs() / ours.abs()  # inf for 0 in ours, nan for 0 in both
    agree = ours.sign() == theirs.sign()
    return torch.where(ours == 0, math.inf, torch.where(agree, 0.0, ratio))


def weight_for_share(thresholds: Tensor, share: float) -> float:
    """Return the smallest λ that wins at least `share` of the signs; 0 if it needs none.

    Where part of the regulariser's gradient is zero, the share is of what can be won.

    Example:
        >>> round(weight_for_share(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.75), 3)
        2.0
    """
    finite = thresholds[torch.isfinite(thresholds)].sort().values
    if len(finite) == 0:
        return 0.0
    index = min(len(finite), max(1, math.ceil(share * len(finite) - 1e-9))) - 1
    return float(finite[index]) * ABOVE


def share_won(thresholds: Tensor, weight: float) -> float:
    """Return the share of all signs that a regulariser of this weight decides or agrees with."""
    won = (thresholds == 0) | (thresholds < weight)
    return float(won.double().mean())
