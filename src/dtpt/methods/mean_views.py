"""Mean of the confident views: an answer from many views, without a gradient.

    p = 1/|K| Σ_{i∈K} p_i,   K the share s of the views with the lowest entropy

Not in the paper, and not the mean of *features* (that is `vte`). It is a read-out, so any method
may end in it: `tpt+views=0.3` tunes as TPT does and then averages the tuned predictions of 30 % of
the views. `mean-views` is zero-shot read out that way. The share is a dial from over- to
under-confidence: few confident views agree with each other, all views together doubt.
"""

import math
from functools import partial
from typing import TYPE_CHECKING

from dtpt.errors import MethodError
from dtpt.methods.base import Look, Method, Modifier
from dtpt.methods.tpt import at_least_float32, entropy
from dtpt.methods.zero_shot import class_logits

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.3
# what `+views=auto` chooses from, on labelled pictures (`dtpt calibrate`)
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)
AUTO = "+views=auto"


def all_shares(name: str) -> tuple[str, ...]:
    """Return a name with `+views=auto` as one name per share; others as they are.

    Example:
        >>> all_shares("tpt+views=auto")[:2], all_shares("tpt")
        (('tpt+views=0.02', 'tpt+views=0.05'), ('tpt',))
    """
    if AUTO not in name:
        return (name,)
    return tuple(name.replace(AUTO, f"+views={share:g}") for share in SHARES)


def confident_views(logits: "Tensor", share: float) -> "Tensor":
    """Return the indices of the ⌊share·N⌋ views (at least one) with the lowest entropy."""
    kept = max(1, math.floor(share * logits.shape[0] + 1e-9))  # 0.29 · 100 is 29
    return entropy(logits).argsort(stable=True)[:kept]


def mean_of_confident(
    views: "Tensor", text: "Tensor", logit_scale: float, *, share: float = SHARE
) -> "Tensor":
    """Return the log of the mean probability (C,) over the confident share of (N, D) views."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    log_p = logits[confident_views(logits, share)].log_softmax(dim=-1)  # (K, C)
    return log_p.logsumexp(dim=0) - math.log(len(log_p))


def mean_over(share: float) -> Modifier:
    """Return the modifier `+views=<share>`.

    Example:
        >>> mean_over(0.3).name
        'views=0.3'
    """
    if not 0 < share <= 1:
        raise MethodError(f"The share of views must be above 0 and at most 1, got {share:g}.")
    read_out = partial(mean_of_confident, share=share)
    return Modifier(f"views={share:g}", f"mean of {100 * share:g} % of views", read_out=read_out)


MEAN_VIEWS = Method(
    "mean-views",
    "mean probability of the 30 % most confident views",
    parameter="nothing",
    read_out=mean_of_confident,
    look=Look("Mean of views", "#c2357a", "h", "-", "oo"),
)
