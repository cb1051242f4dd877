"""TDA and BoostAdapter: logits corrected by a cache of the most confident images, without labels.

With f the feature of the image, H its entropy in nats and ŷ its zero-shot class, among C:

    z = s f·t + α Σ_{i∈P} e_{ŷ_i} exp(-β(1 - f·f_i)) - α' Σ_{i∈N} m_i exp(-β'(1 - f·f_i))

The positive cache P keeps three images for each ŷ, those of lowest entropy. The negative cache N
keeps two of those with 0.2 < H / ln C < 0.5; m_i marks the classes to which image i gave between
0.03 and 1. The image is entered before it is answered. α = 2, β = 5, α' = 0.117, β' = 1 on every
data set: the authors' values for ImageNet.

`tda:published` is the release. It divides the entropy in nats by log2 C, so that its bounds are
0.29 and 0.72 of the largest entropy, and has α and β for each data set. (On ImageNet's variants
the release also averages 64 views; here it sees the original one.) `tda:views` takes feature and
logits from the mean over the confident views. `boostadapter` enters the 10 % most confident views
of the image itself into a copy of the cache, which serves this image alone.
"""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.memory import (
    Memory,
    Query,
    empty_memory,
    original_query,
    remember,
    views_query,
)
from dtpt.methods.tpt import entropy, select_confident
from dtpt.methods.zero_shot import class_logits

CAPACITY, NEGATIVE_CAPACITY = 3, 2  # images of a class
ALPHA, BETA = 2.0, 5.0
NEGATIVE_ALPHA, NEGATIVE_BETA = 0.117, 1.0
UNSURE = (0.2, 0.5)  # fractions of the largest entropy
MARKED = 0.03
MOST_MARKED = math.floor(1 / MARKED)  # classes of one image with a larger probability
BOOSTED = 0.1  # of the views

PUBLISHED = {
    "caltech101": (5.0, 5.0),
    "dtd": (2.0, 3.0),
    "eurosat": (4.0, 8.0),
    "fgvc_aircraft": (2.0, 2.0),
    "flowers102": (1.0, 5.0),
    "food101": (1.0, 1.0),
    "imagenet": (2.0, 5.0),
    "imagenet_a": (2.0, 5.0),
    "imagenet_r": (1.0, 8.0),
    "imagenet_sketch": (2.363, 7.45),
    "imagenet_v2": (1.0, 8.0),
    "oxford_pets": (2.0, 7.0),
    "stanford_cars": (1.0, 7.0),
    "sun397": (2.0, 3.0),
    "ucf101": (3.0, 8.0),
}
"""α and β of the release, by data set."""


class Caches(NamedTuple):
    positive: Memory
    negative: Memory
    marked: Tensor  # (items of `negative`, MOST_MARKED) classes; C where there are fewer


def empty_caches(text: Tensor, *, logit_scale: float) -> Caches:  # noqa: ARG001
    positive = empty_memory(text, capacity=CAPACITY)
    negative = empty_memory(text, capacity=NEGATIVE_CAPACITY)
    marked = negative.owner.new_full((len(negative.owner), MOST_MARKED), len(text))
    return Caches(positive, negative, marked)


def tda_step(
    state: Caches,
    views: Tensor,
    *,
    text: Tensor,
    logit_scale: float,
    alpha: float = ALPHA,
    beta: float = BETA,
    base: float = math.e,  # of the logarithm in the largest entropy
    query: Query = original_query,
    boosted: float = 0.0,  # fraction of the views that help this image alone
) -> tuple[Tensor, Caches]:
    feature, logits = query(views, text, logit_scale=logit_scale)
    state = _enter(state, feature, logits=logits, largest=math.log(len(text), base))
    positive = state.positive
    if boosted:
        positive = _with_views(positive, views, text=text, logit_scale=logit_scale, part=boosted)
    near = alpha * (-beta * (1 - positive.cosines(feature))).exp()  # (n,)
    logits = logits.index_add(0, positive.owner[: len(near)], near)
    against = (-NEGATIVE_BETA * (1 - state.negative.cosines(feature))).exp()  # (n,)
    marked = state.marked[: len(against)].flatten()
    spread = against[:, None].expand(-1, MOST_MARKED).flatten()
    unlikely = logits.new_zeros(len(logits) + 1).index_add(0, marked, spread)[:-1]  # (C,)
    return logits - NEGATIVE_ALPHA * unlikely, state


def _enter(state: Caches, feature: Tensor, *, logits: Tensor, largest: float) -> Caches:
    uncertainty, label = entropy(logits), int(logits.argmax())
    positive, _ = remember(
        state.positive, feature, label=label, entropy=uncertainty, capacity=CAPACITY
    )
    negative, marked, slot = state.negative, state.marked, None
    if UNSURE[0] < float(uncertainty) / largest < UNSURE[1]:
        negative, slot = remember(
            negative, feature, label=label, entropy=uncertainty, capacity=NEGATIVE_CAPACITY
        )
    if slot is not None:
        p = logits.softmax(dim=-1)
        classes = ((p > MARKED) & (p < 1)).nonzero()[:, 0]
        marked = marked.clone()
        marked[slot] = len(p)
        marked[slot, : len(classes)] = classes
    return Caches(positive, negative, marked)


def _with_views(
    memory: Memory, views: Tensor, *, text: Tensor, logit_scale: float, part: float
) -> Memory:
    logits = class_logits(views, text, logit_scale=logit_scale)  # (N, C)
    for view in select_confident(logits, part):
        memory, _ = remember(
            memory,
            views[view],
            label=int(logits[view].argmax()),
            entropy=entropy(logits[view]),
            capacity=CAPACITY,
        )
    return memory


TDA = Method(
    "tda",
    "online cache of the most confident images",
    parameter="nothing",
    initial=empty_caches,
    step=tda_step,
    original=True,
    look=Look("TDA", "#0b7a75", "v", "-", "xx"),
)
TDA_PUBLISHED = replace(
    TDA,
    name="tda:published",
    summary="TDA as released: entropy over log2, settings for each data set",
    step=partial(tda_step, base=2.0),
    step_of={
        name: partial(tda_step, base=2.0, alpha=alpha, beta=beta)
        for name, (alpha, beta) in PUBLISHED.items()
    },
    look=Look("TDA as released", "#0b7a75", "^", (0, (5, 2)), "xx"),
)
TDA_VIEWS = replace(
    TDA,
    name="tda:views",
    summary="TDA on the mean of the confident views",
    step=partial(tda_step, query=views_query),
    original=False,
    look=Look("TDA on mean of views", "#0b7a75", "h", (0, (1, 1)), "oo"),
)
BOOSTADAPTER = replace(
    TDA,
    name="boostadapter",
    summary="TDA with the image's own confident views in its cache",
    step=partial(tda_step, boosted=BOOSTED),
    original=False,
    look=Look("BoostAdapter", "#5b8c2a", ">", "-", "++"),
)
