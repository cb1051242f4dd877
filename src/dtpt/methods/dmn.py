"""DMN: each class is read from a memory of earlier images, weighted by their likeness to the new.

A memory M_c keeps 50 images that zero-shot takes for class c, those of lowest entropy; the image is
entered before it is answered. With f its feature:

    t'_c   = Σ_{m ∈ M_c ∪ {t_c}} exp(-5.5 (1 - f·m)) m / ‖·‖
    answer = (softmax(s f·t) + softmax(s f·t')) / 2

`dmn` takes the 10 % most confident views together: the mean of their features, and of their logits
in place of s f·t. `dmn-weak` takes the original view alone, `dmn:views` the mean probability of
`mean-views` and the mean feature of the same views.
"""

import math
from dataclasses import replace
from functools import partial

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

CAPACITY = 50
SHARPNESS = 5.5
FRACTION = 0.1


def confident_query(views: Tensor, text: Tensor, *, logit_scale: float) -> tuple[Tensor, Tensor]:
    """Return the mean feature (D,), of unit length, and the mean logits of the confident views."""
    logits = class_logits(views, text, logit_scale=logit_scale)  # (N, C)
    chosen = select_confident(logits, FRACTION)
    mean = views[chosen].mean(dim=0)
    return mean / mean.norm(), logits[chosen].mean(dim=0)


def class_memory(text: Tensor, *, logit_scale: float) -> Memory:  # noqa: ARG001
    return empty_memory(text, capacity=CAPACITY)


def dmn_step(
    state: Memory, views: Tensor, *, text: Tensor, logit_scale: float, query: Query
) -> tuple[Tensor, Memory]:
    feature, logits = query(views, text, logit_scale=logit_scale)
    state, _ = remember(
        state, feature, label=int(logits.argmax()), entropy=entropy(logits), capacity=CAPACITY
    )
    read = _read(state, feature, text=text)  # (C, D)
    adapted = class_logits(feature, read, logit_scale=logit_scale)
    pair = logits.log_softmax(dim=-1).logaddexp(adapted.log_softmax(dim=-1))
    return pair - math.log(2), state


def _read(memory: Memory, feature: Tensor, *, text: Tensor) -> Tensor:
    """Return the class features (C, D) that a feature (D,) sees in the memory."""
    read = _weights(text @ feature)[:, None] * text
    memory.add_to(read, _weights(memory.cosines(feature)))
    lengths: Tensor = read.norm(dim=-1, keepdim=True)
    return read / lengths


def _weights(cosines: Tensor) -> Tensor:
    return (-SHARPNESS * (1 - cosines)).exp()


DMN = Method(
    "dmn",
    "class features read from a memory of confident views",
    parameter="nothing",
    initial=class_memory,
    step=partial(dmn_step, query=confident_query),
    look=Look("DMN", "#b8860b", "D", "-", "\\\\"),
)
DMN_WEAK = replace(
    DMN,
    name="dmn-weak",
    summary="class features read from a memory of original views",
    step=partial(dmn_step, query=original_query),
    original=True,
    look=Look("DMN-weak", "#b8860b", "d", (0, (5, 2)), "\\\\"),
)
DMN_VIEWS = replace(
    DMN,
    name="dmn:views",
    summary="class features read from a memory of means of confident views",
    step=partial(dmn_step, query=views_query),
    look=Look("DMN on mean of views", "#b8860b", "8", (0, (1, 1)), "\\\\"),
)
