"""TPT: test-time prompt tuning by entropy minimisation (equation 1).

Of the N views keep the ⌊ρN⌋ with the lowest entropy, and minimise the entropy of their mean
prediction:

    L_TPT = H( 1/|K| Σ_{i∈K} p_i ),   H(p) = -Σ_c p_c log p_c

Paper and released code differ: the paper's equation 1 prints the *mean of the entropies*, with ρ
both as a threshold and as a share; every released TPT takes the *entropy of the mean* over a share
ρ = 0.1. The code's reading is our default; `mean_entropy` is the other.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from dtpt.methods.base import Method

EntropyReading = Literal["of-mean", "mean-of"]


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of softmax over the last axis: (..., C) -> (...)."""
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


def select_confident(logits: Tensor, rho: float) -> Tensor:
    """Indices of the ⌊ρN⌋ views (at least one) with the lowest entropy, lowest first."""
    kept = max(1, int(logits.shape[0] * rho))
    return torch.argsort(entropy(logits), stable=True)[:kept]


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean prediction of the selected views: (K, C) -> scalar."""
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1)
    log_mean = torch.logsumexp(log_p, dim=0) - torch.tensor(float(len(log_p))).log()
    return -(log_mean.exp() * log_mean).sum()


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean of the entropies of the selected views, as equation 1 prints it: (K, C) -> scalar."""
    return entropy(logits).mean()


ENTROPY_LOSSES: dict[EntropyReading, Callable[[Tensor], Tensor]] = {
    "of-mean": marginal_entropy,
    "mean-of": mean_entropy,
}


def at_least_float32(x: Tensor) -> Tensor:
    """Losses never run in half precision: DEM would be off by half (reliability.md, section 2)."""
    return x if x.dtype == torch.float64 else x.float()


TPT = Method("tpt", "entropy minimisation over confident views")
