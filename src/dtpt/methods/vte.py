"""VTE: the mean *feature* of the confident views, classified once.

    v̄ = 1/|K| Σ_{i∈K} v_i,   p = softmax( τ · t_c · v̄ )

with K the 10 % of the views that have the lowest entropy. No gradient and no text pass. The mean is
not normalised, as in the code of its authors: the less the views agree, the shorter it is and the
lower the confidence. `vte:unit` normalises it, with the same label and a higher confidence. The
authors also average the text features of several templates; here there is one prompt.

A product is linear, so this is also the mean of the *logits* of the confident views, which TTAug
reads out, and DPE and DMN inside. `mean-logits` takes it over as many views as `mean-views`.
"""

from dataclasses import replace
from functools import partial

from dtpt.methods import mean_views
from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32, select_confident
from dtpt.methods.zero_shot import class_logits

FRACTION = 0.1


def mean_feature(
    views: Tensor,
    text: Tensor,
    *,
    logit_scale: float,
    fraction: float = FRACTION,
    is_unit: bool = False,
) -> Tensor:
    """Return the logits (C,) of the mean of the confident (N, D) views."""
    views, text = at_least_float32(views), at_least_float32(text)
    logits = class_logits(views, text, logit_scale=logit_scale)  # (N, C)
    centre = views[select_confident(logits, fraction)].mean(dim=0)  # (D,)
    if is_unit:
        centre = centre / centre.norm().clamp_min(1e-12)
    return class_logits(centre, text, logit_scale=logit_scale)


VTE = Method(
    "vte",
    "mean feature of the 10 % most confident views",
    parameter="nothing",
    read_out=mean_feature,
    look=Look("VTE", "#7a8f2a", ">", (0, (6, 2)), "||"),
)
VTE_UNIT = replace(
    VTE,
    name="vte:unit",
    summary="VTE, mean feature normalised",
    read_out=partial(mean_feature, is_unit=True),
    look=Look("VTE unit", "#a9b868", ">", (0, (1, 3)), "|"),
)
MEAN_LOGITS = Method(
    "mean-logits",
    "mean logits of the 30 % most confident views",
    parameter="nothing",
    read_out=partial(mean_feature, fraction=mean_views.FRACTION),
    look=Look("Mean of logits", "#d8699f", "H", (0, (6, 1)), "o"),
)
