"""TPT: test-time prompt tuning by entropy minimisation (equation 1).

Of the N views keep the ⌊ρN⌋ with the lowest entropy, and minimise the entropy of their mean
prediction:

    L_TPT = H( 1/|K| Σ_{i∈K} p_i ),   H(p) = -Σ_c p_c log p_c

Paper and released code differ: the paper's equation 1 prints the *mean of the entropies*, with ρ
both as a threshold and as a fraction; every released TPT takes the *entropy of the mean* over a
fraction ρ = 0.1. The code's reading is our default; `mean_entropy` is the other.
"""

import math
from collections.abc import Callable

from dtpt.methods.base import EntropyReading, Look, Method, Tensor


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy in nats of softmax over the last axis: (..., C) -> (...)."""
    log_p = at_least_float32(logits).log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


def select_confident(logits: Tensor, fraction: float) -> Tensor:
    """Return the indices of the ⌊fraction·N⌋ views (at least one) of lowest entropy, lowest first.

    The product is rounded down after adding 1e-9, so that 0.29 of 100 views is 29. Released code
    truncates the float product, which differs for such pairs only: never for ρ = 0.1, nor for any
    fraction of 2, 4, 8, ... views.
    """
    kept = max(1, math.floor(fraction * len(logits) + 1e-9))
    return entropy(logits).argsort(stable=True)[:kept]


def marginal_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the mean prediction of the selected views: (K, C) -> scalar."""
    log_p = at_least_float32(logits).log_softmax(dim=-1)
    log_mean = log_p.logsumexp(dim=0) - math.log(len(log_p))
    return -(log_mean.exp() * log_mean).sum()


def mean_entropy(logits: Tensor) -> Tensor:
    """Return the mean of the views' entropies, as equation 1 prints it: (K, C) -> scalar."""
    return entropy(logits).mean()


ENTROPY_LOSSES: dict[EntropyReading, Callable[[Tensor], Tensor]] = {
    "of-mean": marginal_entropy,
    "mean-of": mean_entropy,
}


def at_least_float32(x: Tensor) -> Tensor:
    """Raise half precision: a dimensional entropy in float16 would be off by half."""
    return x if x.dtype.itemsize >= 8 else x.float()


TPT = Method(
    "tpt",
    "entropy minimisation over confident views",
    look=Look("TPT", "#d9612b", "s", (0, (5, 2)), "////"),
)
