"""OnZeta: pseudo-labels balanced over the classes, and class proxies learned from them, online.

For image i with feature f, class weights w (text features at first) and multipliers ρ (0 at first):

    q_c ∝ softmax_c(s f·t) e^{ρ_c}
    v   = softmax(s f·w / 4)
    answer  β_i v + (1 - β_i) q,      β_i = 0.8 √(min(i, n) / n)
    ρ   ← max(0, ρ - 20/√i (q - 1/C))
    w   ← rows of unit length of  w - (s / 8√i) (v - q) fᵀ

The authors write s = 100 (temperatures 0.01 and 0.04) and take n, the length of the stream, as
known. A stream has no length, so n is 50 images for each class: ImageNet's, where both agree.
"""

import math
from typing import NamedTuple

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.zero_shot import class_logits

BETA, LENGTH = 0.8, 50  # LENGTH for each class
DUAL_RATE, PROXY_RATE = 20.0, 0.5
SHARPER = 4.0  # temperature of the proxies, in those of CLIP


class Proxies(NamedTuple):
    weights: Tensor  # (C, D) rows of unit length
    multipliers: Tensor  # (C,) ρ
    seen: Tensor  # () images


def text_proxies(text: Tensor, *, logit_scale: float) -> Proxies:  # noqa: ARG001
    return Proxies(text.clone(), text.new_zeros(len(text)), text.new_zeros(()))


def onzeta_step(
    state: Proxies, views: Tensor, *, text: Tensor, logit_scale: float
) -> tuple[Tensor, Proxies]:
    feature, count = views[0], int(state.seen) + 1
    logits = class_logits(feature, text, logit_scale=logit_scale)
    q = (logits.log_softmax(dim=-1) + state.multipliers).softmax(dim=-1)
    scale = logit_scale / SHARPER
    v = class_logits(feature, state.weights, logit_scale=scale).softmax(dim=-1)
    length = LENGTH * len(text)
    share = BETA * math.sqrt(min(count, length) / length)
    answer = (share * v + (1 - share) * q).clamp_min(1e-30).log()
    rate = DUAL_RATE / math.sqrt(count)
    multipliers = (state.multipliers - rate * (q - 1 / len(text))).clamp_min(0.0)
    step = PROXY_RATE / math.sqrt(count) * scale
    weights = state.weights - (step * (v - q))[:, None] * feature  # (C, D)
    weights = weights / weights.norm(dim=-1, keepdim=True)
    return answer, Proxies(weights, multipliers, state.seen + 1)


ONZETA = Method(
    "onzeta",
    "balanced pseudo-labels and class proxies, online",
    parameter="nothing",
    initial=text_proxies,
    step=onzeta_step,
    original=True,
    look=Look("OnZeta", "#6a51a3", "<", "-", "//"),
)
