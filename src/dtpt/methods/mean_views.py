"""Mean of the confident views: a prediction from many views, without a gradient.

    p = 1/|K| Σ_{i∈K} p_i,   K a fraction of the views, those with the lowest entropy

Not in the paper, and not the mean of *features* (that is `vte`). It is a read-out, so it combines
with any method: `tpt+views=0.3` tunes as TPT does and then averages the tuned predictions of 30 %
of the views. `mean-views` is zero-shot with this read-out. The fraction moves the prediction from
over- to underconfidence: few confident views agree with each other, all views disagree more.
"""

import math
from functools import partial

from dtpt.errors import MethodError
from dtpt.methods.base import Look, Method, Modifier, Tensor
from dtpt.methods.tpt import at_least_float32, select_confident
from dtpt.methods.zero_shot import class_logits

FRACTION = 0.3
# what `+views=auto` selects from, on labelled images (`dtpt calibrate`)
FRACTIONS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)


def mean_of_confident(
    views: Tensor, text: Tensor, *, logit_scale: float, fraction: float = FRACTION
) -> Tensor:
    """Return the log of the mean probability (C,) over the confident ones of (N, D) views."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    log_p = logits[select_confident(logits, fraction)].log_softmax(dim=-1)  # (K, C)
    return log_p.logsumexp(dim=0) - math.log(len(log_p))


def mean_over(fraction: float) -> Modifier:
    """Return the modifier `+views=<fraction>`."""
    if not 0 < fraction <= 1:
        raise MethodError(f"The fraction of views must be above 0 and at most 1, got {fraction:g}.")
    read_out = partial(mean_of_confident, fraction=fraction)
    title = f"mean of {100 * fraction:g} % of views"
    return Modifier(f"views={fraction:g}", title, read_out=read_out)


MEAN_VIEWS = Method(
    "mean-views",
    "mean probability of the 30 % most confident views",
    parameter="nothing",
    read_out=mean_of_confident,
    look=Look("Mean of views", "#c2357a", "h", "-", "oo"),
)
